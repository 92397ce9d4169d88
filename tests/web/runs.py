"""A loop on a made-up application, for pages: two queries, executors, state partitions that move, a late stretch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from penstock.control import Desired, Loop, PolicyRun, Settings, SqliteJournal
from penstock.dataflow import Dataflow, OperatorId, together
from penstock.policies.actions import Action, Expectation, Move
from penstock.policies.reasons import Reason
from penstock.telemetry import Batches, Queries, Snapshot
from penstock.testing import FakeClock, RecordingRuntime, ScriptedPolicy, a_dataflow, a_snapshot
from penstock.testing.builders import TWO_WAYS

MARKUP = "<img src=x onerror=alert(1)>"
START_S = 1_700_000_000.0
REASON = Reason(code="foreign-load", facts={"gain": 0.6})


def application(partitions: int = 12) -> Dataflow:
    orders = a_dataflow(
        "in", "totals", "out", name="orders", stateful=True, bound_ms=2000.0, min_accuracy=0.5
    )
    clicks = a_dataflow("in", "rank", "out", name="clicks", alternates=TWO_WAYS, bound_ms=500.0)
    return together(orders, clicks)


def world(flow: Dataflow, partitions: int, time_s: float, desired: Desired, nodes: int = 3) -> Snapshot:
    phase = time_s - START_S
    late = 100 <= phase % 400 < 160
    snapshot = a_snapshot(
        flow,
        time_s=time_s,
        demand_rps=500 + 300 * float(np.sin(phase / 90)),
        latency_s=2.6 if late else 0.4,
        utilisation=(9.0 if late else 6.0) / (partitions + 10),
        parallelism={"orders.totals": partitions},
        nodes=nodes,
        keep={"clicks.in->clicks.rank": 0.8 if late else 1.0},
        accuracy=0.9 if late else 1.0,
        node_of={task: str(node) for task, node in desired["node"].items()},
        cost=phase / 3600,
    )
    batch = Batches(
        id=np.array([int(phase)]), records=np.array([500.0]), duration_s=np.array([1.2]), fixed_s=np.array([0.2]),
        busy_s=np.array([1.0]), interval_s=1.0,
    )  # fmt: skip
    queries = Queries.blank(
        2,
        names=("orders", "clicks"),
        first_operator=[0, 3],
        last_operator=[2, 5],
        last_batch=int(phase),
        last_end_s=time_s - 1.0,
        running_s=0.5,
        active=True,
        known=True,
    )
    nodes_now = replace(
        snapshot.nodes,
        foreign_cpu=np.where(np.arange(nodes) == 1, 1.5 if late else 0.1, 0.05),
        speed=np.where((np.arange(nodes) == 1) & late, 0.6, 1.0),
    )
    return replace(snapshot, nodes=nodes_now, batches=batch, queries=queries)


def decide(snapshot: Snapshot) -> list[Action]:
    if snapshot.constraints.held.all():
        return []
    row = int(np.flatnonzero(snapshot.tasks.operator == 1)[0])
    home = snapshot.nodes.ids[snapshot.tasks.node[row]]
    target = next(id_ for id_ in snapshot.nodes.ids if id_ != home)
    expects = Expectation(metric="latency_s", subject="orders.on-time", value=1.0, within_s=10)
    return [
        Move(
            operator=OperatorId("orders.totals"),
            index=0,
            source=home,
            target=target,
            reason=REASON,
            expects=expects,
        ),
    ]


def a_loop(*, journal: SqliteJournal | None = None, partitions: int = 12, interval_s: float = 5.0) -> Loop:
    clock = FakeClock(START_S)
    flow = application()
    runtime = RecordingRuntime(clock, lambda now_s, desired: world(flow, partitions, now_s, desired))
    return Loop(
        runtime,
        [PolicyRun(policy=ScriptedPolicy(decide, name="elasticity"))],
        clock=clock,
        journal=journal,
        settings=Settings(interval_s=interval_s),
    )


def a_journal(path: Path, *, cycles: int = 120, partitions: int = 12) -> SqliteJournal:
    journal = SqliteJournal(path)
    a_loop(journal=journal, partitions=partitions).run(for_s=5.0 * cycles)
    return journal
