"""`penstock.attach`: steer a query that Penstock did not build."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.control import PolicyRun, Settings
from penstock.dataflow import Constraint, Dataflow, Operator, OperatorId, State, Stream
from penstock.dataflow.graph import Sequence as OperatorSequence
from penstock.dataflow.graph import Statistic
from penstock.errors import UserError
from penstock.policies.elasticity import Elasticity, NodeOptions
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.state import StatePartitions
from penstock.spark.observe.source_rates import KafkaSource, PlainSource, SourceReader
from penstock.spark.pilot import Autopilot
from penstock.spark.runtime import EXECUTOR, RuntimeOptions, SparkRuntime
from penstock.telemetry import MachineClass

SOURCE, SINK = OperatorId("source"), OperatorId("sink")


class AttachError(UserError, ValueError):
    """There is no query to steer, or it is not clear which."""


def attach(
    spark: SparkSession,
    query: StreamingQuery | str | None = None,
    *,
    latency_ms: float | None = None,
    statistic: Statistic = "mean",
    window_s: float = 10.0,
    max_executors: int | None = None,
    policies: Sequence[PolicyRun] | None = None,
    interval_s: float = 5.0,
    dry_run: bool = False,
    journal: Path | str | None = None,
    machine: MachineClass = EXECUTOR,
    start: bool = True,
) -> Autopilot:
    """Hold a goal for a running query: observe it, scale executors, move its state, and tell what was done.

    `query` may be left out when just one is active. With `latency_ms`, the elasticity policy holds that bound on
    the `statistic` of the latency with at most `max_executors`; other `policies` may be given instead or besides.
    Records of a query that Penstock did not build carry no source time, so its latency is estimated from the times
    of its batches and its backlog. Shedding and switching need a declared dataflow and are blocked here.
    """
    chosen = _chosen(spark, query)
    flow = dataflow_of(spark, chosen, latency_ms=latency_ms, statistic=statistic, window_s=window_s)
    states = {
        number: operator.id
        for number, operator in zip(
            _state_ids(spark, chosen), [o for o in flow.operators if o.state], strict=True
        )
    }
    limit = max_executors or machine.available or len(Executors(spark).list())
    executor = MachineClass(
        name=machine.name, cores=machine.cores, price_per_hour=machine.price_per_hour, available=limit
    )
    runtime = SparkRuntime(
        spark,
        flow,
        chosen,
        sources={SOURCE: _reader(chosen)},
        state_operators=states,
        options=RuntimeOptions(machine=executor),
    )
    if policies is None:
        policies = (
            [PolicyRun(policy=Elasticity(), options=NodeOptions(max_nodes=limit))] if latency_ms else []
        )
    autopilot = Autopilot(
        runtime,
        policies,
        settings=Settings(interval_s=interval_s, dry_run=dry_run),
        journal=journal,
        options={"command": "attach", "query": chosen.name or str(chosen.id)},
    )
    return autopilot.start() if start else autopilot


def dataflow_of(
    spark: SparkSession,
    query: StreamingQuery,
    *,
    latency_ms: float | None = None,
    statistic: Statistic = "mean",
    window_s: float = 10.0,
) -> Dataflow:
    """A query as a dataflow: its source, its stateful operators in the order of the data, its sink."""
    partitions = StatePartitions(spark, query).operators()
    # Spark numbers stateful operators from the sink back.
    states = [
        Operator(id=OperatorId(f"state{p.id}"), kind="transform", state=State(schema=p.node_name))
        for p in reversed(partitions)
    ]
    operators = (Operator(id=SOURCE, kind="source"), *states, Operator(id=SINK, kind="sink"))
    streams = tuple(
        Stream(source=a.id, target=b.id, wiring="key" if b.state else "forward")
        for a, b in pairwise(operators)
    )
    name = query.name or str(query.id)[:8]
    constraint = Constraint(
        name=name,
        sequence=OperatorSequence(operators=tuple(o.id for o in operators)),
        bound_ms=latency_ms or 0.0,
        window_s=window_s,
        statistic=statistic,
    )
    return Dataflow(
        name=name, operators=operators, streams=streams, constraints=(constraint,) if latency_ms else ()
    )


def _chosen(spark: SparkSession, query: StreamingQuery | str | None) -> StreamingQuery:
    if isinstance(query, StreamingQuery):
        return query
    active = spark.streams.active
    names = ", ".join(q.name or str(q.id) for q in active) or "none"
    found = active if query is None else [q for q in active if query in (q.name, str(q.id))]
    if len(found) != 1:
        wanted = f"no single active query called '{query}'" if query else "not exactly one query is active"
        raise AttachError(f"{wanted}; active are: {names}")
    return found[0]


def _state_ids(spark: SparkSession, query: StreamingQuery) -> list[int]:
    return [operator.id for operator in reversed(StatePartitions(spark, query).operators())]


def _reader(query: StreamingQuery) -> SourceReader:
    progress = query.lastProgress
    sources = progress["sources"] if progress is not None else []
    return KafkaSource(0) if sources and sources[0]["description"].startswith("KafkaV2") else PlainSource(0)
