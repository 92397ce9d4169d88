"""What the candidates foresee, and the forecast that is made of them."""

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.arrays import Floats, Ints
from penstock.forecast.options import ForecastOptions
from penstock.forecast.smoothing import ALPHA, LOG, PHI, RHO
from penstock.forecast.state import CANDIDATES, ForecastState

Choices = NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The next steps of every series: column 0 is one step ahead."""

    mean: Floats  # [series, step], in the units of the series
    sigma: Floats  # [series, step], standard deviation of the forecast's error, as tracked
    model: Choices  # [series, step], the Model that weighs most


def forecast(state: ForecastState, horizon_steps: int, options: ForecastOptions) -> Forecast:
    """Return the forecast of every series for the next *horizon_steps* steps.

    The mean is that of the candidates, each weighted by its tracked error at that horizon to the power of
    -choice_sharpness: the best one where it is clearly best, an average where they are alike. Sigma is the root
    of the tracked squared error of what was issued for that horizon; before any was seen, it is as large as the
    mean.
    """
    if horizon_steps < 1:
        raise ValueError(f"horizon_steps = {horizon_steps} is less than one step")
    steps = np.arange(1, horizon_steps + 1)
    mean, sigma, model, _ = foresee(state, steps, options)
    return Forecast(mean=mean, sigma=sigma, model=model)


def foresee(
    state: ForecastState, steps: Ints, options: ForecastOptions, *, keep_candidates: bool = False
) -> tuple[Floats, Floats, Choices, Floats]:
    """Return (mean, sigma, model, candidates[step, series, model]) for the given rising steps ahead.

    The candidates are left out, an empty array, unless they are to be kept.
    """
    probes = np.array(options.probe_steps, np.int64)
    above, share = _between(steps, probes)
    holt, seasonal = state.holt, state.holt_winters
    mean, sigma, model, candidates = _foresee(
        steps, above, share, state.last, _moving_average(state, options),
        holt.parameters, holt.level, holt.trend, holt.excess,
        seasonal.parameters, seasonal.level, seasonal.trend, seasonal.excess,
        _coming_season(state, steps), _last_season(state, steps),
        _weights(state.errors.absolute, options.choice_sharpness),
        _squares(state.errors.squared, probes),
        options.nonnegative, keep_candidates,
    )  # fmt: skip
    # Beyond the last probe errors grow at most like those of a random walk.
    return mean, sigma * np.sqrt(np.maximum(1.0, steps / probes[-1])), model, candidates


def _moving_average(state: ForecastState, options: ForecastOptions) -> Floats:
    """Return the mean of what is known of the last steps; the last known value where nothing is."""
    total, known = np.zeros(state.series_count), np.zeros(state.series_count)
    for column in state.history[-options.mean_steps :]:
        here = ~np.isnan(column)
        total += np.where(here, column, 0.0)
        known += here
    return np.where(known > 0, total / np.maximum(known, 1), state.last)


def _coming_season(state: ForecastState, steps: Ints) -> Floats:
    """Return [step, series] of season; the clock has counted the last observation already."""
    season = state.holt_winters.season
    if not season:
        return np.zeros((len(steps), state.series_count))
    return np.array([season[(state.clock + h - 1) % len(season)] for h in steps.tolist()])


def _last_season(state: ForecastState, steps: Ints) -> Floats:
    """Return [step, series] of what was observed at the same time in the last season, NaN where nothing was."""
    slots = len(state.holt_winters.season)
    nothing = np.full(state.series_count, np.nan)
    back = [h - 1 - slots * -(-h // slots) if slots else -len(state.history) - 1 for h in steps.tolist()]
    return np.array([state.history[k] if -k <= len(state.history) else nothing for k in back])


def _between(steps: Ints, probes: Ints) -> tuple[Ints, Floats]:
    """Return for each step the probe at or above it, and its share between the two on a logarithmic axis."""
    above = np.minimum(np.searchsorted(probes, steps), len(probes) - 1)
    below = np.maximum(above - 1, 0)
    width = np.log(probes[above] / probes[below])
    share = np.log(steps / probes[below]) / np.where(width > 0, width, 1.0)
    return above, np.clip(share, 0.0, 1.0)


@njit(cache=True, nogil=True)
def _weights(absolute: Floats, sharpness: float) -> Floats:
    """Return [series, probe, model] of weights that add up to 1, error**-sharpness of each model.

    Where a model has not been scored at a probe, its error at the nearest shorter one speaks for it. The moving
    average is taken while nothing has been scored.
    """
    series, count, probes = absolute.shape
    weights = np.zeros((series, probes, count))
    errors = np.empty(count)
    for i in range(series):
        errors[:] = np.nan
        for k in range(probes):
            lowest = math.inf
            for m in range(count):
                if not math.isnan(absolute[i, m, k]):
                    errors[m] = absolute[i, m, k]
                if errors[m] < lowest:
                    lowest = errors[m]
            total = 0.0
            for m in range(count):
                if errors[m] == lowest:
                    weights[i, k, m] = 1.0
                elif errors[m] > lowest:
                    weights[i, k, m] = (lowest / errors[m]) ** sharpness
                total += weights[i, k, m]
            if total == 0.0:
                weights[i, k, 1] = total = 1.0
            weights[i, k] /= total
    return weights


def _squares(squared: Floats, probes: Ints) -> Floats:
    """Return [series, probe] of squared errors; one not seen yet grows from the last as in a random walk."""
    filled = squared.copy()
    for k in range(1, len(probes)):
        growth = probes[k] / probes[k - 1]
        filled[:, k] = np.where(np.isnan(squared[:, k]), filled[:, k - 1] * growth, squared[:, k])
    return filled


@njit(cache=True, nogil=True)
def _foresee(
    steps: Ints,
    above: Ints,
    share: Floats,
    last: Floats,
    average: Floats,
    holt: Floats,
    holt_level: Floats,
    holt_trend: Floats,
    holt_excess: Floats,
    seasonal: Floats,
    seasonal_level: Floats,
    seasonal_trend: Floats,
    seasonal_excess: Floats,
    season: Floats,
    last_season: Floats,
    weights: Floats,
    squares: Floats,
    nonnegative: bool,
    keep: bool,
) -> tuple[Floats, Floats, Choices, Floats]:
    """Return (mean, sigma, model, candidates), all series and steps in one pass."""
    series, horizon = len(last), len(steps)
    mean = np.zeros((series, horizon))
    sigma = np.zeros((series, horizon))
    model = np.full((series, horizon), -1, np.int8)
    candidates = np.full((horizon if keep else 0, series, CANDIDATES), np.nan)
    guess = np.empty(CANDIDATES)
    for i in range(series):
        if math.isnan(last[i]):
            continue
        p, q = holt[i], seasonal[i]
        fitted, seasonal_fitted = not math.isnan(p[ALPHA]), not math.isnan(q[ALPHA])
        h = 0
        damped, damping, fade = 0.0, 1.0, 1.0  # φ + … + φʰ, φʰ and ρʰ, carried from step to step
        seasonal_damped, seasonal_damping, seasonal_fade = 0.0, 1.0, 1.0
        for j in range(horizon):
            while h < steps[j]:
                h += 1
                damping *= p[PHI]
                damped += damping
                fade *= p[RHO]
                seasonal_damping *= q[PHI]
                seasonal_damped += seasonal_damping
                seasonal_fade *= q[RHO]
            guess[0], guess[1], guess[2], guess[3] = last[i], average[i], np.nan, np.nan  # as Model counts
            guess[4] = last_season[j, i]
            if fitted:
                z = holt_level[i] + damped * holt_trend[i] + fade * holt_excess[i]
                guess[2] = math.expm1(z) if p[LOG] == 1.0 else z
            if seasonal_fitted:
                z = seasonal_level[i] + seasonal_damped * seasonal_trend[i] + season[j, i]
                z += seasonal_fade * seasonal_excess[i]
                guess[3] = math.expm1(z) if q[LOG] == 1.0 else z
            heaviest, total = 0.0, 0.0
            for m in range(CANDIDATES):
                if math.isnan(guess[m]):
                    continue
                if nonnegative:
                    guess[m] = max(guess[m], 0.0)
                weight = share[j] * weights[i, above[j], m]
                if share[j] < 1.0:
                    weight += (1.0 - share[j]) * weights[i, max(above[j] - 1, 0), m]
                total += weight
                mean[i, j] += weight * guess[m]
                if weight > heaviest:
                    heaviest, model[i, j] = weight, m
            if total > 0.0:
                mean[i, j] /= total  # less than 1 where the last season has a gap
            else:
                mean[i, j], model[i, j] = average[i], 1
            square = share[j] * squares[i, above[j]]
            if share[j] < 1.0:
                square += (1.0 - share[j]) * squares[i, max(above[j] - 1, 0)]
            sigma[i, j] = abs(mean[i, j]) if math.isnan(square) else math.sqrt(square)
            if keep:
                candidates[j, i] = guess
    return mean, sigma, model, candidates
