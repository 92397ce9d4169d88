"""The host: all stateless Python operators between two shuffles, run in one `mapInArrow`.

A `Program` is what a host does, as data: where its rows come from, the operators in order, the streams between
them, and the streams that leave. It travels to the workers once per query; each task reads the controls of its
micro-batch (share to keep, active alternate), runs the batches through and measures.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from penstock.dataflow.model import Takes
from penstock.runtimes.spark.forms import SOURCE_TIME, call, conform
from penstock.runtimes.spark.internals.task_controls import current_controls
from penstock.runtimes.spark.keep import keep_control, kept
from penstock.runtimes.spark.measures import TaskMeasures, task_measures
from penstock.runtimes.spark.shipping import Shipment


def alternate_control(operator: str) -> str:
    """The name of the control with the active alternate of an operator."""
    return f"alternate:{operator}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A stream as the host that feeds it sees it; `measured` is False where another host counts it."""

    stream: str
    target: str
    subject: str
    """Whose share to keep applies: the stream, or the source itself."""
    salt: int
    keep_by: tuple[str, ...] = ()
    utility: int | None = None
    """Position of the utility function in the shipment."""
    columns: pa.Schema | None = None
    """What the target expects, where that differs from what the source gives."""
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
    """Makes the rows that leave a host from the batches on its outward streams."""

    @property
    def targets(self) -> frozenset[str]:
        """Operators beyond the host."""
        ...

    def emit(self, leaving: list[tuple[str, pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        """The rows for Spark, from (target, batch) pairs."""
        ...


class Entrance(Protocol):
    """Makes the host's input rows from what Spark hands over."""

    def read(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The rows in `batch`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows enter as Spark has them."""

    schema: pa.Schema

    def read(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The batch itself."""
        return (conform(batch, self.schema),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """Rows leave as they are."""

    targets: frozenset[str]
    schema: pa.Schema

    def emit(self, leaving: list[tuple[str, pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        """The batches, with the columns that Spark was told."""
        return (conform(batch, self.schema) for _, batch in leaving)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What one host does."""

    name: str
    entrance: Entrance
    source: Lane | None
    """Present when the rows come straight from a source: its own share to keep, applied before anything else."""
    leaving: tuple[Lane, ...]
    """Streams that the entering rows take."""
    steps: tuple[Step, ...]
    """In an order in which every stream points forward."""
    exit: Exit
    sinks: frozenset[str]
    """Targets of the exit at which latency is measured."""
    shipment: Shipment

    def run(self, batches: Iterable[pa.RecordBatch], accumulator: Any = None) -> Iterator[pa.RecordBatch]:
        """Everything that leaves, for everything that enters one task."""
        measures = task_measures(self.name, accumulator)
        task = Task(self, current_controls(), measures)
        for batch in batches:
            for rows in self.entrance.read(batch):
                yield from self.exit.emit(task.leaving(rows))


class Task:
    """A program bound to the controls of one micro-batch."""

    def __init__(self, program: Program, controls: Mapping[str, Any], measures: TaskMeasures) -> None:
        self._program, self._measures = program, measures
        self._functions = program.shipment.unpack()
        self._active = {step.operator: active_alternate(step, controls) for step in program.steps}
        self._shares: dict[str, float] = {}
        lanes = [lane for step in program.steps for lane in step.leaving]
        for lane in (*lanes, *program.leaving, *([program.source] if program.source else ())):
            self._shares[lane.subject] = share_to_keep(lane.subject, controls)

    def leaving(self, rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        """The batches that leave the host, with their targets, when `rows` enter."""
        program = self._program
        waiting: dict[str, list[pa.RecordBatch]] = {}
        out: list[tuple[str, pa.RecordBatch]] = []
        if program.source is not None:
            rows = self._read(program.source, rows)
        self._pass_on(program.leaving, rows, waiting, out)
        for step in program.steps:
            for batch in waiting.pop(step.operator, ()):
                self._pass_on(step.leaving, self._apply(step, batch), waiting, out)
        return out

    def _read(self, source: Lane, rows: pa.RecordBatch) -> pa.RecordBatch:
        passed = self._keep(source, rows)
        if source.measured:
            tally = self._measures.tally(source.target, "default")
            tally.add(rows.num_rows, passed.num_rows, rows.nbytes, passed.nbytes, 0.0)
        return passed

    def _apply(self, step: Step, batch: pa.RecordBatch) -> pa.RecordBatch:
        which = self._active[step.operator]
        began = time.perf_counter()
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
            tally.add(batch.num_rows, rows.num_rows, batch.nbytes, rows.nbytes, busy_s, m2)
        return rows

    def _pass_on(
        self,
        lanes: tuple[Lane, ...],
        rows: pa.RecordBatch,
        waiting: dict[str, list[pa.RecordBatch]],
        out: list[tuple[str, pa.RecordBatch]],
    ) -> None:
        for lane in lanes if rows.num_rows else ():
            passed = self._keep(lane, rows)
            if lane.measured:
                shed = rows.num_rows - passed.num_rows
                self._measures.passed(lane.stream, rows.num_rows, shed, passed.nbytes)
            if not passed.num_rows:
                continue
            if lane.columns is not None:
                passed = conform(passed, lane.columns)
            if lane.target in self._program.exit.targets:
                if lane.target in self._program.sinks:
                    with suppress(Exception):
                        self._measures.reached(lane.target, passed.column(SOURCE_TIME))
                out.append((lane.target, passed))
            else:
                waiting.setdefault(lane.target, []).append(passed)

    def _keep(self, lane: Lane, rows: pa.RecordBatch) -> pa.RecordBatch:
        share = self._shares[lane.subject]
        if share >= 1:
            return rows
        utility = None if lane.utility is None else self._functions[lane.utility]
        return kept(rows, share, by=lane.keep_by, salt=lane.salt, utility=utility)


def active_alternate(step: Step, controls: Mapping[str, Any]) -> int:
    """The alternate that the controls name, or the default where they name none that exists."""
    wanted = controls.get(alternate_control(step.operator))
    return step.alternates.index(wanted) if wanted in step.alternates else step.default


def share_to_keep(subject: str, controls: Mapping[str, Any]) -> float:
    """The share that the controls give, 1 where they give no number."""
    share = controls.get(keep_control(subject), 1.0)
    return float(share) if isinstance(share, int | float) and share == share else 1.0
