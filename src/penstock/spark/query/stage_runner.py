"""The host: all stateless Python operators between two shuffles, run in one `mapInArrow`.

A `Program` is what a host does, as data: the doors where rows enter, the operators in order, the streams between
them, and how rows leave. It travels to the workers once per query; each task reads the controls of its
micro-batch (share to keep, active alternate), runs the batches through and measures.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.dataflow.graph import Takes
from penstock.spark.internals.task_controls import current_controls
from penstock.spark.observe.machine_load import stalled_s
from penstock.spark.observe.task_measures import Tally, TaskMeasures, task_measures
from penstock.spark.query.audit import audited_share, in_common, sampled
from penstock.spark.query.function_shipping import Shipment
from penstock.spark.query.sampling import keep_control, kept
from penstock.spark.query.shuffle_messages import PAYLOAD, PORT, Port, unpack
from penstock.spark.query.user_functions import SOURCE_TIME, call, conform

WEIGH_EVERY = 16
"""Batches of a task between two in which the bytes of a row are measured anew."""


def alternate_control(operator: str) -> str:
    """The name of the control with the active alternate of an operator."""
    return f"alternate:{operator}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A stream as the host that feeds it sees it; `measured` is False where it is counted elsewhere."""

    stream: str
    target: str
    subject: str
    """Whose share to keep applies: the stream, or the source itself."""
    salt: int
    keep_by: tuple[str, ...] = ()
    utility: int | None = None
    """Position of the utility function in the shipment."""
    weight: str | None = None
    """Column with 1 / the probability with which a record was kept so far."""
    columns: pa.Schema | None = None
    """What the target expects, where that differs from what the source gives."""
    port: int | None = None
    """Where its rows go when they leave the host for a later one."""
    leaves: bool = False
    """Its rows leave the last host: they are results."""
    to_sink: bool = False
    measured: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operator in a host. `functions` are positions in the shipment; none for a union, which passes on."""

    operator: str
    takes: Takes
    alternates: tuple[str, ...]
    functions: tuple[int, ...]
    default: int
    schema: pa.Schema
    leaving: tuple[Lane, ...]
    measured: bool = True


class Exit(Protocol):
    """Makes the result rows of the last host."""

    def emit(self, leaving: list[tuple[str, pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        """The rows for Spark, from (target, batch) pairs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """Results leave as they are."""

    schema: pa.Schema

    def emit(self, leaving: list[tuple[str, pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        """The batches, with the columns that Spark was told."""
        return (conform(batch, self.schema) for _, batch in leaving)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where rows enter a host: straight from Spark, or (`port`) in messages; and the streams they take."""

    port: int | None
    schema: pa.Schema
    leaving: tuple[Lane, ...]
    source: Lane | None = None
    """Present when the rows come from a source: its own share to keep, applied before anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What one host does."""

    name: str
    doors: tuple[Door, ...]
    steps: tuple[Step, ...]
    """In an order in which every stream points forward."""
    ports: Mapping[int, Port]
    """Where rows leave for later hosts."""
    exit: Exit | None
    """How results leave; None when this is not the last host."""
    shipment: Shipment

    def run(self, batches: Iterable[pa.RecordBatch], accumulator: Any = None) -> Iterator[pa.RecordBatch]:
        """Everything that leaves, for everything that enters one task."""
        task = Task(self, current_controls(), task_measures(self.name, accumulator))
        rows_enter = self.doors[0].port is None
        for batch in batches:
            yield from task.rows(self.doors[0], batch) if rows_enter else task.messages(batch)


class Task:
    """A program bound to the controls of one micro-batch."""

    def __init__(self, program: Program, controls: Mapping[str, Any], measures: TaskMeasures) -> None:
        self._program, self._measures = program, measures
        self._functions = program.shipment.unpack()
        self._doors = {door.port: door for door in program.doors}
        self._active = {step.operator: active_alternate(step, controls) for step in program.steps}
        lanes = [lane for door in program.doors for lane in door.leaving]
        lanes += [lane for step in program.steps for lane in step.leaving]
        lanes += [door.source for door in program.doors if door.source]
        self._shares = {lane.subject: share_to_keep(lane.subject, controls) for lane in lanes}
        self._audited = audited_share(controls)
        self._turn = measures.partition
        self._entered = 0
        self._row_bytes: dict[tuple[str, str], float] = {}

    def messages(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What leaves when messages enter; those for a later host pass unopened."""
        ports, payloads = batch.column(PORT).to_numpy(), batch.column(PAYLOAD)
        for port in np.unique(ports).tolist():
            mine = pa.array(ports == port)
            door = self._doors.get(port)
            if door is None:
                yield batch.filter(mine)
            else:
                yield from self.rows(door, unpack(payloads.filter(mine), door.schema))

    def rows(self, door: Door, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What leaves when rows enter at a door: messages for later hosts, and results."""
        rows = conform(rows, door.schema)
        self._entered += 1
        waiting: dict[str, list[pa.RecordBatch]] = {}
        out: list[tuple[Lane, pa.RecordBatch]] = []
        if door.source is not None:
            rows = self._read(door.source, rows)
        self._pass_on(door.leaving, rows, waiting, out)
        for step in self._program.steps:
            for batch in waiting.pop(step.operator, ()):
                self._pass_on(step.leaving, self._apply(step, batch), waiting, out)
        for lane, batch in out:
            if lane.port is not None:
                yield self._program.ports[lane.port].pack(batch, self._turn)
                self._turn += 1
        if self._program.exit is not None:
            yield from self._program.exit.emit([(lane.target, batch) for lane, batch in out if lane.leaves])

    def _read(self, source: Lane, rows: pa.RecordBatch) -> pa.RecordBatch:
        passed = self._keep(source, rows)
        if source.measured:
            tally = self._measures.tally(source.target, "default")
            size, size_out = self._size("in", source.target, rows), self._size("out", source.target, passed)
            tally.add(rows.num_rows, passed.num_rows, size, size_out, 0.0)
        return passed

    def _apply(self, step: Step, batch: pa.RecordBatch) -> pa.RecordBatch:
        which = self._active[step.operator]
        began, stalled = time.perf_counter(), stalled_s()
        if not step.functions:
            rows, m2 = batch, 0.0
        else:
            try:
                rows, m2 = call(self._functions[step.functions[which]], step.takes, batch, step.schema)
            except Exception as error:
                error.add_note(f"in operator '{step.operator}', alternate '{step.alternates[which]}'")
                raise
        if step.measured:
            busy_s = time.perf_counter() - began if step.functions else 0.0
            tally = self._measures.tally(step.operator, step.alternates[which])
            size, size_out = self._size("in", step.operator, batch), self._size("out", step.operator, rows)
            tally.add(batch.num_rows, rows.num_rows, size, size_out, busy_s, m2, stalled_s() - stalled)
            if which != step.default and self._audited > 0:
                self._audit(step, which, batch, tally)
        return rows

    def _audit(self, step: Step, which: int, batch: pa.RecordBatch, tally: Tally) -> None:
        """Compare with the best alternate on a sample; what goes wrong there is no reason to fail the task."""
        sample = sampled(batch, self._audited)
        if not sample.num_rows:
            return
        with suppress(Exception):
            mine, best = (
                call(self._functions[step.functions[j]], step.takes, sample, step.schema)[0]
                for j in (which, step.default)
            )
            agreed, compared = in_common(mine, best)
            tally.agreed += agreed
            tally.compared += compared

    def _pass_on(
        self,
        lanes: tuple[Lane, ...],
        rows: pa.RecordBatch,
        waiting: dict[str, list[pa.RecordBatch]],
        out: list[tuple[Lane, pa.RecordBatch]],
    ) -> None:
        for lane in lanes if rows.num_rows else ():
            passed = self._keep(lane, rows)
            if lane.measured:
                shed = rows.num_rows - passed.num_rows
                size = self._size("on", lane.stream, passed)
                self._measures.passed(lane.stream, rows.num_rows, shed, size)
            if not passed.num_rows:
                continue
            if lane.columns is not None:
                passed = conform(passed, lane.columns)
            if lane.to_sink:
                with suppress(Exception):
                    self._measures.reached(lane.target, passed.column(SOURCE_TIME))
            if lane.leaves or lane.port is not None:
                out.append((lane, passed))
            else:
                waiting.setdefault(lane.target, []).append(passed)

    def _keep(self, lane: Lane, rows: pa.RecordBatch) -> pa.RecordBatch:
        share = self._shares[lane.subject]
        if share >= 1:
            return rows
        utility = None if lane.utility is None else self._functions[lane.utility]
        return kept(rows, share, by=lane.keep_by, salt=lane.salt, utility=utility, weight=lane.weight)

    def _size(self, way: str, what: str, batch: pa.RecordBatch) -> int:
        """Bytes of a batch, by the bytes per row of the last one that was weighed: weighing takes 10 µs."""
        if not batch.num_rows:
            return 0
        row_bytes = self._row_bytes.get((way, what))
        if row_bytes is None or self._entered % WEIGH_EVERY == 0:
            row_bytes = self._row_bytes[way, what] = batch.nbytes / batch.num_rows
        return int(row_bytes * batch.num_rows)


def active_alternate(step: Step, controls: Mapping[str, Any]) -> int:
    """The alternate that the controls name, or the default where they name none that exists."""
    wanted = controls.get(alternate_control(step.operator))
    return step.alternates.index(wanted) if wanted in step.alternates else step.default


def share_to_keep(subject: str, controls: Mapping[str, Any]) -> float:
    """The share that the controls give, 1 where they give no number."""
    share = controls.get(keep_control(subject), 1.0)
    return float(share) if isinstance(share, int | float) and share == share else 1.0
