"""Rings filled from what was seen: arrivals are forecast, costs remembered, for all computations at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.arrays import Floats, Ints
from penstock.forecast import ForecastOptions, ForecastState, forecast, select
from penstock.forecast import start as start_forecast
from penstock.forecast import update as update_forecast
from penstock.forecast.options import FIRST_FIT_STEPS
from penstock.policies.interference.rings import RingShape, resampling

HISTORY_STEPS = 96
"""Observations kept where there is no season; a controller's memory is written down in every cycle."""
SURPRISE_SIGMAS = 4.0
"""An observation this far from what was expected moves the whole ring at once."""
COST_WEIGHT = 0.3
"""Of a new measurement in what a record is believed to cost."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learned:
    """What is known of each computation; a row each, in the order of `ids`. A value: `observe` makes the next."""

    ids: Ints
    """Operator row · 2³² + index."""
    step_s: float
    state: ForecastState
    recent: Floats
    """[row, step]: the last rates; NaN where nothing was measured."""
    cpu_s: Floats
    """Core-seconds a record takes, NaN before the first."""
    size_bytes: Floats
    """Bytes a record brings over the network, NaN before the first."""
    shift: Floats
    """What a surprise adds to the forecast for now, records per second."""

    @classmethod
    def nothing(cls) -> Learned:
        """No computation has been seen."""
        empty = np.zeros(0)
        return cls(
            ids=np.zeros(0, np.int64),
            step_s=0.0,
            state=start_forecast(0, _options(0, 1)),
            recent=np.zeros((0, 1)),
            cpu_s=empty,
            size_bytes=empty,
            shift=empty,
        )


@cache
def compile_forecasts() -> None:
    """Have all that forecasts call compiled, also what the first fit will call many cycles from now."""
    options = _options(0, 1)
    state = start_forecast(1, options)
    for _ in range(FIRST_FIT_STEPS):
        state = update_forecast(state, np.ones(1), options)
    _gathered(np.ones((1, 1)), np.ones((1, 1)), np.ones(1))


def observe(
    learned: Learned,
    ids: Ints,
    rates_rps: Floats,
    known: NDArray[np.bool_],
    cpu_s: Floats,
    size_bytes: Floats,
    *,
    step_s: float,
    season_s: float,
    mean_steps: int,
    span_s: float,
) -> Learned:
    """With one cycle more. Computations that come and go keep what was learned of them."""
    learned = _aligned(learned, ids, step_s, season_s, span_s)
    options = _options(_steps(season_s, step_s), _horizon(span_s, learned.step_s))
    recent = np.concatenate([learned.recent, np.where(known, rates_rps, np.nan)[:, None]], axis=1)
    recent = recent[:, -mean_steps:]
    seen = np.isfinite(recent)
    mean = np.where(seen, recent, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    expected, sigma = _issued(learned.state)
    state = update_forecast(learned.state, mean, options, known=known)
    # Believed at once: what comes far off all experience, such as a computation that wakes up.
    surprised = known & (np.abs(mean - expected) > SURPRISE_SIGMAS * sigma + 1e-9)
    shift = learned.shift
    if surprised.any() or shift.any():
        missing = mean - forecast(state, 1, options).mean[:, 0]
        shift = np.where(surprised, missing, _lasting(shift, missing))
    return Learned(
        ids=ids,
        step_s=learned.step_s,
        state=state,
        recent=recent,
        cpu_s=_blended(learned.cpu_s, cpu_s),
        size_bytes=_blended(learned.size_bytes, size_bytes),
        shift=shift,
    )


def _issued(state: ForecastState) -> tuple[Floats, Floats]:
    """(mean, sigma) that were issued a step ago for now; NaN where nothing was, which surprises nobody."""
    for pending in state.errors.pending:
        if pending.due == state.clock and pending.probe == 0:
            square = state.errors.squared[:, 0]
            return pending.issued, np.where(np.isnan(square), np.abs(pending.issued), np.sqrt(square))
    nothing = np.full(state.series_count, np.nan)
    return nothing, nothing


def _lasting(shift: Floats, residual: Floats) -> Floats:
    """A surprise counts for as long as the forecast has not caught up with it."""
    same = shift * residual > 0
    return np.where(same, np.sign(residual) * np.minimum(np.abs(shift), np.abs(residual)), 0.0)


def expected_rps(
    learned: Learned,
    shape: RingShape,
    *,
    season_s: float,
    onto: Floats | None = None,
    forecasts: bool = True,
) -> Floats:
    """[computation, window]: the arrival rate expected in each window of its ring.

    `onto` [window, part] gathers windows into parts; all at once is cheaper than rings first. Without `forecasts` the
    mean of the last cycles stays.
    """
    horizon = _horizon(shape.span_s, learned.step_s)
    options = _options(_steps(season_s, learned.step_s), horizon)
    steps = np.arange(horizon + 1, dtype=np.float64) * learned.step_s
    weights = resampling(steps, shape.edges_s)
    weights = weights if onto is None else weights @ onto
    if not forecasts:
        seen = np.isfinite(learned.recent)
        last = np.where(seen, learned.recent, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        return _gathered(np.tile(last[:, None], horizon), weights, np.zeros(len(last)))
    mean: Floats = forecast(learned.state, horizon, options).mean
    return _gathered(mean, weights, learned.shift)


@njit(cache=True, nogil=True)
def _gathered(mean: Floats, weights: Floats, shift: Floats) -> Floats:
    """`mean @ weights` plus the shift of each row, at least 0; on this thread: BLAS would wake all cores for it."""
    rates = np.empty((len(mean), weights.shape[1]))
    for row in range(len(mean)):
        rates[row] = shift[row]
        for step in range(len(weights)):
            for window in range(weights.shape[1]):
                rates[row, window] += mean[row, step] * weights[step, window]
        for window in range(weights.shape[1]):
            rates[row, window] = max(rates[row, window], 0.0)
    return rates


def per_record(learned: Learned, operator: Ints, operators: int) -> tuple[Floats, Floats]:
    """(core-seconds, bytes) of a record of each computation; the mean of its operator where it has had none."""
    return _filled(learned.cpu_s, operator, operators), _filled(learned.size_bytes, operator, operators)


def _filled(values: Floats, operator: Ints, operators: int) -> Floats:
    known = np.isfinite(values)
    total = np.bincount(operator[known], values[known], operators)
    usual = total / np.maximum(np.bincount(operator[known], minlength=operators), 1)
    return np.where(known, values, usual[operator])


def _blended(old: Floats, new: Floats) -> Floats:
    mixed = old + COST_WEIGHT * (new - old)
    return np.where(np.isfinite(mixed), mixed, np.where(np.isfinite(new), new, old))


def _aligned(learned: Learned, ids: Ints, step_s: float, season_s: float, span_s: float) -> Learned:
    """The same for the computations there are now."""
    if learned.step_s <= 0 or _fits_not(learned.step_s, step_s):
        # The first cycle, or another rhythm: steps of another length are other series.
        options = _options(_steps(season_s, step_s), _horizon(span_s, step_s))
        fresh = start_forecast(len(learned.ids), options)
        learned = replace(learned, step_s=step_s, state=fresh)
    if len(ids) == len(learned.ids) and np.array_equal(ids, learned.ids):
        return learned
    order = np.argsort(learned.ids, kind="stable")
    at = np.searchsorted(learned.ids[order], ids)
    at = np.minimum(at, max(len(order) - 1, 0))
    found = learned.ids[order][at] == ids if len(order) else np.zeros(len(ids), np.bool_)
    rows = np.where(found, order[at] if len(order) else 0, -1)
    return replace(
        learned,
        ids=ids,
        state=select(learned.state, rows),
        recent=_picked(learned.recent, rows),
        cpu_s=_picked(learned.cpu_s, rows),
        size_bytes=_picked(learned.size_bytes, rows),
        shift=np.nan_to_num(_picked(learned.shift, rows)),
    )


def _picked(values: Floats, rows: Ints) -> Floats:
    picked = np.full((len(rows), *values.shape[1:]), np.nan)
    picked[rows >= 0] = values[rows[rows >= 0]]
    return picked


def _fits_not(step_s: float, now_s: float) -> bool:
    """Whether cycles have become much longer or shorter; live ones vary a little, and one may come late."""
    return not 0.4 < now_s / step_s < 2.5


def _steps(season_s: float, step_s: float) -> int:
    steps = round(season_s / step_s) if step_s > 0 else 0
    return steps if steps >= 2 else 0


def _horizon(span_s: float, step_s: float) -> int:
    return max(1, math.ceil(span_s / step_s - 1e-9)) if step_s > 0 else 1


def _options(season_steps: int, horizon_steps: int) -> ForecastOptions:
    return ForecastOptions(
        season_steps=season_steps, horizon_steps=horizon_steps, history_steps=HISTORY_STEPS, history_seasons=2
    )
