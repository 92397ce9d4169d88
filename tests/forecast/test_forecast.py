"""What forecasts promise, whatever the series."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.forecast import ForecastOptions, ForecastState, Model, forecast, select, start, update
from penstock.forecast.smoothing import ALPHA

SEASONAL = ForecastOptions(season_steps=12, horizon_steps=24)
PLAIN = ForecastOptions(horizon_steps=24)


def fed(values: np.ndarray, options: ForecastOptions = SEASONAL) -> ForecastState:
    """The state after *values* [time, series]."""
    state = start(values.shape[1], options)
    for row in values:
        state = update(state, row, options)
    return state


def noisy(length: int, series: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    time = np.arange(length)[:, None]
    rate = 50 + 30 * np.sin(2 * np.pi * (time + np.arange(series)) / 12)
    return rng.poisson(rate).astype(float)


def arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, tuple):
        return [a for part in value for a in arrays(part)]
    if is_dataclass(value):
        return [a for f in fields(value) for a in arrays(getattr(value, f.name))]
    return []


def assert_same(left: ForecastState, right: ForecastState) -> None:
    assert left.clock == right.clock
    ours, theirs = arrays(left), arrays(right)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@given(value=st.floats(0, 1e9), length=st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_a_constant_is_forecast_as_itself(value: float, length: int) -> None:
    result = forecast(fed(np.full((length, 1), value)), 30, SEASONAL)
    np.testing.assert_allclose(result.mean, value, rtol=1e-6, atol=1e-9)


def test_a_season_is_learned() -> None:
    wave = 50 + 30 * np.sin(2 * np.pi * np.arange(12 * 10 + 24) / 12)
    result = forecast(fed(wave[:-24, None]), 24, SEASONAL)
    np.testing.assert_allclose(result.mean[0], wave[-24:], atol=0.5)
    assert np.isin(result.model, [Model.HOLT_WINTERS, Model.LAST_SEASON]).all()  # either is exact here


def test_a_season_is_found_under_noise() -> None:
    wave = 50 + 30 * np.sin(2 * np.pi * np.arange(144) / 12)
    noise = np.random.default_rng(6).normal(0, 5, (120, 40))
    result = forecast(fed(np.maximum(wave[:120, None] + noise, 0)), 24, SEASONAL)
    off = np.sqrt(((result.mean - wave[120:]) ** 2).mean())
    assert off < 5  # the last season alone would be off by the noise of one observation
    assert (result.model == Model.HOLT_WINTERS).mean() > 0.5  # it is what mostly decides


def test_a_trend_is_learned() -> None:
    ramp = 10.0 + 2.0 * np.arange(150)
    result = forecast(fed(ramp[:120, None], PLAIN), 30, PLAIN)
    np.testing.assert_allclose(result.mean[0], ramp[120:], rtol=0.01)
    assert (result.model == Model.HOLT).all()


@pytest.mark.parametrize(("length", "fitted"), [(23, set()), (24, {Model.HOLT, Model.HOLT_WINTERS})])
def test_models_are_fitted_when_enough_was_seen(length: int, fitted: set[Model]) -> None:
    state = fed(noisy(length, 3))
    smoothers = {Model.HOLT: state.holt, Model.HOLT_WINTERS: state.holt_winters}
    assert {m for m, s in smoothers.items() if not np.isnan(s.parameters[:, ALPHA]).any()} == fitted


def test_nothing_known_forecasts_nothing() -> None:
    result = forecast(start(2, SEASONAL), 3, SEASONAL)
    assert (result.model == Model.NONE).all()
    assert (result.mean == 0).all()
    assert (result.sigma == 0).all()


def test_one_observation_is_forecast_with_doubt() -> None:
    result = forecast(fed(np.array([[40.0]])), 3, SEASONAL)
    assert (result.mean == 40).all()
    assert (result.sigma == 40).all()


@given(seed=st.integers(0, 99), order=st.permutations(range(5)))
@settings(max_examples=10, deadline=None)
def test_order_of_series_does_not_matter(seed: int, order: list[int]) -> None:
    values = noisy(40, 5, seed)
    straight, permuted = fed(values), fed(values[:, order])
    assert_same(select(straight, np.array(order)), permuted)


@given(
    values=st.lists(st.one_of(st.floats(0, 1e12), st.just(float("nan"))), min_size=30, max_size=60),
    season=st.sampled_from([SEASONAL, PLAIN]),
)
@settings(max_examples=40, deadline=None)
def test_forecasts_are_finite_and_not_negative(values: list[float], season: ForecastOptions) -> None:
    result = forecast(fed(np.array(values)[:, None], season), 40, season)
    assert np.isfinite(result.mean).all()
    assert np.isfinite(result.sigma).all()
    assert (result.mean >= 0).all()
    assert (result.sigma >= 0).all()


def test_missing_is_the_same_as_nan_and_does_not_disturb_others() -> None:
    values = noisy(80, 2)
    gaps = np.random.default_rng(5).random(80) < 0.2
    by_mask, by_nan = start(2, SEASONAL), start(2, SEASONAL)
    for row, gap in zip(values, gaps, strict=True):
        by_mask = update(by_mask, row, SEASONAL, known=np.array([not gap, True]))
        by_nan = update(by_nan, np.where([gap, False], np.nan, row), SEASONAL)
    assert_same(by_mask, by_nan)
    assert by_mask.held.tolist() == [80 - gaps.sum(), 80]
    rest = select(by_mask, np.array([1]))
    assert_same(rest, fed(values[:, 1:]))


def test_a_season_is_learned_in_spite_of_gaps() -> None:
    wave = 50 + 30 * np.sin(2 * np.pi * np.arange(200) / 12)
    seen = np.where(np.random.default_rng(2).random(176) < 0.3, np.nan, wave[:176])
    result = forecast(fed(seen[:, None]), 24, SEASONAL)
    np.testing.assert_allclose(result.mean[0], wave[176:], atol=3)


def test_outages_longer_than_the_history_are_survived() -> None:
    options = ForecastOptions(season_steps=12, horizon_steps=24, history_steps=48, drift_patience_steps=1)
    values = noisy(500, 3)
    rng = np.random.default_rng(9)
    values[rng.random(500) < 0.6, 1] = np.nan
    values[100:300, 2] = np.nan
    state = start(3, options)
    for t, row in enumerate(values):
        state = update(state, row, options)
        assert np.isfinite(forecast(state, 24, options).mean).all(), t
        assert state.held.tolist() == (~np.isnan(state.history)).sum(axis=0).tolist()
    assert forecast(state, 1, options).model[2, 0] != Model.NONE


def test_states_are_not_written_to() -> None:
    values = noisy(60, 3)
    state = fed(values[:-20])
    before = [array.copy() for array in arrays(state)]
    for row in values[-20:]:
        state_next = update(state, row, SEASONAL)
        forecast(state_next, 10, SEASONAL)
    for array, old in zip(arrays(state), before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_the_given_values_are_not_kept() -> None:
    values = np.array([5.0])
    state = update(start(1, SEASONAL), values, SEASONAL)
    values[0] = 99.0
    assert forecast(state, 1, SEASONAL).mean[0, 0] == 5.0


def test_series_that_come_and_go_keep_what_was_learned() -> None:
    values = noisy(100, 3)
    state = select(fed(values[:60]), np.array([2, -1, 0]))
    for row in values[60:]:
        state = update(state, row[[2, 1, 0]], SEASONAL)
    straight = fed(values)
    assert_same(select(state, np.array([0, 2])), select(straight, np.array([2, 0])))
    assert state.held.tolist() == [100, 40, 100]
    assert not np.isnan(state.holt_winters.level[1])


def test_a_changed_regime_is_fitted_anew_and_a_steady_one_is_not() -> None:
    rng = np.random.default_rng(11)
    steady = rng.normal(100, 3, (600, 2))
    time = np.arange(200)
    steady[400:, 1] = 100 + 90 * np.sin(2 * np.pi * time / 40) + rng.normal(0, 3, 200)
    state = fed(steady[:400], PLAIN)
    old = state.holt.parameters
    for row in steady[400:]:
        state = update(state, row, PLAIN)
    np.testing.assert_array_equal(state.holt.parameters[0], old[0])
    assert (state.holt.parameters[1] != old[1]).any()


def test_refits_are_rationed_and_catch_up() -> None:
    options = ForecastOptions(horizon_steps=6, refits_per_update=2)
    values = noisy(28, 6)
    counts, state = [], start(6, options)
    for row in values:
        state = update(state, row, options)
        counts.append(int((state.holt.fitted_on > 0).sum()))
    assert counts[22:] == [0, 2, 4, 6, 6, 6]


def test_sigma_covers_what_comes() -> None:
    values = noisy(700, 20, seed=4)
    state, inside = fed(values[:500]), []
    for t in range(500, 690):
        ahead = forecast(state, 6, SEASONAL)
        inside.append(np.abs(values[t : t + 6].T - ahead.mean) <= 2 * ahead.sigma)
        state = update(state, values[t], SEASONAL)
    assert 0.92 <= np.mean(inside) <= 0.98  # 0.954 if errors were normal


def test_never_much_worse_than_the_last_value() -> None:
    """A random walk cannot be foreseen: there the last value is best."""
    walk = 500 + np.cumsum(np.random.default_rng(8).normal(0, 1, (800, 10)), axis=0)
    state, ours, naive = fed(walk[:300]), [], []
    for t in range(300, 776):
        ahead = forecast(state, 24, SEASONAL).mean[:, [0, 5, 23]]
        truth = walk[[t, t + 5, t + 23]].T
        ours.append(np.abs(truth - ahead).mean(axis=0))
        naive.append(np.abs(truth - walk[t - 1][:, None]).mean(axis=0))
        state = update(state, walk[t], SEASONAL)
    assert (np.mean(ours, axis=0) < 1.05 * np.mean(naive, axis=0)).all()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: ForecastOptions(season_steps=1), "season_steps = 1"),
        (lambda: ForecastOptions(horizon_steps=0), "horizon_steps = 0"),
        (lambda: ForecastOptions(drift_ratio=1.0), "drift_ratio = 1.0"),
        (lambda: start(-1, PLAIN), "negative"),
        (lambda: update(start(1, PLAIN), np.array([-1.0]), PLAIN), "series 0 was given -1"),
        (lambda: update(start(1, PLAIN), np.array([np.inf]), PLAIN), "series 0 was given inf"),
        (lambda: update(start(1, PLAIN), np.array([1.0, 2.0]), PLAIN), "for 1 series"),
        (lambda: forecast(start(1, PLAIN), 0, PLAIN), "horizon_steps = 0"),
        (lambda: select(start(1, PLAIN), np.array([1])), "rows must be"),
    ],
)
def test_nonsense_is_refused(bad: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bad()


@given(season=st.integers(2, 400), horizon=st.integers(1, 2000))
def test_probes_stay_away_from_whole_seasons(season: int, horizon: int) -> None:
    probes = ForecastOptions(season_steps=season, horizon_steps=horizon).probe_steps
    assert probes[0] == 1
    assert list(probes) == sorted(set(probes))
    assert all(0 < h % season <= season - season // 2 for h in probes)


def test_negative_values_may_be_allowed() -> None:
    options = ForecastOptions(nonnegative=False, horizon_steps=6)
    result = forecast(fed(np.full((40, 1), -7.0), options), 3, options)
    np.testing.assert_allclose(result.mean, -7.0)


def test_a_constant_series_is_fitted_only_once_it_changes() -> None:
    options = ForecastOptions()
    state = start(2, options)
    for step in range(60):
        state = update(state, np.array([5.0, 5.0 + step % 3]), options)
    assert state.holt.fitted_on[0] == 0
    assert state.holt.fitted_on[1] > 0
    for step in range(3):
        state = update(state, np.array([6.0 + step, 5.0]), options)
    assert state.holt.fitted_on[0] > 0
