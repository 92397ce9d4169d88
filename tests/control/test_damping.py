"""Rests, delayed shrinking and bands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.damping import Damping, DampingMemory, damp, rest
from penstock.dataflow import OperatorId
from penstock.policies.actions import Acquire, Action, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.testing import a_dataflow, a_snapshot
from penstock.testing.builders import TWO_WAYS

WHY = Reason(code="test")
WORK = OperatorId("work")
FLOW = a_dataflow(alternates=TWO_WAYS)


def at(time_s: float, keep: float = 1.0) -> Snapshot:
    return a_snapshot(FLOW, time_s=time_s, keep={"events": keep})


def scale(current: int, target: int) -> Scale:
    return Scale(reason=WHY, operator=WORK, current=current, target=target)


def run(actions: dict[float, Action | None], options: Damping) -> dict[float, str | int]:
    """For each time, the target carried out, or why not."""
    memory, trace = DampingMemory(), {}
    for time_s, action in actions.items():
        proposal = Proposal(policy="p", actions=() if action is None else (action,))
        damped = damp([proposal], at(time_s), memory, options)
        done = damped.proposals[0].actions
        memory = rest(damped.memory, done, at(time_s), options)
        codes = [w.reason.code for w in damped.withheld]
        trace[time_s] = getattr(done[0], "target", "done") if done else codes[0] if codes else "-"
    return trace


def test_after_a_scale_up_two_cycles_of_rest() -> None:
    wanted = {5.0: scale(2, 3), 10.0: scale(3, 4), 15.0: scale(3, 2), 20.0: scale(3, 5), 25.0: None}
    assert run(wanted, Damping()) == {5.0: 3, 10.0: "cooling-down", 15.0: "cooling-down", 20.0: 5, 25.0: "-"}


def test_after_a_scale_down_none() -> None:
    assert run({5.0: scale(4, 3), 10.0: scale(3, 2), 15.0: scale(2, 6)}, Damping()) == {
        5.0: 3,
        10.0: 2,
        15.0: 6,
    }


@given(st.floats(-0.4, 0.4), st.integers(0, 5))
def test_a_rest_lasts_its_cycles_whatever_the_jitter(jitter: float, cycles: int) -> None:
    times = [5.0, *(5.0 + 5 * i + jitter * 5 for i in range(1, cycles + 2))]
    trace = run({t: scale(2, 3 + i) for i, t in enumerate(times)}, Damping(rest_after_growth=cycles))
    assert [v == "cooling-down" for v in trace.values()] == [False, *[True] * cycles, False]


@pytest.mark.parametrize(
    ("action", "cycles"),
    [
        (scale(2, 3), 2),
        (scale(3, 2), 0),
        (Move(reason=WHY, operator=WORK, index=0, source="n0", target="n1"), 2),
        (Switch(reason=WHY, operator=WORK, current="good", target="fast"), 1),
        (Acquire(reason=WHY, machine="standard"), 2),
        (Release(reason=WHY, node="n1"), 0),
        (Shed(reason=WHY, operator=OperatorId("events"), keep=0.5), 0),
        (Pace(reason=WHY, stream="a->b", deadline_s=0.1), 0),
    ],
)
def test_each_kind_has_its_own_rest(action: Action, cycles: int) -> None:
    trace = run(dict.fromkeys([5.0, 10.0, 15.0, 20.0], action), Damping())
    assert list(trace.values()).index("cooling-down") == 1 if cycles else "cooling-down" not in trace.values()
    assert sum(v == "cooling-down" for v in list(trace.values())[: cycles + 1]) == cycles


def test_the_rest_of_one_task_leaves_the_others_alone() -> None:
    def move(index: int) -> Move:
        return Move(reason=WHY, operator=WORK, index=index, source="n0", target="n1")

    assert run({5.0: move(0), 10.0: move(1)}, Damping()) == {5.0: "n1", 10.0: "n1"}


def test_shrinking_waits_until_it_was_wanted_throughout() -> None:
    wanted = {t: scale(10, s) for t, s in ((5.0, 4), (10.0, 6), (15.0, 5), (20.0, 3), (25.0, 3), (30.0, 3))}
    trace = run(wanted, Damping(shrink_window_s=15))
    assert trace == {
        5.0: "shrink-delayed",
        10.0: "shrink-delayed",
        15.0: "shrink-delayed",
        20.0: 6,
        25.0: 6,
        30.0: 5,
    }


def test_a_softened_shrink_says_why() -> None:
    memory = DampingMemory(shrinks={"work": ((0.0, 4), (5.0, 6))})
    damped = damp(
        [Proposal(policy="p", actions=(scale(10, 3),))], at(10), memory, Damping(shrink_window_s=10)
    )
    assert damped.proposals[0].actions == (scale(10, 6),)
    assert [(w.action, w.reason.code) for w in damped.withheld] == [(scale(10, 3), "shrink-softened")]


@pytest.mark.parametrize("interruption", [None, scale(10, 12)])
def test_a_cycle_that_needs_the_size_starts_the_wait_afresh(interruption: Action | None) -> None:
    wanted = {
        5.0: scale(10, 4),
        10.0: interruption,
        15.0: scale(10, 4),
        20.0: scale(10, 4),
        25.0: scale(10, 4),
    }
    trace = run(wanted, Damping(shrink_window_s=10, rest_after_growth=0))
    assert trace[20.0] == "shrink-delayed"
    assert trace[25.0] == 4


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_shrinking_never_goes_below_what_the_window_needed(sizes: list[int]) -> None:
    window_s = 15.0
    trace = run({5.0 * i: scale(10, s) for i, s in enumerate(sizes)}, Damping(shrink_window_s=window_s))
    for i, got in enumerate(trace.values()):
        if isinstance(got, int):
            assert got == max(s for j, s in enumerate(sizes[: i + 1]) if 5.0 * (i - j) <= window_s)


@pytest.mark.parametrize(
    ("action", "acts"),
    [
        (scale(100, 104), False),
        (scale(100, 106), True),
        (Shed(reason=WHY, operator=OperatorId("events"), keep=0.503), False),
        (Shed(reason=WHY, operator=OperatorId("events"), keep=0.51), True),
        (Shed(reason=WHY, operator=OperatorId("events"), keep=1.0), True),
    ],
)
def test_too_little_is_not_worth_an_action(action: Action, acts: bool) -> None:
    damped = damp(
        [Proposal(policy="p", actions=(action,))], at(5, keep=0.5), DampingMemory(), Damping(scale_band=0.05)
    )
    assert bool(damped.proposals[0].actions) == acts
    assert [w.reason.code for w in damped.withheld] == ([] if acts else ["within-band"])


def test_back_to_all_records_passes_even_from_close_by() -> None:
    whole = Shed(reason=WHY, operator=OperatorId("events"), keep=1.0)
    damped = damp([Proposal(policy="p", actions=(whole,))], at(5, keep=0.999), DampingMemory(), Damping())
    assert damped.proposals[0].actions == (whole,)


@pytest.mark.parametrize(
    "bad", [{"rest_after_move": -1}, {"shrink_window_s": -1.0}, {"scale_band": 1.0}, {"keep_band": -0.1}]
)
def test_nonsense_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"negative|0\.\.1"):
        Damping(**bad)
