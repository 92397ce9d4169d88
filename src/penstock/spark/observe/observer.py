"""From looks at a query and the records of its Python tasks to a `Snapshot`. Asks Spark nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from penstock.dataflow import Dataflow, OperatorId
from penstock.dataflow.graph import Statistic
from penstock.spark.act.query_pace import PaceReading, SourceLimit
from penstock.spark.act.spreading import Place
from penstock.spark.observe.latency_windows import (
    QUANTILES,
    Lateness,
    SinkWindow,
    estimated_lateness,
    lateness_of,
    merged,
    statistic_s,
    together,
)
from penstock.spark.observe.looks import Look
from penstock.spark.observe.native_tasks import NativeReader, NativeTable
from penstock.spark.observe.operator_totals import OperatorTotals
from penstock.spark.observe.progress import BatchProgress
from penstock.spark.observe.read_all_source import ReadAllSource
from penstock.spark.observe.sections import measured_elsewhere, sinks_after, stamps_of, wanted_stamps
from penstock.spark.observe.source_rates import SourceFacts, SourceReader
from penstock.spark.observe.stage_costs import StageCosts
from penstock.spark.observe.task_measures import STAMPED_S, SinkRecord, TaskRecord
from penstock.spark.observe.traffic import traffic_between
from penstock.telemetry import (
    Batches,
    Constraints,
    MachineClass,
    Moments,
    Nodes,
    Queries,
    Sinks,
    Snapshot,
    Sources,
    Tasks,
    Traffic,
)
from penstock.telemetry.executor_speed import ExecutorSpeeds, observed

LATENCY_KEPT_S = 120.0
WAIT_SHARE: dict[Statistic, float] = {"mean": 0.5, "p50": 0.5, "p95": 0.95, "p99": 0.99}
"""How old what came evenly in the last second is, as a share of that second."""

ALL = "ReadAllAvailable"
"""The read limit of a source of which every batch takes all there is: then nothing waits for a later batch."""


HIDDEN = (
    "{query}: a source gives each batch a limited part and does not tell what waits: latency may be more than is seen, "
    "so no executor is given back"
)
ELSEWHERE = (
    "constraint {constraint} ends at an operator that cannot stamp records: the sinks behind it stand for it"
)


class Observer:
    """Remembers what it needs between two snapshots: running totals, latencies of recent batches, rates of sources.

    A query that is started again goes on with the same observer.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        *,
        machine: MachineClass,
        state_operators: Mapping[int, OperatorId],
        sources: Mapping[OperatorId, SourceReader],
        now_s: float,
        measured: bool = False,
        task_figures: bool = False,
        fresh_s: float = 15.0,
    ) -> None:
        """`measured`: Python tasks tell what they did; `task_figures`: else Spark's own do.

        Figures older than `fresh_s` are unknown.
        """
        self._flow, self._machine, self._measured, self._fresh_s = dataflow, machine, measured, fresh_s
        self._native_figures = task_figures and not measured
        self._state_operators = state_operators
        self._sources = sources
        self._seen_batch = -1
        self._last: BatchProgress | None = None
        self._periods_s: dict[int, float] = {}
        """Of the batches of this look: seconds since the one before was triggered."""
        self._look: Look | None = None
        self._observed_s = now_s
        self._totals = OperatorTotals(dataflow)
        self._stage_costs = StageCosts()
        self._reader, self._table = NativeReader(dataflow, state_operators), NativeTable(dataflow)
        keep_s = max([LATENCY_KEPT_S, *(2 * c.window_s for c in dataflow.constraints)])
        self._windows = {sink.id: SinkWindow(keep_s) for sink in dataflow.sinks}
        self._sections = {stamp: SinkWindow(keep_s) for stamp in wanted_stamps(dataflow)}
        self.batches = 0
        self.records_in = 0
        self._hidden_told, self._elsewhere = False, measured_elsewhere(dataflow)

    @property
    def seen_batch(self) -> int:
        """The newest batch that a snapshot has told of."""
        return self._seen_batch

    def observe(
        self, looks: Sequence[Look], records: tuple[TaskRecord, ...], nodes: Nodes, now_s: float
    ) -> Snapshot:
        """The facts of the interval that ends now: the looks that were finished in it, which may be none."""
        for look in looks:
            if self._look is not None and look.run_id != self._look.run_id:
                self._last = None  # started again: its batches go on where the old ones ended
            self._look = look
        batches = tuple(b for look in looks for b in look.batches)
        if batches:
            self._seen_batch = batches[-1].batch_id
            self.batches += len(batches)
            self.records_in += sum(b.records for b in batches)
        warnings = [w for look in looks for w in look.warnings]
        if not self._hidden_told and self._may_hide_waiting():
            self._hidden_told = True
            warnings.append(HIDDEN.format(query=self._flow.name))
        warnings += [ELSEWHERE.format(constraint=name) for name in self._elsewhere]
        self._elsewhere = ()
        warnings += [f"{look.unseen} batches ended unseen" for look in looks if look.unseen]
        for reader in self._sources.values():
            for look in looks:
                reader.note(look)
        facts = [r.facts(now_s, fresh_s=self._fresh_s) for r in self._sources.values()]
        self._note_lateness(batches, records)
        interval_s = max(now_s - self._observed_s, 1e-3)
        self._observed_s = now_s
        tasks = self._totals.tasks(records, self._places(), nodes, interval_s, self._moving())
        tasks = self._with_native(
            looks, tasks, nodes, interval_s, figures=self._native_figures and not records
        )
        # Before the sources and sinks: what they keep is learnt from what passed the streams.
        streams = self._totals.streams(records, self._shuffled(looks))
        return Snapshot(
            time_s=now_s,
            interval_s=interval_s,
            dataflow=self._flow,
            nodes=nodes,
            operators=self._totals.operators(tasks),
            alternates=self._totals.alternates(),
            tasks=tasks,
            streams=streams,
            sources=self._source_table(facts),
            sinks=self._sink_table(),
            constraints=self._constraints(now_s, facts),
            traffic=self._traffic(looks, tasks),
            classes=(self._machine,),
            batches=self._batch_table(batches, records, looks),
            queries=self._query_table(now_s),
            warnings=tuple(dict.fromkeys(warnings)),
        )

    def _with_native(
        self, looks: Sequence[Look], tasks: Tasks, nodes: Nodes, interval_s: float, *, figures: bool
    ) -> Tasks:
        """With the state that Spark's tasks tell of, and all their other figures where Python tasks told none.

        Of batches whose tasks Spark did not tell, the others stand for them.
        """
        told = [
            (b, look.tasks[b.batch_id]) for look in looks for b in look.batches if b.batch_id in look.tasks
        ]
        native = None
        if told:
            whole_s = sum(b.duration_s for look in looks for b in look.batches)
            scale = whole_s / max(sum(b.duration_s for b, _ in told), 1e-9)
            native = self._reader.read([table for _, table in told], scale=max(1.0, scale))
        return self._table.filled(tasks, native, nodes, interval_s, figures=figures)

    def compared(self, looks: Sequence[Look], speeds: ExecutorSpeeds) -> ExecutorSpeeds:
        """What is known of executors, with the tasks of these looks: those of a kind are compared."""
        for _, table in sorted(
            (pair for look in looks for pair in look.tasks.items()), key=lambda pair: pair[0]
        ):
            good = np.flatnonzero(table.succeeded)
            # Who waits for the output of others is not slow.
            seconds = np.maximum(table.run_ms + table.deserialize_ms - table.shuffle_wait_ms, 0.0) / 1e3
            kinds = self._reader.kinds(table)
            speeds = observed(
                speeds,
                [kinds[i] for i in good.tolist()],
                [table.executor[i] for i in good.tolist()],
                (table.input_records + table.shuffle_read_records)[good],
                seconds[good],
            )
        return speeds

    def _is_fresh(self, now_s: float) -> bool:
        return self._look is not None and now_s - self._look.time_s <= self._fresh_s

    def _running_s(self, now_s: float) -> float:
        """How long the batch under way has run; it has not ended as far as anybody knows."""
        look = self._look
        return look.running_s + now_s - look.time_s if look is not None and look.running_s else 0.0

    def _source_table(self, facts: Sequence[SourceFacts]) -> Sources:
        pace = self._look.pace if self._look is not None else None
        # A source that does not tell what waits in it is not limited: nobody would see how late its records are.
        limits = pace.limits if pace is not None and len(pace.limits) == len(facts) else ()
        limits = limits or (SourceLimit(now=0.0, own=0.0, settable=False),) * len(facts)
        return Sources.blank(
            len(facts),
            operator=[self._flow.row[id_] for id_ in self._sources],
            produced_rps=[f.produced_rps for f in facts],
            read_rps=[f.read_rps for f in facts],
            backlog_records=[f.backlog_records for f in facts],
            oldest_s=[f.oldest_s for f in facts],
            keep=[self._totals.keep(id_) for id_ in self._sources],
            read_limit=[limit.now for limit in limits],
            own_limit=[limit.own for limit in limits],
            limitable=[
                limit.settable
                and reader.tells_backlog
                and fact.backlog_known
                and not isinstance(reader, ReadAllSource)  # it takes what is read for all there is
                for limit, reader, fact in zip(limits, self._sources.values(), facts, strict=True)
            ],
            backlog_known=[f.backlog_known for f in facts],
            known=[f.known for f in facts],
        )

    def _query_table(self, now_s: float) -> Queries:
        """One row: this query. Whether it is still there is for those who follow it to say."""
        look = self._look
        if look is None:
            return Queries.blank(1, names=(self._flow.name,), last_operator=len(self._flow.operators) - 1)
        standing, fresh, running_s = look.standing, self._is_fresh(now_s), self._running_s(now_s)
        pace = look.pace or PaceReading()
        records = [r.running_records() for r in self._sources.values()]
        known = running_s > 0 and bool(records) and None not in records
        return Queries.blank(
            1,
            names=(self._flow.name,),
            last_operator=len(self._flow.operators) - 1,
            interval_s=pace.interval_s,
            interval_known=fresh and look.pace is not None,
            own_interval_s=pace.own_interval_s,
            paceable=pace.paceable,
            running_s=running_s,
            running_records=sum(r for r in records if r is not None) if known else 0.0,
            records_known=fresh and known,
            tasks_done=standing.tasks_ended / standing.tasks
            if standing is not None and standing.tasks
            else 0.0,
            tasks_known=fresh and standing is not None and standing.tasks > 0,
            last_batch=self._seen_batch,
            last_end_s=self._last.ended_s if self._last is not None else 0.0,
            active=True,
            age_s=now_s - look.time_s,
            known=fresh,
        )

    def _note_lateness(self, batches: tuple[BatchProgress, ...], records: tuple[TaskRecord, ...]) -> None:
        """Add each batch's latencies to the windows of its sinks: measured where records carry their source time."""
        self._periods_s = {}
        for batch in batches:
            before = self._last.began_s if self._last is not None else None
            if before is not None:
                self._periods_s[batch.batch_id] = batch.began_s - before
            self._last = batch
            if not batch.records:
                continue
            told = [record for record in records if record.batch_id == batch.batch_id]
            for name, parts in _by_name(sink for record in told for sink in record.sinks).items():
                if (id_ := OperatorId(name)) in self._windows:
                    moments, sketch = _joined(parts).latencies_s(batch.ended_wall_s)
                    self._windows[id_].add(Lateness(batch.ended_s, moments, sketch))
            for name, parts in _by_name(stamp for record in told for stamp in record.stamps).items():
                if name in self._sections:
                    moments, sketch = _joined(parts).latencies_s(STAMPED_S)
                    self._sections[name].add(Lateness(batch.ended_s, moments, sketch))
            if not self._measured:
                for window in self._windows.values():
                    window.add(self._estimated(batch, before))

    def _estimated(self, batch: BatchProgress, began_before_s: float | None) -> Lateness:
        """From when its records came, source by source; evenly since the batch before began, where nobody knows."""
        parts = []
        for reader, source in zip(self._sources.values(), batch.sources, strict=False):
            came_s = reader.arrivals_s(batch)
            if came_s is not None and source.records:
                parts.append(lateness_of(batch.ended_s, came_s, source.records))
            elif source.records:
                parts.append(estimated_lateness(batch, began_before_s, source.records))
        return together(parts) if parts else estimated_lateness(batch, began_before_s, batch.records)

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

    def _constraints(self, now_s: float, facts: Sequence[SourceFacts]) -> Constraints:
        """Latency of records from their birth to the end of a constraint's sequence: at its sinks, or where it is
        stamped inside the dataflow.

        What has not arrived yet is at least as late as it is old: while a batch runs, its records count with their
        ages once these exceed the latencies of those that arrived. If no batch ended in a constraint's window and
        records wait, the last batch before it stands for it.
        """
        running_s, fresh = self._running_s(now_s), self._is_fresh(now_s)
        waits = running_s > 0 or any(f.backlog_known and f.backlog_records > 0 for f in facts)
        rows: list[tuple[float, bool, bool]] = []
        for constraint in self._flow.constraints:
            sequence = constraint.sequence
            stamps = stamps_of(self._flow, sequence)
            reached = [self._sections[s] for s in stamps] or [
                self._windows[s] for s in sinks_after(self._flow, sequence.operators[-1])
            ]
            ended = merged(w.since(now_s - constraint.window_s) for w in reached)
            if not ended[0].count[0] and waits:
                ended = merged(w.last() for w in reached)
            latency_s = statistic_s(constraint, *ended)
            # Of a batch under way nobody knows which of its records have passed a place inside the dataflow.
            least_s = self._least_s(constraint.statistic, now_s) if fresh and not stamps else None
            at_least = least_s is not None and (latency_s is None or least_s > latency_s)
            if at_least:
                bound_s = constraint.bound_ms / 1e3
                rows.append((least_s or 0.0, True, latency_s is not None or (least_s or 0.0) > bound_s))
            else:
                rows.append((latency_s or 0.0, self._may_hide_waiting(), fresh and latency_s is not None))
        return Constraints.blank(
            len(rows),
            bound_s=[c.bound_ms / 1e3 for c in self._flow.constraints],
            latency_s=[latency_s for latency_s, _, _ in rows],
            at_least=[at_least for _, at_least, _ in rows],
            known=[known for _, _, known in rows],
        )

    def _least_s(self, statistic: Statistic, now_s: float) -> float | None:
        """The statistic of the ages that records of the batch under way have reached; None: none runs."""
        look, running_s = self._look, self._running_s(now_s)
        if look is None or not running_s:
            return None
        began_s = now_s - running_s
        gap_s = max(0.0, began_s - self._last.began_s) if self._last is not None else 0.0
        ages = [running_s + WAIT_SHARE[statistic] * gap_s]
        for reader in self._sources.values():
            came_s = reader.running_arrivals_s()
            if came_s is not None:
                late = now_s - came_s
                share = QUANTILES.get(statistic)
                ages.append(float(late.mean() if share is None else np.quantile(late, share)))
        return max(ages) if len(ages) == 1 else max(ages[1:])

    def _may_hide_waiting(self) -> bool:
        """Whether records may wait in a source that does not tell: its batches take only a part of what there is."""
        standing = self._look.standing if self._look is not None else None
        if self._measured or standing is None:
            return False
        pairs = zip(standing.sources, self._sources.values(), strict=False)
        return any(source.limit not in ("", ALL) and not reader.tells_backlog for source, reader in pairs)

    def _batch_table(
        self, batches: tuple[BatchProgress, ...], records: tuple[TaskRecord, ...], looks: Sequence[Look]
    ) -> Batches:
        busy_s = {b.batch_id: 0.0 if self._measured else np.nan for b in batches}
        task_core_s = dict.fromkeys(busy_s, 0.0)
        for record in records:
            if record.batch_id in busy_s:
                busy_s[record.batch_id] += sum(operator.busy_s for operator in record.operators)
        for id_, table in () if self._measured else (pair for look in looks for pair in look.tasks.items()):
            task_core_s[id_], busy_s[id_] = self._stage_costs.split(table)
        return Batches(
            id=np.array([b.batch_id for b in batches], dtype=np.int64),
            records=np.array([float(b.records) for b in batches]),
            duration_s=np.array([b.duration_s for b in batches]),
            fixed_s=np.array([b.fixed_s for b in batches]),
            busy_s=np.array([busy_s[b.batch_id] for b in batches]),
            task_core_s=np.array([task_core_s[b.batch_id] for b in batches]),
            interval_s=self._look.pace.interval_s if self._look is not None and self._look.pace else 0.0,
        )

    def _places(self) -> dict[tuple[OperatorId, int], str]:
        """Where state partitions live: (operator, partition) to executor."""
        found = self._look.places if self._look is not None else {}
        return {
            (self._state_operators[place.operator], place.partition): executor
            for place, executor in found.items()
            if executor is not None and place.operator in self._state_operators
        }

    def _moving(self) -> frozenset[tuple[OperatorId, int]]:
        """State partitions on their way: (operator, partition)."""
        found = self._look.moving if self._look is not None else frozenset()
        names = self._state_operators
        return frozenset((names[p.operator], p.partition) for p in found if p.operator in names)

    def _shuffled(self, looks: Sequence[Look]) -> tuple[float, float]:
        """Bytes that the newest batch read in shuffles, in all and from other executors."""
        tables = [table for look in looks for _, table in sorted(look.tasks.items())]
        return tables[-1].shuffled_bytes if tables else (0.0, 0.0)

    def _traffic(self, looks: Sequence[Look], tasks: Tasks) -> Traffic:
        """Who sent how much to whom in the newest batch of which Spark could still tell, a second of time on the wall.

        A batch stands for the time since the one before it began, in which nothing else was sent: three seconds of
        work a minute are little traffic.
        """
        for look in reversed(looks):
            if look.matrices is not None and self._state_operators:
                batch_id, matrices = look.matrices
                (batch,) = [b for b in look.batches if b.batch_id == batch_id]
                period_s = max(batch.duration_s, self._periods_s.get(batch_id, 0.0))
                return traffic_between(self._flow, self._state_operators, matrices, tasks, period_s)
        return Traffic.blank(0)


def _joined(parts: Sequence[SinkRecord]) -> SinkRecord:
    """What several tasks had for one sink: their latencies are then worked out at once."""
    return SinkRecord(
        sink=parts[0].sink,
        rows=sum(part.rows for part in parts),
        ticks=np.concatenate([part.ticks for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


def _by_name(parts: Iterable[SinkRecord]) -> dict[str, list[SinkRecord]]:
    found: dict[str, list[SinkRecord]] = {}
    for part in parts:
        found.setdefault(part.sink, []).append(part)
    return found


def place_of(
    flow_operator: OperatorId, index: int, state_operators: Mapping[int, OperatorId]
) -> Place | None:
    """The state partition behind a task, if it has one."""
    for spark_id, id_ in state_operators.items():
        if id_ == flow_operator:
            return Place(operator=spark_id, partition=index)
    return None
