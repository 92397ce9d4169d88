"""Who leaves a crowded node, and where to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policies.shedding.moves import Relocation, choose, relocate


@pytest.mark.parametrize(
    ("release", "tasks", "leaving"),
    [
        # (priority, need): the lowest priority goes although one task of the highest would do
        (0.5, [(2, 0.5), (1, 0.3), (1, 0.3)], [1, 2]),
        # of one priority the large are spared while the small are enough
        (0.5, [(1, 0.9), (1, 0.3), (1, 0.3)], [1, 2]),
        (0.7, [(1, 0.9), (1, 0.3), (1, 0.3)], [0]),
        # the next priority is touched only when the lowest is not enough
        (0.5, [(2, 0.4), (2, 0.2), (1, 0.3)], [1, 2]),
        (9.0, [(2, 0.4), (1, 0.3)], [0, 1]),
        (0.1, [], []),
    ],
)
def test_low_priorities_and_small_tasks_leave(
    release: float, tasks: list[tuple[int, float]], leaving: list[int]
) -> None:
    priority = np.array([p for p, _ in tasks], np.int64)
    need = np.array([n for _, n in tasks], np.float64)
    assert sorted(choose(release, priority, need).tolist()) == leaving


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), min_size=1, max_size=12),
    st.integers(1, 100),
)
def test_enough_leaves_and_nobody_without_need(tasks: list[tuple[int, int]], release: int) -> None:
    priority, need = np.array([p for p, _ in tasks]), np.array([float(n) for _, n in tasks])
    chosen = choose(float(release), priority, need)
    if need.sum() < release:
        assert len(chosen) == len(tasks)
        return
    assert need[chosen].sum() >= release
    assert all(need[chosen].sum() - need[i] < release for i in chosen)
    # No one of a priority above what the lower ones could have released together.
    for i in chosen:
        assert need[priority < priority[i]].sum() < release


def relocated(
    node: list[int], need: list[float], available: list[float], seed: int = 0, **more: object
) -> Relocation:
    rows, nodes = len(node), len(available)
    given: dict[str, object] = {
        "priority": np.zeros(rows, np.int64),
        "movable": np.ones(rows, np.bool_),
        "reserved": np.zeros(nodes),
        "sheltered": np.zeros(nodes, np.bool_),
        "open_to_tasks": np.ones(nodes, np.bool_),
        **more,
    }
    return relocate(
        node=np.array(node), minimum=np.array(need), available=np.array(available), seed=seed, **given
    )  # type: ignore[arg-type]


def test_to_the_node_with_the_most_room() -> None:
    found = relocated([0, 0, 1], [0.8, 0.3, 0.1], [1.0, 1.0, 0.5])
    assert (found.tasks.tolist(), found.targets.tolist()) == ([1], [1])
    assert found.short.tolist() == [0, 0, 0]


def test_ties_by_seeded_chance() -> None:
    targets = {relocated([0, 0], [0.8, 0.3], [1, 1, 1, 1], seed).targets[0] for seed in range(30)}
    assert targets == {1, 2, 3}


@pytest.mark.parametrize(
    "obstacle",
    [
        {"movable": np.zeros(2, np.bool_)},
        {"reserved": np.array([0.0, 0.9])},
        {"sheltered": np.array([True, False])},
        {"open_to_tasks": np.array([True, False])},
    ],
)
def test_what_cannot_move_is_said_to_lack_room(obstacle: dict[str, object]) -> None:
    found = relocated([0, 0], [0.8, 0.3], [1.0, 1.0], **obstacle)
    assert not len(found.tasks)
    assert found.short == pytest.approx([0.1, 0.0])
