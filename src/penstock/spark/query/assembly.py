"""How the plan of a dataflow is put together from sections, and what each host does.

A section becomes a chain: a host for each entry, then for each level a shuffle (with a keyed operator's state, or
without) and a host, to the last host, which gives results. What is for a level further on rides along in messages.
The result of a native operator is an entry like a source, and what it reads are results of a section of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField, StructType, TimestampType

from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.graph import Dataflow, Function, Operator, OperatorId, Stream
from penstock.spark.observe.task_measures import Measures
from penstock.spark.query.function_shipping import Shipment
from penstock.spark.query.keyed_runner import KeyedProcessor, KeyedProgram
from penstock.spark.query.shuffle_messages import LABEL, MESSAGE_COLUMNS, Port, bucket_count
from penstock.spark.query.sinks import Tagged
from penstock.spark.query.sources import read_source
from penstock.spark.query.stage_runner import Door, Exit, Lane, Plain, Program, Step
from penstock.spark.query.stages import ENTRIES, Section
from penstock.spark.query.user_functions import SOURCE_TIME, arrow_schema, columns_of

OutputMode = Literal["append", "update"]


class Assembly:
    """The plan of one dataflow in the making."""

    def __init__(
        self, spark: SparkSession, dataflow: Dataflow, checkpoint: str, output_mode: OutputMode
    ) -> None:
        self.spark, self.dataflow, self.checkpoint = spark, dataflow, checkpoint
        self.output_mode: OutputMode = output_mode
        self.measures = Measures(spark.sparkContext)
        self.programs: list[Program | KeyedProgram] = []
        self._entries: dict[OperatorId, DataFrame] = {}
        self._columns: dict[OperatorId, StructType] = {}
        self._counted: set[str] = set()
        self._depth = _depths(dataflow)
        self._zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"

    def sinks(self) -> tuple[DataFrame, Tagged | None]:
        """The rows that reach the sinks, and how they are told apart."""
        columns = {str(sink.id): self.arriving(sink.id) for sink in self.dataflow.sinks}
        streams = [stream for sink in self.dataflow.sinks for stream in self.dataflow.upstream(sink.id)]
        if len(columns) == 1:
            (only,) = columns.values()
            return self._results(streams, Plain(schema=self.schema(only)), only, "sinks"), None
        tagged = Tagged.of(columns, self._zone)
        return self._results(streams, tagged, tagged.schema, "sinks"), tagged

    def _results(self, streams: list[Stream], exit_: Exit, columns: StructType, name: str) -> DataFrame:
        """What arrives on `streams`, computed in a section of its own."""
        section = Section.of(self.dataflow, streams)
        builder = _Hosts(self, section, exit_, name, {*self._counted})
        self._counted |= {*section.runs_at, *(s.id for s in section.streams)}
        entries = [id_ for id_ in section.runs_at if self.dataflow.operator(id_).kind in ENTRIES]
        entries.sort(key=lambda id_: self.dataflow.row[id_])  # so Spark lists the sources in our order
        between = columns_of(MESSAGE_COLUMNS)

        def hosted(frame: DataFrame, program: Program, level: int) -> DataFrame:
            self.programs.append(program)
            run = _hosted(program, self.measures.accumulator)
            return frame.mapInArrow(run, columns if level == section.last else between)

        parts = [hosted(self.entry(id_), builder.entry_host(id_), 0) for id_ in entries]
        frame = reduce(DataFrame.union, parts)
        for level in range(1, section.last + 1):
            keyed = builder.keyed_at(level)
            if keyed is None:
                frame = frame.repartition(builder.tasks_at(level), sql.col(LABEL))
            else:
                self.programs.append(keyed)
                processor = KeyedProcessor(keyed, self.measures.accumulator)
                frame = frame.groupBy(LABEL).transformWithState(processor, between, self.output_mode, "none")
            frame = hosted(frame, builder.level_host(level), level)
        return frame

    def entry(self, id_: OperatorId) -> DataFrame:
        """The rows of a source or of a native operator."""
        if id_ not in self._entries:
            operator = self.dataflow.operator(id_)
            if operator.kind == "transform":
                self._entries[id_] = self._native(operator)
            else:
                frame = read_source(self.spark, operator, checkpoint=self.checkpoint)
                if operator.weight is not None:
                    frame = frame.withColumn(operator.weight, sql.lit(1.0))
                self._entries[id_] = frame
        return self._entries[id_]

    def _native(self, operator: Operator) -> DataFrame:
        frames = []
        for stream in self.dataflow.upstream(operator.id):
            columns = self.leaving(stream.source)
            frame = self._results([stream], Plain(schema=self.schema(columns)), columns, stream.id)
            if stream.wiring == "key":
                frame = frame.repartition(*(sql.col(f"`{name}`") for name in operator.key))
            elif stream.wiring == "spread":
                frame = frame.repartition(tasks_of(operator, self.spark))
            frames.append(frame)
        function = operator.alternates[0].function
        assert function is not None
        frame = function.resolve()(*frames)
        if not isinstance(frame, DataFrame):
            message = f"its function must return a DataFrame, not {type(frame).__name__}"
            raise DataflowError([Problem(place=f"operators.{operator.id}", message=message)])
        if SOURCE_TIME not in frame.columns:
            # Nobody knows from which records its rows come: their latency is not measured, rather than wrong.
            frame = frame.withColumn(SOURCE_TIME, sql.lit(None).cast("timestamp"))
        return frame

    def arriving(self, id_: OperatorId) -> StructType:
        """The columns that an operator reads: those of its first input, in which the others must agree."""
        streams = self.dataflow.upstream(id_)
        first = self.leaving(streams[0].source)
        for stream in streams[1:]:
            other = self.leaving(stream.source)
            if sorted(first.names) != sorted(other.names):
                message = (
                    f"'{stream.source}' has the columns {other.names}, '{streams[0].source}' {first.names}"
                )
                raise DataflowError([Problem(place=f"operators.{id_}.inputs", message=message)])
        return first

    def leaving(self, id_: OperatorId) -> StructType:
        """The columns that leave an operator, source time included."""
        if id_ not in self._columns:
            operator = self.dataflow.operator(id_)
            if operator.kind in ENTRIES:
                columns = self.entry(id_).schema
            elif operator.schema is not None:
                columns = columns_of(operator.schema)
            else:
                columns = self.arriving(id_)
            if SOURCE_TIME not in columns.names:
                columns = StructType([*columns.fields]).add(SOURCE_TIME, TimestampType())
            self._columns[id_] = StructType([StructField(c.name, c.dataType) for c in columns.fields])
        return self._columns[id_]

    def schema(self, columns: StructType) -> pa.Schema:
        """The columns as Arrow batches have them in this session."""
        return arrow_schema(columns, self._zone)

    @property
    def weights(self) -> list[str]:
        """Columns in which sources weigh their records."""
        return [source.weight for source in self.dataflow.sources if source.weight is not None]

    def salt(self, id_: OperatorId) -> int:
        """What makes shedding after this operator independent of shedding before it."""
        return self._depth[id_] + 1


class _Hosts:
    """What the hosts of one section do."""

    def __init__(
        self, assembly: Assembly, section: Section, exit_: Exit, name: str, counted: set[str]
    ) -> None:
        self._of, self._section, self._exit, self._name = assembly, section, exit_, name
        self._counted_before, self._flow = counted, assembly.dataflow
        self._ports: dict[str, Port] = {}
        self._functions: list[Callable[..., Any] | None] = []

    def entry_host(self, id_: OperatorId) -> Program:
        """The host of an entry's rows."""
        self._functions = []
        operator = self._flow.operator(id_)
        own = None
        if operator.kind == "source":
            own = Lane(
                stream=id_,
                target=id_,
                subject=id_,
                salt=0,
                keep_by=operator.keep_by,
                utility=self._ship(operator.utility),
                weight=operator.weight,
                measured=id_ not in self._counted_before,
            )
        schema = self._of.schema(self._of.leaving(id_))
        door = Door(port=None, schema=schema, leaving=self._lanes(id_, 0), source=own)
        return self._program(f"{id_}=>{self._name}", 0, [door])

    def level_host(self, level: int) -> Program:
        """The host beyond the shuffle of a level."""
        self._functions = []
        doors = []
        for what, at in self._section.shuffles.items():
            if at != level:
                continue
            if what in self._flow.row:
                id_ = OperatorId(what)
                schema = self._of.schema(self._of.leaving(id_))
                lanes = self._lanes(id_, level)
                doors.append(Door(port=self._port(f"{what}=>").number, schema=schema, leaving=lanes))
            else:
                stream = next(s for s in self._section.streams if s.id == what)
                port, lane = self._port(what), self._lane(stream, level, beyond=True)
                doors.append(Door(port=port.number, schema=port.schema, leaving=(lane,)))
        if level == self._section.last:
            for target in {s.target for s in self._section.streams if s.id in self._section.results}:
                port = self._port(f"=>{target}")
                rest = Lane(stream="", target=target, subject="", salt=0, leaves=True, measured=False)
                doors.append(Door(port=port.number, schema=port.schema, leaving=(rest,)))
        return self._program(f"level {level}=>{self._name}", level, doors)

    def keyed_at(self, level: int) -> KeyedProgram | None:
        """The keyed operator whose state lies at a level."""
        found = [w for w, at in self._section.shuffles.items() if at == level and w in self._flow.row]
        if not found:
            return None
        operator = self._flow.operator(found[0])
        assert operator.state is not None
        port = self._port(operator.id)
        return KeyedProgram(
            name=operator.id,
            operator=operator.id,
            takes=operator.takes,
            key=operator.key,
            alternates=tuple(a.name for a in operator.alternates),
            default=operator.alternates.index(operator.best),
            arriving=port.schema,
            schema=self._of.schema(self._of.leaving(operator.id)),
            state=operator.state.schema,
            state_width=len(columns_of(operator.state.schema)),
            buckets=port.buckets,
            arrives_at=port.number,
            leaves_by=self._port(f"{operator.id}=>").number,
            shipment=Shipment.of([_resolved(a.function) for a in operator.alternates]),
        )

    def tasks_at(self, level: int) -> int:
        """How many tasks the shuffle of a level without state has."""
        targets = [
            self._flow.operator(s.target)
            for s in self._section.streams
            if self._section.shuffles.get(s.id) == level
        ]
        return max(tasks_of(target, self._of.spark) for target in targets)

    def _program(self, name: str, level: int, doors: list[Door]) -> Program:
        reached = {lane.target for door in doors for lane in door.leaving if _stays(lane)}
        steps = []
        for id_ in self._flow.topological:
            if id_ in reached:
                step = self._step(id_, level)
                reached |= {lane.target for lane in step.leaving if _stays(lane)}
                steps.append(step)
        return Program(
            name=name,
            doors=tuple(doors),
            steps=tuple(steps),
            ports={port.number: port for port in self._ports.values()},
            exit=self._exit if level == self._section.last else None,
            shipment=Shipment.of(self._functions),
        )

    def _step(self, id_: str, level: int) -> Step:
        operator = self._flow.operator(id_)
        named = () if operator.kind == "union" else operator.alternates
        return Step(
            operator=operator.id,
            takes=operator.takes,
            alternates=tuple(a.name for a in operator.alternates),
            functions=tuple(i for a in named if (i := self._ship(a.function)) is not None),
            default=operator.alternates.index(operator.best),
            schema=self._of.schema(self._of.leaving(operator.id)),
            leaving=self._lanes(operator.id, level),
            measured=operator.id not in self._counted_before,
        )

    def _lanes(self, id_: OperatorId, level: int) -> tuple[Lane, ...]:
        return tuple(self._lane(stream, level) for stream in self._section.streams if stream.source == id_)

    def _lane(self, stream: Stream, level: int, *, beyond: bool = False) -> Lane:
        """The stream as a host at `level` sees it: before its shuffle, if it has one, or `beyond`."""
        source, target = self._flow.operator(stream.source), self._flow.operator(stream.target)
        result, port, leaves = stream.id in self._section.results, None, False
        if target.kind == "keyed" and not result:
            port = self._port(target.id).number
        elif stream.id in self._section.shuffles and not beyond:
            port = self._port(stream.id).number
        elif result:
            leaves = level == self._section.last
            port = None if leaves else self._port(f"=>{target.id}").number
        expected = self._of.leaving(source.id) if target.kind == "transform" else self._of.arriving(target.id)
        arrived = Lane(
            stream=stream.id,
            target=target.id,
            subject="",
            salt=0,
            port=port,
            leaves=leaves,
            to_sink=target.kind == "sink" and (beyond or stream.id not in self._section.shuffles),
            measured=False,
        )
        if beyond:  # kept, counted and conformed before the shuffle
            return arrived
        return replace(
            arrived,
            subject=stream.id,
            salt=self._of.salt(source.id),
            keep_by=source.keep_by,
            utility=self._ship(source.utility),
            weight=next((w for w in self._of.weights if w in self._of.leaving(source.id).names), None),
            columns=None if expected == self._of.leaving(source.id) else self._of.schema(expected),
            measured=stream.id not in self._counted_before,
        )

    def _port(self, what: str) -> Port:
        """The port of a keyed operator's rows (`id`) or results (`id=>`), of a stream, or to a target (`=>id`)."""
        if what not in self._ports:
            key: tuple[str, ...] = ()
            parts, buckets, copies = 1, bucket_count(1), 0
            if what.startswith("=>"):
                columns = self._result_columns(what.removeprefix("=>"))
            elif what.endswith("=>"):
                columns = self._of.leaving(OperatorId(what.removesuffix("=>")))
            elif what in self._flow.row:
                operator = self._flow.operator(what)
                assert operator.state is not None
                columns, key = self._of.arriving(operator.id), operator.key
                most = operator.parallelism.maximum
                buckets = bucket_count(most, operator.state.bytes_per_task * most)
            else:
                stream = next(s for s in self._section.streams if s.id == what)
                target = self._flow.operator(stream.target)
                columns, parts = self._of.arriving(target.id), tasks_of(target, self._of.spark)
                key = target.key if stream.wiring == "key" else ()
                buckets = bucket_count(parts)
                if stream.wiring == "broadcast":
                    copies = self._copies(stream)
            schema = self._of.schema(columns)
            number = len(self._ports)
            self._ports[what] = Port(
                number=number, schema=schema, key=key, parts=parts, buckets=buckets, copies=copies
            )
        return self._ports[what]

    def _copies(self, stream: Stream) -> int:
        """How many partitions the shuffle of a broadcast has."""
        level = self._section.shuffles[stream.id]
        if any(at == level and what in self._flow.row for what, at in self._section.shuffles.items()):
            message = "live, a broadcast cannot arrive beside a keyed operator; put a spread map before it"
            raise DataflowError([Problem(place=f"operators.{stream.target}.inputs", message=message)])
        return self.tasks_at(level)

    def _result_columns(self, target: str) -> StructType:
        if self._flow.operator(target).kind == "transform":
            (stream,) = (s for s in self._section.streams if s.id in self._section.results)
            return self._of.leaving(stream.source)
        return self._of.arriving(OperatorId(target))

    def _ship(self, function: Function | None) -> int | None:
        if function is None:
            return None
        self._functions.append(_resolved(function))
        return len(self._functions) - 1


def tasks_of(operator: Operator, spark: SparkSession) -> int:
    """How many tasks read a shuffled stream: what is declared, or one per core where nothing is."""
    most = operator.parallelism.maximum
    return most if most > 1 else spark.sparkContext.defaultParallelism


def _hosted(
    program: Program, accumulator: Any
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def host(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return program.run(batches, accumulator)

    host.__name__ = program.name  # so Spark's plan says which host it is
    return host


def _stays(lane: Lane) -> bool:
    return lane.port is None and not lane.leaves


def _resolved(function: Function | None) -> Callable[..., Any] | None:
    return None if function is None else function.resolve()


def _depths(dataflow: Dataflow) -> dict[OperatorId, int]:
    """How many streams lie between an operator and the farthest source above it."""
    depths: dict[OperatorId, int] = {}
    for id_ in dataflow.topological:
        depths[id_] = max((depths[stream.source] + 1 for stream in dataflow.upstream(id_)), default=0)
    return depths
