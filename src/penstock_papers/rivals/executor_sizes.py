"""How many executors the rivals want, where the engine works in micro-batches and operators have no size of their own.

What is read of the engine is the same for both: core-seconds of the batches that ended within a window, as Flink's
autoscaler and Kubernetes' read means over one.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorMemory:
    """Readings of the window, and the sizes wanted within the time to shrink; oldest first."""

    readings: tuple[Reading, ...] = ()
    wanted: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Sums over the readings of a window."""

    seconds: float
    record_core_s: float
    task_core_s: float
    records: float
    produced: float

    @property
    def busy_cores(self) -> float:
        """Cores that batches kept busy, on average."""
        return (self.record_core_s + self.task_core_s) / self.seconds


def read(snapshot: Snapshot, memory: ExecutorMemory, window_s: float) -> tuple[Window, ExecutorMemory]:
    """The window with this snapshot in it, and the memory of it."""
    batches = snapshot.batches
    assert batches is not None, "only where the engine works in micro-batches"
    now = Reading(
        time_s=snapshot.time_s,
        interval_s=snapshot.interval_s,
        record_core_s=float(np.nansum(batches.busy_s)),
        task_core_s=float(np.nansum(batches.task_core_s)),
        records=float(batches.records.sum()),
        produced=float(np.nansum(snapshot.sources.produced_rps)) * snapshot.interval_s,
    )
    readings = (*(r for r in memory.readings if r.time_s > snapshot.time_s - window_s), now)
    window = Window(
        seconds=sum(r.interval_s for r in readings),
        record_core_s=sum(r.record_core_s for r in readings),
        task_core_s=sum(r.task_core_s for r in readings),
        records=sum(r.records for r in readings),
        produced=sum(r.produced for r in readings),
    )
    return window, ExecutorMemory(readings=readings, wanted=memory.wanted)


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
    memory = ExecutorMemory(readings=memory.readings, wanted=history)
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
