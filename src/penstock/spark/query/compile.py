"""A declared dataflow as one ordinary Structured Streaming query.

Everything stateless between two shuffles runs in one `mapInArrow`; every operator runs once, whatever branches and
meets again. `assembly` puts the plan together, `docs/guide/spark.md` tells it to users.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.graph import Dataflow
from penstock.dataflow.validation import problems
from penstock.spark.observe.task_measures import Measures
from penstock.spark.query.assembly import Assembly, OutputMode
from penstock.spark.query.keyed_runner import KeyedProgram
from penstock.spark.query.sinks import SinkMasks, batch_function, native_writer
from penstock.spark.query.stage_runner import StageProgram
from penstock.spark.session import ROCKSDB

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
SPARKS_DEFAULT = 200
"""More than a stateful micro-batch can bear on a small cluster: taken as not set."""
MAX_SINKS = 63  # a row's sinks are the bits of a long


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledDataflow:
    """A dataflow as a streaming DataFrame, ready to be started."""

    spark: SparkSession
    dataflow: Dataflow
    checkpoint: str
    frame: DataFrame
    measures: Measures
    """Fills up while the query runs."""
    hosts: tuple[str, ...]
    """Names of the stages, which task records carry."""
    programs: tuple[StageProgram | KeyedProgram, ...]
    state_partitions: int
    output_mode: OutputMode
    masks: SinkMasks | None

    def start(self, *, trigger_s: float = 0.0, available_now: bool = False) -> StreamingQuery:
        """The running query: a batch every `trigger_s` seconds, or (`available_now`) what is there and then the end.

        A query started again on the same checkpoint continues where the last one was.
        """
        sinks = self.dataflow.sinks
        if self.masks is None:
            assert sinks[0].connector is not None
            writer = native_writer(self.frame, sinks[0].connector, self.dataflow.name)
        else:
            writer = self.frame.writeStream.queryName(self.dataflow.name)
            writer = writer.foreachBatch(batch_function(self.spark, self.masks, sinks))
        writer = writer.outputMode(self.output_mode).option("checkpointLocation", self.checkpoint)
        if available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(trigger_s * 1e3)} milliseconds")
        settings = {SHUFFLE_PARTITIONS: str(self.state_partitions)}
        if any(isinstance(program, KeyedProgram) for program in self.programs):
            settings[STATE_STORE] = ROCKSDB  # transformWithState runs on no other
        with session_settings(self.spark, settings):
            return writer.start()


def compile_dataflow(
    spark: SparkSession,
    dataflow: Dataflow,
    *,
    checkpoint: Path | str,
    state_partitions: int | None = None,
    output_mode: OutputMode = "append",
) -> CompiledDataflow:
    """The query of `dataflow`. A DataflowError tells what keeps it from running, before anything starts.

    `state_partitions` is the number of tasks of every keyed or native stateful operator; without it the largest
    parallelism that a keyed operator declares. `output_mode` matters only to native aggregations: `append`
    needs a watermark, `update` gives each changed row.
    """
    found = [*problems(dataflow, check_functions=True), *_unsupported(dataflow)]
    if found:
        raise DataflowError(found)
    assembly = Assembly(spark, dataflow, str(checkpoint), output_mode)
    frame, masks = assembly.sinks()
    return CompiledDataflow(
        spark=spark,
        dataflow=dataflow,
        checkpoint=str(checkpoint),
        frame=frame,
        measures=assembly.measures,
        hosts=tuple(program.name for program in assembly.programs),
        programs=tuple(assembly.programs),
        state_partitions=state_partitions or _state_partitions(spark, dataflow),
        output_mode=output_mode,
        masks=masks,
    )


def _unsupported(dataflow: Dataflow) -> Iterator[Problem]:
    for stream in dataflow.streams:
        if stream.wiring == "broadcast" and dataflow.operator(stream.target).kind not in ("map", "union"):
            message = "live, only map operators can read a broadcast"
            yield Problem(place=f"operators.{stream.target}.inputs", message=message)
    if len(dataflow.sinks) > MAX_SINKS:
        yield Problem(place="operators", message=f"at most {MAX_SINKS} sinks can share a query")


def _state_partitions(spark: SparkSession, dataflow: Dataflow) -> int:
    """The largest parallelism that a keyed operator declares; else what the session says; else two per core."""
    declared = [o.parallelism.maximum for o in dataflow.operators if o.kind == "keyed"]
    if declared and max(declared) > 1:
        return max(declared)
    set_to = int(spark.conf.get(SHUFFLE_PARTITIONS) or 0)
    return set_to if set_to != SPARKS_DEFAULT else min(24, 2 * spark.sparkContext.defaultParallelism)


@contextmanager
def session_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings that hold for what is started inside: a query copies its session's when it starts."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
