"""How many executors the rivals want, where the engine works in micro-batches and operators have no size of their own.

What is read of the engine is the same for both: core-seconds of the batches that ended within a window, as Flink's
autoscaler and Kubernetes' read means over one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from penstock.policies.actions import Expectation, Scale
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One interval: what its batches cost, and what there was to do."""

    time_s: float
    interval_s: float
    record_core_s: float
    task_core_s: float
    records: float
    produced: float
    used_core_s: float
    """What a meter of CPU reads: all cores while a batch runs on, else what the batches that ended took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorMemory:
    """Readings of the window, and the sizes wanted within the time to shrink; oldest first."""

    readings: tuple[Reading, ...] = ()
    cost_s: float = 0.0
    """Core-seconds of a record, when last one was seen."""
    wanted: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Sums over the readings of a window."""

    seconds: float
    task_core_s: float
    produced: float
    cost_s: float
    """Core-seconds of a record."""
    used_cores: float
    """As a meter of CPU reads it."""


def read(snapshot: Snapshot, memory: ExecutorMemory, window_s: float) -> tuple[Window, ExecutorMemory]:
    """The window with this snapshot in it, and the memory of it."""
    batches, nodes = snapshot.batches, snapshot.nodes
    assert batches is not None, "only where the engine works in micro-batches"
    cores_s = float(nodes.cores[nodes.ready & ~nodes.draining].sum()) * snapshot.interval_s
    took_s = float(np.nansum(batches.busy_s) + np.nansum(batches.task_core_s))
    runs_on = bool((snapshot.queries.running_s >= snapshot.interval_s).any())
    now = Reading(
        time_s=snapshot.time_s,
        interval_s=snapshot.interval_s,
        record_core_s=float(np.nansum(batches.busy_s)),
        task_core_s=float(np.nansum(batches.task_core_s)),
        records=float(batches.records.sum()),
        produced=float(np.nansum(snapshot.sources.produced_rps)) * snapshot.interval_s,
        used_core_s=cores_s if runs_on else min(cores_s, took_s),
    )
    readings = (*(r for r in memory.readings if r.time_s > snapshot.time_s - window_s), now)
    records = sum(r.records for r in readings)
    cost_s = sum(r.record_core_s for r in readings) / records if records else memory.cost_s
    seconds = sum(r.interval_s for r in readings)
    window = Window(
        seconds=seconds,
        task_core_s=sum(r.task_core_s for r in readings),
        produced=sum(r.produced for r in readings),
        cost_s=cost_s,
        used_cores=sum(r.used_core_s for r in readings) / seconds,
    )
    return window, ExecutorMemory(readings=readings, cost_s=cost_s, wanted=memory.wanted)


def executors_now(snapshot: Snapshot) -> int:
    """Those that work or are starting."""
    return int((~snapshot.nodes.draining).sum())


def cores_each(snapshot: Snapshot) -> float:
    """Cores of an executor."""
    return float(np.median(snapshot.nodes.cores)) if len(snapshot.nodes) else 1.0


def sized(
    policy: str,
    snapshot: Snapshot,
    memory: ExecutorMemory,
    wanted: int,
    *,
    shrink_after_s: float,
    code: str,
    utilisation: float,
) -> tuple[Proposal, ExecutorMemory]:
    """The largest size wanted lately, as one action if it is another than there is now; the memory with it."""
    recent = tuple(w for w in memory.wanted if w[0] > snapshot.time_s - shrink_after_s)
    history = (*recent, (snapshot.time_s, wanted))
    memory = replace(memory, wanted=history)
    now = executors_now(snapshot)
    most = min((c.available for c in snapshot.classes if c.available is not None), default=None)
    target = max(1, max(n for _, n in history))
    target = target if most is None else min(target, most)
    starting = bool((~snapshot.nodes.ready & ~snapshot.nodes.draining).any())
    if target == now or (starting and target < now):
        return Proposal(policy=policy), memory
    action = Scale(
        operator=None,
        current=now,
        target=target,
        reason=Reason(code=code, facts={"utilisation": utilisation}),
        expects=Expectation(
            metric="nodes", subject="", value=float(target), within_s=6 * snapshot.interval_s
        ),
    )
    return Proposal(policy=policy, actions=(action,)), memory
