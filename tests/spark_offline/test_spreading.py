"""Even spreading by weight, with the fewest moves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.act.spreading import Place, even_moves, moves_away

EXECUTORS = ["1", "2", "3"]


def places(*executors: str | None, operator: int = 0) -> dict[Place, str | None]:
    return {Place(operator=operator, partition=i): e for i, e in enumerate(executors)}


def after(before: dict[Place, str | None], moves: dict[Place, str]) -> dict[Place, str | None]:
    return {**before, **moves}


def test_a_new_executor_gets_its_share_with_the_fewest_moves() -> None:
    before = places("1", "1", "1", "2", "2", "2")
    moves = even_moves(before, EXECUTORS)
    assert len(moves) == 2
    assert Counter(after(before, moves).values()) == {"1": 2, "2": 2, "3": 2}


def test_what_is_even_stays() -> None:
    assert even_moves(places("1", "2", "3", "1"), EXECUTORS) == {}


def test_weights_count_not_numbers() -> None:
    before = places("1", "1", "1", "1", "2")
    weights = {p: 4.0 if p.partition == 4 else 1.0 for p in before}
    assert even_moves(before, ["1", "2"], weights) == {}
    assert even_moves(before, ["1", "2"]) != {}


def test_each_operator_is_spread_by_itself() -> None:
    before = places("1", "1", "1") | places("2", "2", "2", operator=1)
    spread = after(before, even_moves(before, EXECUTORS))
    for operator in (0, 1):
        assert sorted(str(e) for p, e in spread.items() if p.operator == operator) == EXECUTORS


def test_leaving_executors_hand_over_to_the_lightest() -> None:
    before = places("1", "1", "2", "3", "3", "3")
    moves = moves_away(before, {"3"}, {"1", "2"})
    assert set(moves) == {p for p, e in before.items() if e == "3"}
    assert Counter(after(before, moves).values()) == {"1": 3, "2": 3}
    assert moves_away(before, {"3"}, set()) == {}


AT = st.lists(st.sampled_from(["1", "2", "3", "gone", None]), min_size=1, max_size=30)


@given(AT)
def test_equal_weights_end_within_one_and_again_is_nothing(at: list[str | None]) -> None:
    before = places(*at)
    moves = even_moves(before, EXECUTORS)
    spread = after(before, moves)
    counts = [list(spread.values()).count(e) for e in EXECUTORS]
    assert sum(counts) == len(before)
    assert max(counts) - min(counts) <= 1
    assert even_moves(spread, EXECUTORS) == {}
    # No spreading of these needs fewer: only what is in surplus or without a home has moved.
    had = [at.count(e) for e in EXECUTORS]
    low, more = divmod(len(at), len(EXECUTORS))
    stay = sum(min(h, low + (i < more)) for i, h in enumerate(sorted(had, reverse=True)))
    assert len(moves) == len(at) - stay


@given(AT, st.data())
def test_weights_never_make_it_worse(at: list[str | None], data: st.DataObject) -> None:
    before = {p: e if e in EXECUTORS else "1" for p, e in places(*at).items()}
    weights = {p: data.draw(st.floats(0.1, 10.0)) for p in before}

    def heaviest(where: dict[Place, str | None]) -> float:
        return max(sum(weights[p] for p, at in where.items() if at == e) for e in EXECUTORS)

    assert heaviest(after(before, even_moves(before, EXECUTORS, weights))) <= heaviest(before) + 1e-9
