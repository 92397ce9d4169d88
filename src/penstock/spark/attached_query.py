"""A running query that Penstock did not build, as a dataflow: its sources, what may be steered in it, its sink."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow import Constraint, Dataflow, Operator, OperatorId, State, Stream
from penstock.dataflow.graph import Sequence as OperatorSequence
from penstock.spark.frame_controls import FrameControls, id_part
from penstock.spark.goals import Goals
from penstock.spark.internals.running import Standings
from penstock.spark.internals.state import StateOperator
from penstock.spark.observe.read_all_source import ReadAllSource
from penstock.spark.observe.source_rates import KafkaSource, PlainSource, SourceReader


def sources_of(spark: SparkSession, query: StreamingQuery, *, running: bool) -> tuple[str, ...] | None:
    """What the sources of a query call themselves; None before tasks of its first batch run.

    Where Spark tells of batches under way (`running`), a query is known from its first tasks on, however long they
    take. Not earlier: whoever asks for the plan of a batch before Spark has made it would have it made.
    """
    progress = query.lastProgress
    if progress is not None:
        return tuple(str(source.get("description", "")) for source in progress.get("sources", ()))
    standing = Standings(spark, query).read() if running else None
    if standing is None or not standing.planned or not standing.tasks:
        return None
    return tuple(source.description for source in standing.sources)


def prefix_of(key: str) -> str:
    """The name of a query as the first part of its operators' ids."""
    return id_part(key)


def dataflow_of(
    key: str, sources: Sequence[str], states: Sequence[StateOperator], goals: Goals, frames: FrameControls
) -> Dataflow:
    """The dataflow of a query: its sources, its alternates, its stateful operators in the order of the data, its sink.

    Where nothing may be dropped, all of the input must count.
    """
    prefix = prefix_of(key)
    count = max(1, len(sources))
    names = ["source"] if count == 1 else [f"source{i}" for i in range(count)]
    starts = [Operator(id=OperatorId(f"{prefix}.{name}"), kind="source") for name in names]
    chain = [
        *frames.operators,
        *(
            # Spark numbers stateful operators from the sink back.
            Operator(id=state_id(key, s), kind="transform", state=State(schema=s.node_name))
            for s in reversed(states)
        ),
        Operator(
            id=OperatorId(f"{prefix}.sink"),
            kind="sink",
            priority=goals.priority,
            min_accuracy=goals.min_accuracy if frames.sheds else 1.0,
        ),
    ]
    ends = [(start, chain[0]) for start in starts] + list(pairwise(chain))
    constraint = Constraint(
        name=f"{prefix}.latency",
        sequence=OperatorSequence(operators=(starts[0].id, *(o.id for o in chain))),
        bound_ms=goals.latency_ms or 0.0,
        window_s=goals.window_s,
        statistic=goals.statistic,
    )
    return Dataflow(
        key,
        operators=(*starts, *chain),
        streams=tuple(
            Stream(source=a.id, target=b.id, wiring="key" if b.state else "forward") for a, b in ends
        ),
        constraints=(constraint,) if goals.latency_ms else (),
    )


def state_id(key: str, state: StateOperator) -> OperatorId:
    """The id of a stateful operator of a query."""
    return OperatorId(f"{prefix_of(key)}.state{state.id}")


def readers_of(
    flow: Dataflow, sources: Sequence[str], frames: FrameControls
) -> dict[OperatorId, SourceReader]:
    """How the rate and the backlog of each source are read."""
    plain = ReadAllSource if frames.sheds else PlainSource
    return {
        source.id: KafkaSource(i) if i < len(sources) and sources[i].startswith("KafkaV2") else plain(i)
        for i, source in enumerate(flow.sources)
    }
