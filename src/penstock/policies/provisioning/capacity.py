"""What a running dataflow can carry: measured costs, selectivities and values, and the cores there are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from penstock.policies.elasticity.microbatch import BatchCost
from penstock.policies.provisioning.problem import Bools, Floats, Graph, Measured, graph_of
from penstock.telemetry import Batches, Snapshot

FIRST_EFFICIENCY = 0.8
LEAST_EFFICIENCY = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """η: how much of the cores' time operators get while a batch works on its records.

    A batch with w core-seconds of work on p cores lasts `o + w/(η·p)`. What is fixed (starting tasks, state, commit)
    takes no capacity, because batches grow with the load: so it is told from the rest by a line through the batches.
    """

    line: BatchCost = field(default_factory=BatchCost)
    length_s: float = 0.0
    """Length of a batch, lately."""

    def learn(self, batches: Batches | None, cores: float) -> Efficiency:
        """With the given batches; those without a measurement teach nothing."""
        if batches is None or not cores > 0:
            return self
        line, length = self.line, self.length_s
        for seconds, fixed, busy in zip(batches.duration_s, batches.fixed_s, batches.busy_s, strict=True):
            if not (math.isfinite(seconds) and seconds > 0):
                continue
            length = 0.5 * length + 0.5 * float(seconds) if length else float(seconds)
            if math.isfinite(busy) and busy > 0:
                line = line.add(float(busy), float(seconds), float(fixed), busy / FIRST_EFFICIENCY, cores)
        return Efficiency(line=line, length_s=length)

    @property
    def share(self) -> float:
        """η, within limits; a careful guess where the batches tell nothing else."""
        slope = self.line.record_s if self.line.known else 1 / FIRST_EFFICIENCY
        return min(1.0, max(LEAST_EFFICIENCY, 1 / max(slope, 1e-9)))


def measured_graph(snapshot: Snapshot) -> Graph:
    """The dataflow with what was measured of each alternate in place of what was declared."""
    return graph_of(snapshot.dataflow, measured_alternates(snapshot))


def measured_alternates(snapshot: Snapshot) -> dict[str, tuple[Measured, ...]]:
    """Per operator, what is known of each alternate.

    An alternate that never ran costs what it declares, scaled as the ones that ran were off; where nothing is declared
    either, as much less than the best one as it is worth less.
    """
    flow, table = snapshot.dataflow, snapshot.alternates
    row = {(int(o), int(j)): r for r, (o, j) in enumerate(zip(table.operator, table.index, strict=True))}
    found: dict[str, tuple[Measured, ...]] = {}
    for i, operator in enumerate(flow.operators):
        costs: list[float | None] = []
        selectivities: list[float | None] = []
        values: list[float | None] = []
        for j in range(len(operator.alternates)):
            r = row.get((i, j))
            mean = None if r is None else _finite(table.service_s.mean[r])
            ran = r is not None and table.service_s.count[r] > 0 and mean is not None and mean >= 0
            costs.append(mean if ran else None)
            selectivities.append(_selectivity(snapshot, r) if operator.kind != "source" else None)
            agreed = None if r is None or not table.known[r] else _finite(table.agreement[r])
            values.append(agreed if agreed is not None and 0 <= agreed <= 1 else None)
        off = [
            c / a.cost_s
            for c, a in zip(costs, operator.alternates, strict=True)
            if c is not None and c > 0 and a.cost_s > 0
        ]
        scale = float(np.median(off)) if off else 1.0
        known = [c / max(a.value, 0.05) for c, a in zip(costs, operator.alternates, strict=True) if c]
        found[operator.id] = tuple(
            Measured(
                value=values[j],
                cost_s=costs[j]
                if costs[j] is not None
                else a.cost_s * scale
                if a.cost_s > 0
                else max(known, default=0.0) * a.value,
                selectivity=selectivities[j],
            )
            for j, a in enumerate(operator.alternates)
        )
    return found


def untried(snapshot: Snapshot) -> Bools:
    """[operator, alternate]: never ran, not even for a few records, and no cost is declared: nobody knows its cost."""
    flow, table = snapshot.dataflow, snapshot.alternates
    found = np.zeros((len(flow.operators), max(len(o.alternates) for o in flow.operators)), np.bool_)
    for i, operator in enumerate(flow.operators):
        found[i, : len(operator.alternates)] = [a.cost_s <= 0 for a in operator.alternates]
    ran = table.service_s.count > 0
    found[table.operator[ran], table.index[ran]] = False
    return found


def _selectivity(snapshot: Snapshot, row: int | None) -> float | None:
    if row is None:
        return None
    into, out = (_finite(c[row]) for c in (snapshot.alternates.records_in, snapshot.alternates.records_out))
    return out / into if into and out is not None and into > 0 and out >= 0 else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def produced_rps(snapshot: Snapshot) -> Floats | None:
    """Per operator, what its source brings in, what is shed there included; None while no source tells.

    Shedding is the dearer remedy: what it drops is still to be carried.
    """
    sources = snapshot.sources
    rates = np.zeros(len(snapshot.dataflow.operators))
    told = False
    for r, operator in enumerate(sources.operator):
        if not sources.known[r]:
            continue
        made, read = float(sources.produced_rps[r]), float(sources.read_rps[r])
        rate = made if math.isfinite(made) and made >= 0 else read
        if math.isfinite(rate) and rate >= 0:
            rates[operator] = rate
            told = True
    return rates if told else None


def backlog_records(snapshot: Snapshot) -> float:
    """Records that wait, at the sources and before operators; what is not known counts as none."""
    sources = snapshot.sources
    waiting = np.where(sources.known & np.isfinite(sources.backlog_records), sources.backlog_records, 0.0)
    queued = snapshot.by_operator.queued
    return float(waiting.sum()) + float(np.where(np.isfinite(queued), queued, 0.0).sum())


def node_power(snapshot: Snapshot) -> Floats:
    """Reference cores of each node, less what others use of it."""
    nodes = snapshot.nodes
    foreign = np.where(np.isfinite(nodes.foreign_cpu), nodes.foreign_cpu, 0.0)
    speed = np.where(np.isfinite(nodes.speed) & (nodes.speed > 0), nodes.speed, 1.0)
    # Others may come and go: they never take more than half of a node out of the plan.
    return np.asarray(np.clip(nodes.cores - foreign, nodes.cores / 2, nodes.cores) * speed)


def usable_cores(snapshot: Snapshot) -> float:
    """Reference cores of the nodes that are there to stay."""
    there = snapshot.nodes.ready & ~snapshot.nodes.draining
    return float(node_power(snapshot)[there].sum())
