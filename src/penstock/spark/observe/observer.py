"""From what Spark and the hosts of Python operators report to a `Snapshot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow import Dataflow, OperatorId
from penstock.dataflow.graph import Statistic
from penstock.spark.act.executor_pool import ExecutorPool
from penstock.spark.act.spreading import Place
from penstock.spark.act.state_moves import StateMoves
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.shuffles import Shuffles
from penstock.spark.internals.tasks import TaskMetrics
from penstock.spark.observe.latency_windows import Lateness, SinkWindow, estimated_lateness, statistic_s
from penstock.spark.observe.machine_load import HostWatch
from penstock.spark.observe.operator_totals import OperatorTotals
from penstock.spark.observe.progress import BatchProgress, batches_since
from penstock.spark.observe.source_rates import SourceReader
from penstock.spark.observe.task_measures import Measures, SinkRecord, TaskRecord
from penstock.spark.observe.traffic import traffic_between
from penstock.telemetry import (
    Batches,
    Constraints,
    MachineClass,
    Moments,
    Nodes,
    Sinks,
    Sketch,
    Snapshot,
    Sources,
    Tasks,
    Traffic,
)

LATENCY_KEPT_S = 120.0
WAIT_SHARE: dict[Statistic, float] = {"mean": 0.5, "p50": 0.5, "p95": 0.95, "p99": 0.99}
"""How old what came evenly in the last second is, as a share of that second."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What the observer reads; a gauge that this Spark lacks is None."""

    query: Callable[[], StreamingQuery]
    executors: Executors
    pool: ExecutorPool
    moves: Callable[[], StateMoves]
    measures: Measures | None = None
    tasks: TaskMetrics | None = None
    shuffles: Shuffles | None = None
    interval_ms: Callable[[], int] | None = None


class Observer:
    """Remembers what it needs between two looks: batches seen, running totals, latencies of recent batches."""

    def __init__(
        self,
        dataflow: Dataflow,
        gauges: Gauges,
        *,
        machine: MachineClass,
        state_operators: Mapping[int, OperatorId],
        sources: Mapping[OperatorId, SourceReader],
        now_s: float,
        hosts: HostWatch | None = None,
    ) -> None:
        self._flow, self.gauges, self._machine = dataflow, gauges, machine
        self._state_operators = state_operators
        self._sources = sources
        self._seen_batch = -1
        self._query: StreamingQuery | None = None
        self._run: str | None = None
        self._last: BatchProgress | None = None
        self._looked_s = now_s
        self._hosts = hosts or HostWatch()
        self._totals = OperatorTotals(dataflow)
        keep_s = max([LATENCY_KEPT_S, *(2 * c.window_s for c in dataflow.constraints)])
        self._windows = {sink.id: SinkWindow(keep_s) for sink in dataflow.sinks}
        self._there_s: dict[str, float] = {}
        """How long each executor was there; those that are gone stay in the bill."""
        self.batches = 0
        self.records_in = 0
        self._untold: list[str] = []
        """Why the last look did not learn the traffic between partitions."""

    @property
    def executor_seconds(self) -> float:
        """Time that executors were there, added up over all of them."""
        return sum(self._there_s.values())

    @property
    def seen_batch(self) -> int:
        """The newest batch that a snapshot has told of."""
        return self._seen_batch

    def observe(self, now_s: float) -> Snapshot:
        """The facts since the last look."""
        warnings: list[str] = []
        batches, records = self._new_batches(now_s, warnings)
        interval_s = max(now_s - self._looked_s, 1e-3)
        nodes = self._nodes(now_s, interval_s)
        self._note_lateness(batches, records)
        tasks = self._totals.tasks(
            records, self._places(warnings), nodes, interval_s, self.gauges.moves().moving
        )
        # Before the sources and sinks: what they keep is learnt from what passed the streams.
        streams = self._totals.streams(records, self._shuffled(batches, warnings))
        sources = self._source_table(batches, now_s, interval_s)
        snapshot = Snapshot(
            time_s=now_s,
            interval_s=interval_s,
            dataflow=self._flow,
            nodes=nodes,
            operators=self._totals.operators(tasks),
            alternates=self._totals.alternates(),
            tasks=tasks,
            streams=streams,
            sources=sources,
            sinks=self._sink_table(),
            constraints=self._constraints(now_s, sources),
            traffic=self._traffic(batches, tasks, warnings),
            classes=(self._machine,),
            batches=self._batch_table(batches, records),
            cost=sum(self._machine.bill(seconds) for seconds in self._there_s.values()),
            warnings=tuple(warnings),
        )
        self._looked_s = now_s
        return snapshot

    def _new_batches(
        self, now_s: float, warnings: list[str]
    ) -> tuple[tuple[BatchProgress, ...], tuple[TaskRecord, ...]]:
        query = self.gauges.query()
        if query is not self._query:  # a restarted query: its batches go on where the old ones ended
            self._query, self._run, self._last = query, str(query.runId), None
        batches = batches_since(query, self._seen_batch)
        if batches:
            if 0 <= self._seen_batch < batches[0].batch_id - 1:
                warnings.append(f"{batches[0].batch_id - 1 - self._seen_batch} batches ended unseen")
            self._seen_batch = batches[-1].batch_id
            self.batches += len(batches)
            self.records_in += sum(b.records for b in batches)
        measures = self.gauges.measures
        records = (
            measures.take([b.batch_id for b in batches], run_id=self._run) if measures is not None else ()
        )
        self._hosts.note(records, now_s)
        return batches, records

    def _nodes(self, now_s: float, interval_s: float) -> Nodes:
        executors = self.gauges.executors.list()
        loads, draining = self._hosts.loads(now_s), self.gauges.pool.draining
        for executor in executors:
            self._there_s[executor.id] = self._there_s.get(executor.id, 0.0) + interval_s
        count = len(executors)
        there_s = [self._there_s[e.id] for e in executors]
        seen = [loads.get(e.id) for e in executors]
        machine = self._machine
        return Nodes.blank(
            count,
            ids=tuple(e.id for e in executors),
            hosts=tuple(e.host for e in executors),
            machines=(machine.name,) * count,
            cores=[float(e.cores) for e in executors],
            speed=machine.speed,
            own_cpu=[s.own_cpu if s else 0.0 for s in seen],
            foreign_cpu=[s.foreign_cpu if s else 0.0 for s in seen],
            load_average=[s.load_average if s else 0.0 for s in seen],
            memory_bytes=[
                s.memory_bytes if s else float(e.storage_memory_bytes)
                for s, e in zip(seen, executors, strict=True)
            ],
            memory_used_bytes=[
                s.memory_used_bytes if s else float(e.storage_memory_used_bytes)
                for s, e in zip(seen, executors, strict=True)
            ],
            bandwidth_bytes_per_s=[
                s.nic_bytes_per_s if s and s.nic_bytes_per_s else machine.bandwidth_bytes_per_s for s in seen
            ],
            net_in_bytes_per_s=[s.net_in_bytes_per_s if s else 0.0 for s in seen],
            net_out_bytes_per_s=[s.net_out_bytes_per_s if s else 0.0 for s in seen],
            price_per_hour=machine.price_per_hour,
            started_s=[now_s - seconds for seconds in there_s],
            paid_until_s=[now_s - seconds + machine.billed_s(seconds) for seconds in there_s],
            ready=True,
            draining=[e.id in draining for e in executors],
            known=[s is not None for s in seen],
        )

    def _source_table(self, batches: tuple[BatchProgress, ...], now_s: float, interval_s: float) -> Sources:
        rows = [r for id_, reader in self._sources.items() for r in [reader.read(batches, now_s, interval_s)]]
        return Sources.blank(
            len(rows),
            operator=[self._flow.row[id_] for id_ in self._sources],
            produced_rps=[r.produced_rps for r in rows],
            read_rps=[r.read_rps for r in rows],
            backlog_records=[r.backlog_records for r in rows],
            oldest_s=[r.oldest_s for r in rows],
            keep=[self._totals.keep(id_) for id_ in self._sources],
            known=[r.known for r in rows],
        )

    def _note_lateness(self, batches: tuple[BatchProgress, ...], records: tuple[TaskRecord, ...]) -> None:
        """Add each batch's latencies to the windows of its sinks: measured where records carry their source time."""
        for batch in batches:
            before = self._last.began_s if self._last is not None else None
            self._last = batch
            if not batch.records:
                continue
            measured: dict[str, list[SinkRecord]] = {}
            for record in records:
                if record.batch_id == batch.batch_id:
                    for sink in record.sinks:
                        measured.setdefault(sink.sink, []).append(sink)
            for name, parts in measured.items():
                if (id_ := OperatorId(name)) in self._windows:
                    moments, sketch = _joined(parts).latencies_s(batch.ended_s)
                    self._windows[id_].add(Lateness(batch.ended_s, moments, sketch))
            if self.gauges.measures is None:
                backlog = sum(s.backlog_records() or 0 for s in batch.sources)
                read_rps = batch.records / batch.duration_s if batch.duration_s else 0.0
                waits_s = backlog / read_rps if read_rps else 0.0
                for window in self._windows.values():
                    window.add(estimated_lateness(batch, before, waits_s))

    def _sink_table(self) -> Sinks:
        sinks = self._flow.sinks
        recent = [self._windows[s.id].take() for s in sinks]
        return Sinks.blank(
            len(sinks),
            operator=[self._flow.row[s.id] for s in sinks],
            priority=[s.priority for s in sinks],
            min_accuracy=[s.min_accuracy for s in sinks],
            records=[float(m.count[0]) for m, _ in recent],
            accuracy=[self._totals.accuracy(s.id) for s in sinks],
            latency_s=Moments(
                np.array([m.count[0] for m, _ in recent]),
                np.array([m.mean[0] for m, _ in recent]),
                np.array([m.m2[0] for m, _ in recent]),
            ),
            sketch=tuple(sketch for _, sketch in recent),
            known=[bool(m.count[0]) for m, _ in recent],
        )

    def _constraints(self, now_s: float, sources: Sources) -> Constraints:
        """Latency of records from their birth to the sinks that a constraint's sequence leads to.

        Where no batch ended in a constraint's window, what came since the last one began still waits: it is at
        least as late as it is old.
        """
        waited_s = now_s - (self._last.began_s if self._last is not None else self._looked_s)
        waits = bool(np.any(sources.known & (sources.backlog_records > 0)))
        latencies: list[float | None] = []
        for constraint in self._flow.constraints:
            moments, sketch = Moments.empty(1), Sketch.empty()
            for sink in sinks_after(self._flow, constraint.sequence.operators[-1]):
                m, s = self._windows[sink].since(now_s - constraint.window_s)
                moments, sketch = moments.merge(m), sketch.merge(s)
            latency_s = statistic_s(constraint, moments, sketch)
            if latency_s is None and waits:
                latency_s = WAIT_SHARE[constraint.statistic] * waited_s
            latencies.append(latency_s)
        return Constraints.blank(
            len(latencies),
            bound_s=[c.bound_ms / 1e3 for c in self._flow.constraints],
            latency_s=[0.0 if value is None else value for value in latencies],
            known=[value is not None for value in latencies],
        )

    def _batch_table(self, batches: tuple[BatchProgress, ...], records: tuple[TaskRecord, ...]) -> Batches:
        interval = self.gauges.interval_ms
        busy_s = {b.batch_id: 0.0 if self.gauges.measures is not None else np.nan for b in batches}
        for record in records:
            if record.batch_id in busy_s:
                busy_s[record.batch_id] += sum(operator.busy_s for operator in record.operators)
        return Batches(
            id=np.array([b.batch_id for b in batches], dtype=np.int64),
            records=np.array([float(b.records) for b in batches]),
            duration_s=np.array([b.duration_s for b in batches]),
            fixed_s=np.array([b.fixed_s for b in batches]),
            busy_s=np.array([busy_s[b.batch_id] for b in batches]),
            interval_s=interval() / 1e3 if interval is not None else 0.0,
        )

    def _places(self, warnings: list[str]) -> dict[tuple[OperatorId, int], str]:
        """Where state partitions live: (operator, partition) to executor."""
        found: dict[Place, str | None] = _read(self.gauges.moves().places, {}, warnings)
        return {
            (self._state_operators[place.operator], place.partition): executor
            for place, executor in found.items()
            if executor is not None and place.operator in self._state_operators
        }

    def _shuffled(self, batches: tuple[BatchProgress, ...], warnings: list[str]) -> tuple[float, float]:
        """Bytes that the newest batch read in shuffles, in all and from other executors."""
        tasks, run = self.gauges.tasks, self._run
        if tasks is None or not batches or run is None:
            return 0.0, 0.0
        return _read(lambda: tasks.shuffled(run, batches[-1].batch_id), (0.0, 0.0), warnings)

    def _traffic(self, batches: tuple[BatchProgress, ...], tasks: Tasks, warnings: list[str]) -> Traffic:
        """Who sent how much to whom in the newest batch of which Spark can still tell."""
        shuffles = self.gauges.shuffles
        if shuffles is None or not self._state_operators:
            return Traffic.blank(0)
        known, ended = len(warnings), {b.batch_id: b for b in batches}
        found = _read(lambda: shuffles.last_batch(self.gauges.query(), ended), None, warnings)
        told, self._untold = self._untold, warnings[known:]
        if self._untold == told:  # where plans are out of reach they are so in every cycle: said once
            del warnings[known:]
        if found is None:
            return Traffic.blank(0)
        return traffic_between(self._flow, self._state_operators, found[1], tasks, ended[found[0]].duration_s)


def _read(gauge: Callable[[], T], otherwise: T, warnings: list[str]) -> T:
    """What a gauge says; one that fails costs its figures and a warning, not the snapshot."""
    try:
        return gauge()
    except Exception as problem:  # whatever Spark's internals do, the other figures are still good
        warnings.append(f"{type(problem).__name__}: {problem}")
        return otherwise


def _joined(parts: Sequence[SinkRecord]) -> SinkRecord:
    """What several tasks had for one sink: their latencies are then worked out at once."""
    return SinkRecord(
        sink=parts[0].sink,
        rows=sum(part.rows for part in parts),
        ticks=np.concatenate([part.ticks for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def sinks_after(flow: Dataflow, operator: OperatorId) -> tuple[OperatorId, ...]:
    """The sinks that records of an operator reach."""
    reached, waiting = {operator}, [operator]
    while waiting:
        for stream in flow.downstream(waiting.pop()):
            if stream.target not in reached:
                reached.add(stream.target)
                waiting.append(stream.target)
    return tuple(s.id for s in flow.sinks if s.id in reached)


def place_of(
    flow_operator: OperatorId, index: int, state_operators: Mapping[int, OperatorId]
) -> Place | None:
    """The state partition behind a task, if it has one."""
    for spark_id, id_ in state_operators.items():
        if id_ == flow_operator:
            return Place(operator=spark_id, partition=index)
    return None
