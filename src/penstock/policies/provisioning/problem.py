"""What is to be provisioned: a dataflow as arrays, what comes in, which machines can be had, and what it is worth.

The model is that of dynamic-dataflows.txt, sections 2 to 6. A core belongs to one operator; operators whose
alternate costs nothing need none and ride along with their neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import Dataflow, OperatorId
from penstock.errors import UserError
from penstock.telemetry import MachineClass

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

HEADROOM = 1.25
"""Where no break-even is declared: this much more than the best alternates cost at the full rate."""


class DemandError(UserError, ValueError):
    """A demand that no plan can meet; its text says which, by how much, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """A dataflow as arrays. Rows are those of the dataflow's operators; alternates are padded to the longest list."""

    operators: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    """Names of the alternates of each operator."""
    value: Floats
    """γ[operator, alternate], the best of an operator 1 (equation 1); -1 where there is no such alternate."""
    cost_s: Floats
    """c[operator, alternate]: seconds of a reference core per record."""
    selectivity: Floats
    record_bytes: Floats
    state_bytes: Floats
    """Expected state of one task."""
    feeds: Floats
    """[operator, operator]: 1 where records of the row reach the column."""
    order: Ints
    """Rows so that every stream points forward."""
    depth_first: Ints
    """Rows in forward depth-first order from the sources: neighbours are close."""
    inputs: Ints
    outputs: Ints

    @property
    def counts(self) -> Ints:
        """How many alternates each operator has."""
        return np.asarray((self.value >= 0).sum(axis=1), dtype=np.int64)

    @property
    def best(self) -> Ints:
        """The alternate of the highest value of each operator, the cheapest such."""
        return np.array(
            [np.lexsort((c, -v))[0] for c, v in zip(self.cost_s, self.value, strict=True)], dtype=np.int64
        )

    def of(self, alternates: Ints) -> tuple[Floats, Floats]:
        """Cost and selectivity of the given alternates, per operator."""
        rows = np.arange(len(self.operators))
        return self.cost_s[rows, alternates], self.selectivity[rows, alternates]

    def worth(self, alternates: Ints) -> float:
        """Γ: mean value of the active alternates (equation 3)."""
        return float(self.value[np.arange(len(self.operators)), alternates].mean())


def graph_of(dataflow: Dataflow, measured: Mapping[str, Sequence[Measured]] | None = None) -> Graph:
    """The arrays of a dataflow; what was measured of an alternate replaces what was declared."""
    flow, rows = dataflow, len(dataflow.operators)
    if not rows or not flow.sources:
        raise DemandError("the dataflow has no source: nothing comes in, so there is nothing to plan")
    most = max(len(o.alternates) for o in flow.operators)
    value, cost = np.full((rows, most), -1.0), np.zeros((rows, most))
    selectivity = np.ones((rows, most))
    for i, operator in enumerate(flow.operators):
        seen = (measured or {}).get(operator.id, ())
        for j, alternate in enumerate(operator.alternates):
            known = seen[j] if j < len(seen) else Measured()
            value[i, j] = alternate.value if known.value is None else known.value
            cost[i, j] = alternate.cost_s if known.cost_s is None else known.cost_s
            selectivity[i, j] = alternate.selectivity if known.selectivity is None else known.selectivity
        top = value[i].max()
        if not top > 0:
            raise DemandError(
                f"every alternate of operator '{operator.id}' is worth 0: no plan can be better than another; "
                "give the best one a value above 0"
            )
        value[i] = np.where(value[i] >= 0, value[i] / top, -1.0)
    feeds = np.zeros((rows, rows))
    for stream in flow.streams:
        feeds[flow.row[stream.source], flow.row[stream.target]] = 1.0
    leaves = [i for i in range(rows) if not feeds[i].any()]
    return Graph(
        operators=tuple(o.id for o in flow.operators),
        names=tuple(tuple(a.name for a in o.alternates) for o in flow.operators),
        value=value,
        cost_s=cost,
        selectivity=selectivity,
        record_bytes=np.array([o.record_bytes for o in flow.operators]),
        state_bytes=np.array([o.state.bytes_per_task if o.state else 0.0 for o in flow.operators]),
        feeds=feeds,
        order=np.array([flow.row[i] for i in flow.topological], dtype=np.int64),
        depth_first=_depth_first(feeds, [flow.row[s.id] for s in flow.sources]),
        inputs=np.array([flow.row[s.id] for s in flow.sources], dtype=np.int64),
        outputs=np.array(leaves, dtype=np.int64),
    )


def _depth_first(feeds: Floats, roots: Sequence[int]) -> Ints:
    order: list[int] = []
    waiting = list(reversed(roots))
    while waiting:
        row = waiting.pop()
        if row not in order:
            order.append(row)
            waiting.extend(int(j) for j in np.flatnonzero(feeds[row])[::-1])
    order += [i for i in range(len(feeds)) if i not in order]
    return np.array(order, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a running dataflow was seen to do; None where nothing was measured and the declaration counts."""

    value: float | None = None
    cost_s: float | None = None
    selectivity: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What cost breaks even, per hour, when every operator runs its best alternate and when each runs its worst."""

    full_per_hour: float
    least_per_hour: float

    def __post_init__(self) -> None:
        if not 0 < self.least_per_hour < self.full_per_hour < math.inf:
            raise DemandError(
                "the break-even cost must be positive and higher for the best alternates "
                f"({self.full_per_hour:g} an hour) than for the worst ({self.least_per_hour:g})"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Everything a decider needs to know before anything runs."""

    graph: Graph
    input_rps: Floats
    """Records per second from outside, per operator; 0 but for sources."""
    classes: tuple[MachineClass, ...]
    throughput: float = 0.8
    """Ω̂: share of the input that must get through."""
    tolerance: float = 0.05
    worth: Worth | None = None
    """None: as if the best alternates at the full rate and rated speed cost a little less than break-even."""
    budget_per_hour: float = math.inf
    period_s: float = 3600.0
    """T: how long it will run; a started unit of billing is paid in full."""
    seed: int = 0
    notes: tuple[str, ...] = field(default=())
    """What was assumed, in words."""

    @property
    def break_even(self) -> Worth:
        """The declared one, or the default."""
        if self.worth is not None:
            return self.worth
        cost, selectivity = self.graph.of(self.graph.best)
        power = float((cost * full_rates(self.graph, self.input_rps, selectivity)).sum())
        cheapest = min(c.price_per_hour / (c.cores * c.speed) for c in self.classes)
        full = HEADROOM * max(power * cheapest, min(c.price_per_hour for c in self.classes), 1e-9)
        return Worth(full_per_hour=full, least_per_hour=full / 2)

    @property
    def value_range(self) -> tuple[float, float]:
        """(Γmin, Γmax): of the worst and of the best alternates."""
        value = self.graph.value
        return float(np.where(value >= 0, value, np.inf).min(axis=1).mean()), float(value.max(axis=1).mean())

    @property
    def sigma(self) -> float:
        """σ: value per (money an hour), equation 9. Without a choice of value, the whole break-even is worth 1."""
        worth, (least, most) = self.break_even, self.value_range
        spread = most - least
        if spread <= 0:
            return 1.0 / worth.full_per_hour
        return spread / (worth.full_per_hour - worth.least_per_hour)

    @property
    def least_share(self) -> float:
        """Share of its full input that every operator must process: none is starved for a mean over outputs."""
        return max(0.0, self.throughput - self.tolerance)

    def profit(self, value: float, cost_per_hour: float) -> float:
        """Θ = Γ - (σ·(µ - C(Γmax)) + 1): equation 8, put right so that break-even is 0."""
        return value - (self.sigma * (cost_per_hour - self.break_even.full_per_hour) + 1.0)

    @property
    def hourly(self) -> Floats:
        """What a machine of each class costs per hour of the period, started units counted."""
        return np.array([c.bill(self.period_s) / (self.period_s / 3600.0) for c in self.classes])

    @property
    def core_speed(self) -> Floats:
        """Rated speed of a core of each class."""
        return np.array([c.speed for c in self.classes])

    @property
    def cores(self) -> Ints:
        """Cores of a machine of each class."""
        return np.array([c.cores for c in self.classes], dtype=np.int64)


def full_rates(graph: Graph, input_rps: Floats, selectivity: Floats) -> Floats:
    """Records per second that reach each operator when nothing is short of power."""
    arriving = input_rps.astype(np.float64)
    for i in graph.order:
        arriving = arriving + graph.feeds[i] * (arriving[i] * selectivity[i])
    return arriving


def demand_of(
    dataflow: Dataflow,
    rate_rps: float | Mapping[str, float],
    classes: Sequence[MachineClass],
    *,
    worth: Worth | None = None,
    throughput: float | None = None,
    period_s: float = 3600.0,
    seed: int = 0,
) -> Demand:
    """The demand of a dataflow at a rate: of every source, or of each by name. What cannot be planned is refused."""
    graph = graph_of(dataflow)
    rates = _rates(dataflow, rate_rps)
    usable = _large_enough(graph, classes)
    for c in usable:
        if c.cores < 1 or not (0 < c.speed < math.inf) or not (0 <= c.price_per_hour < math.inf):
            raise DemandError(
                f"machine class '{c.name}' needs cores, a positive speed and a price of 0 or more"
            )
    wanted = dataflow.goals.throughput if throughput is None else throughput
    if not 0 < wanted <= 1:
        raise DemandError(f"the throughput to keep lies in 0..1 and above 0, not {wanted:g}")
    if not period_s > 0:
        raise DemandError(f"the period must be longer than 0 s, not {period_s:g}")
    free = np.where(graph.value > 0, graph.cost_s, 0.0).max(axis=1) <= 0
    if free.all():
        raise DemandError(
            "no operator declares what a record costs, so any rate would fit on nothing; "
            "declare cost_s (seconds of a reference core per record) or let a run measure it"
        )
    budget = dataflow.goals.budget_per_hour
    return Demand(
        graph=graph,
        input_rps=rates,
        classes=usable,
        throughput=wanted,
        tolerance=dataflow.goals.throughput_tolerance,
        worth=worth,
        budget_per_hour=math.inf if budget is None else budget,
        period_s=period_s,
        seed=seed,
        notes=_notes(graph, free),
    )


def _large_enough(graph: Graph, classes: Sequence[MachineClass]) -> tuple[MachineClass, ...]:
    there = tuple(c for c in classes if c.available is None or c.available > 0)
    if not there:
        raise DemandError("there is no machine class to choose from")
    most = int(np.argmax(graph.state_bytes))
    usable = tuple(c for c in there if c.memory_bytes >= graph.state_bytes[most])
    if not usable:
        raise DemandError(
            f"no machine class is large enough: a task of '{graph.operators[most]}' keeps "
            f"{graph.state_bytes[most] / 1e9:.3g} GB of state, the largest class has "
            f"{max(c.memory_bytes for c in there) / 1e9:.3g} GB; more tasks keep less each, or add a larger class"
        )
    return usable


def _notes(graph: Graph, free: Bools) -> tuple[str, ...]:
    notes = []
    if free.any():
        names = ", ".join(graph.operators[i] for i in np.flatnonzero(free))
        notes.append(f"declared to cost nothing, planned without cores: {names}")
    for i, name in enumerate(graph.operators):
        for j in range(int(graph.counts[i])):
            if graph.value[i, j] == 0:
                notes.append(f"worth nothing, never chosen: {name}.{graph.names[i][j]}")
            elif graph.cost_s[i, j] == 0 and not free[i]:
                notes.append(f"declared to cost nothing: {name}.{graph.names[i][j]} (is that measured?)")
    return tuple(notes)


def _rates(dataflow: Dataflow, given: float | Mapping[str, float]) -> Floats:
    rates = np.zeros(len(dataflow.operators))
    by_name = given if isinstance(given, Mapping) else {s.id: given for s in dataflow.sources}
    for name, rate in by_name.items():
        row = dataflow.row.get(OperatorId(name))
        if row is None or dataflow.operators[row].kind != "source":
            known = ", ".join(s.id for s in dataflow.sources)
            raise DemandError(f"'{name}' is no source of the dataflow; it has {known}")
        if not 0 <= rate < math.inf:
            raise DemandError(f"the rate of '{name}' must be finite and not negative: {rate:g}")
        rates[row] = rate
    if not rates.any():
        raise DemandError("the rate is 0 at every source: nothing comes in, so nothing is needed")
    return rates
