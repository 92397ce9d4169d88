"""A whole run in a few numbers, gathered from its snapshots and outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.control.plan import Outcome
from penstock.dataflow import Dataflow
from penstock.telemetry import Sketch, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintSummary:
    """How well one constraint was kept."""

    name: str
    bound_ms: float
    held: float
    """Share of the intervals in which it was held."""
    mean_ms: float | None
    """Mean of the constrained statistic over the intervals."""
    p95_ms: float | None
    """95th percentile of it over the intervals."""
    worst_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSummary:
    """What one sink got."""

    name: str
    records: float
    accuracy: float
    """Share of the input that counted, by records over the whole run."""
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What `penstock simulate` prints."""

    seconds: float
    """Simulated time."""
    intervals: int
    constraints: tuple[ConstraintSummary, ...]
    sinks: tuple[SinkSummary, ...]
    throughput: float
    """Relative throughput Ω: mean over sinks of the records they got over those they could have got at most."""
    produced: float
    """Records that came into being at all sources."""
    processed: float
    """Records that all sinks took."""
    shed: float
    task_hours: float
    cpu_hours: float
    node_hours: float
    cost: float
    actions: dict[str, int] = field(default_factory=dict)
    """Actions by kind that were applied or are under way."""
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def accuracy(self) -> dict[str, float]:
        """Accuracy by sink."""
        return {s.name: s.accuracy for s in self.sinks}


class RunRecorder:
    """Gathers snapshots and outcomes as they come, in little space."""

    def __init__(self, dataflow: Dataflow) -> None:
        self._dataflow = dataflow
        self._latencies: list[list[float]] = [[] for _ in dataflow.constraints]
        self._held = np.zeros(len(dataflow.constraints))
        self._sketches = [Sketch.empty() for _ in dataflow.sinks]
        self._accurate = np.zeros(len(dataflow.sinks))
        self._offered = np.zeros(len(dataflow.sinks))
        self._records = np.zeros(len(dataflow.sinks))
        self._latency_s = np.zeros(len(dataflow.sinks))
        self._most = np.zeros(len(dataflow.sinks))
        self._intervals = 0
        self._seconds = self._produced = self._shed = 0.0
        self._task_s = self._cpu_s = self._node_s = self._cost = 0.0
        self._actions: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()

    def add(self, snapshot: Snapshot, outcomes: Iterable[Outcome] = ()) -> None:
        """Take in one interval and what was done at its end."""
        length = snapshot.interval_s
        self._intervals += 1
        self._seconds = snapshot.time_s
        self._held += snapshot.constraints.held
        for c in np.flatnonzero(snapshot.constraints.known):
            self._latencies[c].append(float(snapshot.constraints.latency_s[c]))
        for k, sketch in enumerate(snapshot.sinks.sketch):
            self._sketches[k] = self._sketches[k].merge(sketch)
        self._latency_s += snapshot.sinks.latency_s.total
        self._records += snapshot.sinks.records
        produced = snapshot.sources.produced_rps * length
        # An interval counts for accuracy by how much input it had.
        self._accurate += snapshot.sinks.accuracy * produced.sum()
        self._offered += produced.sum()
        self._most += self._possible(produced)
        self._produced += float(produced.sum())
        self._shed += float(snapshot.tasks.shed.sum())
        self._task_s += len(snapshot.tasks) * length
        self._cpu_s += float(snapshot.tasks.cpu.sum()) * length
        self._node_s += len(snapshot.nodes) * length
        self._cost = snapshot.cost
        for outcome in outcomes:
            self._outcomes[outcome.status] += 1
            # A deferred action is counted when it begins, not again when it is done.
            if outcome.status == "deferred" or (outcome.status == "applied" and outcome.took_s == 0):
                self._actions[outcome.action.kind] += 1

    def summary(self) -> RunSummary:
        """The run so far."""
        return RunSummary(
            seconds=self._seconds,
            intervals=self._intervals,
            constraints=tuple(self._constraint(c) for c in range(len(self._dataflow.constraints))),
            sinks=tuple(self._sink(k) for k in range(len(self._dataflow.sinks))),
            throughput=float(np.mean(_share(self._records, self._most))) if len(self._records) else 1.0,
            produced=self._produced,
            processed=float(self._records.sum()),
            shed=self._shed,
            task_hours=self._task_s / 3600,
            cpu_hours=self._cpu_s / 3600,
            node_hours=self._node_s / 3600,
            cost=self._cost,
            actions=dict(sorted(self._actions.items())),
            outcomes=dict(sorted(self._outcomes.items())),
        )

    def _possible(self, produced: NDArray[np.float64]) -> NDArray[np.float64]:
        """Records each sink would get if nothing were shed and everything kept up, with the best alternates."""
        dataflow = self._dataflow
        flow = np.zeros(len(dataflow.operators))
        for amount, source in zip(produced, dataflow.sources, strict=True):
            flow[dataflow.row[source.id]] = amount
        for id_ in dataflow.topological:
            operator = dataflow.operator(id_)
            for stream in dataflow.downstream(id_):
                copies = (
                    dataflow.operator(stream.target).parallelism.start if stream.wiring == "broadcast" else 1
                )
                flow[dataflow.row[stream.target]] += (
                    flow[dataflow.row[id_]] * operator.best.selectivity * copies
                )
        return flow[[dataflow.row[s.id] for s in dataflow.sinks]]

    def _constraint(self, row: int) -> ConstraintSummary:
        declared, seen = self._dataflow.constraints[row], self._latencies[row]
        return ConstraintSummary(
            name=declared.name,
            bound_ms=declared.bound_ms,
            held=float(self._held[row] / self._intervals) if self._intervals else 1.0,
            mean_ms=_ms(float(np.mean(seen)) if seen else None),
            p95_ms=_ms(float(np.quantile(seen, 0.95)) if seen else None),
            worst_ms=_ms(max(seen) if seen else None),
        )

    def _sink(self, row: int) -> SinkSummary:
        sketch, count = self._sketches[row], self._sketches[row].count
        return SinkSummary(
            name=self._dataflow.sinks[row].id,
            records=float(self._records[row]),
            accuracy=float(_share(self._accurate, self._offered)[row]),
            mean_ms=_ms(float(self._latency_s[row] / count) if count else None),
            p50_ms=_ms(sketch.quantile(0.5)),
            p95_ms=_ms(sketch.quantile(0.95)),
            p99_ms=_ms(sketch.quantile(0.99)),
        )


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[Any] = np.where(whole > 0, np.minimum(part / np.where(whole > 0, whole, 1.0), 1.0), 1.0)
    return shares


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
