"""What is known of a run: the batches of each query, what came in, the executors there were. One form for all sources.

Times are seconds on one clock of the run. What a source of histories cannot tell is NaN in an array and None elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.control.record import Cycle
from penstock.dataflow import Dataflow, Load, OperatorId
from penstock.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COLD_FACTOR = 3.0
"""Batches at the start that take this many times the usual one load code: they are left out."""
FEWEST_BATCHES = 5
"""With fewer batches that read something there is nothing to learn from."""


class HistoryError(InputError):
    """A history that cannot be read; the message says which, and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageHistory:
    """The tasks of one stage of a query's batches, a row each."""

    batch: Ints
    """Row in the query's batches."""
    partition: Ints
    seconds: Floats
    """How long it held its slot."""
    records: Floats
    """Records it read; 0 where the source does not tell."""

    def of(self, kept: Ints) -> StageHistory:
        """Those of the batches in rows `kept`, numbered anew; a batch that is named twice counts twice."""
        order = np.argsort(self.batch, kind="stable")
        first = np.searchsorted(self.batch[order], kept, side="left")
        last = np.searchsorted(self.batch[order], kept, side="right")
        rows = [order[a:b] for a, b in zip(first, last, strict=True)]
        mine = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        return StageHistory(
            batch=np.repeat(np.arange(len(kept)), last - first),
            partition=self.partition[mine],
            seconds=self.seconds[mine],
            records=self.records[mine],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueryHistory:
    """The batches of one query, oldest first, a row each."""

    name: str
    began_s: Floats
    duration_s: Floats
    records: Floats
    plan_s: Floats
    """Before the first task: offsets, planning, write-ahead log."""
    work_s: Floats
    """From the first job to the last."""
    busy_s: Floats | None = None
    """Core-seconds that the records took; None: not measured."""
    task_core_s: Floats | None = None
    """Core-seconds that tasks took however few records they had."""
    latest: Floats | None = None
    """Records that the sources had produced when the batch was planned, as a running total; None: they do not tell."""
    trigger_s: float | None = None
    """Shortest time between two batches; None: not known."""
    read_limit: float | None = None
    partitions: int | None = None
    """Tasks of its widest stage."""
    weights: tuple[float, ...] = ()
    """Share of each partition of the state."""
    stateful: bool = False
    state_bytes: float = 0.0
    stages: tuple[StageHistory, ...] = ()
    operators: tuple[OperatorId, ...] = ()
    """Of the dataflow, where there is one."""
    rates: tuple[tuple[float, float], ...] = ()
    """(time, records per second from then on) of its sources, where that was measured on its own."""
    phases_ms: Mapping[str, Floats] = field(default_factory=dict)
    """Spark's name of a phase to its duration in each batch; empty: not told."""

    def __len__(self) -> int:
        return len(self.began_s)

    @property
    def ended_s(self) -> Floats:
        """When the batches ended."""
        return self.began_s + self.duration_s

    @property
    def commit_s(self) -> Floats:
        """After the last job."""
        return np.maximum(0.0, self.duration_s - self.plan_s - self.work_s)

    def of(self, kept: Ints) -> QueryHistory:
        """Only the batches in rows `kept`, in that order."""
        columns: dict[str, Any] = {
            f.name: column[kept]
            for f in fields(self)
            if isinstance(column := getattr(self, f.name), np.ndarray)
        }
        return replace(
            self,
            **columns,
            stages=tuple(s.of(kept) for s in self.stages),
            phases_ms={phase: column[kept] for phase, column in self.phases_ms.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorLife:
    """One executor, from when it could take tasks until it was gone."""

    id: str
    cores: int
    ready_s: float = -math.inf
    gone_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """A run that happened."""

    source: str
    """What it was read from, in words."""
    queries: tuple[QueryHistory, ...]
    began_s: float
    ended_s: float
    executors: tuple[ExecutorLife, ...] = ()
    """Empty: the source does not tell."""
    startup_s: tuple[float, ...] = ()
    """How long executors took to come after they were asked for."""
    price_per_hour: float = 0.0
    interval_s: float = 5.0
    """Between two decisions."""
    dataflow: Dataflow | None = None
    cycles: tuple[Cycle, ...] = ()
    """The loop's own record, where there was one."""
    settings: Mapping[str, str] | None = None
    """Spark's settings that somebody set; None: the source does not tell."""
    unknown: tuple[str, ...] = field(default=())
    """What could not be read, in words."""

    def slots_at(self, times_s: Floats) -> Floats:
        """Cores of executors that could take tasks at those times; NaN where nobody tells."""
        if not self.executors:
            return np.full(len(times_s), np.nan)
        found = np.zeros(len(times_s))
        for one in self.executors:
            found += one.cores * ((times_s >= one.ready_s) & (times_s < one.gone_s))
        return np.maximum(found, 1.0)

    def executor_seconds(self) -> float | None:
        """Executors over the time of the history; None where nobody tells."""
        if not self.executors:
            return None
        return sum(
            max(0.0, min(self.ended_s, one.gone_s) - max(self.began_s, one.ready_s)) for one in self.executors
        )


def settled(history: History) -> History:
    """The history without the batches at its start that load code, and without queries that tell too little.

    It then begins when the last of the batches that are left out began: what the next one read came after that.
    Raise HistoryError if nothing is left.
    """
    queries, dropped, starts = [], [], []
    for query in history.queries:
        rows = _settled_rows(query)
        if np.sum(query.records[rows] > 0) < FEWEST_BATCHES:
            dropped.append(query.name)
            continue
        kept = query.of(rows)
        starts.append(float(query.began_s[rows[0] - 1]) if rows[0] > 0 else float(kept.began_s[0]) - 1.0)
        queries.append(kept)
    if not queries:
        raise HistoryError(
            f"{history.source} has no query with {FEWEST_BATCHES} batches that read records; "
            "nothing can be learnt from it: record a longer run"
        )
    began_s = min(starts)
    unknown = list(history.unknown)
    if dropped:
        unknown.append(f"queries with fewer than {FEWEST_BATCHES} batches are left out: {', '.join(dropped)}")
    return replace(
        history,
        queries=tuple(queries),
        began_s=began_s,
        ended_s=max(float(q.ended_s.max()) for q in queries),
        unknown=tuple(unknown),
    )


def _settled_rows(query: QueryHistory) -> Ints:
    usual_s = float(np.median(query.duration_s)) if len(query) else 0.0
    slow = query.duration_s > COLD_FACTOR * usual_s
    first = 1 if len(query) > 1 else 0  # the very first batch always loads code
    while first < len(query) and slow[first]:
        first += 1
    return np.arange(first, len(query))


def load_of(query: QueryHistory, began_s: float) -> Load:
    """What the sources of a query produced, from `began_s` on: as measured, as offsets tell, or as batches read it.

    Where the source does not tell what waits in it, each batch read what came since the one before it began.
    """
    if query.rates:
        return _measured_load(query.rates, began_s)
    times = query.began_s - began_s
    if query.latest is not None:
        totals = np.maximum.accumulate(query.latest - query.latest[0] + query.records[0])
    else:
        totals = np.cumsum(query.records)
    known = np.concatenate([[True], np.diff(times) > 1e-3]) & (times > 1e-3)
    times, totals = times[known], totals[known]
    usual_s = float(np.median(np.diff(times))) if len(times) > 1 else float(times[0])
    starts = np.concatenate([[max(0.0, float(times[0]) - usual_s)], times[:-1]])
    rates = np.diff(np.concatenate([[0.0], totals])) / (times - starts)
    # The time after the last batch began goes on at the rate of the last few.
    last = float(np.mean(rates[-min(5, len(rates)) :]))
    quiet = ((0.0, 0.0),) if starts[0] > 0 else ()
    points = (*quiet, *zip(starts.tolist(), rates.tolist(), strict=True), (float(times[-1]), last))
    return Load(tuple(t for t, _ in points), tuple(r for _, r in points))


def _measured_load(rates: tuple[tuple[float, float], ...], began_s: float) -> Load:
    times = np.array([t for t, _ in rates]) - began_s
    values = np.array([max(0.0, r) for _, r in rates])
    first = max(0, int(np.searchsorted(times, 0.0, side="right")) - 1)
    times, values = times[first:], values[first:]
    times[0] = 0.0
    kept = np.concatenate([[True], np.diff(times) > 0])
    return Load(tuple(times[kept].tolist()), tuple(values[kept].tolist()))
