"""Rates from cumulative counters: offsets, rows read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from penstock.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class CounterRates:
    """Records per second behind cumulative counters (offsets, rows read), one per row, over a sliding window.

    A counter that falls (a restarted executor, a re-created topic) starts again from its new value; it never
    gives a negative rate. Values: times of the last readings and the counters read, oldest first.
    """

    window_s: float
    times_s: Floats
    counters: Floats
    """One row of counters per time."""

    @classmethod
    def start(cls, rows: int, *, window_s: float) -> CounterRates:
        """No reading yet."""
        if not window_s > 0:
            raise ValueError(f"a window must be longer than 0 s, not {window_s}")
        return cls(window_s, np.zeros(0), np.zeros((0, rows)))

    def add(self, time_s: float, counters: ArrayLike) -> CounterRates:
        """With one more reading; those older than the window (but for one before it) are forgotten."""
        now = np.asarray(counters, dtype=np.float64)
        if self.times_s.size and time_s <= self.times_s[-1]:
            raise ValueError(f"readings must be in order: {time_s} after {self.times_s[-1]}")
        times = np.append(self.times_s, time_s)
        first = max(0, int(np.searchsorted(times, time_s - self.window_s, side="right")) - 1)
        return CounterRates(self.window_s, times[first:], np.vstack([self.counters, now])[first:])

    def since_last(self) -> CounterRates:
        """Only the last reading: what comes from here on is another rate."""
        return CounterRates(self.window_s, self.times_s[-1:], self.counters[-1:])

    @property
    def rates_rps(self) -> Floats | None:
        """Records per second over the window; None before the second reading."""
        if self.times_s.size < 2:
            return None
        steps = np.diff(self.counters, axis=0)
        grown = np.where(steps >= 0, steps, self.counters[1:])  # fell: everything since the new start
        return np.asarray(grown.sum(axis=0) / (self.times_s[-1] - self.times_s[0]))
