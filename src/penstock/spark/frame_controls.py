"""The places of one running query where records may be dropped or functions replaced, as policies see and steer them.

A policy knows sources, operators and sinks. Here the share that a query's source keeps is the share of the first
`penstock.shed` on each way from it, and `penstock.alternates` is an operator with its alternates. Spark tells for how
long tasks of a query held a slot: that is the CPU of its source, less what the alternates measured themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow import Alternate, Operator, OperatorId
from penstock.policies.actions import Action, Shed, Switch
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.observe.looks import Look
from penstock.spark.observe.stage_costs import StageCosts
from penstock.spark.observe.task_measures import OperatorRecord, TaskRecord
from penstock.spark.query.audit import AUDIT
from penstock.spark.query.frame_points import (
    AlternatesPoint,
    ShedPoint,
    first_sheds,
    frame_measures,
    frames_of,
    has_points,
)

AUDIT_SHARE = 0.01
"""The share of records that also go through other alternates while somebody steers."""
UNATTRIBUTED = "slots"
"""The host of records that stand for what Spark tells, not for what a Python task measured."""


@dataclass(slots=True, kw_only=True)
class FrameControls:
    """The points of one query, what their tasks measured, and the controls that steer them."""

    prefix: str
    """First part of the ids of the query's operators."""
    sheds: tuple[ShedPoint, ...]
    """Those before which no other drops anything: what they let pass is what counts."""
    alternates: tuple[AlternatesPoint, ...]
    spark: SparkSession
    interval_s: float
    """Seconds between two snapshots."""
    sources: tuple[OperatorId, ...] = ()
    _ended_s: float | None = field(default=None, repr=False)
    _costs: StageCosts = field(default_factory=StageCosts, repr=False)

    @classmethod
    def of(
        cls, spark: SparkSession, query: StreamingQuery, prefix: str, *, interval_s: float
    ) -> FrameControls:
        """The points that the query has now; one that cannot be asked has none."""
        try:
            points, sheds = frames_of(query), first_sheds(query)
        except SparkInternalsError:
            points, sheds = (), ()
        return cls(
            prefix=prefix,
            sheds=sheds,
            alternates=tuple(p for p in points if isinstance(p, AlternatesPoint)),
            spark=spark,
            interval_s=interval_s,
        )

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The alternates as operators of the query's dataflow, from the source on."""
        return tuple(
            Operator(
                id=self._id(point),
                kind="map",
                alternates=tuple(Alternate(name=n, value=v) for n, v in point.values.items()),
            )
            for point in self.alternates
        )

    def controls(self, action: Action) -> dict[str, Any]:
        """The controls that an action sets; none where the query has no such point."""
        match action:
            case Shed(target=None):
                return {point.control: action.keep for point in self.sheds}
            case Switch():
                points = [p for p in self.alternates if self._id(p) == action.operator]
                return {point.control: action.target for point in points}
            case _:
                return {}

    @property
    def standing(self) -> dict[str, Any]:
        """Controls that hold as long as somebody steers: a share of the records goes through other alternates too."""
        return {AUDIT: AUDIT_SHARE} if self.alternates else {}

    @property
    def untouched(self) -> dict[str, Any]:
        """The controls of a query that nobody steers: everything kept, the first alternates, no audits."""
        kept = {point.control: 1.0 for point in self.sheds}
        first = {point.control: next(iter(point.values)) for point in self.alternates}
        return {**kept, **first, **dict.fromkeys(self.standing, 0.0)}

    def records(self, look: Look) -> tuple[TaskRecord, ...]:
        """What the tasks of the batches in a look did, under the ids of the dataflow; nothing where nobody may shed.

        The CPU of batches that lasted longer than an interval is that of their time, not all of it at once.
        """
        batches = look.batches
        if not batches or not has_points(self.spark):
            return ()
        taken = frame_measures(self.spark).take([b.batch_id for b in batches], run_id=look.run_id)
        began_s = batches[0].began_s if self._ended_s is None else self._ended_s
        self._ended_s = batches[-1].ended_s
        scale = self.interval_s / max(self._ended_s - began_s, 1e-3)
        records = [replace(r, operators=self._renamed(r.operators, scale)) for r in taken]
        return (*records, *self._unattributed(look, taken, scale))

    def _renamed(self, operators: Iterable[OperatorRecord], scale: float) -> tuple[OperatorRecord, ...]:
        mine = {point.name: str(self._id(point)) for point in self.alternates}
        return tuple(
            replace(o, operator=mine[o.operator], busy_s=o.busy_s * scale, stalled_s=o.stalled_s * scale)
            for o in operators
            if o.operator in mine
        )

    def _unattributed(self, look: Look, taken: Sequence[TaskRecord], scale: float) -> list[TaskRecord]:
        """A row for each slot that the query used: the records that were read and the share that was kept of them."""
        batches, held_s = look.batches, self._held_s(look, taken)
        for record in taken:
            own_s = sum(o.busy_s for o in record.operators if o.operator in {p.name for p in self.alternates})
            if record.executor in held_s:
                held_s[record.executor] = max(0.0, held_s[record.executor] - own_s)
        lasted_s = max(sum(b.duration_s for b in batches), 1e-3)
        rows = [
            (executor, held / slots)
            for executor, held in sorted(held_s.items())
            for slots in [max(1, math.ceil(held / lasted_s))]
            for _ in range(slots)
        ]
        share, found = self._kept(taken), list[TaskRecord]()
        for position, source in enumerate(self.sources):
            read = sum(b.sources[position].records for b in batches if position < len(b.sources))
            # Whose CPU it is nobody knows where a query has several sources: the first has all of it.
            mine = rows if position == 0 and rows else [("", 0.0)]
            for index, (executor, busy_s) in enumerate(mine):
                part = read * (index + 1) // len(mine) - read * index // len(mine)
                found.append(
                    _slot(
                        look.run_id,
                        batches[-1].batch_id,
                        index,
                        executor,
                        source,
                        part,
                        share,
                        busy_s * scale,
                    )
                )
        return found

    def _held_s(self, look: Look, taken: Sequence[TaskRecord]) -> dict[str, float]:
        """Seconds for which tasks held a slot because of their records, by executor.

        What a task takes without any does not shrink with the share that is kept, and takes no capacity from large
        batches. Batches whose tasks are not told are like the others.
        """
        held: dict[str, float] = {}
        for batch_id, table in look.tasks.items():
            share = self._kept([r for r in taken if r.batch_id == batch_id])
            kept = np.round(table.input_records * share)
            for_tasks_s, for_records_s = self._costs.split(replace(table, input_records=kept))
            part = for_records_s / max(for_tasks_s + for_records_s, 1e-9)
            for executor, run_ms in zip(table.executor, table.run_ms.tolist(), strict=True):
                held[executor] = held.get(executor, 0.0) + part * run_ms / 1e3
        told_s = sum(b.duration_s for b in look.batches if b.batch_id in look.tasks)
        factor = sum(b.duration_s for b in look.batches) / told_s if told_s else 0.0
        return {executor: seconds * factor for executor, seconds in held.items()}

    def _kept(self, taken: Sequence[TaskRecord]) -> float:
        """The share that the first sheds let pass: the least of theirs, as a join of several would have."""
        shares = []
        for point in self.sheds:
            counts = [(o.rows_in, o.rows_out) for r in taken for o in r.operators if o.operator == point.name]
            rows_in, rows_out = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
            shares += [rows_out / rows_in] if rows_in else []
        return min(shares, default=1.0)

    def _id(self, point: AlternatesPoint) -> OperatorId:
        return OperatorId(f"{self.prefix}.{id_part(point.name)}")


def id_part(name: str) -> str:
    """A name that a user gave, as a part of an operator's id."""
    return "".join(c if c not in ".[]>" and not c.isspace() else "_" for c in name)


def _slot(
    run_id: str,
    batch_id: int,
    index: int,
    executor: str,
    source: OperatorId,
    rows: int,
    share: float,
    busy_s: float,
) -> TaskRecord:
    operator = OperatorRecord(
        operator=source,
        alternate="default",
        rows_in=rows,
        rows_out=round(rows * share) if share < 1 else rows,
        bytes_in=0,
        bytes_out=0,
        calls=1 if executor else 0,
        busy_s=busy_s,
        mean_s=busy_s / rows if rows else 0.0,
        m2=0.0,
    )
    return TaskRecord(
        run_id=run_id,
        batch_id=batch_id,
        host=UNATTRIBUTED,
        partition=index,
        attempt=0,
        task_id=-1,
        stage_id=-1,
        executor=executor,
        started_s=0.0,
        ended_s=0.0,
        cpu_s=0.0,
        operators=(operator,),
    )


def shares_of(controls: Mapping[str, Any]) -> dict[str, float]:
    """The shares to keep among control values, by subject."""
    return {name.removeprefix("keep:"): float(v) for name, v in controls.items() if name.startswith("keep:")}
