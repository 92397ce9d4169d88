"""How the plan of a dataflow is put together from stages, and what each stage does.

A part of the dataflow becomes a chain: a `mapInArrow` for each entry, then for each shuffle a repartition (with a keyed
operator's state, or without) and a `mapInArrow` beyond it, to the last one, which gives results. What is for a stage
further on rides along in messages. The result of a native operator is an entry like a source, and what it reads are
the results of a part of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DoubleType, StructField, StructType, TimestampType

from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.graph import Dataflow, Function, Operator, OperatorId, Stream
from penstock.spark.observe.sections import arrival, departure, wanted_stamps
from penstock.spark.observe.task_measures import Measures
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.keyed_runner import KeyedProcessor, KeyedProgram
from penstock.spark.query.sample_columns import merged_samples
from penstock.spark.query.sampling import SAMPLE
from penstock.spark.query.shuffle_messages import BUCKET_COUNTS, LABEL, MESSAGE_COLUMNS, Channel, bucket_count
from penstock.spark.query.sinks import SinkMasks
from penstock.spark.query.sources import read_source
from penstock.spark.query.stage_runner import (
    Ends,
    Input,
    Output,
    PlainResults,
    Results,
    Shedder,
    StageProgram,
    Step,
)
from penstock.spark.query.stages import ENTRIES, Stages
from penstock.spark.query.state_codec import StateCodec
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
        self.programs: list[StageProgram | KeyedProgram] = []
        self._entries: dict[OperatorId, DataFrame] = {}
        self._columns: dict[OperatorId, StructType] = {}
        self._counted: set[str] = set()
        self._zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"

    def sinks(self) -> tuple[DataFrame, SinkMasks | None]:
        """The rows that reach the sinks, and how they are told apart."""
        columns = {str(sink.id): without_sample(self.arriving(sink.id)) for sink in self.dataflow.sinks}
        streams = [stream for sink in self.dataflow.sinks for stream in self.dataflow.upstream(sink.id)]
        if len(columns) == 1:
            (only,) = columns.values()
            return self._results(streams, PlainResults(schema=self.schema(only)), only, "sinks"), None
        masks = SinkMasks.of(columns, self._zone)
        return self._results(streams, masks, masks.schema, "sinks"), masks

    def _results(self, streams: list[Stream], results: Results, columns: StructType, name: str) -> DataFrame:
        """What arrives on `streams`, computed in stages of its own."""
        stages = Stages.of(self.dataflow, streams)
        builder = _Programs(self, stages, results, name, {*self._counted})
        self._counted |= {*stages.runs_in, *(s.id for s in stages.streams)}
        entries = [id_ for id_ in stages.runs_in if self.dataflow.operator(id_).kind in ENTRIES]
        entries.sort(key=lambda id_: self.dataflow.row[id_])  # so Spark lists the sources in our order
        between = columns_of(MESSAGE_COLUMNS)

        def mapped(frame: DataFrame, program: StageProgram, stage: int) -> DataFrame:
            self.programs.append(program)
            run = _arrow_function(program, self.measures.accumulator)
            return frame.mapInArrow(run, columns if stage == stages.last else between)

        parts = [mapped(self.entry(id_), builder.of_entry(id_), 0) for id_ in entries]
        frame = reduce(DataFrame.union, parts)
        for stage in range(1, stages.last + 1):
            keyed = builder.keyed_at(stage)
            if keyed is None:
                frame = frame.repartition(builder.tasks_at(stage), sql.col(LABEL))
            else:
                self.programs.append(keyed)
                processor = KeyedProcessor(keyed, self.measures.accumulator)
                frame = frame.groupBy(LABEL).transformWithState(processor, between, self.output_mode, "none")
            frame = mapped(frame, builder.of_stage(stage), stage)
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
            frame = self._results([stream], PlainResults(schema=self.schema(columns)), columns, stream.id)
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
        return merged_samples(frame)

    def arriving(self, id_: OperatorId) -> StructType:
        """The columns that an operator reads: those of its first input, in which the others must agree."""
        streams = self.dataflow.upstream(id_)
        first = self.leaving(streams[0].source)
        for stream in streams[1:]:
            other = self.leaving(stream.source)
            if sorted(first.names) != sorted(other.names):
                message = (
                    f"'{stream.source}' has the columns {without_sample(other).names}, "
                    f"'{streams[0].source}' {without_sample(first).names}"
                )
                raise DataflowError([Problem(place=f"operators.{id_}.inputs", message=message)])
        return first

    def leaving(self, id_: OperatorId) -> StructType:
        """The columns that leave an operator, with source time and sample."""
        if id_ not in self._columns:
            operator = self.dataflow.operator(id_)
            if operator.kind in ENTRIES:
                columns = self.entry(id_).schema
            elif operator.schema is not None:
                columns = columns_of(operator.schema)
            else:
                columns = self.arriving(id_)
            fields = [StructField(c.name, c.dataType) for c in columns.fields]
            more = [(SOURCE_TIME, TimestampType()), *((name, DoubleType()) for name in SAMPLE)]
            fields += [StructField(name, kind) for name, kind in more if name not in columns.names]
            self._columns[id_] = StructType(fields)
        return self._columns[id_]

    def schema(self, columns: StructType) -> pa.Schema:
        """The columns as Arrow batches have them in this session."""
        return arrow_schema(columns, self._zone)

    @property
    def weights(self) -> list[str]:
        """Columns in which sources weigh their records."""
        return [source.weight for source in self.dataflow.sources if source.weight is not None]


class _Programs:
    """What the stages of one part of a dataflow do."""

    def __init__(
        self, assembly: Assembly, stages: Stages, results: Results, name: str, counted: set[str]
    ) -> None:
        self._of, self._stages, self._results, self._name = assembly, stages, results, name
        self._counted_before, self._flow = counted, assembly.dataflow
        self._channels: dict[str, Channel] = {}
        self._functions: list[Callable[..., Any] | None] = []

    def of_entry(self, id_: OperatorId) -> StageProgram:
        """What happens to an entry's rows before the first shuffle."""
        self._functions = []
        operator = self._flow.operator(id_)
        source, columns = None, self._of.leaving(id_)
        if operator.kind == "source":
            source = Shedder(subject=id_, utility=self._pack(operator.utility), weight=operator.weight)
            columns = without_sample(columns)
        entry = Input(
            channel=None,
            schema=self._of.schema(columns),
            outputs=self._outputs(id_, 0),
            source=source,
            keep_by=self._flow.keep_by(id_),
            measured=id_ not in self._counted_before,
        )
        return self._program(f"{id_}=>{self._name}", 0, [entry])

    def of_stage(self, stage: int) -> StageProgram:
        """What happens beyond a shuffle."""
        self._functions = []
        inputs = []
        for what, at in self._stages.shuffles.items():
            if at != stage:
                continue
            if what in self._flow.row:
                id_ = OperatorId(what)
                channel = self._channel(f"{what}=>")
                outputs, keep_by = self._outputs(id_, stage), self._flow.keep_by(id_)
            else:
                stream = next(s for s in self._stages.streams if s.id == what)
                channel, keep_by = self._channel(what), ()
                outputs = (self._output(stream, stage, beyond=True),)
            inputs.append(
                Input(channel=channel.number, schema=channel.schema, outputs=outputs, keep_by=keep_by)
            )
        if stage == self._stages.last:
            for target in {s.target for s in self._stages.streams if s.id in self._stages.results}:
                channel = self._channel(f"=>{target}")
                rest = Output(stream="", target=target, leaves=True, measured=False)
                inputs.append(Input(channel=channel.number, schema=channel.schema, outputs=(rest,)))
        return self._program(f"stage {stage}=>{self._name}", stage, inputs)

    def keyed_at(self, stage: int) -> KeyedProgram | None:
        """The keyed operator whose state lies at the entrance of a stage."""
        found = [w for w, at in self._stages.shuffles.items() if at == stage and w in self._flow.row]
        if not found:
            return None
        operator = self._flow.operator(found[0])
        assert operator.state is not None
        channel = self._channel(operator.id)
        functions = [_resolved(a.function) for a in operator.alternates]
        return KeyedProgram(
            name=operator.id,
            operator=operator.id,
            takes=operator.takes,
            key=operator.key,
            alternates=tuple(a.name for a in operator.alternates),
            default=operator.alternates.index(operator.best),
            arriving=channel.schema,
            schema=self._of.schema(self._of.leaving(operator.id)),
            codec=StateCodec(
                operator=operator.id,
                declared=operator.state.schema,
                width=len(columns_of(operator.state.schema)),
                buckets=channel.buckets,
            ),
            arrives_at=channel.number,
            leaves_by=self._channel(f"{operator.id}=>").number,
            functions=PackedFunctions.of([*functions, _resolved(operator.score)]),
            stamps=self._ends(operator.id),
        )

    def _ends(self, id_: OperatorId) -> Ends:
        """Where this operator stamps records for a sequence that ends there."""
        wanted = wanted_stamps(self._flow)
        comes, leaves = arrival(id_), departure(id_)
        return comes if comes in wanted else None, leaves if leaves in wanted else None

    def tasks_at(self, stage: int) -> int:
        """How many tasks the shuffle before a stage without state has."""
        targets = [
            self._flow.operator(s.target)
            for s in self._stages.streams
            if self._stages.shuffles.get(s.id) == stage
        ]
        return max(tasks_of(target, self._of.spark) for target in targets)

    def _program(self, name: str, stage: int, inputs: list[Input]) -> StageProgram:
        reached = {output.target for entry in inputs for output in entry.outputs if output.stays}
        steps = []
        for id_ in self._flow.topological:
            if id_ in reached:
                step = self._step(id_, stage)
                reached |= {output.target for output in step.outputs if output.stays}
                steps.append(step)
        return StageProgram(
            name=name,
            inputs=tuple(inputs),
            steps=tuple(steps),
            channels={channel.number: channel for channel in self._channels.values()},
            results=self._results if stage == self._stages.last else None,
            functions=PackedFunctions.of(self._functions),
        )

    def _step(self, id_: str, stage: int) -> Step:
        operator = self._flow.operator(id_)
        named = () if operator.kind == "union" else operator.alternates
        return Step(
            operator=operator.id,
            takes=operator.takes,
            alternates=tuple(a.name for a in operator.alternates),
            functions=tuple(i for a in named if (i := self._pack(a.function)) is not None),
            default=operator.alternates.index(operator.best),
            schema=self._of.schema(self._of.leaving(operator.id)),
            outputs=self._outputs(operator.id, stage),
            keep_by=self._flow.keep_by(operator.id),
            score=self._pack(operator.score),
            measured=(first := operator.id not in self._counted_before),
            stamps=self._ends(operator.id) if first else (None, None),
        )

    def _outputs(self, id_: OperatorId, stage: int) -> tuple[Output, ...]:
        return tuple(self._output(stream, stage) for stream in self._stages.streams if stream.source == id_)

    def _output(self, stream: Stream, stage: int, *, beyond: bool = False) -> Output:
        """The stream as `stage` sees it: before its shuffle, if it has one, or `beyond`."""
        source, target = self._flow.operator(stream.source), self._flow.operator(stream.target)
        result, channel, leaves = stream.id in self._stages.results, None, False
        if target.kind == "keyed" and not result:
            channel = self._channel(target.id).number
        elif stream.id in self._stages.shuffles and not beyond:
            channel = self._channel(stream.id).number
        elif result:
            leaves = stage == self._stages.last
            channel = None if leaves else self._channel(f"=>{target.id}").number
        arrived = Output(
            stream=stream.id,
            target=target.id,
            channel=channel,
            leaves=leaves,
            to_sink=target.kind == "sink" and (beyond or stream.id not in self._stages.shuffles),
            measured=False,
        )
        if beyond:  # kept, counted and conformed before the shuffle
            return arrived
        given = self._of.leaving(source.id)
        expected = given if target.kind == "transform" else self._of.arriving(target.id)
        weight = next((w for w in self._of.weights if w in given.names), None)
        return replace(
            arrived,
            shedder=Shedder(subject=stream.id, utility=self._pack(source.utility), weight=weight),
            columns=None if expected == given else self._of.schema(expected),
            measured=stream.id not in self._counted_before,
        )

    def _channel(self, what: str) -> Channel:
        """The channel of a keyed operator's rows (`id`) or results (`id=>`), of a stream, or to a target (`=>id`)."""
        if what not in self._channels:
            key: tuple[str, ...] = ()
            parts, buckets, copies = BUCKET_COUNTS[0], BUCKET_COUNTS[0], 0
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
                stream = next(s for s in self._stages.streams if s.id == what)
                target = self._flow.operator(stream.target)
                columns, parts = self._of.arriving(target.id), tasks_of(target, self._of.spark)
                key = target.key if stream.wiring == "key" else ()
                buckets = bucket_count(parts)
                if stream.wiring == "broadcast":
                    copies = self._copies(stream)
            schema = self._of.schema(columns)
            number = len(self._channels)
            self._channels[what] = Channel(
                number=number, schema=schema, key=key, parts=parts, buckets=buckets, copies=copies
            )
        return self._channels[what]

    def _copies(self, stream: Stream) -> int:
        """How many partitions the shuffle of a broadcast has."""
        stage = self._stages.shuffles[stream.id]
        if any(at == stage and what in self._flow.row for what, at in self._stages.shuffles.items()):
            message = "live, a broadcast cannot arrive beside a keyed operator; put a spread map before it"
            raise DataflowError([Problem(place=f"operators.{stream.target}.inputs", message=message)])
        return self.tasks_at(stage)

    def _result_columns(self, target: str) -> StructType:
        if self._flow.operator(target).kind == "transform":
            (stream,) = (s for s in self._stages.streams if s.id in self._stages.results)
            return self._of.leaving(stream.source)
        return without_sample(self._of.arriving(OperatorId(target)))

    def _pack(self, function: Function | None) -> int | None:
        if function is None:
            return None
        self._functions.append(_resolved(function))
        return len(self._functions) - 1


def tasks_of(operator: Operator, spark: SparkSession) -> int:
    """How many tasks read a shuffled stream: what is declared, or one per core where nothing is."""
    most = operator.parallelism.maximum
    return most if most > 1 else spark.sparkContext.defaultParallelism


def without_sample(columns: StructType) -> StructType:
    """The columns that a sink gets."""
    return StructType([field for field in columns.fields if field.name not in SAMPLE])


def _arrow_function(
    program: StageProgram, accumulator: Any
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return program.run(batches, accumulator)

    run.__name__ = program.name  # so Spark's plan says which stage it is
    return run


def _resolved(function: Function | None) -> Callable[..., Any] | None:
    return None if function is None else function.resolve()
