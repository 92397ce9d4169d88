"""How many records a source produces over time, for the replay source and for the simulator alike."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.dataflow.checks import Count
from penstock.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


MAX_POINTS = 1_000_000
"""More changes of rate than this is taken for a slip of the pen."""


class LoadError(UserError, ValueError):
    """A load that cannot be played: unreadable trace, negative rate, times out of order."""


@dataclass(frozen=True, slots=True)
class Load:
    """A rate that is constant between the given times: `rates_rps[i]` holds from `times_s[i]` on.

    The first time is 0. With `period_s` the profile starts again after that long; without, the last rate stays.

    >>> staircase([(10, 100), (10, 300)]).records_until(15)
    2500.0
    """

    times_s: tuple[float, ...]
    rates_rps: tuple[float, ...]
    period_s: float | None = None

    def __post_init__(self) -> None:
        if not self.times_s or len(self.times_s) != len(self.rates_rps):
            raise LoadError("a load needs as many rates as times, and at least one")
        if self.times_s[0] != 0:
            raise LoadError(f"a load starts at time 0, not at {self.times_s[0]:g}")
        if any(b <= a for a, b in zip(self.times_s, self.times_s[1:], strict=False)):
            raise LoadError("the times of a load must increase")
        if not all(math.isfinite(v) for v in (*self.times_s, *self.rates_rps)):
            raise LoadError("a load's times and rates must be finite numbers")
        if min(self.rates_rps) < 0:
            raise LoadError(f"a rate cannot be negative: {min(self.rates_rps):g}")
        if self.period_s is not None and not self.times_s[-1] < self.period_s < math.inf:
            raise LoadError(
                f"the period ({self.period_s:g} s) must be longer than the last time ({self.times_s[-1]:g} s)"
            )

    def rate_at(self, time_s: float | Floats) -> Floats:
        """Records per second at the given times."""
        t = np.asarray(time_s, dtype=np.float64)
        if self.period_s is not None:
            t = t % self.period_s
        return np.asarray(self.rates_rps)[np.searchsorted(self.times_s, t, side="right") - 1]

    def records_until(self, time_s: float) -> float:
        """Records produced from time 0 until `time_s`, as a real number."""
        whole, rest = (0.0, time_s) if self.period_s is None else divmod(time_s, self.period_s)
        times, rates = np.asarray(self.times_s), np.asarray(self.rates_rps)

        def within(until: float) -> float:
            ends = np.append(times[1:], np.inf)
            return float(np.sum(np.clip(np.minimum(ends, until) - times, 0.0, None) * rates))

        return within(rest) + (whole * within(self.period_s) if self.period_s is not None and whole else 0.0)

    def scaled(self, *, time: float = 1.0, rate: float = 1.0) -> Load:
        """The same shape with time stretched by `time` and rates multiplied by `rate`."""
        if not (time > 0 and math.isfinite(time)) or not (rate >= 0 and math.isfinite(rate)):
            raise LoadError(f"scales must be positive and finite: time {time:g}, rate {rate:g}")
        return Load(
            tuple(t * time for t in self.times_s),
            tuple(r * rate for r in self.rates_rps),
            None if self.period_s is None else self.period_s * time,
        )

    @property
    def peak_rps(self) -> float:
        """The highest rate."""
        return max(self.rates_rps)

    @property
    def duration_s(self) -> float:
        """When the last rate begins to hold, or the period: how long the profile is worth playing."""
        return self.period_s if self.period_s is not None else self.times_s[-1]


def constant(rate_rps: float) -> Load:
    """The same rate for ever."""
    return Load((0.0,), (float(rate_rps),))


def staircase(steps: Sequence[tuple[float, float]], *, repeat: bool = False) -> Load:
    """Steps of (seconds, records per second), one after the other; the last stays, or all repeat."""
    if not steps:
        raise LoadError("a staircase needs at least one step")
    if any(not seconds > 0 for seconds, _ in steps):
        raise LoadError("every step of a staircase lasts more than 0 s")
    ends = np.cumsum([float(seconds) for seconds, _ in steps])
    return Load(
        (0.0, *(float(e) for e in ends[:-1])),
        tuple(float(rate) for _, rate in steps),
        float(ends[-1]) if repeat else None,
    )


def sine(mean_rps: float, amplitude_rps: float, period_s: float, *, step_s: float | None = None) -> Load:
    """A sine in small steps (by default 100 a period), repeated for ever."""
    if not period_s > 0:
        raise LoadError(f"a sine's period must be positive: {period_s:g}")
    step = period_s / 100 if step_s is None else step_s
    if not step > 0:
        raise LoadError(f"a sine's step must be positive: {step:g}")
    _refuse_too_many(period_s / step)
    times = np.arange(0.0, period_s, step)
    middle = times + step / 2
    rates = np.clip(mean_rps + amplitude_rps * np.sin(2 * np.pi * middle / period_s), 0.0, None)
    return Load(tuple(times.tolist()), tuple(rates.tolist()), float(period_s))


def bursts(
    base_rps: float,
    burst_rps: float,
    *,
    mean_quiet_s: float,
    mean_burst_s: float,
    duration_s: float,
    seed: Count = 0,
) -> Load:
    """A two-state Markov-modulated rate: exponential spells of quiet and of burst, for `duration_s`."""
    if not (mean_quiet_s > 0 and mean_burst_s > 0 and duration_s > 0):
        raise LoadError("spells and duration of bursts must be positive")
    _refuse_too_many(2 * duration_s / (mean_quiet_s + mean_burst_s))
    rng = np.random.default_rng(seed)
    times, rates, now, bursting = [0.0], [float(base_rps)], 0.0, False
    while True:
        now += float(rng.exponential(mean_burst_s if bursting else mean_quiet_s))
        if now >= duration_s:
            return Load(tuple(times), tuple(rates), float(duration_s))
        bursting = not bursting
        times.append(now)
        rates.append(float(burst_rps if bursting else base_rps))


def random_walk(
    mean_rps: float, *, spread: float = 0.5, step_s: float = 120.0, duration_s: float, seed: Count = 0
) -> Load:
    """A bounded random walk within `mean_rps · (1 ± spread)`, reflected at its limits."""
    if not 0 <= spread <= 1:
        raise LoadError(f"the spread of a random walk lies in 0..1, not {spread:g}")
    if not (step_s > 0 and duration_s > 0):
        raise LoadError("step and duration of a random walk must be positive")
    _refuse_too_many(duration_s / step_s)
    rng = np.random.default_rng(seed)
    count = max(1, math.ceil(duration_s / step_s))
    walk = np.concatenate([[0.0], np.cumsum(rng.normal(0.0, spread / 5, count - 1))])
    # Folding the free walk into [-spread, spread] is the walk reflected at both limits.
    folded = np.abs((walk + spread) % (4 * spread) - 2 * spread) - spread if spread else np.zeros(count)
    rates = np.clip(mean_rps * (1 - folded), 0.0, None)
    return Load(tuple(float(i * step_s) for i in range(count)), tuple(rates.tolist()), count * float(step_s))


def scaled_trace(path: str, time_scale: float = 1.0, rate_scale: float = 1.0) -> Load:
    """The rate trace in a CSV file, with its time stretched and its rates multiplied."""
    return read_trace(path).scaled(time=time_scale, rate=rate_scale)


def read_trace(path: str | Path) -> Load:
    """The rate trace in a CSV file with the header `timestamp,value`.

    Timestamps are ISO dates or numbers of seconds; times become seconds since the first row. A problem names
    the line.
    """
    times: list[float] = []
    values: list[float] = []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            if [c.strip() for c in next(rows, [])] != ["timestamp", "value"]:
                raise LoadError(f"rate trace '{path}': line 1 must be the header 'timestamp,value'")
            for number, row in enumerate(rows, start=2):
                if row:
                    time_s, value = _point(f"rate trace '{path}', line {number}", row)
                    times.append(time_s)
                    values.append(value)
                    _refuse_too_many(len(times))
    except LoadError:
        raise
    except (OSError, ValueError, csv.Error) as problem:  # ValueError: not UTF-8, or no path at all
        raise LoadError(f"cannot read rate trace '{path}': {problem}") from problem
    if not times:
        raise LoadError(f"rate trace '{path}' has no rows")
    try:
        last_step = times[-1] - times[-2] if len(times) > 1 else None
        period = None if last_step is None else times[-1] - times[0] + last_step
        return Load(tuple(t - times[0] for t in times), tuple(values), period)
    except LoadError as problem:
        raise LoadError(f"rate trace '{path}': {problem}") from problem


def _point(where: str, row: list[str]) -> tuple[float, float]:
    try:
        stamp, value = row
        time_s, rate_rps = _seconds(stamp), float(value)
    except ValueError as problem:
        raise LoadError(f"{where}: {problem}") from problem
    if not (math.isfinite(rate_rps) and rate_rps >= 0):
        raise LoadError(f"{where}: a rate must be finite and not negative: {value}")
    return time_s, rate_rps


def _refuse_too_many(points: float) -> None:
    if not points <= MAX_POINTS:
        raise LoadError(f"the load would change {points:.3g} times; at most {MAX_POINTS} are played")


def _seconds(stamp: str) -> float:
    try:
        return float(stamp)
    except ValueError:
        # A zone, if any, is dropped: only differences matter.
        return (datetime.fromisoformat(stamp).replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001
