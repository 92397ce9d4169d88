"""Figures over time, bounded in size whatever the length of a run, and thinned out for a chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats

CAPACITY = 16_384
"""Points that are kept: at one in 5 s, the newest eleven hours in full and weeks of older ones thinned out."""
_PEAKS = ("latency_s", "p95_s", "mean_s", "backlog_records", "duration_s", "fixed_s")
_LOWS = ("accuracy", "keep", "speed")


class Key(NamedTuple):
    """Which figure of what: ("query", "orders", "read_rps")."""

    scope: str
    name: str
    figure: str


class Series:
    """Columns over one time axis; what was not told at a time is NaN. Not safe to use from two threads at once."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        if capacity < 4:
            raise ValueError(f"a series keeps at least 4 points, not {capacity}")
        self._capacity = capacity
        self._times = np.empty(min(capacity, 256))
        self._columns: dict[Key, Floats] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, time_s: float, figures: Mapping[Key, float | None]) -> None:
        """Add a point; figures not named are unknown at that time."""
        if self._length == self._capacity:
            self._thin()
        if self._length == len(self._times):
            self._grow()
        at = self._length
        self._times[at] = time_s
        for column in self._columns.values():
            column[at] = np.nan
        for key, value in figures.items():
            column = self._columns.setdefault(key, np.full(len(self._times), np.nan))
            column[at] = np.nan if value is None else value
        self._length += 1

    def drop(self, scope: str, names: set[str]) -> None:
        """Forget all figures of those things."""
        for key in [k for k in self._columns if k.scope == scope and k.name in names]:
            del self._columns[key]

    def window(self, *, since_s: float = -np.inf, points: int = 800) -> dict[str, Any]:
        """The times and columns from `since_s` on, thinned out to at most `points`.

        Peaks stay visible: of latencies, backlogs and batch lengths the highest of the points that become one is
        shown, of shares that should be high the lowest, of everything else the mean.
        """
        first = int(np.searchsorted(self._times[: self._length], since_s))
        step = max(1, -(-(self._length - first) // max(1, points)))
        starts = np.arange(first, self._length, step)
        times = self._times[np.minimum(starts + step, self._length) - 1] if len(starts) else np.empty(0)
        columns = []
        for key, column in self._columns.items():
            values = column[: self._length]
            if len(starts) and not np.isnan(values[first:]).all():
                merged = values[first:] if step == 1 else _merge(key.figure, values, starts)
                columns.append({**key._asdict(), "values": _short(merged)})
        return {"times": np.round(times, 1).tolist(), "columns": columns}

    def _grow(self) -> None:
        size = min(self._capacity, 2 * len(self._times))
        self._times = np.concatenate([self._times, np.empty(size - len(self._times))])
        for key, column in self._columns.items():
            self._columns[key] = np.concatenate([column, np.full(size - len(column), np.nan)])

    def _thin(self) -> None:
        """Make one point of two in the older half."""
        half = self._capacity // 2 // 2 * 2
        starts = np.arange(0, half, 2)
        kept = self._length - half // 2
        self._times[: half // 2] = self._times[1:half:2]
        self._times[half // 2 : kept] = self._times[half : self._length].copy()
        for key, column in self._columns.items():
            merged = _merge(key.figure, column[:half], starts)
            column[half // 2 : kept] = column[half : self._length].copy()
            column[: half // 2] = merged
        self._length = kept


def _merge(figure: str, values: Floats, starts: NDArray[np.int64]) -> Floats:
    """One value for each stretch that begins at one of `starts`."""
    if figure in _PEAKS:
        return np.fmax.reduceat(values, starts)
    if figure in _LOWS:
        return np.fmin.reduceat(values, starts)
    known = ~np.isnan(values)
    count: Floats = np.add.reduceat(known.astype(np.float64), starts)
    total: Floats = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(count > 0, total / np.maximum(count, 1.0), np.nan)


def _short(values: Floats) -> list[float | None]:
    """Four significant digits of fractions, None for unknown: a day of them is a page that opens at once."""
    sizes = np.abs(np.where(np.isfinite(values), values, 0.0))
    digits = np.clip(3 - np.floor(np.log10(np.where(sizes > 0, sizes, 1.0))), 0, 12)
    scale = 10.0**digits
    rounded = np.round(values * scale) / scale
    return [None if value != value else value for value in rounded.tolist()]
