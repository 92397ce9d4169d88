"""The stateless part of a dataflow between two shuffles: everything runs in one `mapInArrow`, so records cross into
Python once.

    rows from Spark, or messages from the stage before
      │  Input: where rows enter; a source drops its share first
      ▼
    Step: an operator with its active alternate ──▶ Output: a stream, which drops its share
      │                                                │
      ▼                                                ├──▶ the next step of this stage
    ...                                                ├──▶ a channel: messages for a later stage
                                                       └──▶ results
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
from penstock.spark.observe.task_measures import TaskMeasures, task_measures
from penstock.spark.query.audit import Auditor, audited_share, runner
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.sampling import (
    cutoff_control,
    hashed,
    kept,
    number,
    sampling_is_on,
    share_to_keep,
    useless,
    with_sample,
)
from penstock.spark.query.shuffle_messages import CHANNEL, PAYLOAD, Channel, unpack
from penstock.spark.query.user_functions import SOURCE_TIME, call, conform

Ends = tuple[str | None, str | None]

WEIGH_EVERY = 16
"""Batches of a task between two in which the bytes of a row are measured anew."""


def alternate_control(operator: str) -> str:
    """The name of the control with the active alternate of an operator."""
    return f"alternate:{operator}"


def active_alternate(
    operator: str, alternates: tuple[str, ...], default: int, controls: Mapping[str, Any]
) -> int:
    """The alternate that the controls name, or the default where they name none that exists."""
    wanted = controls.get(alternate_control(operator))
    return alternates.index(wanted) if wanted in alternates else default


@dataclass(frozen=True, slots=True, kw_only=True)
class Shedder:
    """A place where records may be dropped: a source or a stream."""

    subject: str
    """What controls and measurements call it."""
    utility: int | None = None
    """Position of its utility function in the packed functions."""
    weight: str | None = None
    """Column in which the user wants the weight of each record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where rows of an operator go: a stream, as the stage that feeds it sees it."""

    stream: str
    target: str
    shedder: Shedder | None = None
    """None beyond a shuffle: its records were kept or dropped before."""
    columns: pa.Schema | None = None
    """What the target expects, where that differs from what the operator gives."""
    channel: int | None = None
    """Where its rows go when they leave for a later stage."""
    leaves: bool = False
    """Its rows leave the last stage: they are results."""
    to_sink: bool = False
    measured: bool = True
    """False where it is counted elsewhere."""

    @property
    def stays(self) -> bool:
        """Whether its target runs in the same stage."""
        return self.channel is None and not self.leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Where rows enter a stage: straight from Spark, or in messages of a channel."""

    channel: int | None
    schema: pa.Schema
    outputs: tuple[Output, ...]
    source: Shedder | None = None
    """Present when the rows are those of a source: its own share to keep comes before anything else."""
    keep_by: tuple[str, ...] = ()
    """Columns whose hash decides from here on; none: as decided before."""
    measured: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An operator in a stage. `functions` are positions in the packed ones; none for a union, which passes on."""

    operator: str
    takes: Takes
    alternates: tuple[str, ...]
    functions: tuple[int, ...]
    default: int
    schema: pa.Schema
    outputs: tuple[Output, ...]
    keep_by: tuple[str, ...] = ()
    score: int | None = None
    """Position of the function that says what an alternate's output is worth."""
    measured: bool = True
    stamps: Ends = (None, None)
    """What to call the stamps of records that come and that leave; None: no sequence ends there."""


class Results(Protocol):
    """Makes the rows that Spark gets from the last stage."""

    def emit(self, leaving: list[tuple[str, pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        """The rows for Spark, from (target, batch) pairs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainResults:
    """Results leave as they are."""

    schema: pa.Schema

    def emit(self, leaving: list[tuple[str, pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        """The batches, with the columns that Spark was told."""
        return (conform(batch, self.schema) for _, batch in leaving)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProgram:
    """What one stage does."""

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    """In an order in which every stream points forward."""
    channels: Mapping[int, Channel]
    """Where rows leave for later stages."""
    results: Results | None
    """How results leave; None when this is not the last stage."""
    functions: PackedFunctions

    def run(self, batches: Iterable[pa.RecordBatch], accumulator: Any = None) -> Iterator[pa.RecordBatch]:
        """Everything that leaves, for everything that enters one task."""
        task = StageTask(self, current_controls(), task_measures(self.name, accumulator))
        first = self.inputs[0]
        for batch in batches:
            yield from task.rows(first, batch) if first.channel is None else task.messages(batch)


class StageTask:
    """A stage bound to the controls of one micro-batch."""

    def __init__(self, program: StageProgram, controls: Mapping[str, Any], measures: TaskMeasures) -> None:
        self._program, self._measures, self._controls = program, measures, controls
        self._functions = program.functions.unpack()
        self._inputs = {entry.channel: entry for entry in program.inputs}
        self._sampling = sampling_is_on(controls)
        self._active = {
            step.operator: active_alternate(step.operator, step.alternates, step.default, controls)
            for step in program.steps
        }
        share = audited_share(controls)
        self._auditors = {
            step.operator: Auditor(
                step.operator,
                step.alternates,
                best=step.default,
                active=self._active[step.operator],
                share=share,
                takes=step.takes,
                score=None if step.score is None else self._functions[step.score],
                turn=measures.partition,
            )
            for step in program.steps
            if share > 0 and step.measured and len(step.functions) > 1
        }
        self._entered = 0
        self._row_bytes: dict[tuple[str, str], float] = {}

    def messages(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What leaves when messages enter; those for a later stage pass unopened."""
        channels, payloads = batch.column(CHANNEL).to_numpy(), batch.column(PAYLOAD)
        for channel in np.unique(channels).tolist():
            mine = pa.array(channels == channel)
            entry = self._inputs.get(channel)
            if entry is None:
                yield batch.filter(mine)
            else:
                yield from self.rows(entry, unpack(payloads.filter(mine), entry.schema))

    def rows(self, entry: Input, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """What leaves when rows enter: messages for later stages, and results."""
        rows = with_sample(conform(rows, entry.schema))
        self._entered += 1
        waiting: dict[str, list[pa.RecordBatch]] = {}
        out: list[tuple[Output, pa.RecordBatch]] = []
        if self._sampling and (entry.keep_by or entry.source is not None):
            rows = hashed(rows, entry.keep_by, ignore=_weight(entry.source))
        if entry.source is not None:
            rows = self._read(entry, entry.source, rows)
        self._pass_on(entry.outputs, rows, waiting, out)
        for step in self._program.steps:
            for batch in waiting.pop(step.operator, ()):
                self._pass_on(step.outputs, self._apply(step, batch), waiting, out)
        for output, batch in out:
            if output.channel is not None:
                yield self._program.channels[output.channel].pack(batch)
        if self._program.results is not None:
            yield from self._program.results.emit([(o.target, batch) for o, batch in out if o.leaves])

    def _read(self, entry: Input, source: Shedder, rows: pa.RecordBatch) -> pa.RecordBatch:
        passed = self._keep(source, rows)
        if entry.measured:
            name = source.subject
            size, size_out = self._size("in", name, rows), self._size("out", name, passed)
            self._measures.tally(name, "default").add(rows.num_rows, passed.num_rows, size, size_out, 0.0)
        return passed

    def _apply(self, step: Step, batch: pa.RecordBatch) -> pa.RecordBatch:
        which = self._active[step.operator]
        stamp(self._measures, step.stamps[0], batch)
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
            auditor = self._auditors.get(step.operator)
            if auditor is not None:
                run = runner([self._functions[i] for i in step.functions], step.takes, step.schema)
                auditor.audit(auditor.sample(batch), run, self._measures, tally.busy_s)
        stamp(self._measures, step.stamps[1], rows)
        return hashed(rows, step.keep_by) if self._sampling and step.keep_by else rows

    def _pass_on(
        self,
        outputs: tuple[Output, ...],
        rows: pa.RecordBatch,
        waiting: dict[str, list[pa.RecordBatch]],
        out: list[tuple[Output, pa.RecordBatch]],
    ) -> None:
        for output in outputs if rows.num_rows else ():
            passed = rows if output.shedder is None else self._keep(output.shedder, rows)
            if output.measured:
                shed = rows.num_rows - passed.num_rows
                size = self._size("on", output.stream, passed)
                self._measures.passed(output.stream, rows.num_rows, shed, size)
            if not passed.num_rows:
                continue
            if output.columns is not None:
                passed = conform(passed, output.columns)
            if output.to_sink:
                with suppress(Exception):
                    self._measures.reached(output.target, passed.column(SOURCE_TIME))
            if output.stays:
                waiting.setdefault(output.target, []).append(passed)
            else:
                out.append((output, passed))

    def _keep(self, shedder: Shedder, rows: pa.RecordBatch) -> pa.RecordBatch:
        share = share_to_keep(shedder.subject, self._controls)
        chance: Any = share
        if shedder.utility is not None and (share < 1 or self._entered == 1):
            # While everything is kept, the first batch of a task is enough to know what utilities there are.
            worthless = useless(self._functions[shedder.utility], rows)
            self._measures.useless(shedder.subject, worthless)
            cutoff = number(self._controls.get(cutoff_control(shedder.subject)), 0.0)
            chance = np.minimum(1.0, cutoff / worthless) if 0 < share < 1 and cutoff > 0 else share
        if share >= 1:
            return rows
        return kept(hashed(rows, ignore=_weight(shedder)), chance, weight=shedder.weight)

    def _size(self, way: str, what: str, batch: pa.RecordBatch) -> int:
        """Bytes of a batch, by the bytes per row of the last one that was weighed: weighing takes 10 µs."""
        if not batch.num_rows:
            return 0
        row_bytes = self._row_bytes.get((way, what))
        if row_bytes is None or self._entered % WEIGH_EVERY == 0:
            row_bytes = self._row_bytes[way, what] = batch.nbytes / batch.num_rows
        return int(row_bytes * batch.num_rows)


def stamp(measures: TaskMeasures, name: str | None, rows: pa.RecordBatch) -> None:
    """Note how old records are where a sequence ends."""
    if name is not None:
        with suppress(Exception):  # a measurement is never worth a task
            measures.stamp(name, rows.column(SOURCE_TIME))


def _weight(shedder: Shedder | None) -> tuple[str, ...]:
    return () if shedder is None or shedder.weight is None else (shedder.weight,)
