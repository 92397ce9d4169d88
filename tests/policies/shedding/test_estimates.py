"""Weighted counts and sums: unbiased, with bars that hold the truth as often as they say, also for shared keys."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from penstock.policies.shedding import Estimate, count, mean, ratio, total
from penstock.policies.shedding.estimates import quantile, student

SEEDS = 1000


def draw(units: int, seed: int) -> np.ndarray:
    """A hash for each unit, as sampling has them: multiples of 2^-53."""
    return np.random.default_rng(seed).integers(0, 1 << 53, units) * 2.0**-53


class Population:
    """Records in units: `x` and `y` of each, and to which unit it belongs."""

    def __init__(self, units: int, shared: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sizes = rng.geometric(0.25, units) if shared else np.ones(units, np.int64)
        self.units, self.shared = units, shared
        self.unit = np.repeat(np.arange(units), sizes)
        self.x = rng.exponential(10.0, len(self.unit))
        self.y = 5.0 + rng.uniform(0.0, 10.0, len(self.unit))
        self.signed = rng.normal(1.0, 5.0, len(self.unit))
        self.truth = {
            "count": len(self.unit),
            "sum": self.x.sum(),
            "signed sum": self.signed.sum(),
            "mean": self.x.mean(),
            "ratio": self.x.sum() / self.y.sum(),
        }

    def estimates(self, keep: np.ndarray | float, seed: int) -> dict[str, Estimate | None]:
        """What records say that are kept with the probability `keep`, one for all or one each."""
        hashes = draw(self.units, seed)[self.unit]
        keep = np.broadcast_to(keep, hashes.shape)
        kept = hashes < keep
        w, h = 1 / keep[kept], hashes[kept] if self.shared else None
        x, y, signed = self.x[kept], self.y[kept], self.signed[kept]
        return {
            "count": count(w, h),
            "sum": total(x, w, h),
            "signed sum": total(signed, w, h),
            "mean": mean(x, w, h),
            "ratio": ratio(x, y, w, h),
        }


@pytest.mark.parametrize("keep", [0.4, 0.1])
@pytest.mark.parametrize("shared", [False, True], ids=["own keys", "shared keys"])
def test_unbiased_and_the_truth_lies_within_the_bars_as_often_as_stated(shared: bool, keep: float) -> None:
    population = Population(2000, shared, seed=1)
    found = [population.estimates(keep, seed) for seed in range(SEEDS)]
    for name, truth in population.truth.items():
        values = np.array([e[name].value for e in found])  # type: ignore[union-attr]
        slack = 4 * values.std() / np.sqrt(SEEDS)
        assert values.mean() == pytest.approx(truth, abs=slack), f"{name} is unbiased"
        held = np.mean([holds(e[name], truth) for e in found])
        assert 0.93 <= held <= 0.97, f"{name}: {held:.1%} of the intervals hold the truth"


@pytest.mark.parametrize("units", [40, 150])
def test_few_kept_keys_make_wide_bars_rather_than_wrong_ones(units: int) -> None:
    """From a dozen kept keys on: at least nearly as often as stated."""
    population = Population(units, True, seed=2)
    found = [population.estimates(0.3, seed) for seed in range(SEEDS)]
    for name in ("count", "sum", "mean"):
        held = np.mean([holds(e[name], population.truth[name]) for e in found])
        assert held >= 0.925, f"{name}: {held:.1%}"


def holds(estimate: Estimate | None, truth: float) -> bool:
    assert estimate is not None
    return estimate.low is not None and estimate.high is not None and estimate.low <= truth <= estimate.high


def test_changing_shares_of_one_key_never_make_bars_too_narrow() -> None:
    population = Population(1000, True, seed=3)
    keep = np.random.default_rng(4).choice([0.2, 0.5, 0.9], len(population.unit))
    found = [population.estimates(keep, seed) for seed in range(SEEDS)]
    for name in ("count", "sum"):
        values = np.array([e[name].value for e in found])  # type: ignore[union-attr]
        assert values.mean() == pytest.approx(population.truth[name], abs=4 * values.std() / np.sqrt(SEEDS))
        assert np.mean([holds(e[name], population.truth[name]) for e in found]) >= 0.93


def test_bars_that_ignore_shared_keys_are_too_narrow() -> None:
    population = Population(2000, True, seed=1)
    hashes = draw(population.units, 7)[population.unit]
    kept = hashes < 0.1
    weights = np.full(int(kept.sum()), 10.0)
    shared, own = (count(weights, h) for h in (hashes[kept], None))
    assert shared.value == own.value
    assert width(shared) > 1.5 * width(own)


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


def test_nothing_dropped_is_exact() -> None:
    exact = Estimate(value=7.0, low=7.0, high=7.0)
    assert total([1.0, 2.0, 4.0], np.ones(3)) == exact
    assert total([1.0, 2.0, 4.0], np.ones(3), [np.nan] * 3) == exact


def test_too_little_to_say() -> None:
    assert count([2.0]) == Estimate(value=2.0, low=None, high=None)
    assert count([2.0, 2.0], [0.3, 0.3]).low is None, "two records of one key are one draw"
    assert mean([], []) is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1, 50), st.floats(0, 0.999)), min_size=2, max_size=30))
def test_bounds_hold_the_value_and_what_was_kept(rows: list[tuple[float, float, float]]) -> None:
    y, w, h = (np.array(column) for column in zip(*rows, strict=True))
    found = total(y, w, h)
    for low, high in [(found.low, found.high)] if found.low is not None and found.high is not None else []:
        slack = 1e-9 * max(1.0, abs(high))
        assert y.sum() - slack <= low <= found.value + slack <= high + 2 * slack


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_series_of_students_t_is_near_enough(confidence: float) -> None:
    for degrees in (2, 3, 5, 10, 31, 1000):
        exact = stdtrit(degrees, (1 + confidence) / 2)
        assert student(degrees, quantile(confidence)) == pytest.approx(
            exact, rel=0.06 if degrees < 4 else 0.01
        )


@pytest.mark.parametrize("weight", [0.0, -1.0, 0.9, float("nan")])
def test_an_impossible_weight_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        count([weight])


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        count([2.0, 2.0], confidence=confidence)


def test_real_taxi_trips(shared_data: Path) -> None:
    """Kept by medallion, whose trips share a key: amounts are skewed, and so are trips per medallion."""
    path = shared_data / "taxi_trips.csv"
    if not path.exists():
        pytest.skip(f"no {path.name}")
    with path.open(newline="") as file:
        rows: list[Any] = list(csv.reader(file))
    names, medallion = np.unique([row[0] for row in rows], return_inverse=True)
    amount = np.array([float(row[16]) for row in rows])
    held = {"count": 0, "sum": 0}
    for seed in range(SEEDS):
        hashes = draw(len(names), seed)[medallion]
        kept = hashes < 0.3
        w = np.full(int(kept.sum()), 1 / 0.3)
        held["count"] += holds(count(w, hashes[kept]), len(amount))
        held["sum"] += holds(total(amount[kept], w, hashes[kept]), amount.sum())
    assert {name: 0.93 <= n / SEEDS <= 0.97 for name, n in held.items()} == dict.fromkeys(held, True), held
