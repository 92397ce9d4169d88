"""What operators, alternates, tasks and streams did, from the records of Python tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.dataflow import Dataflow, OperatorId
from penstock.spark.observe.task_measures import OperatorRecord, TaskRecord
from penstock.telemetry import Alternates, Moments, Nodes, Operators, Streams, Tasks

SHUFFLED = ("key", "spread")
ALTERNATE_HALF_LIFE_S = 300.0
"""Seconds after which what was measured of an alternate weighs half: data and machines change."""
NOTHING = Moments.empty(1)
"""One for all: nothing writes into it, merging makes a new one."""


@dataclass(slots=True)
class _Task:
    """Running totals of one task within one interval."""

    executor: str = ""
    rows_in: float = 0.0
    rows_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    busy_s: float = 0.0
    stalled_s: float = 0.0
    service_s: Moments = NOTHING

    def add(self, record: OperatorRecord, executor: str) -> None:
        self.executor = executor
        self.rows_in += record.rows_in
        self.rows_out += record.rows_out
        self.bytes_in += record.bytes_in
        self.bytes_out += record.bytes_out
        self.busy_s += record.busy_s
        self.stalled_s += record.stalled_s
        self.service_s = self.service_s.merge(record.service_s)


@dataclass(slots=True)
class _Alternate:
    """What one alternate did lately; what was only audited counts for its cost and value."""

    service_s: Moments = NOTHING
    rows_in: float = 0.0
    rows_out: float = 0.0
    agreed: float = 0.0
    compared: float = 0.0

    def fade(self, factor: float) -> None:
        self.service_s = Moments(
            self.service_s.count * factor, self.service_s.mean, self.service_s.m2 * factor
        )
        self.rows_in *= factor
        self.rows_out *= factor
        self.agreed *= factor
        self.compared *= factor

    def add(self, record: OperatorRecord) -> None:
        self.service_s = self.service_s.merge(record.service_s)
        if record.probe_rows:
            self.service_s = self.service_s.merge(
                Moments.known([record.probe_rows], record.probe_s / record.probe_rows, 0.0)
            )
        self.rows_in += record.rows_in
        self.rows_out += record.rows_out
        self.agreed += record.agreed
        self.compared += record.compared


class OperatorTotals:
    """Tables of a snapshot that come from task records; what alternates did fades with time."""

    def __init__(self, dataflow: Dataflow) -> None:
        self._flow = dataflow
        self._alternates: dict[tuple[str, str], _Alternate] = {}
        self._active: dict[str, str] = {}
        self._kept: dict[str, float] = {}
        """Share that was measured to be kept, per source and stream, when records last passed."""
        self._parallelism: dict[str, int] = {}

    def tasks(
        self,
        records: Iterable[TaskRecord],
        places: Mapping[tuple[OperatorId, int], str],
        nodes: Nodes,
        interval_s: float,
        moving: Collection[tuple[OperatorId, int]],
    ) -> Tasks:
        """One row per task that ran in the interval, and per state partition even if it did not."""
        found: dict[tuple[str, int], _Task] = {(op, i): _Task(executor=e) for (op, i), e in places.items()}
        state = set(found)
        for alternate in self._alternates.values():
            alternate.fade(0.5 ** (interval_s / ALTERNATE_HALF_LIFE_S))
        for record in records:
            for one in record.operators:
                if one.operator not in self._flow.row:
                    continue
                self._learn(one)
                if one.calls:  # else it was only audited
                    found.setdefault((one.operator, record.partition), _Task()).add(one, record.executor)
        for (op, index), executor in places.items():
            found[op, index].executor = executor  # where the state is, rather than where it last ran
        rows = sorted(found, key=lambda key: (self._flow.row[OperatorId(key[0])], key[1]))
        seen = [found[key] for key in rows]
        sources = {s.id for s in self._flow.sources}
        shed = [
            t.rows_in - t.rows_out if key[0] in sources else 0.0 for key, t in zip(rows, seen, strict=True)
        ]
        service = Moments(
            np.array([t.service_s.count[0] for t in seen]),
            np.array([t.service_s.mean[0] for t in seen]),
            np.array([t.service_s.m2[0] for t in seen]),
        )
        busy = np.array([t.busy_s for t in seen])
        self._parallelism = {op: sum(1 for key in rows if key[0] == op) for op in {key[0] for key in rows}}
        return Tasks.blank(
            len(rows),
            operator=[self._flow.row[OperatorId(op)] for op, _ in rows],
            index=[index for _, index in rows],
            node=[nodes.row.get(t.executor, -1) for t in seen],
            arrived=[t.rows_in for t in seen],
            processed=[t.rows_in for t in seen],
            emitted=[t.rows_out for t in seen],
            shed=shed,
            bytes_in=[t.bytes_in for t in seen],
            bytes_out=[t.bytes_out for t in seen],
            busy_s=busy,
            # A core of Spark's is held also while a task waits for an answer; what others took is not its need.
            cpu=(busy - np.array([t.stalled_s for t in seen])) / interval_s,
            service_s=service,
            latency_s=service,
            moving=[key in state and key in moving for key in rows],
            known=[t.rows_in > 0 for t in seen],
        )

    def _learn(self, record: OperatorRecord) -> None:
        self._alternates.setdefault((record.operator, record.alternate), _Alternate()).add(record)
        if record.rows_in:
            self._active[record.operator] = record.alternate

    def operators(self, tasks: Tasks) -> Operators:
        """How many tasks each operator had and which alternate it last ran; no stage can be resized by itself."""
        flow = self._flow
        counts = np.bincount(tasks.operator, minlength=len(flow.operators))
        active = [self._active.get(o.id, o.best.name) for o in flow.operators]
        names = [tuple(a.name for a in o.alternates) for o in flow.operators]
        return Operators.blank(
            len(flow.operators),
            parallelism=np.maximum(counts, 1),
            alternate=[
                known.index(name) if name in known else 0 for name, known in zip(active, names, strict=True)
            ],
        )

    def alternates(self) -> Alternates:
        """What each alternate was seen to do lately."""
        keys = [
            (i, j, o.id, a.name)
            for i, o in enumerate(self._flow.operators)
            for j, a in enumerate(o.alternates)
        ]
        seen = [self._alternates.get((op, name), _Alternate()) for _, _, op, name in keys]
        return Alternates.blank(
            len(keys),
            operator=[i for i, _, _, _ in keys],
            index=[j for _, j, _, _ in keys],
            service_s=Moments(
                np.array([a.service_s.count[0] for a in seen]),
                np.array([a.service_s.mean[0] for a in seen]),
                np.array([a.service_s.m2[0] for a in seen]),
            ),
            records_in=[a.rows_in for a in seen],
            records_out=[a.rows_out for a in seen],
            agreement=[a.agreed / a.compared if a.compared else 0.0 for a in seen],
            known=[a.compared > 0 for a in seen],
        )

    def streams(self, records: Iterable[TaskRecord], shuffled: tuple[float, float]) -> Streams:
        """What passed each stream. Spark tells remote bytes per batch: streams with a shuffle share them by size."""
        offered: dict[str, float] = {}
        shed: dict[str, float] = {}
        size: dict[str, float] = {}
        for record in records:
            for one in record.streams:
                offered[one.stream] = offered.get(one.stream, 0.0) + one.rows_offered
                shed[one.stream] = shed.get(one.stream, 0.0) + one.rows_shed
                size[one.stream] = size.get(one.stream, 0.0) + one.bytes
            for operator in record.operators:
                if operator.operator in {s.id for s in self._flow.sources}:
                    offered[operator.operator] = offered.get(operator.operator, 0.0) + operator.rows_in
                    shed[operator.operator] = (
                        shed.get(operator.operator, 0.0) + operator.rows_in - operator.rows_out
                    )
        self._kept.update({subject: 1 - shed[subject] / n for subject, n in offered.items() if n})
        remote_share = shuffled[1] / shuffled[0] if shuffled[0] else 0.0
        ids = [s.id for s in self._flow.streams]
        return Streams.blank(
            len(ids),
            records=[offered.get(i, 0.0) - shed.get(i, 0.0) for i in ids],
            shed=[shed.get(i, 0.0) for i in ids],
            bytes=[size.get(i, 0.0) for i in ids],
            remote_bytes=[
                size.get(s.id, 0.0) * remote_share if s.wiring in SHUFFLED else 0.0
                for s in self._flow.streams
            ],
            keep=[self._kept.get(i, 1.0) for i in ids],
            known=[i in offered for i in ids],
        )

    def keep(self, subject: str) -> float:
        """The share of a source's or stream's records that was kept when records last passed."""
        return self._kept.get(subject, 1.0)

    def accuracy(self, operator: OperatorId) -> float:
        """The share of the application's input that counts at an operator: the least over the ways to it."""
        ways = [self.accuracy(s.source) * self.keep(s.id) for s in self._flow.upstream(operator)]
        return min(ways) if ways else self.keep(operator)
