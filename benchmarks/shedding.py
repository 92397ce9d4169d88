"""How long one cycle of the shedding controller takes, by number of tasks.

    python benchmarks/shedding.py [--tasks 500 2000 10000 100000] [--repeat 15]

Random applications (a source, a union, three operators, two sinks of different priority; 4 to 6 tasks per operator) on
nodes of 8 cores with about 40 tasks each. `busy`: half the nodes are overloaded. `crowded`: on a tenth of the nodes
not even the minima fit, so tasks move. `rising`: every sink was at half before, so what fits is worked out twice, with
and without margin. Timed is a whole `decide`, from the snapshot to actions with reasons.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from penstock.dataflow import Dataflow, Operator, OperatorId, Stream
from penstock.policies.shedding import Shedding, SheddingMemory, SheddingOptions
from penstock.telemetry import (
    Alternates,
    Constraints,
    Nodes,
    Operators,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)

SHAPE = ((0, 2), (1, 2), (2, 3), (3, 4), (3, 5), (4, 6), (5, 7))
"""Streams of one application: two sources, a union, then two branches that end in sinks 6 and 7."""
KINDS = ("source", "source", "union", "map", "map", "map", "sink", "sink")
RATE = 1000.0
INTERVAL_S = 5.0


def a_snapshot(tasks: int, case: str, seed: int = 1) -> Snapshot:
    random = np.random.default_rng(seed)
    applications = max(tasks // (5 * len(KINDS)), 1)
    operators, streams, sinks = [], [], []
    for a in range(applications):
        ids = [OperatorId(f"app{a}.{i}") for i in range(len(KINDS))]
        for id_, kind in zip(ids, KINDS, strict=True):
            sinks += [len(operators)] if kind == "sink" else []
            operators.append(Operator(id=id_, kind=kind))  # type: ignore[arg-type]
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
    return Snapshot(
        time_s=0.0,
        interval_s=INTERVAL_S,
        dataflow=flow,
        nodes=Nodes.blank(
            nodes,
            ids=tuple(f"n{i}" for i in range(nodes)),
            hosts=tuple(f"n{i}" for i in range(nodes)),
            machines=("m",) * nodes,
            cores=loaded / stress,
            speed=1.0,
            ready=True,
            known=True,
        ),
        operators=Operators.blank(len(operators), parallelism=size),
        alternates=Alternates.blank(0),
        tasks=Tasks.blank(
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
        streams=Streams.blank(len(streams), records=RATE * INTERVAL_S, keep=1.0, known=True),
        sources=Sources.blank(
            len(sources), operator=sources, produced_rps=RATE, read_rps=RATE, keep=1.0, known=True
        ),
        sinks=Sinks.blank(
            len(sinks),
            operator=sinks,
            priority=random.integers(0, 5, len(sinks)),
            min_accuracy=random.uniform(0.1, 0.4, len(sinks)),
            known=True,
        ),
        constraints=Constraints.blank(0),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one cycle of the shedding controller.")
    parser.add_argument("--tasks", type=int, nargs="+", default=[500, 2_000, 10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=15)
    given = parser.parse_args()
    policy, options = Shedding(), SheddingOptions()
    start = policy.start(options)
    policy.decide(a_snapshot(200, "busy"), start, options)  # compiles, or loads what was compiled
    print(f"{'case':8} {'tasks':>8} {'nodes':>6} {'sinks':>6} {'median ms':>10} {'best ms':>8} "
          f"{'µs/task':>8} {'shed':>6} {'moves':>6}")  # fmt: skip
    for case in ("busy", "crowded", "rising"):
        for tasks in given.tasks:
            snapshot = a_snapshot(tasks, case)
            before = start
            if case == "rising":
                halved = {snapshot.dataflow.operators[o].id: 0.5 for o in snapshot.sinks.operator}
                before = SheddingMemory(accuracy=halved)
            took = []
            for _ in range(given.repeat):
                begin = time.process_time()  # CPU time: neighbours on a shared machine do not count
                proposal, _ = policy.decide(snapshot, before, options)
                took.append(1e3 * (time.process_time() - begin))
            kinds = [a.kind for a in proposal.actions]
            print(
                f"{case:8} {len(snapshot.tasks):8d} {len(snapshot.nodes):6d} {len(snapshot.sinks):6d} "
                f"{statistics.median(took):10.2f} {min(took):8.2f} "
                f"{1e3 * statistics.median(took) / len(snapshot.tasks):8.2f} "
                f"{kinds.count('shed'):6d} {kinds.count('move'):6d}"
            )


if __name__ == "__main__":
    main()
