"""Rebalance: as few tasks as exhaustive search finds, within the bounds, or it says that it cannot."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policies.elasticity import Waits, rebalance
from penstock.policies.elasticity.rebalance import first_gain_at_least


def exhaustive(waits: Waits, low: np.ndarray, high: np.ndarray, budget_s: float) -> int | None:
    choices = itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))
    held = [sum(c) for c in choices if np.sum(waits.at(np.array(c))) <= budget_s]
    return min(held, default=None)


def test_equals_exhaustive_search_on_1000_random_cases() -> None:
    rng = np.random.default_rng(20260)
    feasible = 0
    for _ in range(1000):
        n = int(rng.integers(1, 4))
        waits = Waits(rng.uniform(0, 2, n) * 10.0 ** rng.integers(-3, 2, n), rng.uniform(0, 4, n))
        low = rng.integers(1, 4, n)
        high = low + rng.integers(0, 10, n)
        budget = float(rng.uniform(0.001, 3)) * 10.0 ** int(rng.integers(-2, 2))
        best, found = exhaustive(waits, low, high, budget), rebalance(waits, low, high, budget)
        assert found.feasible == (best is not None)
        if best is not None:
            feasible += 1
            assert found.parallelism.sum() == best
            assert found.wait_s <= budget
    assert 200 < feasible < 900, "the cases should be of both kinds"


operators = st.lists(
    st.tuples(st.floats(0, 10), st.floats(0, 300), st.integers(1, 50), st.integers(0, 400)),
    min_size=1,
    max_size=12,
)


@given(operators, st.floats(1e-6, 10))
def test_stays_within_bounds_and_above_the_load(
    cases: list[tuple[float, float, int, int]], budget: float
) -> None:
    a, b, low, room = (np.array(column) for column in zip(*cases, strict=True))
    found = rebalance(Waits(a.astype(float), b.astype(float)), low, low + room, budget)
    assert np.all((found.parallelism >= low) & (found.parallelism <= low + room))
    if found.feasible:
        assert np.all(found.parallelism > b)
        assert found.wait_s <= budget


@given(operators, st.floats(1e-4, 10), st.floats(1.0, 2.0))
def test_more_load_never_needs_fewer_tasks(
    cases: list[tuple[float, float, int, int]], budget: float, factor: float
) -> None:
    a, b, low, room = (np.array(column) for column in zip(*cases, strict=True))
    waits = Waits(a.astype(float), b.astype(float))
    less = rebalance(waits, low, low + room, budget)
    more = rebalance(Waits(waits.a * factor, waits.b * factor), low, low + room, budget)
    assert more.parallelism.sum() >= less.parallelism.sum()


def test_identical_operators_share_the_load() -> None:
    n = 1000
    found = rebalance(Waits(np.full(n, 0.5), np.full(n, 3.3)), np.ones(n, int), np.full(n, 1000), 20.0)
    assert found.feasible
    assert np.ptp(found.parallelism) <= 1


@pytest.mark.parametrize("delta", [-1e-6, -0.01, -1.0])
def test_closed_form_is_the_first_small_gain(delta: float) -> None:
    a, b = np.array([0.7]), np.array([2.4])
    p = int(first_gain_at_least(a, b, delta)[0])

    def gain(tasks: int) -> float:
        return float(a[0] / (tasks + 1 - b[0]) - a[0] / (tasks - b[0]))

    assert gain(p) >= delta
    if p - 1 > b[0]:
        assert gain(p - 1) < delta
