"""What the runtime itself has to do later: nodes that become ready, tasks that arrive, profiles that change."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable

from penstock.dataflow import Load


class Timers:
    """Calls to make at given times, in the order of time and then of asking."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0

    @property
    def next_s(self) -> float:
        """When the next call is due; infinite if none is."""
        return self._heap[0][0] if self._heap else math.inf

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        """Make the call at `time_s`."""
        self._asked += 1
        heapq.heappush(self._heap, (time_s, self._asked, call))

    def run_next(self) -> None:
        """Make the call that is due first."""
        heapq.heappop(self._heap)[2]()


def value_at(profile: Load | None, time_s: float, default: float) -> float:
    """What a profile says at a time."""
    if profile is None:
        return default
    within = time_s if profile.period_s is None else time_s % profile.period_s
    return profile.rates_rps[bisect_right(profile.times_s, within) - 1]


def next_change_s(profile: Load | None, time_s: float) -> float:
    """When a profile says something new after a time; infinite if never."""
    if profile is None:
        return math.inf
    period = profile.period_s
    start = 0.0 if period is None else math.floor(time_s / period) * period
    for cycle_start in (start, start + (period or 0.0)):
        at = bisect_right(profile.times_s, time_s - cycle_start)
        for time in profile.times_s[at : at + 2]:
            if cycle_start + time > time_s:  # rounding can put the change of this very instant here again
                return cycle_start + time
    return math.inf if period is None else start + 2 * period
