"""The memory of forecasts: a value, one row per series.

What is as long as the season or the history is a tuple of columns (one array over all series for each step), and
the next state shares all columns but the one that changed. An update therefore costs the same for a season of
12 steps and of 2,016, although no state is ever written to.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.forecast.options import ForecastOptions
from penstock.forecast.smoothing import PARAMETERS

Column = Floats


class Model(IntEnum):
    """The candidates; NONE stands for a series that was never observed."""

    NONE = -1
    LAST = 0
    MEAN = 1
    HOLT = 2
    HOLT_WINTERS = 3
    LAST_SEASON = 4


CANDIDATES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoother:
    """Where exponential smoothing stands, for every series; rows not yet fitted hold NaN parameters."""

    parameters: Floats  # [series, PARAMETERS]
    level: Floats
    trend: Floats
    excess: Floats
    spread: Floats
    season: tuple[Column, ...]  # slot k belongs to steps with clock % season_steps == k
    fitted_on: Ints  # known observations when last fitted, 0 = never
    recent_error: Floats  # one-step absolute error, of the last few steps
    strikes: Ints  # consecutive updates in which that was drift


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Forecasts that wait for the observation of step *due*."""

    due: int
    probe: int  # index into probe_steps
    candidates: Floats  # [series, CANDIDATES]
    issued: Floats  # [series]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Exponentially weighted errors of forecasts, in the units of the series; NaN where none was seen."""

    absolute: Floats  # [series, CANDIDATES, probe]
    squared: Floats  # [series, probe], of the forecast that was issued
    scored: Ints  # [series, probe]: how many forecasts were compared with what came
    pending: tuple[Pending, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastState:
    """Everything a forecast rests on. Never written to; `update` makes the next one."""

    clock: int  # steps since start
    held: Ints  # known observations in the history
    last: Floats  # last known observation, NaN before the first
    history: tuple[Column, ...]  # oldest first, NaN where missing
    holt: Smoother
    holt_winters: Smoother
    errors: Errors

    @property
    def series_count(self) -> int:
        """Number of series, the length of every column."""
        return len(self.held)


def start(series_count: int, options: ForecastOptions) -> ForecastState:
    """Return the state of *series_count* series of which nothing is known."""
    if series_count < 0:
        raise ValueError(f"series_count = {series_count} is negative")
    probes = len(options.probe_steps)
    return ForecastState(
        clock=0,
        held=np.zeros(series_count, np.int64),
        last=np.full(series_count, np.nan),
        history=(),
        holt=_unfitted(series_count, 0),
        holt_winters=_unfitted(series_count, options.season_steps),
        errors=Errors(
            absolute=np.full((series_count, CANDIDATES, probes), np.nan),
            squared=np.full((series_count, probes), np.nan),
            scored=np.zeros((series_count, probes), np.int64),
            pending=(),
        ),
    )


def select(state: ForecastState, rows: Ints) -> ForecastState:
    """Return the state of the series in *rows*, in that order; -1 makes a series of which nothing is known.

    So tasks that come and go keep what was learned: after a snapshot with other tasks, pass for each task of the
    new snapshot its row in the old one, or -1.
    """
    rows = np.asarray(rows, np.int64)
    if rows.ndim != 1 or (len(rows) and not -1 <= rows.min() <= rows.max() < state.series_count):
        raise ValueError(f"rows must be a list of -1 .. {state.series_count - 1}")
    new = rows < 0

    def pick(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        picked = np.full((len(rows), *array.shape[1:]), 0 if array.dtype == np.int64 else np.nan, array.dtype)
        picked[~new] = array[rows[~new]]
        return picked

    chosen: ForecastState = _rebuild(state, pick)
    return chosen


def _unfitted(series_count: int, slots: int) -> Smoother:
    nothing = np.full(series_count, np.nan)
    return Smoother(
        parameters=np.full((series_count, PARAMETERS), np.nan),
        level=nothing,
        trend=nothing,
        excess=nothing,
        spread=nothing,
        season=(nothing,) * slots,
        fitted_on=np.zeros(series_count, np.int64),
        recent_error=nothing,
        strikes=np.zeros(series_count, np.int64),
    )


def _rebuild(value: Any, pick: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Any:
    """Return *value* with every array in it replaced by pick(array)."""
    if isinstance(value, np.ndarray):
        return pick(value)
    if isinstance(value, tuple):
        return tuple(_rebuild(part, pick) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _rebuild(getattr(value, f.name), pick) for f in fields(value)})
    return value
