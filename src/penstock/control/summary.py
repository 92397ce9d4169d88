"""A run in figures. Each figure is defined here, once; the terminal, the JSON, the page and `explain` print these.

Only what a cycle and its brief say goes in, and the journal keeps both: a run that is added up while it runs and the
same run read from its journal have the same figures.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from penstock.control.brief import AlternateBrief, Brief, ConstraintBrief
from penstock.control.changes import Mode
from penstock.control.record import Cycle
from penstock.telemetry import Sketch, Snapshot

BEGUN = frozenset({"applied", "deferred"})
"""Outcomes with which the runtime takes an action on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintFigures:
    """How a latency goal fared. Latencies are of its statistic, one per interval in which it was measured."""

    name: str
    bound_ms: float
    """The last one, where it was changed."""
    statistic: str
    held: float | None
    """Share of the intervals in which it was measured; None: never measured."""
    unknown: float
    """Share of all intervals in which it was not measured: they count neither as held nor as missed."""
    mean_ms: float | None
    """Mean of the intervals."""
    p95_ms: float | None
    """95th percentile of the intervals."""
    worst_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFigures:
    """What a sink got."""

    name: str
    records: float
    accuracy: float | None
    """Share of the input that counted, weighted by how much came in."""
    lowest: float | None
    """In any interval."""
    min_accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Records that shedding dropped at one place for one reason."""

    where: str
    records: float
    share: float
    """Of all that came by there, in the whole run."""
    sink: str | None
    """The sink whose accuracy decided."""
    why: str | None
    """Code of the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """What the nodes of one machine class took."""

    machine: str
    billing_s: float | None
    """Billed by started units of this length; None: not known."""
    node_seconds: float
    cost: float
    """Its part of the run's cost, by time and price: started units are in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """All figures of a run."""

    cycles: int = 0
    seconds: float = 0.0
    """Sum of the intervals that were observed."""
    duration_s: float = 0.0
    """From the first cycle to the last."""
    constraints: tuple[ConstraintFigures, ...] = ()
    sinks: tuple[SinkFigures, ...] = ()
    latency_ms: Mapping[str, float | None] = field(default_factory=dict)
    """Of single records at all sinks, from their source time: mean, p50, p95, p99."""
    records_in: float = 0.0
    """Records that the sources read."""
    records_out: float = 0.0
    """Records that reached the sinks."""
    backlog_records: float | None = None
    """Records that waited at the sources at the end; None: not known."""
    node_seconds: float = 0.0
    """Nodes over time, starting and draining ones included."""
    task_seconds: float = 0.0
    core_seconds: float = 0.0
    busy_core_seconds: float = 0.0
    cost: float = 0.0
    bill: tuple[BillLine, ...] = ()
    """The cost by machine class."""
    value_given_up: float | None = None
    """1 less the mean value of the active alternates, as a share of the best; None: no operator has a choice."""
    dropped: tuple[Dropped, ...] = ()
    alternates: tuple[AlternateBrief, ...] = ()
    planned: Mapping[str, int] = field(default_factory=dict)
    """Kind of action to how many were in plans."""
    begun: Mapping[str, int] = field(default_factory=dict)
    """Of those, how many the runtime took on."""
    outcomes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Kind of action to status to how often it was told; a deferred action is told again when it is decided."""
    withheld: Mapping[str, int] = field(default_factory=dict)
    """Reason code to how often."""
    worked: int = 0
    did_not_work: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    skipped: int = 0
    dry_run: bool = False
    """Nothing was carried out, in no cycle."""
    modes: tuple[Mode, ...] = ()
    """In which it ran, in the order in which they came."""

    @property
    def throughput_rps(self) -> float | None:
        """Records per second at the sinks."""
        return self.records_out / self.seconds if self.seconds else None

    @property
    def utilisation(self) -> float | None:
        """Busy share of all cores there were."""
        return self.busy_core_seconds / self.core_seconds if self.core_seconds else None

    @property
    def shed(self) -> float:
        """Records dropped anywhere; one that two sinks lose on two streams counts twice."""
        return sum(d.records for d in self.dropped)

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Sink to the share of the input that counted."""
        return {sink.name: sink.accuracy for sink in self.sinks}

    def figures(self) -> dict[str, Any]:
        """One plain document: every field, and what is worked out from them."""
        worked_out = {
            "throughput": self.throughput_rps,
            "utilisation": self.utilisation,
            "shed": self.shed,
        }
        return {**asdict(self), "accuracy": self.accuracy, **worked_out}


@dataclass(slots=True)
class _Goal:
    last: ConstraintBrief
    intervals: int = 0
    held: int = 0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class _Sink:
    min_accuracy: float
    records: float = 0.0
    accuracy: float = 0.0
    weight: float = 0.0
    lowest: float | None = None


class Summary:
    """Adds a run up, cycle by cycle; subscribes to the loop."""

    def __init__(self) -> None:
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._goals: dict[str, _Goal] = {}
        self._sinks: dict[str, _Sink] = {}
        self._sketch, self._latency_s, self._measured = Sketch.empty(), 0.0, 0.0
        self._value = self._choices = 0.0
        self._paid: dict[tuple[str, float | None], tuple[float, float]] = {}
        """Class and billing unit to node-seconds, and to these times their price."""
        self._brief: Brief | None = None
        self._first_s: float | None = None
        self._last_s = 0.0
        self._cycles = self._worked = self._did_not_work = self._skipped = 0
        self._modes: dict[Mode, None] = {}
        self._planned: Counter[str] = Counter()
        self._begun: Counter[str] = Counter()
        self._outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._withheld: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._offered: defaultdict[str, float] = defaultdict(float)
        self._dropped: defaultdict[tuple[str, str | None, str | None], float] = defaultdict(float)
        self._why: dict[str, tuple[str | None, str]] = {}
        """Sink and reason of the last decision, by shedder."""

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None = None) -> None:
        """Add one cycle."""
        if cycle.brief is not None:
            self._add_brief(cycle.brief)
        self._first_s = cycle.time_s if self._first_s is None else self._first_s
        self._last_s = cycle.time_s
        self._cycles += 1
        self._skipped += cycle.skipped
        self._modes["recommend" if cycle.dry_run and cycle.mode == "act" else cycle.mode] = None
        self._worked += sum(e.verdict == "worked" for e in cycle.effects)
        self._did_not_work += sum(e.verdict == "did-not" for e in cycle.effects)
        self._withheld.update(w.reason.code for w in cycle.plan.withheld)
        self._faults.update(f.code for f in cycle.faults)
        for planned in cycle.plan.actions:
            action = planned.action
            self._planned[action.kind] += 1
            if action.setting == "keep":
                self._why[action.subject] = action.goal, action.reason.code
        for outcome in cycle.outcomes:
            self._outcomes[outcome.action.kind][outcome.status] += 1
        # The outcomes of the plan's own actions come first, in its order.
        for outcome in cycle.outcomes[: len(cycle.plan.actions)]:
            self._begun[outcome.action.kind] += outcome.status in BEGUN

    def _add_brief(self, brief: Brief) -> None:
        self._brief, dt, totals = brief, brief.interval_s, self._totals
        produced = (brief.produced_rps or 0.0) * dt
        totals["seconds"] += dt
        totals["node_seconds"] += brief.nodes_paid * dt
        totals["task_seconds"] += brief.tasks * dt
        totals["core_seconds"] += brief.cores_paid * dt
        totals["busy_core_seconds"] += brief.task_cpu * dt
        totals["records_in"] += sum(s.read_rps or 0.0 for s in brief.sources) * dt
        for paid in brief.classes:
            key = paid.machine, paid.billing_s
            seconds, money = self._paid.get(key, (0.0, 0.0))
            self._paid[key] = seconds + paid.nodes * dt, money + paid.per_hour * dt
        for constraint in brief.constraints:
            goal = self._goals.setdefault(constraint.name, _Goal(constraint))
            goal.last, goal.intervals = constraint, goal.intervals + 1
            goal.held += constraint.held is True
            if constraint.latency_s is not None:
                goal.latencies_s.append(constraint.latency_s)
        for told in brief.sinks:
            sink = self._sinks.setdefault(told.id, _Sink(told.min_accuracy))
            sink.records += told.records
            self._sketch = self._sketch.merge(Sketch.of_bins(told.latencies))
            self._latency_s += (told.mean_s or 0.0) * told.measured
            self._measured += told.measured
            if told.accuracy is not None:
                sink.accuracy += produced * told.accuracy
                sink.weight += produced
                sink.lowest = told.accuracy if sink.lowest is None else min(sink.lowest, told.accuracy)
        choices = {a.operator for a in brief.alternates}
        mine = [o.value for o in brief.operators if o.id in choices]
        self._value += sum(mine) * dt
        self._choices += len(mine) * dt
        for where, (dropped, offered) in brief.passed.items():
            self._offered[where] += offered
            if dropped > 0:
                self._dropped[(where, *self._why.get(where, (None, None)))] += dropped

    def result(self) -> RunSummary:
        """The figures so far."""
        brief = self._brief
        known = [] if brief is None else [s for s in brief.sources if s.read_rps is not None]
        return RunSummary(
            **self._totals,
            cycles=self._cycles,
            duration_s=self._last_s - (self._first_s or 0.0) if self._cycles else 0.0,
            constraints=tuple(map(_constraint, self._goals.values())),
            sinks=tuple(_sink(name, sink) for name, sink in self._sinks.items()),
            latency_ms=self._latency_ms(),
            records_out=sum(sink.records for sink in self._sinks.values()),
            backlog_records=sum(s.backlog_records for s in known) if known else None,
            cost=0.0 if brief is None else brief.cost,
            bill=self._bill(0.0 if brief is None else brief.cost),
            value_given_up=1 - self._value / self._choices if self._choices else None,
            dropped=self._drops(),
            alternates=() if brief is None else brief.alternates,
            planned=dict(self._planned),
            begun={kind: n for kind, n in self._begun.items() if n},
            outcomes={kind: dict(counts) for kind, counts in sorted(self._outcomes.items())},
            withheld=dict(self._withheld),
            worked=self._worked,
            did_not_work=self._did_not_work,
            faults=dict(self._faults),
            skipped=self._skipped,
            dry_run=bool(self._modes) and "act" not in self._modes,
            modes=tuple(self._modes),
        )

    def _bill(self, cost: float) -> tuple[BillLine, ...]:
        total = sum(money for _, money in self._paid.values())
        return tuple(
            BillLine(
                machine=machine,
                billing_s=billing_s,
                node_seconds=seconds,
                cost=cost * money / total if total else 0.0,
            )
            for (machine, billing_s), (seconds, money) in sorted(
                self._paid.items(), key=lambda item: item[0][0]
            )
        )

    def _latency_ms(self) -> dict[str, float | None]:
        mean_s = self._latency_s / self._measured if self._measured else None
        quantiles = {f"p{round(100 * q)}": self._sketch.quantile(q) for q in (0.5, 0.95, 0.99)}
        return {name: None if s is None else 1e3 * s for name, s in {"mean": mean_s, **quantiles}.items()}

    def _drops(self) -> tuple[Dropped, ...]:
        """The most first; less than half a record is rounding."""
        return tuple(
            Dropped(where=where, records=n, share=n / self._offered[where], sink=sink, why=why)
            for (where, sink, why), n in sorted(self._dropped.items(), key=lambda item: -item[1])
            if n >= 0.5
        )


def summary_of(cycles: Iterable[Cycle]) -> RunSummary:
    """The figures of a recorded run."""
    summary = Summary()
    for cycle in cycles:
        summary(cycle)
    return summary.result()


def _constraint(goal: _Goal) -> ConstraintFigures:
    latencies, known = np.array(goal.latencies_s), len(goal.latencies_s)
    return ConstraintFigures(
        name=goal.last.name,
        bound_ms=1e3 * goal.last.bound_s,
        statistic=goal.last.statistic,
        held=goal.held / known if known else None,
        unknown=1 - known / goal.intervals,
        mean_ms=1e3 * float(latencies.mean()) if known else None,
        p95_ms=1e3 * float(np.quantile(latencies, 0.95)) if known else None,
        worst_ms=1e3 * float(latencies.max()) if known else None,
    )


def _sink(name: str, sink: _Sink) -> SinkFigures:
    return SinkFigures(
        name=name,
        records=sink.records,
        accuracy=sink.accuracy / sink.weight if sink.weight else None,
        lowest=sink.lowest,
        min_accuracy=sink.min_accuracy,
    )
