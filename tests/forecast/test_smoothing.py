"""The recursion against statsmodels, an independent implementation."""

import numpy as np
import pytest
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from penstock.forecast.smoothing import PARAMETERS, advance, correct, damped_sum, replay

SLOTS = 12


def a_series(length: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    time = np.arange(length)
    return 100 + 0.3 * time + 20 * np.sin(2 * np.pi * time / SLOTS) + rng.normal(0, 5, length)


@pytest.mark.parametrize(
    ("alpha", "beta", "phi", "gamma"),
    [(0.3, 0.1, 0.9, 0.2), (0.05, 0.4, 0.98, 0.0), (0.9, 0.01, 0.8, 0.05), (0.5, 0.2, 1.0, 0.3)],
)
def test_equals_statsmodels(alpha: float, beta: float, phi: float, gamma: float) -> None:
    y = a_series(120)
    season = np.linspace(-10, 10, SLOTS)
    reference = ExponentialSmoothing(
        y,
        trend="add",
        damped_trend=phi < 1,
        seasonal="add",
        seasonal_periods=SLOTS,
        initialization_method="known",
        initial_level=95.0,
        initial_trend=0.5,
        initial_seasonal=season,
    )
    fixed = {"smoothing_level": alpha, "smoothing_trend": beta, "smoothing_seasonal": gamma}
    if phi < 1:
        fixed["damping_trend"] = phi
    fitted = reference.fit(optimized=False, **fixed)

    p = np.array([alpha, beta, phi, gamma, 0.5, 0.0, 0.0, 0.0])
    horizons = np.array([1, 5])
    absolute, squared = np.empty(2), np.empty(2)
    carried = season.copy()
    level, trend, _, _ = replay(y, 0, 95.0, 0.5, 1.0, carried, p, np.inf, horizons, True, absolute, squared)
    np.testing.assert_allclose(level, fitted.level[-1], rtol=1e-9)
    np.testing.assert_allclose(trend, fitted.trend[-1], rtol=1e-9)
    np.testing.assert_allclose(carried, fitted.season[-SLOTS:], rtol=1e-9)
    np.testing.assert_allclose(squared[0], np.mean(fitted.resid[1:] ** 2), rtol=1e-9)
    # statsmodels 0.14 forecasts the slot of the last observation with the season before that observation
    # (it writes over s[nobs+m-1]), so the last of the slots is not compared here, only its season above.
    ours = [level + damped_sum(phi, h) * trend + carried[(h - 1) % SLOTS] for h in range(1, SLOTS)]
    np.testing.assert_allclose(ours, fitted.forecast(SLOTS - 1), rtol=1e-9)


def test_many_at_once_equal_one_after_another() -> None:
    rng = np.random.default_rng(3)
    parameters = rng.uniform(0, 0.5, (50, PARAMETERS))
    parameters[:, -2] = rng.integers(0, 2, 50)
    values, level, trend, excess, spread, season = rng.uniform(0, 9, (6, 50))
    values[7] = np.nan
    parameters[9] = np.nan
    result = advance(values, level, trend, excess, spread, season, parameters, 3.0)
    for i in range(50):
        z = np.log1p(values[i]) if parameters[i, -2] == 1 else values[i]
        l, b, s, x, w = correct(z, level[i], trend[i], season[i], excess[i], spread[i], parameters[i], 3.0)
        if i == 9:
            l, b, x, w, s = level[i], trend[i], excess[i], spread[i], season[i]
        np.testing.assert_allclose([r[i] for r in result], [l, b, x, w, s], rtol=1e-12)


def test_an_outlier_moves_the_level_by_no_more_than_the_limit() -> None:
    p = np.array([0.5, 0.0, 0.9, 0.5, 0.5, 0.3, 0.0, 0.0])
    level, _, season, excess, _ = correct(1e6, 100.0, 0.0, 0.0, 0.0, 10.0, p, 3.0)
    assert level == 100.0 + 0.5 * 30.0
    assert season == 0.5 * 30.0
    assert excess == pytest.approx(0.3 * (1e6 - 100.0))
