"""Exponential smoothing in error-correction form, compiled, one series at a time.

    ŷ(t+h) = l + (φ + … + φʰ)·b + s(t+h) + ρʰ·x
    e      = y - ŷ(t)                          and  ê = e, held within ± outlier_sigmas · spread
    l ← l + φb + αê,   b ← φb + αβê,   s ← s + γê,   x ← ρx + κe

Level l, damped trend b and additive season s are Holt-Winters as in Hyndman and Athanasopoulos, «Forecasting:
principles and practice», 8.3. The excess x is what a burst adds and what fades again: the AR(1) adjustment of
Taylor, «Short-term electricity demand forecasting using double seasonal exponential smoothing», 2003. With
κ = 0 it is plain Holt-Winters. Held innovations follow Gelper, Fried and Croux, «Robust forecasting with
exponential and Holt-Winters smoothing», 2010. A series may be smoothed as log(1+y); it then has no trend,
because a trend of logarithms explodes.
"""

import math
from typing import Final

import numpy as np
from numba import njit

from penstock.arrays import Floats, Ints

# Columns of a parameter row. LOG and SMOOTH are 0 or 1: smooth log(1+y); start from a smoothed season.
ALPHA, BETA, PHI, GAMMA, RHO, KAPPA, LOG, SMOOTH = range(8)
PARAMETERS: Final = 8

SPREAD_WEIGHT: Final = 0.01  # of a new innovation in the spread
SPREAD_HOLD: Final = 4.0  # spreads at which an innovation stops counting more towards the spread
SPREAD_FLOOR: Final = 0.01  # of the level: a series that was constant must still be able to move


@njit(cache=True, nogil=True)
def damped_sum(phi: float, h: int) -> float:
    """Return φ + φ² + … + φʰ."""
    if phi == 1.0:
        return float(h)
    return phi * (1.0 - phi**h) / (1.0 - phi)


@njit(cache=True, nogil=True)
def correct(
    value: float,
    level: float,
    trend: float,
    season: float,
    excess: float,
    spread: float,
    p: Floats,
    outlier_sigmas: float,
) -> tuple[float, float, float, float, float]:
    """Return (level, trend, season, excess, spread) after one observation, NaN if it was missed."""
    phi, rho = p[PHI], p[RHO]
    level_next = level + phi * trend
    trend_next = phi * trend
    excess_next = rho * excess
    if math.isnan(value):
        return level_next, trend_next, season, excess_next, spread
    error = value - (level_next + season + excess_next)
    floor = max(spread, SPREAD_FLOOR * abs(level), 1e-12)
    limit = outlier_sigmas * floor
    held = min(max(error, -limit), limit)
    seen = min(abs(error), SPREAD_HOLD * floor)
    spread = math.sqrt((1.0 - SPREAD_WEIGHT) * floor * floor + SPREAD_WEIGHT * seen * seen)
    return (
        level_next + p[ALPHA] * held,
        trend_next + p[ALPHA] * p[BETA] * held,
        season + p[GAMMA] * held,
        excess_next + p[KAPPA] * error,
        spread,
    )


@njit(cache=True, nogil=True)
def replay(
    z: Floats,
    phase: int,
    level: float,
    trend: float,
    spread: float,
    season: Floats,
    p: Floats,
    outlier_sigmas: float,
    horizons: Ints,
    back: bool,
    absolute: Floats,
    squared: Floats,
) -> tuple[float, float, float, float]:
    """Return (level, trend, excess, spread) after all of *z*; *season* is carried along in place.

    *phase* is the season slot of z[0]. Fills *absolute* and *squared* with the mean errors of the forecasts made
    on the way, for each of *horizons*, NaN where there was none; in the units of y when *back* is set.
    """
    length, slots = len(z), len(season)
    fades = p[RHO] ** horizons
    trends = np.empty(len(horizons))
    counts = np.zeros(len(horizons))
    for j in range(len(horizons)):
        trends[j] = damped_sum(p[PHI], horizons[j])
    absolute[:] = 0.0
    squared[:] = 0.0
    excess = 0.0
    for t in range(length):
        slot = (phase + t) % slots if slots else 0
        s = season[slot] if slots else 0.0
        level, trend, s, excess, spread = correct(z[t], level, trend, s, excess, spread, p, outlier_sigmas)
        if slots:
            season[slot] = s
        for j in range(len(horizons)):
            ahead = t + horizons[j]
            if ahead >= length:
                break
            truth = z[ahead]
            if math.isnan(truth):
                continue
            guess = level + trends[j] * trend + fades[j] * excess
            if slots:
                guess += season[(phase + ahead) % slots]
            if back and p[LOG] == 1.0:
                truth, guess = math.expm1(truth), math.expm1(guess)
            error = truth - guess
            absolute[j] += abs(error)
            squared[j] += error * error
            counts[j] += 1.0
    for j in range(len(horizons)):
        if counts[j] > 0:
            absolute[j] /= counts[j]
            squared[j] /= counts[j]
        else:
            absolute[j] = np.nan
            squared[j] = np.nan
    return level, trend, excess, spread


@njit(cache=True, nogil=True)
def advance(
    values: Floats,
    level: Floats,
    trend: Floats,
    excess: Floats,
    spread: Floats,
    season: Floats,
    parameters: Floats,
    outlier_sigmas: float,
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return new (level, trend, excess, spread, season slot), one observation later, for every series.

    Rows without parameters (NaN) have not been fitted and stay as they are.
    """
    level, trend, excess, spread, season = (
        level.copy(),
        trend.copy(),
        excess.copy(),
        spread.copy(),
        season.copy(),
    )
    for i in range(len(values)):
        p = parameters[i]
        if math.isnan(p[ALPHA]):
            continue
        value = math.log1p(values[i]) if p[LOG] == 1.0 else values[i]
        level[i], trend[i], season[i], excess[i], spread[i] = correct(
            value, level[i], trend[i], season[i], excess[i], spread[i], p, outlier_sigmas
        )
    return level, trend, excess, spread, season
