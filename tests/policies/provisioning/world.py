"""A world of micro-batches on fixed cores: a batch of n records takes o + s·n/p, and what waits, waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.control import Desired
from penstock.dataflow import Alternate, Dataflow
from penstock.telemetry import Batches, Moments, Snapshot
from penstock.testing import a_dataflow, a_snapshot

WAYS = (Alternate(name="good", cost_s=0.004), Alternate(name="fast", value=0.6, cost_s=0.001))


@dataclass(slots=True)
class World:
    """Shows snapshots for a load over time; the active alternate is what was last applied."""

    load: Callable[[float], float]
    flow: Dataflow = field(default_factory=lambda: a_dataflow(alternates=WAYS, bound_ms=None))
    cores: float = 2.0
    overhead_s: float = 0.3
    slowdown: float = 1.0
    """Measured cost over the declared one."""
    efficiency: float = 0.85
    noise: float = 0.0
    interval_s: float = 5.0
    agreement: dict[str, float] = field(default_factory=dict)
    """What audits found of alternates."""
    keep: float = 1.0
    """What is kept of the source."""
    backlog: float = 0.0
    seen: dict[str, int] = field(default_factory=dict)
    history: list[tuple[float, str, float, float]] = field(default_factory=list)
    """(time, alternate, share of the interval's production that was carried, backlog)"""
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def __call__(self, time_s: float, desired: Desired) -> Snapshot:
        name = desired["alternate"].get("work", "good")
        index = self.flow.operator("work").alternate_index(name)
        cost = WAYS[index].cost_s * self.slowdown
        rate = self.load(time_s) * float(1 + self.noise * self.rng.normal())
        produced = self.keep * rate * self.interval_s
        able = max(0.0, self.interval_s - self.overhead_s) * self.cores * self.efficiency / cost
        done = min(produced + self.backlog, able)
        self.backlog += produced - done
        self.seen[name] = self.seen.get(name, 0) + int(done)
        self.history.append((time_s, name, done / produced if produced else 1.0, self.backlog))
        duration = self.overhead_s + done * cost / self.cores / self.efficiency
        snapshot = a_snapshot(
            self.flow,
            time_s=time_s,
            interval_s=self.interval_s,
            demand_rps=rate,
            nodes=1,
            cores=self.cores,
            alternate={"work": name},
            backlog_records=self.backlog,
            batches=Batches(
                id=np.array([int(time_s)]),
                records=np.array([done]),
                duration_s=np.array([duration]),
                fixed_s=np.array([self.overhead_s]),
                busy_s=np.array([done * cost]),
                interval_s=0.0,
            ),
        )
        counts = np.zeros(len(snapshot.alternates))
        means = np.zeros(len(snapshot.alternates))
        for way, count in self.seen.items():
            j = self.flow.operator("work").alternate_index(way)
            row = int(
                np.flatnonzero((snapshot.alternates.operator == 1) & (snapshot.alternates.index == j))[0]
            )
            counts[row], means[row] = count, WAYS[j].cost_s * self.slowdown
        rows = zip(snapshot.alternates.operator.tolist(), snapshot.alternates.index.tolist(), strict=True)
        names = [self.flow.operators[o].alternates[j].name if o == 1 else "" for o, j in rows]
        table = snapshot.alternates.with_columns(
            service_s=Moments(counts, means, np.zeros(len(means))),
            records_in=counts,
            records_out=counts,
            agreement=np.array([self.agreement.get(n, 0.0) for n in names]),
            known=np.array([n in self.agreement for n in names]),
        )
        sources = snapshot.sources.with_columns(keep=np.full(len(snapshot.sources), self.keep))
        return replace(snapshot, alternates=table, sources=sources)
