"""Parameters for one series, found by replaying its history.

The loss is the mean absolute error at the probed horizons, each over that of the last value, so that no horizon
and no scale dominates. Candidates for the start are tried first (with and without the logarithm, with and without
a smoothed season), then the best is refined by a pattern search with halving steps on *ladders*: lists of
values between which a parameter is interpolated. No randomness; a fixed bound on replays.
"""

import math
from typing import Final

import numpy as np
from numba import njit

from penstock.arrays import Floats, Ints
from penstock.forecast.smoothing import ALPHA, BETA, GAMMA, KAPPA, LOG, PARAMETERS, PHI, RHO, SMOOTH, replay

SEARCHED: Final = 6  # the first parameters; LOG and SMOOTH are decided among the starts

# One row per parameter, as in smoothing.py, padded with the last value.
LADDERS: Final = np.array(
    [
        [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0],  # α
        [0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0, 1.0],  # β
        [0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.0, 1.0, 1.0],  # φ
        [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.0],  # γ
        [0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.99],  # ρ
        [0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.9, 0.9],  # κ
    ]
)
RUNGS: Final = np.array([9, 8, 6, 8, 8, 7])
# Where a search may begin, in rungs of the ladders: a slow level with bursts that fade; a quick level; a trend.
STARTS: Final = np.array(
    [
        [3.0, 0.0, 2.0, 3.0, 4.0, 3.0],
        [6.0, 0.0, 2.0, 1.0, 4.0, 0.0],
        [7.0, 6.0, 5.0, 1.0, 4.0, 0.0],
    ]
)
SMOOTHED_SHARE: Final = 24  # a season is smoothed over this share of it on either side: an hour of a day
ROUNDS: Final = 2  # passes over all parameters for each step width


@njit(cache=True, nogil=True)
def _parameters(rungs: Floats, log: float, smooth: float) -> Floats:
    p = np.empty(PARAMETERS)
    for k in range(SEARCHED):
        low = min(int(rungs[k]), LADDERS.shape[1] - 2)
        share = rungs[k] - low
        p[k] = (1.0 - share) * LADDERS[k, low] + share * LADDERS[k, low + 1]
    p[KAPPA] = min(p[KAPPA], 1.0 - p[ALPHA])  # together they may follow an innovation, never overshoot it
    if log == 1.0:
        p[BETA] = 0.0
    p[LOG] = log
    p[SMOOTH] = smooth
    return p


@njit(cache=True, nogil=True)
def _beginning(z: Floats, phase: int, slots: int, smooth: bool) -> tuple[int, float, float, Floats]:
    """Return (values used, level, spread, season) taken from the first season, or the first value."""
    first = 0
    while math.isnan(z[first]):
        first += 1
    distance, pairs = 0.0, 0
    for t in range(first + 1, len(z)):
        if not (math.isnan(z[t]) or math.isnan(z[t - 1])):
            distance += abs(z[t] - z[t - 1])
            pairs += 1
    spread = distance / pairs if pairs else 0.0
    season = np.zeros(slots)
    if slots == 0:
        return first + 1, z[first], spread, season
    raw = np.full(slots, np.nan)
    total, known = 0.0, 0
    for t in range(first, first + slots):
        raw[(phase + t) % slots] = z[t]
        if not math.isnan(z[t]):
            total += z[t]
            known += 1
    level = total / known
    reach = slots // SMOOTHED_SHARE if smooth else 0
    for k in range(slots):
        total, known = 0.0, 0
        for near in range(k - reach, k + reach + 1):
            if not math.isnan(raw[near % slots]):
                total += raw[near % slots] - level
                known += 1
        season[k] = total / known if known else 0.0
    return first + slots, level, spread, season


@njit(cache=True, nogil=True)
def _scale(z: Floats, begin: int, horizons: Ints, back: bool) -> Floats:
    """Return the mean absolute error of the last value at each horizon: what one unit of loss is."""
    scale = np.zeros(len(horizons))
    for j in range(len(horizons)):
        count = 0
        for t in range(begin, len(z) - horizons[j]):
            if not (math.isnan(z[t]) or math.isnan(z[t + horizons[j]])):
                if back:
                    scale[j] += abs(math.expm1(z[t + horizons[j]]) - math.expm1(z[t]))
                else:
                    scale[j] += abs(z[t + horizons[j]] - z[t])
                count += 1
        if count:
            scale[j] /= count
    return scale


@njit(cache=True, nogil=True)
def _loss(absolute: Floats, scale: Floats) -> float:
    total = 0.0
    for j in range(len(scale)):
        if not math.isnan(absolute[j]):
            total += absolute[j] / (scale[j] + 1e-9)
    return total


@njit(cache=True, nogil=True)
def fit(
    y: Floats, phase: int, slots: int, horizons: Ints, outlier_sigmas: float, may_log: bool
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return (parameters, (level, trend, excess, spread), season, absolute, squared errors) fitted to *y*.

    The errors are those of forecasts made while replaying *y*, in its units, one for each of *horizons*.
    *y* holds NaN where an observation is missing, and at least one season of knowns (one value if unseasonal).
    """
    absolute, squared = np.empty(len(horizons)), np.empty(len(horizons))
    best = math.inf
    best_start, best_log, best_smooth = 0, 0.0, 0.0
    logs = np.log1p(y) if may_log else y
    for log in range(2 if may_log else 1):
        z = logs if log else y
        for smooth in range(2 if slots >= SMOOTHED_SHARE else 1):
            begin, level, spread, season = _beginning(z, phase, slots, smooth == 1)
            scale = _scale(z, begin, horizons, log == 1)
            for start in range(len(STARTS)):
                p = _parameters(STARTS[start], float(log), float(smooth))
                replay(
                    z[begin:], phase + begin, level, 0.0, spread, season.copy(), p, outlier_sigmas,
                    horizons, True, absolute, squared,
                )  # fmt: skip
                loss = _loss(absolute, scale)
                if loss < best:
                    best, best_start, best_log, best_smooth = loss, start, float(log), float(smooth)

    z = logs if best_log == 1.0 else y
    begin, level, spread, first_season = _beginning(z, phase, slots, best_smooth == 1.0)
    scale = _scale(z, begin, horizons, False)
    rungs = STARTS[best_start].copy()
    season = first_season.copy()
    p = _parameters(rungs, best_log, best_smooth)
    replay(
        z[begin:], phase + begin, level, 0.0, spread, season, p, outlier_sigmas,
        horizons, False, absolute, squared,
    )  # fmt: skip
    best = _loss(absolute, scale)
    step = 2.0
    while step >= 0.5:
        for _ in range(ROUNDS):
            improved = False
            for k in range(SEARCHED):
                if (k == GAMMA and slots == 0) or (k in (BETA, PHI) and best_log == 1.0):
                    continue
                if (k == PHI and p[BETA] == 0.0) or (k == RHO and p[KAPPA] == 0.0):
                    continue  # without trend or excess their fading changes nothing
                here = rungs[k]
                for direction in (-1.0, 1.0):
                    rungs[k] = min(max(here + direction * step, 0.0), RUNGS[k] - 1.0)
                    if rungs[k] == here:
                        continue
                    q = _parameters(rungs, best_log, best_smooth)
                    season[:] = first_season
                    replay(
                        z[begin:], phase + begin, level, 0.0, spread, season, q, outlier_sigmas,
                        horizons, False, absolute, squared,
                    )  # fmt: skip
                    loss = _loss(absolute, scale)
                    if loss < best:
                        best, p, improved = loss, q, True
                        break
                    rungs[k] = here
            if not improved:
                break
        step /= 2.0

    season[:] = first_season
    level, trend, excess, spread = replay(
        z[begin:], phase + begin, level, 0.0, spread, season, p, outlier_sigmas,
        horizons, True, absolute, squared,
    )  # fmt: skip
    return p, np.array([level, trend, excess, spread]), season, absolute, squared


@njit(cache=True, nogil=True)
def fit_rows(
    rows: Floats, phase: int, slots: int, horizons: Ints, outlier_sigmas: float, may_log: bool
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return what `fit` returns, stacked, for each row of *rows* [series, time]."""
    count = len(rows)
    parameters = np.empty((count, PARAMETERS))
    places = np.empty((count, 4))
    seasons = np.empty((count, slots))
    absolute = np.empty((count, len(horizons)))
    squared = np.empty((count, len(horizons)))
    for i in range(count):
        parameters[i], places[i], seasons[i], absolute[i], squared[i] = fit(
            rows[i], phase, slots, horizons, outlier_sigmas, may_log
        )
    return parameters, places, seasons, absolute, squared
