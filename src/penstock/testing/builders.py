"""Dataflows and snapshots in one call: say what the test is about, the rest is plausible and consistent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.dataflow import (
    Alternate,
    Constraint,
    Dataflow,
    Goals,
    Operator,
    OperatorId,
    Parallelism,
    Stream,
)
from penstock.dataflow import Sequence as OperatorSequence
from penstock.dataflow.graph import CHEAPEST_FIRST, Kind, Remedy, State
from penstock.telemetry import (
    Alternates,
    Constraints,
    MachineClass,
    Moments,
    Nodes,
    Operators,
    Sinks,
    Sketch,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)

ONE_WAY = (Alternate(cost_s=0.001),)
TWO_WAYS = (Alternate(name="good", cost_s=0.004), Alternate(name="fast", value=0.6, cost_s=0.001))
"""Alternates for tests about switching: `good` costs four times as much as `fast`."""


def a_dataflow(
    *operators: str,
    name: str = "example",
    alternates: Sequence[Alternate] = ONE_WAY,
    parallelism: tuple[int, int] = (1, 100),
    stateful: bool = False,
    bound_ms: float | None = 100.0,
    priority: int = 0,
    min_accuracy: float = 0.0,
    remedies: tuple[Remedy, ...] = CHEAPEST_FIRST,
) -> Dataflow:
    """A line of operators (default `events`, `work`, `results`): a source, work in between, a sink.

    The operators in between have the given alternates and bounds; the ends cost nothing. One constraint, `on-time`,
    spans the operators in between and the stream that leads to them.

    >>> [s.id for s in a_dataflow("in", "count", "out").streams]
    ['in->count', 'count->out']
    """
    ids = [OperatorId(o) for o in (operators or ("events", "work", "results"))]
    between: Kind = "keyed" if stateful else "map"
    kinds: list[Kind] = ["source", *[between] * (len(ids) - 2), "sink"]
    inner = ids[1:-1]
    return Dataflow(
        name=name,
        operators=tuple(
            Operator(
                id=id_,
                kind=kind,
                alternates=tuple(alternates) if id_ in inner else (Alternate(),),
                parallelism=Parallelism(minimum=parallelism[0], maximum=parallelism[1]),
                state=State(schema="count long", bytes_per_task=1e6) if kind == "keyed" else None,
                key=("key",) if kind == "keyed" else (),
                priority=priority if kind == "sink" else 0,
                min_accuracy=min_accuracy if kind == "sink" else 0.0,
            )
            for id_, kind in zip(ids, kinds, strict=True)
        ),
        streams=tuple(Stream(source=a, target=b) for a, b in pairwise(ids)),
        constraints=() if bound_ms is None or not inner else (_on_time(inner, bound_ms),),
        goals=Goals(remedies=remedies),
    )


def _on_time(operators: Sequence[OperatorId], bound_ms: float) -> Constraint:
    sequence = OperatorSequence(operators=tuple(operators), leading_stream=True)
    return Constraint(name="on-time", sequence=sequence, bound_ms=bound_ms)


def a_snapshot(
    dataflow: Dataflow | None = None,
    *,
    time_s: float = 0.0,
    interval_s: float = 5.0,
    demand_rps: float = 500.0,
    latency_s: float | None = 0.05,
    utilisation: float = 0.5,
    parallelism: int | Mapping[str, int] = 2,
    alternate: Mapping[str, str] | None = None,
    keep: Mapping[str, float] | None = None,
    node_of: Mapping[str, str] | None = None,
    nodes: int = 2,
    cores: float = 4.0,
    machine: str = "standard",
    price_per_hour: float = 0.1,
    backlog_records: float = 0.0,
    accuracy: float = 1.0,
    cost: float = 0.0,
    seed: int = 0,
    **tables: Any,
) -> Snapshot:
    """A snapshot of a dataflow (default `a_dataflow()`) in which every operator sees the whole demand.

    Every operator has `parallelism` tasks (or as the mapping says, 2 otherwise), spread over `nodes` nodes in turn
    unless `node_of` places one (`"work[0]": "n1"`). `keep` is of streams (`"events->work"`) and sources; `alternate`
    names the active one of an operator. Whole tables, as keywords, replace the ones made here.
    """
    dataflow = dataflow or a_dataflow()
    count = len(dataflow.operators)
    sizes = np.array(
        [
            parallelism if isinstance(parallelism, int) else parallelism.get(o.id, 2)
            for o in dataflow.operators
        ]
    )
    operator = np.repeat(np.arange(count), sizes)
    total = len(operator)
    per_task = np.where(sizes > 0, demand_rps * interval_s / np.maximum(sizes, 1), 0.0)[operator]
    busy_s = np.full(total, utilisation * interval_s)
    service_s = np.where(per_task > 0, busy_s / np.where(per_task > 0, per_task, 1.0), 0.0)
    gap_s = np.where(per_task > 0, interval_s / np.where(per_task > 0, per_task, 1.0), 0.0)
    ids = tuple(f"n{i}" for i in range(nodes))
    made: dict[str, Any] = {
        "tasks": Tasks.blank(
            total,
            operator=operator,
            index=np.arange(total) - np.repeat(np.cumsum(sizes) - sizes, sizes),
            node=np.arange(total) % nodes if nodes else -1,
            arrived=per_task,
            processed=per_task,
            emitted=per_task,
            busy_s=busy_s,
            cpu=utilisation,
            service_s=Moments.known(per_task, service_s, service_s**2),
            interarrival_s=Moments.known(per_task, gap_s, gap_s**2),
            latency_s=Moments.known(per_task, service_s, service_s**2),
            known=True,
        ),
        "nodes": Nodes.blank(
            nodes,
            ids=ids,
            hosts=ids,
            machines=(machine,) * nodes,
            cores=cores,
            speed=1.0,
            own_cpu=utilisation * total / max(nodes, 1),
            price_per_hour=price_per_hour,
            ready=True,
            known=True,
        ),
        "operators": Operators.blank(
            count,
            parallelism=sizes,
            alternate=[
                o.alternate_index(alternate[o.id]) if alternate and o.id in alternate else 0
                for o in dataflow.operators
            ],
            elastic=True,
        ),
        "alternates": _alternates(dataflow),
        "streams": Streams.blank(
            len(dataflow.streams),
            records=demand_rps * interval_s,
            bytes=demand_rps * interval_s * 100,
            latency_s=Moments.known(np.full(len(dataflow.streams), demand_rps * interval_s), 0.001, 1e-6),
            keep=[(keep or {}).get(s.id, 1.0) for s in dataflow.streams],
            known=True,
        ),
        "sources": Sources.blank(
            len(dataflow.sources),
            operator=[dataflow.row[o.id] for o in dataflow.sources],
            produced_rps=demand_rps,
            read_rps=demand_rps,
            backlog_records=backlog_records,
            keep=[(keep or {}).get(o.id, 1.0) for o in dataflow.sources],
            backlog_known=True,
            known=True,
        ),
        "sinks": _sinks(dataflow, demand_rps * interval_s, latency_s, accuracy),
        "constraints": Constraints.blank(
            len(dataflow.constraints),
            bound_s=[c.bound_ms / 1e3 for c in dataflow.constraints],
            latency_s=latency_s or 0.0,
            known=latency_s is not None,
        ),
        "classes": (MachineClass(name=machine, cores=max(int(cores), 1), price_per_hour=price_per_hour),),
    }
    made |= tables
    snapshot = Snapshot(time_s=time_s, interval_s=interval_s, dataflow=dataflow, cost=cost, seed=seed, **made)
    return snapshot if not node_of else _placed(snapshot, node_of)


def _alternates(dataflow: Dataflow) -> Alternates:
    rows = [(i, j) for i, o in enumerate(dataflow.operators) for j in range(len(o.alternates))]
    return Alternates.blank(len(rows), operator=[i for i, _ in rows], index=[j for _, j in rows])


def _sinks(dataflow: Dataflow, records: float, latency_s: float | None, accuracy: float) -> Sinks:
    sinks = dataflow.sinks
    late = [] if latency_s is None else [latency_s]
    return Sinks.blank(
        len(sinks),
        operator=[dataflow.row[o.id] for o in sinks],
        priority=[o.priority for o in sinks],
        min_accuracy=[o.min_accuracy for o in sinks],
        records=records,
        accuracy=accuracy,
        latency_s=Moments.known(np.full(len(sinks), records * len(late)), latency_s or 0.0, 0.0),
        sketch=(Sketch.of(late, [records] * len(late)),) * len(sinks),
        known=True,
    )


def _placed(snapshot: Snapshot, node_of: Mapping[str, str]) -> Snapshot:
    node = snapshot.tasks.node.copy()
    for row in range(len(node)):
        wanted = node_of.get(snapshot.task_id(row))
        if wanted is not None:
            node[row] = snapshot.nodes.row[wanted]
    return replace(snapshot, tasks=snapshot.tasks.with_columns(node=node))
