"""Whether real-time mode can run a query here; where not, why, and what to do instead.

Real-time mode keeps the tasks of all stages running at once and hands on each record as it comes: milliseconds where
micro-batches take hundreds. It runs a part of what micro-batches run; most of that Spark says when a query starts, one
obstacle at a time and some only by standing still. Here they are told all at once, before anything starts.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import UserError
from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.gateway import execution, jvm
from penstock.spark.internals.realtime_plan import (
    CAPABILITY,
    PlannedNode,
    RealTimePlan,
    allows_sink,
    frame_plan,
    plan_of,
    query_plan,
    topic_partitions,
)
from penstock.spark.observe.progress import BatchProgress
from penstock.spark.session import ROCKSDB

Kind = Literal["source", "operator", "shape", "sink", "output mode", "trigger", "slots", "setting"]

ALLOWLIST_CHECK = "spark.sql.streaming.realTimeMode.allowlistCheck"
SHORTEST = "spark.sql.streaming.realTimeMode.minBatchDuration"
SHORTEST_MS = 5000
SOURCES = ("kafka",)
SINKS = {
    "kafka": "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable",
    "console": "org.apache.spark.sql.execution.streaming.ConsoleTable$",
    "foreach": "org.apache.spark.sql.execution.streaming.sources.ForeachWriterTable",
    "memory": "org.apache.spark.sql.execution.streaming.sources.ContinuousMemorySink",
}
SINK_OF = {
    **{name: kind for kind, name in SINKS.items()},
    "org.apache.spark.sql.execution.streaming.sources.MemorySink": "memory",
    "org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink": "foreachBatch",
}
# Spark sets these itself where nobody has, and refuses other values.
SETTINGS = {
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.execution.sortBeforeRepartition": "false",
}

_NATIVE = "write it with the functions of pyspark.sql.functions"
_ARROW = (
    f"{_NATIVE}; at your own risk {ALLOWLIST_CHECK}=false lets it run, and rows then wait in Python's buffers until "
    "the batch ends unless spark.sql.execution.arrow.maxRecordsPerBatch is 1"
)
_STATEFUL = "groupBy().agg() and dropDuplicates() are what it has for state"
OPERATORS = {
    "BatchEvalPythonExec": (
        "a pickled Python UDF",
        f"{_NATIVE}; never lift the check for it: such UDFs lost and doubled thousands of records in our trials",
    ),
    "ArrowEvalPythonExec": ("a Python UDF", _ARROW),
    "ArrowEvalPythonUDTFExec": ("a Python table function", _ARROW),
    "MapInArrowExec": ("mapInArrow", _ARROW),
    "MapInPandasExec": ("mapInPandas", _ARROW),
    "FlatMapGroupsInPandasWithStateExec": ("applyInPandasWithState", _STATEFUL),
    "TransformWithStateInPySparkExec": ("transformWithState in Python", _STATEFUL),
    "TransformWithStateExec": ("transformWithState", _STATEFUL),
    "FlatMapGroupsWithStateExec": ("flatMapGroupsWithState", _STATEFUL),
    "StreamingSymmetricHashJoinExec": (
        "a join of two streams",
        "join before they reach Kafka, or keep this query in micro-batches",
    ),
    "StreamingDeduplicateWithinWatermarkExec": (
        "dropDuplicatesWithinWatermark",
        "use dropDuplicates with the event time among its columns",
    ),
    "RangeExchange": ("repartitionByRange", "use repartition: ranges need a sample of input that never ends"),
    "CoalesceExec": ("coalesce", "use repartition"),
    "SortMergeJoinExec": (
        "a join with a table that is not broadcast",
        "wrap the table in pyspark.sql.functions.broadcast if it fits into memory",
    ),
}
"""Operators that queries have often and that are refused: their name in a program, and what to do instead."""
PART_OF = {
    "SortExec": (
        "FlatMapGroupsInPandasWithStateExec",
        "TransformWithStateInPySparkExec",
        "SortMergeJoinExec",
        "FlatMapGroupsWithStateExec",
        "TransformWithStateExec",
    )
}
"""Operators that Spark puts in for another one: not told beside it."""


class RealTimeError(UserError, ValueError):
    """A query that real-time mode cannot run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """One thing that keeps a query out of real-time mode."""

    kind: Kind
    what: str
    """What of the query it is."""
    why: str
    instead: str
    lifted: bool = False
    """Whether a setting of the session lets it run all the same, at the user's own risk."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {'runs all the same at your own risk' if self.lifted else self.instead}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What real-time mode says to a query."""

    obstacles: tuple[Obstacle, ...]
    shuffle_partitions: int
    source_partitions: int | None
    """None: not known."""
    slots: int
    """Tasks that can run at once now."""

    @property
    def standing(self) -> tuple[Obstacle, ...]:
        """The obstacles that nobody has lifted."""
        return tuple(o for o in self.obstacles if not o.lifted)

    @property
    def runs(self) -> bool:
        """Whether nothing stands in the way."""
        return not self.standing

    @property
    def slots_needed(self) -> int | None:
        """A slot for each task of each stage, all at once; None while the partitions of the sources are not known."""
        return None if self.source_partitions is None else self.source_partitions + self.shuffle_partitions

    def __str__(self) -> str:
        if self.runs:
            needs = (
                "its slots are not known"
                if self.slots_needed is None
                else f"it needs {self.slots_needed} slots"
            )
            return f"nothing stands in the way of real-time mode; {needs}, {self.slots} are there"
        count = len(self.standing)
        lines = [f"{count} thing{'s stand' if count > 1 else ' stands'} in the way of real-time mode:"]
        return "\n".join([*lines, *(f"- {obstacle}" for obstacle in self.obstacles)])


def preflight(
    frame: DataFrame,
    *,
    sink: str = "kafka",
    output_mode: str = "update",
    batch_s: float = 60.0,
    source_partitions: int | None = None,
) -> Preflight:
    """Whether real-time mode can run a streaming DataFrame into a kind of `sink` (`format`, `foreach`, `foreachBatch`).

    `batch_s` is the trigger's duration. The partitions of Kafka topics are asked of the broker unless they are given.
    """
    if not frame.isStreaming:
        raise RealTimeError("the DataFrame is not a streaming one")
    session = frame.sparkSession
    logical = frame_plan(frame)
    plan = plan_of(session, logical)
    if source_partitions is None and _readable(plan):
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
            try:
                source_partitions = topic_partitions(logical, folder)
            except SparkInternalsError:
                source_partitions = None  # the broker does not answer: Spark will say so, and better
    return _judged(session, plan, sink=sink, mode=output_mode, batch_s=batch_s, partitions=source_partitions)


def preflight_of(session: SparkSession, query: StreamingQuery) -> Preflight:
    """Whether real-time mode could run a query that runs in micro-batches now, if it were started with that trigger."""
    with reaching(CAPABILITY):
        running = execution(query)
        name, mode = str(running.sink().getClass().getName()), str(running.outputMode().toString())
        progress = query.lastProgress
    sources = BatchProgress.model_validate_json(progress.json).sources if progress is not None else ()
    known = [
        len(topic) for source in sources if source.is_kafka and source.end for topic in source.end.values()
    ]
    return _judged(
        session,
        plan_of(session, query_plan(query)),
        sink=SINK_OF.get(name, name.rsplit(".", 1)[-1]),
        mode=mode,
        batch_s=math.inf,
        partitions=sum(known) or None,
    )


def slots_of(session: SparkSession) -> int:
    """How many tasks can run at once on the executors there are."""
    per_task = int(session.sparkContext.getConf().get("spark.task.cpus", "1") or 1)
    cores = [executor.cores // per_task for executor in Executors(session).list()]
    return sum(cores) or session.sparkContext.defaultParallelism


def _readable(plan: RealTimePlan) -> bool:
    return bool(plan.sources) and all(source.name in SOURCES and source.is_new for source in plan.sources)


def _judged(
    session: SparkSession, plan: RealTimePlan, *, sink: str, mode: str, batch_s: float, partitions: int | None
) -> Preflight:
    slots = slots_of(session)
    lifted = str(session.conf.get(ALLOWLIST_CHECK, "true")).lower() == "false"
    return Preflight(
        obstacles=(
            *_sources(plan),
            *_operators(plan, lifted=lifted),
            *_ends(session, sink, mode, batch_s),
            *_slots(plan, partitions, slots),
        ),
        shuffle_partitions=plan.shuffle_partitions,
        source_partitions=partitions,
        slots=slots,
    )


def _sources(plan: RealTimePlan) -> Iterator[Obstacle]:
    for source in plan.sources:
        if source.name not in SOURCES or not source.is_new:
            name = source.name if source.is_new else "files, or another source of the old interface"
            yield Obstacle(
                kind="source",
                what=f"source {name}",
                why="real-time mode reads Kafka only",
                instead="bring its records into a Kafka topic",
            )
        elif source.repeated:
            yield Obstacle(
                kind="source",
                what=f"source {source.name}, twice in the query",
                why="each source can be read once",
                instead="make a DataFrame of its own, with its own load(), for each use",
            )


def _operators(plan: RealTimePlan, *, lifted: bool) -> Iterator[Obstacle]:
    if plan.refused is not None:
        stateful_union = "STATEFUL_OPERATORS_BEFORE_UNION" in plan.refused
        yield Obstacle(
            kind="shape",
            what="a union behind an operator with state" if stateful_union else "the query in update mode",
            why="Spark refuses it: " + plan.refused.split("] ", 1)[-1].split(": ", 1)[-1].rstrip("; "),
            instead="unite the streams first"
            if stateful_union
            else "keep it in micro-batches, or take that part out",
        )
    refused: dict[str, PlannedNode] = {node.name: node for node in plan.nodes if not node.allowed}
    for name in refused:
        if any(whole in refused for whole in PART_OF.get(name, ())):
            continue
        what, instead = OPERATORS.get(name, (name.removesuffix("Exec"), "keep the query in micro-batches"))
        yield Obstacle(
            kind="operator",
            what=what,
            why=f"Spark does not support {name} in real-time mode",
            instead=instead,
            lifted=lifted,
        )


def _ends(session: SparkSession, sink: str, mode: str, batch_s: float) -> Iterator[Obstacle]:
    if sink not in SINKS or not allows_sink(SINKS[sink]):
        yield Obstacle(
            kind="sink",
            what=f"sink {sink}",
            why=f"real-time mode writes row by row, to {', '.join(SINKS)} only",
            instead="write to Kafka, or row by row with foreach",
        )
    if mode.lower() != "update":
        yield Obstacle(
            kind="output mode",
            what=f"output mode {mode.lower()}",
            why="real-time mode has update only",
            instead='set outputMode("update"); without aggregation it is the same as append',
        )
    given = session.conf.get(SHORTEST, None)
    units = jvm(session).org.apache.spark.network.util.JavaUtils
    shortest_ms = SHORTEST_MS if given is None else int(units.timeStringAsMs(given))
    if batch_s * 1e3 < shortest_ms:
        yield Obstacle(
            kind="trigger",
            what=f"a trigger of {batch_s:g} s",
            why=f"batches last at least {shortest_ms / 1e3:g} s; records do not wait for their end",
            instead=f'set trigger(realTime="{shortest_ms / 1e3:g} seconds") or longer',
        )
    for key, needed in SETTINGS.items():
        value = session.conf.get(key, None)
        if value is not None and value.lower() != needed.lower():
            yield Obstacle(
                kind="setting",
                what=f"{key}={value}",
                why=f"it must be {needed}",
                instead="leave it unset: Spark then sets it for such a query; state that exists needs a new checkpoint",
            )


def _slots(plan: RealTimePlan, partitions: int | None, slots: int) -> Iterator[Obstacle]:
    needed = (len(plan.sources) if partitions is None else partitions) + plan.shuffle_partitions
    if needed > slots:
        least = "at least " if partitions is None else ""
        yield Obstacle(
            kind="slots",
            what=f"{slots} slots",
            why=f"all stages run at once: it needs {least}{needed}, {plan.shuffle_partitions} of them behind shuffles",
            instead="start with more cores, or with a smaller spark.sql.shuffle.partitions on a new checkpoint",
        )
