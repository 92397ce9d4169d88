"""How the plan of a dataflow is put together: roots, the hosts between them, and what each host does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField, StructType, TimestampType

from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.model import Dataflow, Function, Operator, OperatorId, Stream
from penstock.runtimes.spark.forms import SOURCE_TIME, arrow_schema, columns_of
from penstock.runtimes.spark.host import Entrance, Exit, Lane, Plain, Program, Rows, Step
from penstock.runtimes.spark.keyed import (
    BUCKET,
    PACKED_COLUMNS,
    KeyedProgram,
    Packed,
    Unpacked,
    bucket_count,
    bucket_labels,
    stateful_function,
)
from penstock.runtimes.spark.measures import Measures
from penstock.runtimes.spark.shipping import Shipment
from penstock.runtimes.spark.sinks import Tagged
from penstock.runtimes.spark.sources import read_source

OutputMode = Literal["append", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Where rows enter the plan: an operator that is no host's, or the far end of a shuffled stream."""

    operator: OperatorId
    stream: Stream | None = None

    @property
    def name(self) -> str:
        """The operator, or the stream."""
        return self.operator if self.stream is None else self.stream.id


@dataclass
class _Path:
    """The hosted operators between a root and where its rows leave, and the streams that leave."""

    operators: set[OperatorId] = field(default_factory=set)
    streams: set[str] = field(default_factory=set)
    """Within the host and out of it."""


class Assembly:
    """The plan of one dataflow in the making."""

    def __init__(
        self, spark: SparkSession, dataflow: Dataflow, checkpoint: str, output_mode: OutputMode
    ) -> None:
        self.spark, self.dataflow, self.checkpoint = spark, dataflow, checkpoint
        self.output_mode: OutputMode = output_mode
        self.measures = Measures(spark.sparkContext)
        self.programs: list[Program | KeyedProgram] = []
        self._frames: dict[Root, DataFrame] = {}
        self._columns: dict[OperatorId, StructType] = {}
        self._counted: set[tuple[Root, str]] = set()
        self._depth = _depths(dataflow)

    def sinks(self) -> tuple[DataFrame, Tagged | None]:
        """The rows that reach the sinks, and how they are told apart."""
        sinks = self.dataflow.sinks
        columns = {sink.id: self._arriving(sink.id) for sink in sinks}
        streams = [stream for sink in sinks for stream in self.dataflow.upstream(sink.id)]
        if len(sinks) == 1:
            only = columns[sinks[0].id]
            plain = Plain(targets=frozenset({sinks[0].id}), schema=arrow_schema(only))
            return self._united(streams, plain, only, "sinks"), None
        tagged = Tagged.of({str(sink): c for sink, c in columns.items()})
        return self._united(streams, tagged, tagged.schema, "sinks"), tagged

    def _united(self, streams: list[Stream], exit_: Exit, columns: StructType, name: str) -> DataFrame:
        """What arrives on `streams`, from all roots, as one DataFrame."""
        parts = []
        for root, path in self._paths(streams).items():
            program = self._program(f"{root.name}=>{name}", root, path, exit_)
            hosted = _hosted(program, self.measures.accumulator)
            parts.append(self._frame(root).mapInArrow(hosted, columns))
        return reduce(DataFrame.union, parts)

    def _paths(self, streams: list[Stream]) -> dict[Root, _Path]:
        """For every root from which rows reach `streams`: what is in between."""
        paths: dict[Root, _Path] = {}

        def walk(stream: Stream, below: tuple[OperatorId, ...], taken: tuple[str, ...]) -> None:
            source = self.dataflow.operator(stream.source)
            taken = (*taken, stream.id)
            if source.kind not in ("map", "union"):
                found = paths.setdefault(Root(operator=source.id), _Path())
                found.operators.update(below)
                found.streams.update(taken)
                return
            for incoming in self.dataflow.upstream(source.id):
                if incoming.wiring == "forward":
                    walk(incoming, (*below, source.id), taken)
                else:
                    found = paths.setdefault(Root(operator=source.id, stream=incoming), _Path())
                    found.operators.update((*below, source.id))
                    found.streams.update(taken)

        for stream in streams:
            target = self.dataflow.operator(stream.target)
            if target.kind == "sink" and stream.wiring != "forward":
                paths.setdefault(Root(operator=target.id, stream=stream), _Path())
            else:
                walk(stream, (), ())
        return paths

    def _program(self, name: str, root: Root, path: _Path, exit_: Exit) -> Program:
        functions: list[Callable[..., Any] | None] = []

        def ship(function: Function | None) -> int:
            functions.append(_resolved(function))
            return len(functions) - 1

        def count(thing: str) -> bool:
            """Whether this host is the first to see the thing's rows from this root, and so counts them."""
            first = (root, thing) not in self._counted
            self._counted.add((root, thing))
            return first

        def lanes(id_: OperatorId) -> tuple[Lane, ...]:
            operator = self.dataflow.operator(id_)
            utility = None if operator.utility is None else ship(operator.utility)
            found = []
            for stream in self.dataflow.downstream(id_):
                if stream.id in path.streams:
                    expected = self._arriving(stream.target)
                    same = expected == self._leaving(id_)
                    found.append(
                        Lane(
                            stream=stream.id,
                            target=stream.target,
                            subject=stream.id,
                            salt=self._depth[id_] + 1,
                            keep_by=operator.keep_by,
                            utility=utility,
                            columns=None if same else arrow_schema(expected),
                            measured=count(stream.id),
                        )
                    )
            return tuple(found)

        steps = []
        for id_ in self.dataflow.topological:
            if id_ in path.operators:
                operator = self.dataflow.operator(id_)
                named = () if operator.kind == "union" else operator.alternates
                steps.append(
                    Step(
                        operator=id_,
                        takes=operator.takes,
                        alternates=tuple(a.name for a in operator.alternates),
                        functions=tuple(ship(a.function) for a in named),
                        default=operator.alternates.index(operator.best),
                        schema=arrow_schema(self._leaving(id_)),
                        leaving=lanes(id_),
                        measured=count(id_),
                    )
                )
        operator = self.dataflow.operator(root.operator)
        own = None
        if root.stream is not None:  # the stream was kept and counted before the shuffle
            entering: tuple[Lane, ...] = (
                Lane(
                    stream=root.stream.id,
                    target=root.operator,
                    subject="",
                    salt=0,
                    measured=False,
                ),
            )
        else:
            entering = lanes(operator.id)
            if operator.kind == "source":
                own = Lane(
                    stream=operator.id,
                    target=operator.id,
                    subject=operator.id,
                    salt=0,
                    keep_by=operator.keep_by,
                    utility=None if operator.utility is None else ship(operator.utility),
                    measured=count(operator.id),
                )
        program = Program(
            name=name,
            entrance=self._entrance(root),
            source=own,
            leaving=entering,
            steps=tuple(steps),
            exit=exit_,
            sinks=frozenset(sink.id for sink in self.dataflow.sinks),
            shipment=Shipment.of(functions),
        )
        self.programs.append(program)
        return program

    def _frame(self, root: Root) -> DataFrame:
        """The rows that enter at a root."""
        if root not in self._frames:
            operator = self.dataflow.operator(root.operator)
            if root.stream is not None:
                frame = self._shuffled(root.stream)
            elif operator.kind == "keyed":
                frame = self._keyed(operator)
            elif operator.kind == "transform":
                frame = self._native(operator)
            else:
                frame = read_source(self.spark, operator, checkpoint=self.checkpoint)
            self._frames[root] = frame
        return self._frames[root]

    def _entrance(self, root: Root) -> Entrance:
        operator = self.dataflow.operator(root.operator)
        if root.stream is None and operator.kind == "keyed":
            return Unpacked(schema=arrow_schema(self._leaving(operator.id)))
        return Rows(schema=arrow_schema(self._frame(root).schema))

    def _single(self, stream: Stream) -> DataFrame:
        """What passes one stream, before any shuffle."""
        columns = self._leaving(stream.source)
        exit_ = Plain(targets=frozenset({stream.target}), schema=arrow_schema(columns))
        return self._united([_forward(stream)], exit_, columns, stream.id)

    def _shuffled(self, stream: Stream) -> DataFrame:
        target = self.dataflow.operator(stream.target)
        frame = self._single(stream)
        tasks = target.parallelism.maximum
        if tasks == 1:  # nothing was declared
            tasks = self.spark.sparkContext.defaultParallelism
        keys = [sql.col(f"`{name}`") for name in target.key] if stream.wiring == "key" else []
        return frame.repartition(tasks, *keys)

    def _native(self, operator: Operator) -> DataFrame:
        frames = [
            self._single(stream) if stream.wiring == "forward" else self._shuffled(stream)
            for stream in self.dataflow.upstream(operator.id)
        ]
        function = operator.alternates[0].function
        assert function is not None
        frame = function.resolve()(*frames)
        if not isinstance(frame, DataFrame):
            raise _error(operator, f"its function must return a DataFrame, not {type(frame).__name__}")
        if SOURCE_TIME not in frame.columns:
            # Nobody knows from which records its rows come: their latency is not measured, rather than wrong.
            frame = frame.withColumn(SOURCE_TIME, sql.lit(None).cast("timestamp"))
        return frame

    def _keyed(self, operator: Operator) -> DataFrame:
        assert operator.state is not None
        arriving = self._arriving(operator.id)
        buckets = bucket_count(
            operator.parallelism.maximum, operator.state.bytes_per_task * operator.parallelism.maximum
        )
        exit_ = Packed(
            targets=frozenset({operator.id}),
            schema=arrow_schema(arriving),
            key=operator.key,
            labels=bucket_labels(buckets),
        )
        packed_columns = columns_of(PACKED_COLUMNS)
        frame = self._united([*self.dataflow.upstream(operator.id)], exit_, packed_columns, operator.id)
        program = KeyedProgram(
            name=operator.id,
            operator=operator.id,
            takes=operator.takes,
            key=operator.key,
            alternates=tuple(a.name for a in operator.alternates),
            default=operator.alternates.index(operator.best),
            arriving=arrow_schema(arriving),
            schema=arrow_schema(self._leaving(operator.id)),
            state=operator.state.schema,
            state_width=len(columns_of(operator.state.schema)),
            shipment=Shipment.of([_resolved(a.function) for a in operator.alternates]),
        )
        self.programs.append(program)
        # The name of the column holds the number of buckets: Spark refuses a checkpoint with another.
        state = f"keys_in_{buckets}_buckets binary"
        return frame.groupBy(BUCKET).applyInPandasWithState(
            stateful_function(program, self.measures.accumulator),
            packed_columns,
            state,
            self.output_mode,
            "NoTimeout",
        )

    def _arriving(self, id_: OperatorId) -> StructType:
        """The columns that an operator reads: those of its first input, in which the others must agree."""
        streams = self.dataflow.upstream(id_)
        first = self._leaving(streams[0].source)
        for stream in streams[1:]:
            if self.dataflow.operator(id_).kind == "transform":
                break
            other = self._leaving(stream.source)
            if sorted(first.names) != sorted(other.names):
                message = (
                    f"'{stream.source}' has the columns {other.names}, '{streams[0].source}' {first.names}"
                )
                raise DataflowError([Problem(place=f"operators.{id_}.inputs", message=message)])
        return first

    def _leaving(self, id_: OperatorId) -> StructType:
        """The columns that leave an operator, source time included."""
        if id_ not in self._columns:
            operator = self.dataflow.operator(id_)
            if operator.kind in ("source", "transform"):
                columns = self._frame(Root(operator=id_)).schema
            elif operator.schema is not None:
                columns = columns_of(operator.schema)
            else:
                columns = self._arriving(id_)
            if SOURCE_TIME not in columns.names:
                columns = StructType([*columns.fields]).add(SOURCE_TIME, TimestampType())
            self._columns[id_] = StructType([StructField(c.name, c.dataType) for c in columns.fields])
        return self._columns[id_]


def _hosted(
    program: Program, accumulator: Any
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def host(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return program.run(batches, accumulator)

    host.__name__ = program.name  # so Spark's plan says which host it is
    return host


def _resolved(function: Function | None) -> Callable[..., Any] | None:
    return None if function is None else function.resolve()


def _forward(stream: Stream) -> Stream:
    return replace(stream, wiring="forward")


def _depths(dataflow: Dataflow) -> dict[OperatorId, int]:
    """How many streams lie between an operator and the farthest source above it."""
    depths: dict[OperatorId, int] = {}
    for id_ in dataflow.topological:
        depths[id_] = max((depths[stream.source] + 1 for stream in dataflow.upstream(id_)), default=0)
    return depths


def _error(operator: Operator, message: str) -> DataflowError:
    return DataflowError([Problem(place=f"operators.{operator.id}", message=message)])
