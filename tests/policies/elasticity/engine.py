"""A micro-batch engine in a few lines, as a world for the node policy: `o + s·n/p` seconds per batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.dataflow import Dataflow, Load
from penstock.policies.actions import Scale
from penstock.policies.elasticity import Elasticity, NodeOptions
from penstock.policies.policy import Proposal
from penstock.telemetry import (
    Alternates,
    Batches,
    Constraints,
    MachineClass,
    Nodes,
    Operators,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)


@dataclass
class BatchEngine:
    """Batches follow one another; a batch reads all that is due when it begins."""

    flow: Dataflow
    load: Load
    overhead_s: float
    record_s: float
    nodes: int = 1
    cores_per_node: float = 1.0
    limit: int = 8
    startup_s: float = 5.0
    cold_s: float = 0.0
    """How much longer the first batch takes after nodes came."""
    measures_work: bool = True
    overstated: float = 1.0
    """How many times too high the work per record is measured, as with tasks that mostly wait."""
    time_s: float = 0.0
    read: float = 0.0
    began_s: float = 0.0
    warm: int = 0
    coming: list[tuple[float, int]] = field(default_factory=list)
    late: list[tuple[float, float]] = field(default_factory=list)
    """(time, mean latency) of every batch."""

    def interval(self, seconds: float) -> Snapshot:
        """Run for a while and measure."""
        end, batches = self.time_s + seconds, []
        while True:
            for due, count in [c for c in self.coming if c[0] <= self.began_s]:
                self.nodes = count
                self.coming.remove((due, count))
            records = self.load.records_until(self.began_s) - self.read
            duration = self.overhead_s + self.record_s * records / (self.nodes * self.cores_per_node)
            duration += self.cold_s * (self.nodes > self.warm)
            if self.began_s + duration > end:
                break
            if records > 0:
                rate = float(self.load.rate_at(self.began_s)) or 1.0
                self.late.append((self.began_s + duration, duration + records / rate / 2))
            batches.append((records, duration))
            self.warm = self.nodes
            self.read += records
            self.began_s += max(duration, 0.05)
        self.time_s = end
        return self.snapshot(seconds, batches)

    def snapshot(self, seconds: float, batches: list[tuple[float, float]]) -> Snapshot:
        """What the policy would be shown."""
        count = max([self.nodes, *(n for _, n in self.coming)])
        produced = self.load.records_until(self.time_s) - self.load.records_until(self.time_s - seconds)
        records, durations = np.array(batches).reshape(-1, 2).T
        recent = [late for at, late in self.late if at > self.time_s - seconds]
        flow, bound = self.flow, self.flow.constraints[0].bound_ms / 1e3
        return Snapshot(
            time_s=self.time_s,
            interval_s=seconds,
            dataflow=flow,
            nodes=Nodes.blank(
                count,
                ids=tuple(map(str, range(count))),
                cores=self.cores_per_node,
                ready=np.arange(count) < self.nodes,
                known=True,
            ),
            operators=Operators.blank(len(flow.operators), parallelism=1),
            alternates=Alternates.blank(0),
            tasks=Tasks.blank(0),
            streams=Streams.blank(len(flow.streams)),
            sources=Sources.blank(
                1,
                produced_rps=produced / seconds,
                keep=1.0,
                backlog_records=self.load.records_until(self.time_s) - self.read,
                known=True,
            ),
            sinks=Sinks.blank(1),
            constraints=Constraints.blank(
                1, bound_s=bound, latency_s=float(np.mean(recent)) if recent else 0.0, known=bool(recent)
            ),
            classes=(MachineClass(name="executor", available=self.limit),),
            batches=Batches(
                id=np.arange(len(batches)),
                records=records,
                duration_s=durations,
                fixed_s=np.full(len(batches), self.overhead_s / 2),
                busy_s=records * (self.overstated * self.record_s if self.measures_work else np.nan),
                interval_s=0.0,
            ),
        )

    def apply(self, proposal: Proposal) -> None:
        """Grow after the start-up time, shrink at once."""
        for action in proposal.actions:
            assert isinstance(action, Scale)
            grows = action.target > action.current
            self.coming = [(self.time_s + (self.startup_s if grows else 0.0), action.target)]


def steer(
    engine: BatchEngine, seconds: float, options: NodeOptions | None = None, interval_s: float = 5.0
) -> list[tuple[Snapshot, Proposal]]:
    """The policy on the engine, cycle by cycle."""
    policy, options = Elasticity(), options or NodeOptions()
    memory, cycles = policy.start(options), []
    while engine.time_s < seconds - 1e-9:
        snapshot = engine.interval(interval_s)
        proposal, memory = policy.decide(snapshot, memory, options)
        engine.apply(proposal)
        cycles.append((snapshot, proposal))
    return cycles
