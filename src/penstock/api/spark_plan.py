"""Executors for a load on Spark: cores, memory, number and class, as settings to paste, and what they bring.

An application has executors of one kind on machines of one class, and any core runs any task. A batch of n records on p
cores lasts `o + s·n/p`, as `penstock.policies.elasticity.microbatch` has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.dataflow import Dataflow
from penstock.policies.elasticity.microbatch import batch_length_s, latency_s
from penstock.policies.provisioning import Demand, DemandError
from penstock.policies.provisioning.choosing import choices, needs
from penstock.simulator.calibration.fit import Calibration
from penstock.telemetry import MachineClass

OVERHEAD_S = 0.5
"""What is fixed in a batch of a small query, where no run tells."""
UTILISATION = 0.8
"""Highest busy share of the cores that is planned for."""
MOST_CORES = 8
"""Cores of one executor; a larger machine has several."""
FOR_SYSTEM = 0.1
"""Share of a machine's memory that is left to its system."""
OVERHEAD_FACTOR, LEAST_OVERHEAD_MIB = 0.1, 384
"""Of an executor's memory, beside its heap: Spark's own defaults."""
MOST_MACHINES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One choice of alternates: what it is worth, and seconds of a reference core for each record that comes in."""

    alternates: Mapping[str, str]
    value: float
    record_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be carried."""

    ways: tuple[Way, ...]
    rate_rps: float
    overhead_s: float
    bound_ms: float | None = None
    """Mean latency that must hold."""
    state_bytes: float = 0.0
    """Of a task."""
    assumed: tuple[str, ...] = ()


def declared_workload(dataflow: Dataflow, demand: Demand) -> Workload:
    """From declared costs."""
    graph, rate = demand.graph, float(demand.input_rps.sum())
    chosen = choices(graph, graph.best)
    power, value = needs(graph, demand.input_rps, chosen)
    ways = tuple(
        Way(
            alternates={
                name: graph.names[i][row[i]] for i, name in enumerate(graph.operators) if graph.counts[i] > 1
            },
            value=float(v),
            record_s=float(p) / rate,
        )
        for row, v, p in zip(chosen, value, power.sum(axis=1), strict=True)
    )
    return Workload(
        ways=ways,
        rate_rps=rate,
        overhead_s=OVERHEAD_S,
        bound_ms=min((c.bound_ms for c in dataflow.constraints), default=None),
        state_bytes=float(graph.state_bytes.max()),
        assumed=(f"{OVERHEAD_S:g} s of every batch are fixed; a recorded run tells how much it is",),
    )


def recorded_workload(model: Calibration, rate_rps: float | None) -> Workload:
    """From what a run was measured to do; without a rate, for the highest it had."""
    peak = [load.peak_rps for load in model.loads]
    total = sum(peak)
    if not total > 0:
        raise DemandError("nothing came in during the run: there is nothing to plan for")
    core_s, overhead = 0.0, 0.0
    for query, rate in zip(model.engine.queries, peak, strict=True):
        passing, fixed = 1.0, query.plan_s + query.commit_s
        for stage in query.stages:
            core_s += rate * passing * stage.record_s
            fixed += query.stage_s + stage.task_s
            passing *= stage.selectivity
        overhead = max(overhead, fixed)
    state = max((s.state_bytes for q in model.engine.queries for s in q.stages), default=0.0)
    return Workload(
        ways=(Way(alternates={}, value=1.0, record_s=core_s / total),),
        rate_rps=total if rate_rps is None else rate_rps,
        overhead_s=overhead,
        bound_ms=min((c.bound_ms for c in model.dataflow.constraints), default=None),
        state_bytes=state,
        assumed=("a core of the run is the reference core: a class of speed 1 is as fast", *model.unknown),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Executors of one class that carry the load in one way."""

    machine: MachineClass
    machines: int
    way: Way
    cost_per_hour: float
    latency_ms: float
    most_rps: float
    """Records per second at which all cores are busy."""
    batch_s: float

    @property
    def executors_each(self) -> int:
        """Executors on a machine."""
        return math.ceil(self.machine.cores / MOST_CORES)

    @property
    def cores(self) -> int:
        """Cores of an executor."""
        return self.machine.cores // self.executors_each

    @property
    def memory_mib(self) -> tuple[int, int]:
        """(heap of an executor, what it has beside it)."""
        whole = (1 - FOR_SYSTEM) * self.machine.memory_bytes / self.executors_each / (1 << 20)
        beside = max(LEAST_OVERHEAD_MIB, math.ceil(whole * OVERHEAD_FACTOR / (1 + OVERHEAD_FACTOR)))
        return max(512, math.floor(whole - beside)), beside

    def settings(self) -> dict[str, dict[str, str]]:
        """By cluster manager, what `spark-submit --conf` takes."""
        heap, beside = self.memory_mib
        count = self.machines * self.executors_each
        common = {
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": f"{heap}m",
            "spark.dynamicAllocation.enabled": "false",
        }
        counted = {
            **common,
            "spark.executor.instances": str(count),
            "spark.executor.memoryOverhead": f"{beside}m",
        }
        selector = "spark.kubernetes.executor.node.selector.node.kubernetes.io/instance-type"
        return {
            "standalone": {**common, "spark.cores.max": str(count * self.cores)},
            "yarn": counted,
            "kubernetes": {**counted, selector: self.machine.name},
        }

    def document(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "class": self.machine.name,
            "machines": self.machines,
            "executors": self.machines * self.executors_each,
            "executor_cores": self.cores,
            "executor_memory_mib": self.memory_mib[0],
            "alternates": dict(self.way.alternates),
            "value": self.way.value,
            "cost_per_hour": self.cost_per_hour,
            "latency_ms": self.latency_ms,
            "batch_s": self.batch_s,
            "carries_rps": self.most_rps,
            "settings": self.settings(),
        }


def spark_plan(
    work: Workload, classes: Sequence[MachineClass], budget_per_hour: float | None
) -> dict[str, Any]:
    """The best sizing within the budget, the next cheaper and the next better one, as one document.

    Raises DemandError where nothing carries the load within budget and bound.
    """
    found = [s for c in classes for way in work.ways if (s := _sized(work, way, c)) is not None]
    if not found:
        raise DemandError(_nothing(work, classes))
    paid = [s for s in found if budget_per_hour is None or s.cost_per_hour <= budget_per_hour + 1e-9]
    if not paid:
        least = min(found, key=lambda s: s.cost_per_hour)
        raise DemandError(
            f"carrying {work.rate_rps:,.6g} records/s on Spark costs at least {least.cost_per_hour:.4g} an hour "
            f"({least.machines} × {least.machine.name}); the budget is {budget_per_hour:.4g}. Raise it, lower the "
            "rate, or declare cheaper alternates"
        )
    best = min(paid, key=lambda s: (-round(s.way.value, 9), s.cost_per_hour, s.latency_ms))
    cheaper = [s for s in found if s.cost_per_hour < best.cost_per_hour - 1e-9]
    better = [s for s in found if s.way.value > best.way.value + 1e-9] or [
        s for s in found if s.latency_ms < 0.9 * best.latency_ms and s.way.value >= best.way.value - 1e-9
    ]
    return {
        **best.document(),
        "rate_rps": work.rate_rps,
        "next_cheaper": _first(cheaper, lambda s: (-round(s.way.value, 9), s.cost_per_hour)),
        "next_better": _first(better, lambda s: (s.cost_per_hour, s.latency_ms)),
        "assumed": list(work.assumed),
    }


def _first(among: Sequence[Sizing], key: Any) -> dict[str, Any] | None:
    return min(among, key=key).document() if among else None


def _sized(work: Workload, way: Way, machine: MachineClass) -> Sizing | None:
    """As few machines as hold the bound at the planned utilisation; None where no number does."""
    each = machine.cores * machine.speed
    least = max(1, math.ceil(work.rate_rps * way.record_s / (UTILISATION * each) - 1e-9))
    most = min(MOST_MACHINES, MOST_MACHINES if machine.available is None else machine.available)
    if least > most or machine.memory_bytes < work.state_bytes:
        return None
    counts = np.unique(np.minimum(most, np.ceil(least * np.linspace(1.0, 4.0, 16)))).astype(np.int64)
    late = latency_s(work.overhead_s, way.record_s, work.rate_rps, (counts * each).astype(np.float64))
    holds = np.flatnonzero(late * 1e3 <= (math.inf if work.bound_ms is None else work.bound_ms))
    if not len(holds):
        return None
    count, late_s = int(counts[holds[0]]), float(late[holds[0]])
    cores = np.array([count * each])
    return Sizing(
        machine=machine,
        machines=count,
        way=way,
        cost_per_hour=count * machine.price_per_hour,
        latency_ms=1e3 * late_s,
        most_rps=count * each / way.record_s if way.record_s > 0 else math.inf,
        batch_s=float(batch_length_s(work.overhead_s, way.record_s, work.rate_rps, cores)[0]),
    )


def _nothing(work: Workload, classes: Sequence[MachineClass]) -> str:
    fastest = 1.5e3 * work.overhead_s
    if work.bound_ms is not None and work.bound_ms < fastest:
        return (
            f"a mean latency of {work.bound_ms:g} ms is out of reach on any number of executors: "
            f"{work.overhead_s:.3g} s of every batch are fixed, which makes {fastest:.4g} ms; allow more, "
            "or make batches cheaper to start"
        )
    return (
        f"none of the {len(classes)} machine classes carries {work.rate_rps:,.6g} records/s with the state and the "
        "numbers that there are; offer more or larger machines, lower the rate, or allow more latency"
    )
