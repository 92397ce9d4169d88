"""One observation later: score, smooth, refit what drifted, and issue the forecasts to be scored next."""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats, Ints
from penstock.forecast.fitting import fit_rows
from penstock.forecast.options import FIRST_FIT_STEPS, ForecastOptions
from penstock.forecast.outlook import foresee
from penstock.forecast.smoothing import advance
from penstock.forecast.state import Errors, ForecastState, Model, Pending, Smoother

T = TypeVar("T", bound=np.generic)

RECENT_WEIGHT = 0.15  # of a new error in the recent one: about the last dozen steps
PROBES_AFLOAT = 6  # forecasts that wait for one probe at most, so that memory does not grow with the horizon


def update(
    state: ForecastState,
    values: Floats,
    options: ForecastOptions,
    known: NDArray[np.bool_] | None = None,
) -> ForecastState:
    """Return the state one step later, with *values* observed, one for each series.

    An observation that is NaN, or not *known*, is missing: forecasts go on without it.
    """
    column = _checked(state, values, options, known)
    errors, one_step = _score(state, column, options)
    here = ~np.isnan(column)
    full = len(state.history) == options.capacity_steps
    forgotten = ~np.isnan(state.history[0]) if full else np.zeros_like(here)
    state = replace(
        state,
        clock=state.clock + 1,
        held=state.held + here - forgotten,
        last=np.where(here, column, state.last),
        history=(*state.history, column)[-options.capacity_steps :],
        holt=_observe(state.holt, column, 0, one_step, Model.HOLT, errors, options),
        holt_winters=_observe(
            state.holt_winters, column, state.clock, one_step, Model.HOLT_WINTERS, errors, options
        ),
        errors=errors,
    )
    state = _refit(state, Model.HOLT, options)
    if options.season_steps:
        state = _refit(state, Model.HOLT_WINTERS, options)
    return _issue(state, options)


def _checked(
    state: ForecastState, values: Floats, options: ForecastOptions, known: NDArray[np.bool_] | None
) -> Floats:
    column = np.array(values, np.float64)
    if column.shape != (state.series_count,):
        raise ValueError(f"{column.shape} values for {state.series_count} series; give one for each")
    if known is not None:
        column[~np.asarray(known, np.bool_)] = np.nan
    if np.isinf(column).any() or (options.nonnegative and (column < 0).any()):
        row = int(np.argmax(np.isinf(column) | (column < 0)))
        raise ValueError(f"series {row} was given {column[row]}; rates are finite and not negative")
    return column


def _score(state: ForecastState, column: Floats, options: ForecastOptions) -> tuple[Errors, Floats]:
    """Return the errors with what was due now counted in, and those of one step ahead."""
    errors = state.errors
    absolute, squared, scored = errors.absolute.copy(), errors.squared.copy(), errors.scored.copy()
    one_step = np.full(absolute.shape[:2], np.nan)
    for pending in errors.pending:
        if pending.due != state.clock:
            continue
        probe = pending.probe
        off = np.abs(column[:, None] - pending.candidates)
        if probe == 0:
            one_step = off
        off_issued = (column - pending.issued) ** 2
        compared = ~np.isnan(off_issued)
        # The first errors count evenly, then the weight stays at one over the memory.
        least = min(1.0, _stride(options.probe_steps[probe]) / options.error_memory_steps)
        weight = np.maximum(1.0 / (scored[:, probe] + 1), least)
        absolute[:, :, probe] = _blend(absolute[:, :, probe], off, weight[:, None])
        squared[:, probe] = _blend(squared[:, probe], off_issued, weight)
        scored[:, probe] += compared
    pending_left = tuple(p for p in errors.pending if p.due > state.clock)
    return Errors(absolute=absolute, squared=squared, scored=scored, pending=pending_left), one_step


def _blend(old: Floats, new: Floats, weight: Floats | float) -> Floats:
    """Return old + weight·(new - old), whichever of the two there is where one is NaN."""
    mixed = old + weight * (new - old)
    return np.where(np.isnan(new), old, np.where(np.isnan(old), new, mixed))


def _stride(probe_steps: int) -> int:
    return -(-probe_steps // PROBES_AFLOAT)


def _observe(
    smoother: Smoother,
    column: Floats,
    clock: int,
    one_step: Floats,
    model: Model,
    errors: Errors,
    options: ForecastOptions,
) -> Smoother:
    """Return the smoother one observation later, with its drift counted."""
    slots = len(smoother.season)
    slot = clock % slots if slots else 0
    level, trend, excess, spread, season = advance(
        column,
        smoother.level,
        smoother.trend,
        smoother.excess,
        smoother.spread,
        smoother.season[slot] if slots else np.zeros_like(column),
        smoother.parameters,
        options.outlier_sigmas,
    )
    off = one_step[:, model]
    recent = _blend(smoother.recent_error, off, RECENT_WEIGHT)
    drifting = recent > options.drift_ratio * errors.absolute[:, model, 0]
    strikes = np.where(np.isnan(off), smoother.strikes, np.where(drifting, smoother.strikes + 1, 0))
    return replace(
        smoother,
        level=level,
        trend=trend,
        excess=excess,
        spread=spread,
        season=(*smoother.season[:slot], season, *smoother.season[slot + 1 :]) if slots else (),
        recent_error=recent,
        strikes=strikes,
    )


def _due(state: ForecastState, smoother: Smoother, options: ForecastOptions) -> Ints:
    """Return the rows to fit now: enough seen for the first time, twice as much as last time, or drifted.

    What the last value has always foretold without error needs no model.
    """
    enough = max(2 * len(smoother.season), FIRST_FIT_STEPS)
    fitted = smoother.fitted_on
    grown = (fitted < options.capacity_steps) & (state.held >= np.minimum(2 * fitted, options.capacity_steps))
    drifted = smoother.strikes >= options.drift_patience_steps
    constant = state.errors.absolute[:, Model.LAST, 0] == 0
    rows = np.flatnonzero((state.held >= enough) & (grown | drifted) & ~constant)
    if len(rows) > options.refits_per_update:
        rows = rows[np.argsort(fitted[rows], kind="stable")[: options.refits_per_update]]
    return rows


def _refit(state: ForecastState, model: Model, options: ForecastOptions) -> ForecastState:
    """Return the state with the series fitted anew that need it, on the history that is held."""
    smoother = state.holt if model is Model.HOLT else state.holt_winters
    rows = _due(state, smoother, options)
    if not len(rows):
        return state
    slots = len(smoother.season)
    history = np.stack([column[rows] for column in state.history], axis=1)
    phase = (state.clock - history.shape[1]) % slots if slots else 0
    parameters, places, seasons, absolute, _ = fit_rows(
        history,
        phase,
        slots,
        np.array(options.probe_steps, np.int64),
        options.outlier_sigmas,
        options.nonnegative,
    )
    tracked = state.errors.absolute.copy()
    # The replayed errors replace those of the old parameters; today's errors are the new normal if they are
    # higher, so that a series that cannot be foreseen is not fitted again and again.
    absolute[:, 0] = np.fmax(absolute[:, 0], smoother.recent_error[rows])
    tracked[rows, model] = np.where(np.isnan(absolute), tracked[rows, model], absolute)
    fitted = replace(
        smoother,
        parameters=_put(smoother.parameters, rows, parameters),
        level=_put(smoother.level, rows, places[:, 0]),
        trend=_put(smoother.trend, rows, places[:, 1]),
        excess=_put(smoother.excess, rows, places[:, 2]),
        spread=_put(smoother.spread, rows, places[:, 3]),
        season=tuple(_put(column, rows, seasons[:, k]) for k, column in enumerate(smoother.season)),
        fitted_on=_put(smoother.fitted_on, rows, state.held[rows]),
        strikes=_put(smoother.strikes, rows, np.zeros(len(rows), np.int64)),
    )
    errors = replace(state.errors, absolute=tracked)
    if model is Model.HOLT:
        return replace(state, holt=fitted, errors=errors)
    return replace(state, holt_winters=fitted, errors=errors)


def _put(old: NDArray[T], rows: Ints, new: NDArray[T]) -> NDArray[T]:
    copy = old.copy()
    copy[rows] = new
    return copy


def _issue(state: ForecastState, options: ForecastOptions) -> ForecastState:
    """Return the state with forecasts for those probes whose turn it is."""
    turn = [k for k, h in enumerate(options.probe_steps) if state.clock % _stride(h) == 0]
    steps = np.array([options.probe_steps[k] for k in turn], np.int64)
    mean, _, model, candidates = foresee(state, steps, options, keep_candidates=True)
    mean[model == Model.NONE] = np.nan  # never observed: nothing was foreseen that could be scored
    issued = tuple(
        Pending(
            due=state.clock + options.probe_steps[k] - 1,
            probe=k,
            candidates=candidates[j],
            issued=mean[:, j].copy(),
        )
        for j, k in enumerate(turn)
    )
    return replace(state, errors=replace(state.errors, pending=state.errors.pending + issued))
