"""What others do, for comparison: a fixed size, a CPU threshold, and DS2.

They size operators where operators have a size, and executors where the engine works in micro-batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.arrays import Ints
from penstock.policies.actions import Expectation, Scale
from penstock.policies.elasticity.demand import Learnt, demand_of
from penstock.policies.elasticity.sizing import Limits
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock_papers.rivals.executor_sizes import ExecutorMemory, cores_each, executors_now, read, sized


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """No memory, or no options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedOptions:
    """A fixed size."""

    tasks: int = 1
    """Tasks of every elastic operator, at least 1."""


class Fixed:
    """The same number of tasks, whatever happens."""

    name = "fixed"
    options_type = FixedOptions

    def start(self, options: FixedOptions) -> Nothing:
        """Nothing to remember."""
        return Nothing()

    def decide(self, snapshot: Snapshot, memory: Nothing, options: FixedOptions) -> tuple[Proposal, Nothing]:
        """The fixed size, wherever it is not there yet."""
        wanted = np.full(len(snapshot.operators), options.tasks)
        return _scaled(self.name, snapshot, wanted, "fixed-size"), memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdOptions:
    """A CPU threshold, as Kubernetes' horizontal autoscaler has it."""

    target: float = 0.7
    """Busy share (0..1) of a task to steer for."""
    band: float = 0.1
    """Relative distance (0..1) from the target within which nothing is done."""
    shrink_after_s: float = 30.0
    """The largest size asked for within this time is kept."""
    window_s: float = 60.0
    """Of executors: the share is a mean over this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeMemory:
    """Sizes wanted lately, with the time, oldest first; of tasks or of executors."""

    wanted: tuple[tuple[float, tuple[int, ...]], ...] = ()
    executors: ExecutorMemory = field(default_factory=ExecutorMemory)


class Threshold:
    """Tasks in proportion to how busy they are: p·ρ/target, outside a band. Knows no latency and no queue."""

    name = "threshold"
    options_type = ThresholdOptions

    def start(self, options: ThresholdOptions) -> SizeMemory:
        """Nothing wanted yet."""
        return SizeMemory()

    def decide(
        self, snapshot: Snapshot, memory: SizeMemory, options: ThresholdOptions
    ) -> tuple[Proposal, SizeMemory]:
        """The proportional size; the largest of late where it would shrink."""
        if snapshot.batches is not None:
            proposal, executors = self._executors(snapshot, memory.executors, options)
            return proposal, replace(memory, executors=executors)
        busy = snapshot.by_operator.utilisation
        ratio = np.where(np.isfinite(busy), busy / options.target, 1.0)
        current = snapshot.operators.parallelism
        wanted = np.where(np.abs(ratio - 1) > options.band, np.ceil(current * ratio - 1e-9), current).astype(
            np.int64
        )
        wanted, memory = _lately(snapshot, wanted, memory, options.shrink_after_s)
        return _scaled(self.name, snapshot, wanted, "cpu-threshold"), memory

    def _executors(
        self, snapshot: Snapshot, memory: ExecutorMemory, options: ThresholdOptions
    ) -> tuple[Proposal, ExecutorMemory]:
        window, memory = read(snapshot, memory, options.window_s)
        now = executors_now(snapshot)
        # What all use together over what one should: while some are starting, they share what the others do.
        ratio = window.used_cores / (options.target * cores_each(snapshot) * max(1, now))
        wanted = math.ceil(now * ratio - 1e-9) if abs(ratio - 1) > options.band else now
        return sized(
            self.name,
            snapshot,
            memory,
            wanted,
            shrink_after_s=options.shrink_after_s,
            code="cpu-threshold",
            utilisation=ratio * options.target,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ds2Options:
    """DS2 (Kalavri et al. 2018), with the settings that Flink's autoscaler adds."""

    utilisation: float = 0.7
    """Share (0..1) of the true processing rate to use."""
    catch_up_s: float = 30.0
    """Seconds within which a backlog should be gone."""
    shrink_after_s: float = 30.0
    """The largest size asked for within this time is kept."""
    window_s: float = 60.0
    """Of executors: rates are means over this time."""
    band: float = 0.0
    """Of executors: nothing is done while the utilisation is within this distance (0..1) of the one to use."""


FLINK = Ds2Options(catch_up_s=1800.0, shrink_after_s=3600.0, window_s=900.0, band=0.3)
"""As Flink's autoscaler comes: a window of 15 minutes, an hour until it shrinks, a band of 0.4 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ds2Memory:
    """Faded measurements, and sizes wanted lately."""

    learnt: Learnt | None = None
    sizes: SizeMemory = SizeMemory()


class Ds2:
    """Demand of the sources followed downstream, over the true rate of a task (records per busy second)."""

    name = "ds2"
    options_type = Ds2Options

    def start(self, options: Ds2Options) -> Ds2Memory:
        """Nothing measured yet."""
        return Ds2Memory()

    def decide(
        self, snapshot: Snapshot, memory: Ds2Memory, options: Ds2Options
    ) -> tuple[Proposal, Ds2Memory]:
        """All operators at once, from the sources down."""
        if snapshot.batches is not None:
            proposal, executors = self._executors(snapshot, memory.sizes.executors, options)
            return proposal, replace(memory, sizes=SizeMemory(executors=executors))
        flow = snapshot.dataflow
        learnt = memory.learnt
        if learnt is None or len(learnt.processed) != len(flow.operators):
            learnt = Learnt.start(len(flow.operators), len(flow.streams))
        learnt = learnt.learn(snapshot)
        produced = np.where(snapshot.sources.known, snapshot.sources.produced_rps, 0.0)
        demand = demand_of(snapshot, learnt, produced)
        queued = np.nan_to_num(snapshot.by_operator.queued)
        needed = demand.waits.b / options.utilisation + queued * demand.service_s / options.catch_up_s
        measured = learnt.service_s.count > 0
        wanted = np.where(measured, np.ceil(needed - 1e-9), snapshot.operators.parallelism).astype(np.int64)
        wanted, sizes = _lately(snapshot, wanted, memory.sizes, options.shrink_after_s)
        proposal = _scaled(self.name, snapshot, wanted, "true-processing-rate")
        return proposal, Ds2Memory(learnt=learnt, sizes=sizes)

    def _executors(
        self, snapshot: Snapshot, memory: ExecutorMemory, options: Ds2Options
    ) -> tuple[Proposal, ExecutorMemory]:
        window, memory = read(snapshot, memory, options.window_s)
        now, cores = executors_now(snapshot), cores_each(snapshot)
        busy = (window.produced * window.cost_s + window.task_core_s) / window.seconds
        backlog = float(np.nansum(snapshot.sources.backlog_records))
        at_size = busy / (cores * max(1, now))
        needed = (busy / options.utilisation + backlog * window.cost_s / options.catch_up_s) / cores
        steady = not window.cost_s or abs(at_size - options.utilisation) <= options.band
        wanted = now if steady else math.ceil(needed - 1e-9)
        return sized(
            self.name,
            snapshot,
            memory,
            wanted,
            shrink_after_s=options.shrink_after_s,
            code="true-processing-rate",
            utilisation=at_size,
        )


def _lately(snapshot: Snapshot, wanted: Ints, memory: SizeMemory, within_s: float) -> tuple[Ints, SizeMemory]:
    """The largest size wanted within the time, and the memory with this one."""
    recent = tuple(w for w in memory.wanted if w[0] > snapshot.time_s - within_s and len(w[1]) == len(wanted))
    history = (*recent, (snapshot.time_s, tuple(wanted.tolist())))
    return np.max([w for _, w in history], axis=0), SizeMemory(wanted=history)


def _scaled(policy: str, snapshot: Snapshot, wanted: Ints, code: str) -> Proposal:
    limits, current = Limits.of(snapshot), snapshot.operators.parallelism
    targets = np.clip(wanted, limits.low, limits.high)
    view = snapshot.by_operator
    actions = tuple(
        Scale(
            operator=snapshot.dataflow.operators[row].id,
            current=int(current[row]),
            target=int(targets[row]),
            reason=Reason(code=code, facts={"utilisation": float(np.nan_to_num(view.utilisation[row]))}),
            expects=Expectation(
                metric="parallelism",
                subject=snapshot.dataflow.operators[row].id,
                value=float(targets[row]),
                within_s=3 * snapshot.interval_s,
            ),
        )
        for row in np.flatnonzero(targets != current).tolist()
    )
    return Proposal(policy=policy, actions=actions)
