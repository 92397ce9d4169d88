"""Summaries that merge: any split of the same observations gives the same result."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from penstock.telemetry import Moments

values = npst.arrays(np.float64, st.integers(0, 60), elements=st.floats(-1e6, 1e6))


def close(moments: Moments, observations: np.ndarray) -> None:
    """Against NumPy on the observations themselves; the slack is rounding at the size of the squares."""
    count = len(observations)
    assert moments.count[0] == count
    if count:
        scale = max(1.0, float(np.abs(observations).max()))
        assert moments.mean[0] == pytest.approx(observations.mean(), abs=1e-9 * scale)
        variance = observations.var(ddof=1) if count > 1 else 0.0
        assert moments.variance[0] == pytest.approx(variance, abs=1e-9 * scale**2)
        assert moments.total[0] == pytest.approx(observations.sum(), abs=1e-8 * scale * count)


@given(values, st.lists(st.integers(0, 60), max_size=5))
def test_merging_any_split_equals_the_whole(observations: np.ndarray, cuts: list[int]) -> None:
    merged = Moments.empty(1)
    for part in np.split(observations, sorted(min(c, len(observations)) for c in cuts)):
        merged = merged.merge(Moments.of(part))
    close(merged, observations)


@given(values, values, values)
def test_merging_is_associative_and_commutative(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    x, y, z = (Moments.of(v) for v in (a, b, c))
    whole = np.concatenate([a, b, c])
    for merged in (x.merge(y).merge(z), x.merge(y.merge(z)), z.merge(x).merge(y)):
        close(merged, whole)


@given(values, st.data())
def test_grouping_rows_equals_merging_them(observations: np.ndarray, data: st.DataObject) -> None:
    """Rows of one observation each, grouped at random; group -1 belongs nowhere."""
    count = len(observations)
    groups = np.array(data.draw(st.lists(st.integers(-1, 3), min_size=count, max_size=count)), dtype=np.int64)
    rows = Moments(np.ones(count), observations, np.zeros(count))
    grouped = rows.grouped(groups, 4)
    assert len(grouped) == 4
    for group in range(4):
        close(grouped.take(np.array([group])), observations[groups == group])


def test_a_large_mean_does_not_drown_a_small_variance() -> None:
    """Where sums of squares would lose every digit."""
    small = np.random.default_rng(1).normal(size=10_000)
    merged = Moments.empty(1)
    for part in np.array_split(small + 1e9, 100):
        merged = merged.merge(Moments.of(part))
    assert merged.variance[0] == pytest.approx(small.var(ddof=1), rel=1e-5)


@given(st.integers(0, 50), st.floats(0, 1e3), st.floats(0, 1e3))
def test_known_figures_are_given_back(count: int, mean: float, variance: float) -> None:
    moments = Moments.known(np.array([count]), mean, variance)
    assert moments.mean[0] == mean
    assert moments.variance[0] == pytest.approx(variance if count > 1 else 0.0)


@pytest.mark.parametrize(
    ("given_values", "cv2"),
    [([], 0.0), ([3.0], 0.0), ([2.0, 2.0], 0.0), ([0.0, 0.0], 0.0), ([1.0, 3.0], 0.5)],
)
def test_the_squared_coefficient_of_variation(given_values: list[float], cv2: float) -> None:
    assert Moments.of(given_values).cv2[0] == pytest.approx(cv2)


def test_rows_merge_with_their_own_kind() -> None:
    a = Moments.known([2, 0, 1], [1.0, 0.0, 5.0], [1.0, 0.0, 0.0])
    b = Moments.known([1, 3, 0], [4.0, 2.0, 0.0], [0.0, 1.0, 0.0])
    merged = a.merge(b)
    np.testing.assert_allclose(merged.count, [3, 3, 1])
    np.testing.assert_allclose(merged.mean, [2.0, 2.0, 5.0])
