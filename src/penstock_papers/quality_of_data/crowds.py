"""Snapshots of many applications on many nodes: what the shedding controller's time is measured on.

Each application has two sources, a union, three operators and two sinks of different priority, 4 to 6 tasks per
operator; nodes of about 40 tasks. `busy`: half the nodes are overloaded. `crowded`: on a tenth of the nodes not even
the minima fit, so tasks move. `rising`: as busy, to be decided with every sink at half before.
"""

from __future__ import annotations

import time
from typing import Literal

import numpy as np

from penstock import telemetry
from penstock.dataflow import Dataflow, Operator, OperatorId, Stream
from penstock.dataflow.graph import Kind
from penstock.policies.shedding import Shedding, SheddingMemory, SheddingOptions

SHAPE = ((0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 6), (5, 7))
"""Streams of one application: two sources, a union, then two branches that end in sinks 6 and 7."""
KINDS: tuple[Kind, ...] = ("source", "source", "union", "map", "map", "map", "sink", "sink")
RATE = 1000.0
INTERVAL_S = 5.0


Case = Literal["busy", "crowded", "rising"]
CASES: tuple[Case, ...] = ("busy", "crowded", "rising")


def a_crowd(tasks: int, case: Case, seed: int = 1) -> telemetry.Snapshot:
    """About so many tasks in one of the cases."""
    random = np.random.default_rng(seed)
    applications = max(tasks // (5 * len(KINDS)), 1)
    operators: list[Operator] = []
    streams: list[Stream] = []
    sinks: list[int] = []
    for a in range(applications):
        ids = [OperatorId(f"app{a}.{i}") for i in range(len(KINDS))]
        for id_, kind in zip(ids, KINDS, strict=True):
            sinks += [len(operators)] if kind == "sink" else []
            operators.append(Operator(id=id_, kind=kind))
        streams += [Stream(source=ids[s], target=ids[t]) for s, t in SHAPE]
    flow = Dataflow(name="benchmark", operators=tuple(operators), streams=tuple(streams))
    size = random.integers(4, 7, len(operators))
    operator = np.repeat(np.arange(len(operators)), size)
    rows = len(operator)
    nodes = max(rows // 40, 2)
    node = random.integers(0, nodes, rows)
    cpu = random.uniform(0.05, 0.3, rows)
    loaded = np.bincount(node, cpu, nodes)
    stress = np.full(nodes, 0.7)
    stress[: nodes // 2] = 1.6
    if case == "crowded":
        stress[: nodes // 10] = 4.0
    per_task = RATE * INTERVAL_S / size[operator]
    sources = np.flatnonzero([o.kind == "source" for o in operators])
    return telemetry.Snapshot(
        time_s=0.0,
        interval_s=INTERVAL_S,
        dataflow=flow,
        nodes=telemetry.Nodes.blank(
            nodes,
            ids=tuple(f"n{i}" for i in range(nodes)),
            hosts=tuple(f"n{i}" for i in range(nodes)),
            machines=("m",) * nodes,
            cores=loaded / stress,
            speed=1.0,
            ready=True,
            known=True,
        ),
        operators=telemetry.Operators.blank(len(operators), parallelism=size),
        alternates=telemetry.Alternates.blank(0),
        tasks=telemetry.Tasks.blank(
            rows,
            operator=operator,
            index=np.arange(rows) - np.repeat(np.cumsum(size) - size, size),
            node=node,
            arrived=per_task,
            processed=per_task,
            emitted=per_task,
            cpu=cpu,
            known=True,
        ),
        streams=telemetry.Streams.blank(len(streams), records=RATE * INTERVAL_S, keep=1.0, known=True),
        sources=telemetry.Sources.blank(
            len(sources),
            operator=sources,
            produced_rps=RATE,
            read_rps=RATE,
            keep=1.0,
            backlog_known=True,
            known=True,
        ),
        sinks=telemetry.Sinks.blank(
            len(sinks),
            operator=sinks,
            priority=random.integers(0, 5, len(sinks)),
            min_accuracy=random.uniform(0.1, 0.4, len(sinks)),
            known=True,
        ),
        constraints=telemetry.Constraints.blank(0),
    )


def cycle_times_ms(tasks: int, case: Case, repeat: int) -> tuple[list[float], list[str]]:
    """CPU time of each of `repeat` whole cycles, and the kinds of the actions that one decided."""
    policy, options, snapshot = Shedding(), SheddingOptions(), a_crowd(tasks, case)
    before = policy.start(options)
    policy.decide(a_crowd(200, "busy"), before, options)  # compiles, or loads what was compiled
    if case == "rising":
        halved = {snapshot.dataflow.operators[o].id: 0.5 for o in snapshot.sinks.operator}
        before = SheddingMemory(accuracy=halved)
    took: list[float] = []
    kinds: list[str] = []
    for _ in range(repeat):
        begin = time.process_time()  # CPU time: neighbours on a shared machine do not count
        proposal, _ = policy.decide(snapshot, before, options)
        took.append(1e3 * (time.process_time() - begin))
        kinds = [action.kind for action in proposal.actions]
    return took, kinds
