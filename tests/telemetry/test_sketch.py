"""Percentiles within one percent of the exact ones, and merges that lose nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from penstock.telemetry import Sketch
from penstock.telemetry.sketch import LARGEST, RELATIVE_ERROR, SMALLEST

positive = st.floats(2 * SMALLEST, LARGEST / 2)
values = npst.arrays(np.float64, st.integers(1, 80), elements=positive)
shares = st.sampled_from([0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 1.0])
ROUNDING = 1e-9


def exact(observations: np.ndarray, q: float) -> float:
    """The percentile without interpolation: the lower of the two neighbours, as the sketch promises."""
    return float(np.quantile(observations, q, method="lower"))


@given(values, shares)
def test_a_percentile_is_off_by_at_most_one_percent(observations: np.ndarray, q: float) -> None:
    true = exact(observations, q)
    assert Sketch.of(observations).quantile(q) == pytest.approx(true, rel=RELATIVE_ERROR + ROUNDING)


@pytest.mark.parametrize("shape", ["exponential", "lognormal", "uniform", "two humps"])
@pytest.mark.parametrize("q", [0.5, 0.95, 0.99, 0.999])
def test_the_bound_holds_on_large_samples(shape: str, q: float) -> None:
    chance = np.random.default_rng(7)
    sample = {
        "exponential": chance.exponential(0.02, 200_000),
        "lognormal": chance.lognormal(-4, 1.5, 200_000),
        "uniform": chance.uniform(0.001, 10, 200_000),
        "two humps": np.concatenate([chance.normal(0.01, 0.001, 100_000), chance.normal(5, 0.1, 100_000)]),
    }[shape]
    assert Sketch.of(sample).quantile(q) == pytest.approx(exact(sample, q), rel=RELATIVE_ERROR + ROUNDING)


@given(values, st.integers(0, 80))
def test_merging_any_split_equals_the_whole_exactly(observations: np.ndarray, cut: int) -> None:
    one, other = observations[:cut], observations[cut:]
    merged = Sketch.of(one).merge(Sketch.of(other))
    np.testing.assert_array_equal(merged.bins, Sketch.of(observations).bins)


@given(
    npst.arrays(np.float64, 20, elements=positive),
    npst.arrays(np.int64, 20, elements=st.integers(0, 5)),
    shares,
)
def test_weights_count_as_repetitions(observations: np.ndarray, weights: np.ndarray, q: float) -> None:
    weighted, repeated = Sketch.of(observations, weights), Sketch.of(np.repeat(observations, weights))
    np.testing.assert_array_equal(weighted.bins, repeated.bins)
    assert weighted.quantile(q) == repeated.quantile(q)


@given(values)
def test_percentiles_never_fall(observations: np.ndarray) -> None:
    sketch = Sketch.of(observations)
    percentiles = [sketch.quantile(q) for q in np.linspace(0, 1, 21)]
    assert percentiles == sorted(percentiles)


@given(values)
def test_the_mean_is_within_the_error(observations: np.ndarray) -> None:
    assert Sketch.of(observations).mean == pytest.approx(observations.mean(), rel=RELATIVE_ERROR + ROUNDING)


def test_the_ends_of_the_range() -> None:
    sketch = Sketch.of([0.0, -1.0, SMALLEST / 2, 1e9])
    assert sketch.quantile(0.5) == 0.0
    assert sketch.quantile(1.0) == pytest.approx(LARGEST, rel=RELATIVE_ERROR)


def test_nothing_seen_is_nothing_known() -> None:
    empty = Sketch.empty()
    assert (empty.count, empty.mean, empty.quantile(0.5)) == (0, None, None)


@pytest.mark.parametrize("q", [-0.1, 1.1])
def test_a_quantile_lies_in_0_to_1(q: float) -> None:
    with pytest.raises(ValueError, match=r"0\.\.1"):
        Sketch.of([1.0]).quantile(q)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        Sketch.of([1.0, float("nan")])
