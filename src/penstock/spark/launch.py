"""From a declared dataflow to a query under control."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.control import Desired
from penstock.dataflow import Dataflow, OperatorId
from penstock.dataflow.connectors import expected_load
from penstock.spark.act.query_pace import QueryPace
from penstock.spark.act.touched import Touched
from penstock.spark.internals.control_log import resumed_controls
from penstock.spark.internals.controls import get_controls, seeded
from penstock.spark.internals.driver_settings import DriverSettings
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import Pacing, stop_cleanly
from penstock.spark.internals.repartition import finish_repartition, repartition_state
from penstock.spark.observe.machine_load import HostWatch
from penstock.spark.observe.source_rates import KafkaSource, PlainSource, ReplaySource, SourceReader
from penstock.spark.query.assembly import OutputMode
from penstock.spark.query.audit import AUDIT
from penstock.spark.query.compile import CompiledDataflow, compile_dataflow
from penstock.spark.query.sampling import keep_control
from penstock.spark.query.stage_runner import alternate_control
from penstock.spark.runtime import DEFAULTS, Restarted, RuntimeOptions, SparkRuntime


def launch(
    spark: SparkSession,
    dataflow: Dataflow,
    *,
    checkpoint: Path | str,
    trigger_s: float = 0.0,
    controls: Mapping[str, Any] | None = None,
    state_partitions: int | None = None,
    output_mode: OutputMode = "append",
    audit: float = 0.0,
    options: RuntimeOptions = DEFAULTS,
    hosts: HostWatch | None = None,
) -> SparkRuntime:
    """Start the dataflow on Spark and return it as a runtime; queries that share executors share `hosts`.

    `controls` are in force from the first micro-batch on: shares to keep and alternates of an earlier run. While a
    cheaper alternate of a stateless operator runs, the share `audit` of its records also goes through the best one:
    how often both agree becomes its value.
    """
    compiled = compile_dataflow(
        spark, dataflow, checkpoint=checkpoint, state_partitions=state_partitions, output_mode=output_mode
    )
    values = {**(controls or {}), **({AUDIT: audit} if audit else {})}
    finish_repartition(spark, checkpoint)
    with seeded(spark, resumed_controls(spark, str(checkpoint), values)):
        query = compiled.start(trigger_s=trigger_s)

    def restart(running: StreamingQuery, partitions: int) -> Restarted:
        return _restarted(spark, compiled, running, partitions)

    runtime = SparkRuntime(
        spark,
        dataflow,
        query,
        sources=source_readers(dataflow),
        state_operators=state_operators(dataflow),
        measures=compiled.measures,
        restart=restart,
        options=options,
        hosts=hosts,
    )
    runtime.adopt_controls(values)
    return runtime


def controls_of(desired: Desired) -> dict[str, Any]:
    """The controls of an earlier run, for `launch`: in force from the first micro-batch on."""
    keeps = {keep_control(subject): keep for subject, keep in desired["keep"].items()}
    return keeps | {alternate_control(operator): name for operator, name in desired["alternate"].items()}


def have_executors(spark: SparkSession, count: int, *, given: int, timeout_s: float = 60.0) -> None:
    """Return when the application has just `count` executors, of the `given` it gets at the start.

    A standalone cluster gives an application all it has, whatever `spark.executor.instances` says: what is too much
    is sent away once it is there, because what is still on its way cannot be called back.
    """
    executors = Executors(spark)
    deadline_s = time.monotonic() + timeout_s
    while len(executors.list()) < given and time.monotonic() < deadline_s:
        time.sleep(0.2)
    executors.request_total(count)
    surplus = [e.id for e in executors.list()][count:]
    if surplus:
        executors.kill(surplus)
    while len(executors.list()) != count:
        if time.monotonic() > deadline_s:
            raise SparkInternalsError("executors", f"{count} executors were not there within {timeout_s:g} s")
        time.sleep(0.2)


def _restarted(
    spark: SparkSession, compiled: CompiledDataflow, running: StreamingQuery, partitions: int
) -> Restarted:
    """The same query on the same checkpoint with another number of state partitions, controls and pace as before."""
    document, touched = get_controls(running), Touched(DriverSettings(spark))
    own_s = QueryPace(Pacing(spark, running), str(running.runId), touched).reading().own_interval_s
    stop_cleanly(spark, running)
    problem: SparkInternalsError | None = None
    try:
        repartition_state(spark, compiled.checkpoint, partitions)
    except SparkInternalsError as found:  # the user's query goes on all the same
        problem = found
        finish_repartition(spark, compiled.checkpoint)
    with seeded(spark, document):
        return compiled.start(trigger_s=own_s), problem


def state_operators(dataflow: Dataflow) -> dict[int, OperatorId]:
    """Spark's number of each stateful operator: they are counted from the sinks back, in the order of the plan."""
    stateful = [id_ for id_ in reversed(dataflow.topological) if dataflow.operator(id_).state is not None]
    return dict(enumerate(stateful))


def source_readers(dataflow: Dataflow) -> dict[OperatorId, SourceReader]:
    """How each source's rate and backlog are read; Spark lists sources in the order of the plan, which is ours."""
    readers: dict[OperatorId, SourceReader] = {}
    for index, source in enumerate(dataflow.sources):
        kind = source.connector.kind if source.connector is not None else ""
        load = expected_load(source.connector) if source.connector is not None else None
        if kind == "kafka":
            readers[source.id] = KafkaSource(index)
        elif kind == "replay" and load is not None:
            readers[source.id] = ReplaySource(index, load)
        else:
            readers[source.id] = PlainSource(index)
    return readers
