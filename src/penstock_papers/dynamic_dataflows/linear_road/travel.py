"""Travel times: how long a drive from one segment to another will take, by two models of the speeds ahead.

Both learn from the same memory, the expected speed of every segment and minute, so either can take over at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.arrays import Ints
from penstock_papers.dynamic_dataflows.linear_road.operators import Accidents, in_minute, with_mark
from penstock_papers.dynamic_dataflows.linear_road.records import (
    ACCIDENT,
    CLEARED,
    REPORT,
    TRAVEL,
    in_order_of_time,
    minute_of,
)

MEMORY_MINUTES = 30
FREE_FLOW_MPH = 60.0
"""Where nothing is known."""
CRAWL_MPH, SLOWEST_MPH = 10.0, 5.0
"""Past an accident, and at least."""
DEPTH, LEAF = 6, 4
"""Of the regression tree: levels, and fewest observations on a side of a split."""
LEVEL, TREND = 0.5, 0.2
"""Smoothing of the time series (Holt's linear method)."""

Speeds = dict[int, dict[int, float]]
"""Expected speed in mph by segment and minute."""
Model = Callable[[Speeds, int], Callable[[int], float]]
"""Learns from speeds before a minute; the result tells the speed of a segment in that minute."""


def regression_tree(speeds: Speeds, minute: int) -> Callable[[int], float]:
    """A tree over (segment, minute) that halves the observations where the squared error falls most (CART).

    Speeds are learned in whole tenths of mph, so that sums are exact; of equally good splits the first counts.
    """
    points = [(s, m, round(v * 10)) for s in sorted(speeds) for m, v in sorted(speeds[s].items())]
    if not points:
        return lambda segment: FREE_FLOW_MPH
    tree = _grown(np.array(points, np.int64), DEPTH)

    def speed(segment: int) -> float:
        node, place = tree, (segment, minute)
        while isinstance(node, _Split):
            node = node.low if place[node.axis] <= node.at else node.high
        return node

    return speed


@dataclass(frozen=True, slots=True)
class _Split:
    axis: int
    at: int
    low: _Split | float
    high: _Split | float


def _grown(points: Ints, levels: int) -> _Split | float:
    total, count = int(points[:, 2].sum()), len(points)
    best, found = total * total / count, None
    for axis in (0, 1) if levels else ():
        ordered = points[np.argsort(points[:, axis], kind="stable")]
        below = np.arange(1, count)
        sums = np.cumsum(ordered[:-1, 2])
        allowed = (np.diff(ordered[:, axis]) > 0) & (below >= LEAF) & (count - below >= LEAF)
        # The squared error falls most where this sum is largest.
        score = sums * sums / below + (total - sums) * (total - sums) / (count - below)
        score = np.where(allowed, score, -np.inf)
        if count > 1 and score.max() > best:
            at = int(np.argmax(score))
            best, found = float(score[at]), (axis, int(ordered[at, axis]))
    if found is None:
        return total / count / 10
    axis, at = found
    low = points[:, axis] <= at
    return _Split(axis, at, _grown(points[low], levels - 1), _grown(points[~low], levels - 1))


def time_series(speeds: Speeds, minute: int) -> Callable[[int], float]:
    """Holt's linear exponential smoothing of each segment's own minutes, one step on from the last."""

    def speed(segment: int) -> float:
        seen = [v for _, v in sorted(speeds.get(segment, {}).items())]
        if not seen:
            return FREE_FLOW_MPH
        level, trend = seen[0], 0.0
        for value in seen[1:]:
            before = level
            level = LEVEL * value + (1 - LEVEL) * (level + trend)
            trend = TREND * (level - before) + (1 - TREND) * trend
        return level + trend

    return speed


MODELS: Mapping[str, Model] = {"tree": regression_tree, "series": time_series}

State = tuple[Speeds, Accidents]


@dataclass(frozen=True, slots=True, kw_only=True)
class TravelTimes:
    """Travel times on one expressway in one direction; state: speeds and accidents of the last half hour."""

    model: Literal["tree", "series"] = "tree"

    def __call__(
        self, key: tuple[int, int], rows: pa.RecordBatch, state: State | None
    ) -> tuple[pa.RecordBatch | None, State]:
        """(an answer to each question, by what is known from the minutes before its own; the state)."""
        speeds = {s: dict(known) for s, known in state[0].items()} if state is not None else {}
        accidents = list(state[1]) if state is not None else []
        kinds = rows.column("kind").to_numpy()
        _learn(speeds, rows.filter(pa.array(kinds == REPORT)))
        others = rows.filter(pa.array(np.isin(kinds, (ACCIDENT, CLEARED, TRAVEL)))).to_pylist()
        answers, models = [], {}
        for row in sorted(others, key=in_order_of_time):
            if row["kind"] != TRAVEL:
                if (
                    row["segment"] == row["accident"]
                ):  # those that are told to segments before it are the same
                    accidents = with_mark(accidents, row)
                continue
            minute = minute_of(row["time_s"])
            if minute not in models:
                models[minute] = MODELS[self.model](_before(speeds, minute), minute)
            crawl = {a[0] for a in in_minute(accidents, minute - 1)}
            step = 1 if row["end"] >= row["begin"] else -1
            path = range(row["begin"], row["end"] + step, step)
            answers.append(row | {"seconds": travel_seconds(path, models[minute], crawl)})
        latest = minute_of(int(rows.column("time_s").to_numpy().max()))
        kept = {s: known for s, all_ in speeds.items() if (known := _recent(all_, latest))}
        accidents = [a for a in accidents if a[4] is None or a[4] > (latest - 1) * 60]
        return _answered(answers, rows.schema.names), (kept, accidents)


def travel_seconds(path: range, speed: Callable[[int], float], crawl: set[int]) -> float:
    """Seconds for these segments, a mile each."""
    mph = (min(speed(s), CRAWL_MPH) if s in crawl else speed(s) for s in path)
    return math.fsum(3600.0 / max(v, SLOWEST_MPH) for v in mph)


def _learn(speeds: Speeds, reports: pa.RecordBatch) -> None:
    """Remember the expected speeds; all reports of a segment and minute tell the same."""
    told = reports.filter(reports.column("expected_mph").is_valid())
    segments, minutes = told.column("segment").to_numpy(), told.column("time_s").to_numpy() // 60
    firsts = np.unique(segments << 40 | minutes, return_index=True)[1]
    expected = told.column("expected_mph").to_numpy()[firsts]
    for s, m, v in zip(segments[firsts].tolist(), minutes[firsts].tolist(), expected.tolist(), strict=True):
        speeds.setdefault(s, {})[m] = v


def _before(speeds: Speeds, minute: int) -> Speeds:
    """What is known from the half hour before a minute."""
    found = {
        s: {m: v for m, v in known.items() if minute - MEMORY_MINUTES <= m < minute}
        for s, known in speeds.items()
    }
    return {s: known for s, known in found.items() if known}


def _recent(known: dict[int, float], latest: int) -> dict[int, float]:
    return {m: v for m, v in known.items() if m >= latest - MEMORY_MINUTES}


def _answered(answers: list[dict[str, Any]], names: list[str]) -> pa.RecordBatch | None:
    if not answers:
        return None
    kept = [name for name in names if name in ("query", "time_s", "vehicle", "source_time")]
    return pa.RecordBatch.from_pydict({name: [a[name] for a in answers] for name in [*kept, "seconds"]})
