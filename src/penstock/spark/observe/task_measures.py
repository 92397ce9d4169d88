"""What Python tasks measure, and how it reaches the driver: an accumulator, one record per task.

A task registers one `TaskMeasures` with the accumulator and then only changes it: Spark's worker pickles it when the
task ends, which turns it into a `TaskRecord`. The driver's `Measures` keeps the first record of each
(run, batch, host, partition), so a retried or speculative task, or a second action on the same batch, counts once.
Nothing here may fail a task: what cannot be measured is left out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from penstock.spark.internals.task_controls import BATCH_KEY
from penstock.spark.observe.machine_load import SAMPLER, HostSample, executor_id
from penstock.spark.observe.utility_counts import UtilityCounts
from penstock.telemetry.moments import Moments
from penstock.telemetry.sketch import Sketch

KEPT_BATCHES = 256
"""Batches whose records the driver holds until they are taken; older ones are dropped and counted."""

KEPT_RUNS = 64
"""Runs of which the driver remembers what ran in them."""

TICK_BITS = 10
TICK_S = (1 << TICK_BITS) / 1e6
"""Source times are counted in ticks of about a millisecond: a shift is three times faster than a division."""

STAMPED_S = float(1 << 32)
"""A moment that stands for that of every stamp, so that stamps of many moments add up."""

RUN_KEY = "spark.jobGroup.id"  # Spark puts the query's run id there

_Key = tuple[str, int]


class Tally:
    """Counts of one operator (and alternate), and the time its function took per record.

    `mean_s` and `m2` are over records where a function takes one record at a time; where it takes whole batches,
    all records of a call count as its average, so the variance is that between calls.
    """

    __slots__ = (
        "agreed",
        "busy_s",
        "bytes_in",
        "bytes_out",
        "calls",
        "compared",
        "m2",
        "mean_s",
        "probe_rows",
        "probe_s",
        "rows_in",
        "rows_out",
        "stalled_s",
    )

    def __init__(self) -> None:
        self.rows_in = self.rows_out = self.bytes_in = self.bytes_out = self.calls = 0
        self.compared = self.probe_rows = 0
        self.agreed = self.probe_s = 0.0
        self.busy_s = self.stalled_s = self.mean_s = self.m2 = 0.0

    def add(
        self,
        rows_in: int,
        rows_out: int,
        bytes_in: int,
        bytes_out: int,
        busy_s: float,
        m2: float = 0.0,
        stalled_s: float = 0.0,
    ) -> None:
        """Count one call; `m2` is the sum of squared deviations of its records' times, where it is known."""
        if rows_in:
            # Chan, Golub, LeVeque (1983): both groups as one.
            total, delta = self.rows_in + rows_in, busy_s / rows_in - self.mean_s
            self.m2 += m2 + delta * delta * self.rows_in * rows_in / total
            self.mean_s += delta * rows_in / total
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self.busy_s += busy_s
        self.stalled_s += min(stalled_s, busy_s)
        self.calls += 1

    def probe(self, rows: int, seconds: float) -> None:
        """Count records that went through for an audit only."""
        self.probe_rows += rows
        self.probe_s += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecord:
    """What one operator, with one alternate, did in one task."""

    operator: str
    alternate: str
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    calls: int
    busy_s: float
    stalled_s: float = 0.0
    """Of `busy_s`, time in which it could have run and had no CPU, because others had all."""
    mean_s: float
    m2: float
    agreed: float = 0.0
    """Of the rows `compared` with those of the best alternate, how many were the same, or what they scored."""
    compared: int = 0
    probe_rows: int = 0
    """Records that went through for an audit only, not counted in `rows_in`."""
    probe_s: float = 0.0

    @property
    def service_s(self) -> Moments:
        """Seconds per record."""
        return Moments(np.array([float(self.rows_in)]), np.array([self.mean_s]), np.array([self.m2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """What passed one stream in one task: `rows_shed` of `rows_offered` were not kept."""

    stream: str
    rows_offered: int
    rows_shed: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRecord:
    """Source times of the records that reached a sink in one task, in ticks of the epoch (1024 µs each)."""

    sink: str
    rows: int
    """All records, with a source time or without."""
    ticks: NDArray[np.int64]
    counts: NDArray[np.int64]

    def latencies_s(self, end_s: float) -> tuple[Moments, Sketch]:
        """The latency of each record when its result is there at `end_s`; a source time in the future counts as 0."""
        weights = self.counts.astype(np.float64)
        late = np.clip(end_s - (self.ticks + 0.5) * TICK_S, 0.0, None)
        total = weights.sum()
        mean = float(late @ weights / total) if total else 0.0
        m2 = float(weights @ (late - mean) ** 2)
        return Moments(np.array([total]), np.array([mean]), np.array([m2])), Sketch.of(late, weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """All that one Python task measured."""

    run_id: str
    batch_id: int
    host: str
    """Name of the host that ran, as `CompiledDataflow.hosts` has it."""
    partition: int
    attempt: int
    task_id: int
    """Spark's id of the task attempt, the same as in its status store."""
    stage_id: int
    executor: str
    started_s: float
    ended_s: float
    cpu_s: float
    """CPU seconds of the Python worker, all threads, while the task ran."""
    operators: tuple[OperatorRecord, ...] = ()
    streams: tuple[StreamRecord, ...] = ()
    sinks: tuple[SinkRecord, ...] = ()
    stamps: tuple[SinkRecord, ...] = ()
    """Records at the ends of sequences inside the dataflow: how old they were, told as times before `STAMPED_S`."""
    utilities: tuple[tuple[str, UtilityCounts], ...] = ()
    """What utilities the records at a shedder had, where it has a utility function."""
    sample: HostSample | None = None


class TaskMeasures:
    """The running measurements of one task; pickles as a `TaskRecord`."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.operators: dict[tuple[str, str], Tally] = {}
        self.streams: dict[str, list[int]] = {}
        self.sinks: dict[str, SourceTimes] = {}
        self.stamps: dict[str, SourceTimes] = {}
        self.utilities: dict[str, UtilityCounts] = {}
        self._started_s, self._cpu_s = time.time(), time.process_time()
        task = TaskContext.get()
        self.task_id = task.taskAttemptId() if task else -1
        self.partition = task.partitionId() if task else 0
        self._about = _about(task)
        SAMPLER.start_if_due()

    def tally(self, operator: str, alternate: str) -> Tally:
        """Where to count the operator's calls."""
        found = self.operators.get((operator, alternate))
        if found is None:
            found = self.operators[operator, alternate] = Tally()
        return found

    def passed(self, stream: str, offered: int, shed: int, size: int) -> None:
        """Count what passed a stream."""
        counts = self.streams.setdefault(stream, [0, 0, 0])
        counts[0] += offered
        counts[1] += shed
        counts[2] += size

    def reached(self, sink: str, source_times: pa.Array) -> None:
        """Count records that reached a sink."""
        self.sinks.setdefault(sink, SourceTimes()).add(source_times)

    def stamp(self, name: str, source_times: pa.Array) -> None:
        """Note how old records are now."""
        shift_us = round(1e6 * (STAMPED_S - time.time()))
        ages = pc.add(source_times.view(pa.int64()), pa.scalar(shift_us, pa.int64()))
        self.stamps.setdefault(name, SourceTimes()).add(ages)

    def useless(self, shedder: str, useless: NDArray[np.float64]) -> None:
        """Count 1 - utility of records that came to a shedder."""
        counts, before = UtilityCounts.of(useless), self.utilities.get(shedder)
        self.utilities[shedder] = counts if before is None else before + counts

    def record(self) -> TaskRecord:
        """What was measured until now."""
        return TaskRecord(
            host=self.host,
            executor=executor_id(),
            started_s=self._started_s,
            ended_s=time.time(),
            cpu_s=time.process_time() - self._cpu_s,
            operators=tuple(
                OperatorRecord(
                    operator=operator,
                    alternate=alternate,
                    rows_in=t.rows_in,
                    rows_out=t.rows_out,
                    bytes_in=t.bytes_in,
                    bytes_out=t.bytes_out,
                    calls=t.calls,
                    busy_s=t.busy_s,
                    stalled_s=t.stalled_s,
                    mean_s=t.mean_s,
                    m2=t.m2,
                    agreed=t.agreed,
                    compared=t.compared,
                    probe_rows=t.probe_rows,
                    probe_s=t.probe_s,
                )
                for (operator, alternate), t in self.operators.items()
            ),
            streams=tuple(
                StreamRecord(stream=stream, rows_offered=n, rows_shed=shed, bytes=size)
                for stream, (n, shed, size) in self.streams.items()
            ),
            sinks=tuple(times.record(sink) for sink, times in self.sinks.items()),
            stamps=tuple(times.record(name) for name, times in self.stamps.items()),
            utilities=tuple(self.utilities.items()),
            sample=SAMPLER.taken(),
            **self._about,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            record = self.record()
        except Exception:  # a measurement is never worth a task
            return (_nothing, ())
        return (_same, (record,))


class SourceTimes:
    """How many records came into being in each tick."""

    __slots__ = ("_counts", "_scratch", "_ticks", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._ticks: list[NDArray[np.int64]] = []
        self._counts: list[NDArray[np.int64]] = []
        self._scratch: NDArray[np.int64] = np.empty(0, np.int64)

    def add(self, times: pa.Array) -> None:
        """Count timestamps in microseconds; nulls only as rows."""
        self.rows += len(times)
        if times.null_count:
            times = times.drop_null()
        if not len(times):
            return
        if self._scratch.size < len(times):
            self._scratch = np.empty(len(times), np.int64)
        ticks = self._scratch[: len(times)]
        np.right_shift(times.view(pa.int64()).to_numpy(), TICK_BITS, out=ticks)
        first, last = int(ticks.min()), int(ticks.max())
        if last - first < 4 * len(ticks) + 10_000:  # counting is several times faster than sorting
            ticks -= first
            counts = np.bincount(ticks)
            found = np.flatnonzero(counts)
            ticks, counts = found + first, counts[found]
        else:
            ticks, counts = np.unique(ticks, return_counts=True)
        self._ticks.append(ticks)
        self._counts.append(counts)

    def record(self, sink: str) -> SinkRecord:
        """What travels: the older a record beside the newest, the coarser its time, by at most a 500th of its age."""
        none = np.zeros(0, np.int64)
        ticks, counts = np.concatenate([none, *self._ticks]), np.concatenate([none, *self._counts])
        newest = int(ticks.max()) if ticks.size else 0
        age = newest - ticks
        coarse = np.maximum(np.frexp(age.astype(np.float64))[1] - 9, 0)
        age = ((age >> coarse) << coarse) + (1 << coarse >> 1)
        found, place = np.unique(newest - age, return_inverse=True)
        summed = np.bincount(place, counts, len(found)).astype(np.int64)
        return SinkRecord(sink=sink, rows=self.rows, ticks=found, counts=summed)


def _same(record: TaskRecord) -> TaskRecord:
    return record


def _nothing() -> None:
    return None


def _about(task: TaskContext | None) -> dict[str, Any]:
    if task is None:
        return {"run_id": "", "batch_id": -1, "partition": 0, "attempt": 0, "task_id": -1, "stage_id": -1}
    batch_id = task.getLocalProperty(BATCH_KEY)
    return {
        "run_id": task.getLocalProperty(RUN_KEY) or "",
        "batch_id": -1 if batch_id is None else int(batch_id),
        "partition": task.partitionId(),
        "attempt": task.attemptNumber(),
        "task_id": task.taskAttemptId(),
        "stage_id": task.stageId(),
    }


_current: dict[str, TaskMeasures] = {}
"""By host: a Python worker runs one task at a time, but Spark may chain several functions in it."""


def task_measures(host: str, accumulator: Accumulator[Any] | None) -> TaskMeasures:
    """The measurements of the running task, registered with the accumulator the first time a host asks."""
    task = TaskContext.get()
    running = task.taskAttemptId() if task else -2
    found = _current.get(host)
    if found is None or found.task_id != running:
        for other in [name for name, measures in _current.items() if measures.task_id != running]:
            del _current[other]
        found = _current[host] = TaskMeasures(host)
        if accumulator is not None:
            with suppress(Exception):
                accumulator.add([found])
    return found


class Measures:
    """The driver's collection of task records, filled while tasks end, emptied by `take`."""

    def __init__(self, context: SparkContext | None = None, *, kept_batches: int = KEPT_BATCHES) -> None:
        self._lock = threading.Lock()
        self._batches: dict[_Key, dict[tuple[str, int], TaskRecord]] = {}
        self._hosts: dict[str, set[str]] = {}
        self._kept_batches = kept_batches
        self.dropped_batches = 0
        """Batches that were never taken and had to make room."""
        self.accumulator: Accumulator[Any] | None = (
            None if context is None else context.accumulator([], _Records(self))
        )

    def receive(self, records: Iterable[TaskRecord | None]) -> None:
        """Keep the first record of each (run, batch, host, partition)."""
        with self._lock:
            for record in records:
                if record is None:
                    continue
                batch = self._batches.setdefault((record.run_id, record.batch_id), {})
                batch.setdefault((record.host, record.partition), record)
                self._hosts.setdefault(record.run_id, set()).add(record.host)
            while len(self._hosts) > KEPT_RUNS:
                del self._hosts[next(iter(self._hosts))]
            while len(self._batches) > self._kept_batches:
                del self._batches[next(iter(self._batches))]
                self.dropped_batches += 1

    def take(self, batch_ids: Iterable[int], *, run_id: str | None = None) -> tuple[TaskRecord, ...]:
        """The records of these batches, which are then forgotten; of several runs of a batch, the last."""
        wanted = set(batch_ids)
        with self._lock:
            keys = [k for k in self._batches if k[1] in wanted and run_id in (None, k[0])]
            last: Mapping[int, _Key] = {key[1]: key for key in keys}
            taken = {key: self._batches.pop(key) for key in keys}
        return tuple(record for batch in sorted(last) for record in taken[last[batch]].values())

    def hosts_of(self, run_id: str) -> frozenset[str]:
        """Names of the hosts whose tasks have told something in this run."""
        with self._lock:
            return frozenset(self._hosts.get(run_id, ()))

    def waiting(self) -> tuple[int, ...]:
        """Ids of the batches with records not taken yet."""
        with self._lock:
            return tuple(sorted({batch for _, batch in self._batches}))


class _Records(AccumulatorParam[Any]):
    """Adds on a worker, hands over on the driver."""

    def __init__(self, measures: Measures | None = None) -> None:
        self._measures = measures

    def zero(self, value: Any) -> Any:
        return []

    def addInPlace(self, value1: Any, value2: Any) -> Any:  # noqa: N802  # Spark's name
        if self._measures is None:
            value1.extend(value2)
        else:
            with suppress(Exception):
                self._measures.receive(value2)
        return value1

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Records, ())
