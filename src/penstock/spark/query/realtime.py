"""A declared dataflow as a query in real-time mode: its native operators, and nothing of Penstock between them.

Python operators are refused: Spark does not support them there. What a dataflow in micro-batches gets from its Python
stages (shedding, alternates, figures of each operator) it does not have here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.graph import Dataflow, Operator, OperatorId
from penstock.dataflow.validation import problems
from penstock.spark.query.assembly import tasks_of
from penstock.spark.query.compile import SHUFFLE_PARTITIONS, session_settings
from penstock.spark.query.sinks import kafka_rows, native_writer
from penstock.spark.query.sources import read_source
from penstock.spark.realtime import Preflight, preflight

FORMATS = {"files": "parquet", "foreach-batch": "foreachBatch", "discard": "noop"}
"""Spark's names of sinks where ours differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimeDataflow:
    """A dataflow as a streaming DataFrame of native operators, ready to be started in real-time mode."""

    spark: SparkSession
    dataflow: Dataflow
    checkpoint: str
    frame: DataFrame
    shuffle_partitions: int

    def preflight(self, batch_s: float) -> Preflight:
        """Whether real-time mode can run it here, on the slots there are now."""
        sink = self.dataflow.sinks[0].connector
        assert sink is not None
        frame = kafka_rows(self.frame, sink) if sink.kind == "kafka" else self.frame
        with session_settings(self.spark, {SHUFFLE_PARTITIONS: str(self.shuffle_partitions)}):
            return preflight(frame, sink=FORMATS.get(sink.kind, sink.kind), batch_s=batch_s)

    def start(self, batch_s: float) -> StreamingQuery:
        """The running query; a batch, from checkpoint to checkpoint, lasts `batch_s` seconds."""
        sink = self.dataflow.sinks[0].connector
        assert sink is not None
        writer = native_writer(self.frame, sink, self.dataflow.name).outputMode("update")
        writer = writer.option("checkpointLocation", self.checkpoint)
        trigger: Any = writer.trigger  # PySpark's types do not name this one yet
        started: StreamingQuery
        with session_settings(self.spark, {SHUFFLE_PARTITIONS: str(self.shuffle_partitions)}):
            started = trigger(realTime=f"{round(batch_s * 1e3)} milliseconds").start()
        return started


def compile_realtime(
    spark: SparkSession, dataflow: Dataflow, *, checkpoint: Path | str, state_partitions: int | None = None
) -> RealTimeDataflow:
    """The query of `dataflow` for real-time mode. A DataflowError names the operators that keep it out.

    `state_partitions` is the number of tasks behind each shuffle, which all hold a slot: without it what the session
    says, and one where it says nothing.
    """
    found = [*problems(dataflow, check_functions=True), *_unsupported(dataflow)]
    if found:
        raise DataflowError(found)
    native = _Native(spark, dataflow, str(checkpoint))
    (sink,) = dataflow.sinks
    given = int(spark.conf.get(SHUFFLE_PARTITIONS, None) or 1)
    return RealTimeDataflow(
        spark=spark,
        dataflow=dataflow,
        checkpoint=str(checkpoint),
        frame=native.arriving(sink.id),
        shuffle_partitions=state_partitions or given,
    )


def _unsupported(dataflow: Dataflow) -> Iterator[Problem]:
    for operator in dataflow.operators:
        if operator.kind in ("map", "keyed"):
            yield Problem(
                place=f"operators.{operator.id}",
                message="runs in Python, which real-time mode does not support; write it as a transform, with the "
                "functions of pyspark.sql.functions, or run it in micro-batches",
            )
        elif (
            operator.kind == "source"
            and operator.connector is not None
            and operator.connector.kind != "kafka"
        ):
            yield Problem(
                place=f"operators.{operator.id}.connector",
                message=f"real-time mode reads Kafka only, not {operator.connector.kind}",
            )
    if len(dataflow.sinks) != 1:
        yield Problem(
            place="operators", message="real-time mode writes to one sink; several need a batch that ends"
        )
    for stream in dataflow.streams:
        if stream.wiring == "broadcast":
            yield Problem(
                place=f"operators.{stream.target}.inputs", message="a broadcast runs in Python; take it out"
            )


class _Native:
    """The plan in the making."""

    def __init__(self, spark: SparkSession, dataflow: Dataflow, checkpoint: str) -> None:
        self._spark, self._dataflow, self._checkpoint = spark, dataflow, checkpoint

    def arriving(self, id_: OperatorId) -> DataFrame:
        """What reaches an operator; several inputs as one, by the names of their columns."""
        frames = [self._leaving(stream.source) for stream in self._dataflow.upstream(id_)]
        return reduce(DataFrame.unionByName, frames)

    def _leaving(self, id_: OperatorId) -> DataFrame:
        operator = self._dataflow.operator(id_)
        if operator.kind == "source":
            return read_source(self._spark, operator, checkpoint=self._checkpoint)
        if operator.kind == "transform":
            return self._transformed(operator)
        return self.arriving(id_)

    def _transformed(self, operator: Operator) -> DataFrame:
        frames = []
        for stream in self._dataflow.upstream(operator.id):
            frame = self._leaving(stream.source)
            if stream.wiring == "key":
                frame = frame.repartition(*(sql.col(f"`{name}`") for name in operator.key))
            elif stream.wiring == "spread":
                frame = frame.repartition(tasks_of(operator, self._spark))
            frames.append(frame)
        function = operator.alternates[0].function
        assert function is not None
        frame = function.resolve()(*frames)
        if not isinstance(frame, DataFrame):
            message = f"its function must return a DataFrame, not {type(frame).__name__}"
            raise DataflowError([Problem(place=f"operators.{operator.id}", message=message)])
        return frame
