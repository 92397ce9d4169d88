"""Weighted counts and sums: exactly unbiased on small cases, and honest error bars on real taxi trips."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.shedding import Estimate, count, mean, total

SEEDS = 400


def uniform_hash(keys: np.ndarray, seed: int) -> np.ndarray:
    """A number in [0, 1) for each key, the same for equal keys (splitmix64, seeded)."""
    with np.errstate(over="ignore"):
        x = keys.astype(np.uint64) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) / 2.0**53


@st.composite
def populations(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(values, keep-probabilities, units) of a few records in at most four units."""
    size = draw(st.integers(1, 7))
    values = np.array(draw(st.lists(st.integers(-5, 9), min_size=size, max_size=size)), np.float64)
    keep = np.array(draw(st.lists(st.sampled_from([0.2, 0.25, 0.5, 0.8, 1.0]), min_size=size, max_size=size)))
    unit = np.array(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)))
    return values, keep, unit


@settings(max_examples=80, deadline=None)
@given(populations())
def test_value_and_variance_are_unbiased(population: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Over every outcome of the units' hashes: E[value] is the total, E[variance] the variance of the value."""
    values, keep, unit = population
    # A hash matters only by which thresholds it is below: each unit falls into one of six intervals.
    cuts = np.array([0.0, 0.2, 0.25, 0.5, 0.8, 1.0])
    units = np.unique(unit)
    expected = second = variance = 0.0
    for cell in itertools.product(range(len(cuts) - 1), repeat=len(units)):
        probability = float(np.prod([cuts[c + 1] - cuts[c] for c in cell]))
        hashed = np.array([cuts[cell[int(np.searchsorted(units, u))]] for u in unit])
        kept = hashed < keep
        found = total(values[kept], keep[kept], unit[kept])
        expected += probability * found.value
        second += probability * found.value**2
        variance += probability * found.variance
    assert expected == pytest.approx(values.sum(), abs=1e-9)
    assert variance == pytest.approx(second - expected**2, abs=1e-6)


def test_nothing_dropped_is_exact() -> None:
    found = total([1.0, 2.0, 4.0], np.ones(3))
    assert (found.value, found.variance, found.interval()) == (7.0, 0.0, (7.0, 7.0))


def test_too_little_to_say() -> None:
    assert count([]).interval() is None
    assert count([0.5]).interval() is None
    assert mean([], []) is None


def test_estimates_of_different_keys_add_up() -> None:
    values, keep, unit = np.arange(8.0), np.full(8, 0.3), np.arange(8) // 2
    first = unit < 2
    both = total(values[first], keep[first], unit[first]) + total(values[~first], keep[~first], unit[~first])
    whole = total(values, keep, unit)
    assert (both.value, both.variance, both.units) == pytest.approx(
        (whole.value, whole.variance, whole.units)
    )


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.1, float("nan")])
def test_an_impossible_keep_probability_is_refused(keep: float) -> None:
    with pytest.raises(ValueError, match="keep-probability"):
        count([keep])


def test_an_impossible_confidence_is_refused() -> None:
    with pytest.raises(ValueError, match="confidence"):
        Estimate(value=1.0, variance=1.0, units=9).interval(1.0)


def test_nested_thresholds() -> None:
    """One hash and the product of keeps: each step keeps its share of what came, and less is a part of more."""
    hashes = uniform_hash(np.arange(200_000), seed=3)
    at_source, further = hashes < 0.6, hashes < 0.6 * 0.5
    assert np.all(at_source[further])
    assert further.sum() / at_source.sum() == pytest.approx(0.5, abs=0.005)
    assert np.all((hashes < 0.6)[hashes < 0.4])


class TestTaxiTrips:
    @pytest.fixture(scope="class")
    @classmethod
    def trips(cls, shared_data: Path) -> tuple[np.ndarray, np.ndarray]:
        """(total amount, number of the medallion) of each trip."""
        path = shared_data / "taxi_trips.csv"
        if not path.exists():
            pytest.skip(f"no {path.name}")
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        _, medallion = np.unique([row[0] for row in rows], return_inverse=True)
        return np.array([float(row[16]) for row in rows]), medallion

    @pytest.mark.parametrize("confidence", [0.8, 0.95])
    @pytest.mark.parametrize("keep", [0.5, 0.1])
    @pytest.mark.parametrize("by", ["trip", "medallion"])
    def test_the_truth_lies_within_the_bars_as_often_as_stated(
        self, trips: tuple[np.ndarray, np.ndarray], keep: float, confidence: float, by: str
    ) -> None:
        amount, medallion = trips
        key = medallion if by == "medallion" else np.arange(len(amount))
        truth = {"count": float(len(amount)), "total": amount.sum(), "mean": amount.mean()}
        hits = dict.fromkeys(truth, 0)
        values: dict[str, list[float]] = {name: [] for name in truth}
        for seed in range(SEEDS):
            kept = uniform_hash(key, seed) < keep
            share, unit = np.full(int(kept.sum()), keep), key[kept]
            found = {
                "count": count(share, unit),
                "total": total(amount[kept], share, unit),
                "mean": mean(amount[kept], share, unit),
            }
            for name, estimate in found.items():
                assert estimate is not None
                interval = estimate.interval(confidence)
                assert interval is not None
                hits[name] += interval[0] <= truth[name] <= interval[1]
                values[name].append(estimate.value)
        # Four standard deviations of a binomial count of hits, and of a mean of so many estimates.
        slack = 4 * np.sqrt(confidence * (1 - confidence) / SEEDS)
        for name in truth:
            assert hits[name] / SEEDS == pytest.approx(confidence, abs=slack)
            error = 4 * np.std(values[name]) / np.sqrt(SEEDS)
            assert np.mean(values[name]) == pytest.approx(truth[name], abs=error)

    def test_bars_that_ignore_shared_keys_are_too_narrow(self, trips: tuple[np.ndarray, np.ndarray]) -> None:
        amount, medallion = trips
        kept = uniform_hash(medallion, 1) < 0.1
        with_units = total(amount[kept], np.full(int(kept.sum()), 0.1), medallion[kept])
        without = total(amount[kept], np.full(int(kept.sum()), 0.1))
        assert with_units.value == without.value
        assert with_units.variance > 1.3 * without.variance
