"""Queries on the micro-batch simulator, for tests of it and of policies that run on it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.dataflow import Constraint, Dataflow, Load, Operator, OperatorId, State, Stream, together
from penstock.dataflow.graph import Sequence as OperatorSequence
from penstock.dataflow.graph import Statistic
from penstock.simulator.microbatch import MicrobatchRuntime
from penstock.simulator.microbatch_model import Engine, Executors, Query, Stage
from penstock.telemetry import MachineClass


def a_query(name: str, *, bound_ms: float, statistic: Statistic = "mean", window_s: float = 10.0) -> Dataflow:
    """A source, an operator with state, a sink, and a bound on the whole way."""
    ids = [OperatorId(part) for part in ("source", "state", "sink")]
    operators = (
        Operator(id=ids[0], kind="source"),
        Operator(id=ids[1], kind="transform", state=State(schema="n long")),
        Operator(id=ids[2], kind="sink"),
    )
    constraint = Constraint(
        name="latency",
        sequence=OperatorSequence(operators=tuple(ids)),
        bound_ms=bound_ms,
        statistic=statistic,
        window_s=window_s,
    )
    streams = (
        Stream(source=ids[0], target=ids[1], wiring="key"),
        Stream(source=ids[1], target=ids[2], wiring="forward"),
    )
    return Dataflow(name, operators=operators, streams=streams, constraints=(constraint,))


def engine_of(
    flow: Dataflow,
    names: Sequence[str],
    *,
    record_s: float = 1e-3,
    partitions: int = 4,
    noise: float = 0.1,
    engine_executors: Executors | None = None,
    overhead_s: float = 0.3,
) -> Engine:
    """A stage for the source and one with state for each query: `overhead_s` and `record_s` in all."""
    queries = []
    for name in names:
        ids = [OperatorId(f"{name}.{part}") for part in ("source", "state", "sink")]
        stages = (
            Stage(operators=(ids[0],), partitions=partitions, record_s=0.4 * record_s, task_s=0.0),
            Stage(
                operators=(ids[1], ids[2]),
                partitions=partitions,
                record_s=0.6 * record_s,
                task_s=0.0,
                stateful=True,
            ),
        )
        queries.append(
            Query(
                name=name,
                stages=stages,
                plan_s=overhead_s / 2,
                stage_s=overhead_s / 8,
                commit_s=overhead_s / 4,
                driver_cv=noise,
                task_cv=noise,
            )
        )
    return Engine(queries=tuple(queries), executors=engine_executors or Executors(startup_s=6.0))


def application(
    loads: dict[str, Load],
    bounds_ms: dict[str, float],
    *,
    executors: int = 1,
    limit: int = 8,
    seed: int = 0,
    statistic: Statistic = "mean",
    engine: Engine | None = None,
    **options: object,
) -> MicrobatchRuntime:
    """One application with a query for each load."""
    flow = together(*(a_query(n, bound_ms=bounds_ms[n], statistic=statistic) for n in loads), name="app")
    return MicrobatchRuntime(
        flow,
        engine or engine_of(flow, list(loads), **options),  # type: ignore[arg-type]
        loads=list(loads.values()),
        machine=MachineClass(name="executor", available=limit, price_per_hour=1.0),
        executors=executors,
        seed=seed,
    )
