"""Snapshots of a few nodes with many computations, for the tests of interference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from penstock.dataflow import Dataflow
from penstock.telemetry import Moments, Nodes, Snapshot, Tasks
from penstock.testing import a_dataflow, a_snapshot


def flow() -> Dataflow:
    return a_dataflow("in", "count", "out", stateful=True, parallelism=(1, 500), bound_ms=None)


def a_crowd(
    counts: tuple[int, ...] = (12, 4, 4),
    *,
    time_s: float = 0.0,
    interval_s: float = 5.0,
    rate_rps: float = 100.0,
    cost_s: float | np.ndarray = 0.002,
    cores: float = 4.0,
    state_bytes: float = 1e6,
    foreign: dict[int, float] | None = None,
    slow: dict[int, float] | None = None,
    known: bool = True,
    **nodes: Any,
) -> Snapshot:
    """`counts` computations on each node, all alike; `foreign` cores and slowness by node."""
    base = a_snapshot(
        flow(), time_s=time_s, interval_s=interval_s, parallelism={"in": 1, "count": 1, "out": 1}
    )
    node = np.concatenate([[0], np.repeat(np.arange(len(counts)), counts), [0]])
    count = len(node)
    inner = np.zeros(count, bool)
    inner[1:-1] = True
    arrived = np.where(inner, rate_rps * interval_s, rate_rps * interval_s * sum(counts))
    slowness = np.array([(slow or {}).get(n, 1.0) for n in range(len(counts))])
    cpu = np.where(inner, rate_rps * cost_s * slowness[node], 0.0)
    tasks = Tasks.blank(
        count,
        operator=np.where(inner, 1, np.where(np.arange(count) == 0, 0, 2)),
        index=np.concatenate([[0], np.arange(count - 2), [0]]),
        node=node,
        arrived=arrived,
        processed=arrived,
        emitted=arrived,
        bytes_in=np.where(inner, arrived * 100, 0.0),
        busy_s=cpu * interval_s,
        cpu=cpu,
        service_s=Moments.known(arrived, cost_s, 0.0),
        state_bytes=np.where(inner, state_bytes, 0.0),
        known=known,
    )
    own = np.bincount(node, cpu, len(counts))
    others = np.array([(foreign or {}).get(n, 0.0) for n in range(len(counts))])
    columns: dict[str, Any] = {
        "ids": tuple(f"n{n}" for n in range(len(counts))),
        "hosts": tuple(f"n{n}" for n in range(len(counts))),
        "machines": ("standard",) * len(counts),
        "cores": cores,
        "speed": 1.0,
        "own_cpu": own,
        "foreign_cpu": others,
        "load_average": own + others,
        "memory_bytes": 1e9,
        "bandwidth_bytes_per_s": 125e6,
        "ready": True,
        "known": True,
    }
    table = Nodes.blank(len(counts), **(columns | nodes))
    return replace(base, tasks=tasks, nodes=table)
