"""A run added up, cycle by cycle: the figures that `simulate` and `run` print at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from penstock.control import Cycle
from penstock.dataflow import Dataflow
from penstock.policies.actions import Shed
from penstock.telemetry import Alternates, Moments, Sketch, Snapshot


class Totals:
    """Subscribes to the loop. An adjustment interval counts as held when its constraint was not broken in it."""

    def __init__(self, dataflow: Dataflow) -> None:
        self._flow = dataflow
        self.cycles: list[Cycle] = []
        self.seconds = 0.0
        self.task_seconds = 0.0
        self.node_seconds = 0.0
        self.busy_core_seconds = 0.0
        self.core_seconds = 0.0
        self.cost = 0.0
        self._produced = 0.0
        self._intervals = 0
        self._held = np.zeros(len(dataflow.constraints))
        self._latencies: list[list[float]] = [[] for _ in dataflow.constraints]
        self._sketches = [Sketch.empty() for _ in dataflow.sinks]
        self._moments = [Moments.empty(1) for _ in dataflow.sinks]
        self._accuracy = [0.0 for _ in dataflow.sinks]
        self._accuracy_weight = [0.0 for _ in dataflow.sinks]
        self._counts: Counter[tuple[str, str]] = Counter()
        self._alternates: Alternates | None = None
        self._passed: defaultdict[str, float] = defaultdict(float)
        """Records that were offered to each shedder that dropped any."""
        self._dropped: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        """Records by where, for which sink and why."""
        self._why: dict[str, tuple[str, str]] = {}
        """Sink and reason of the last decision, by shedder."""

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None) -> None:
        """Add one cycle."""
        self.cycles.append(cycle)
        for outcome in cycle.outcomes:
            self._counts[outcome.action.kind, outcome.status] += 1
        if snapshot is not None:
            self._add_dropped(snapshot)
        for planned in cycle.plan.actions:
            if isinstance(planned.action, Shed):
                reason = planned.action.reason
                self._why[planned.action.subject] = str(reason.facts.get("sink", "")), reason.code
        if snapshot is None:
            return
        dt = snapshot.interval_s
        nodes = snapshot.nodes
        self.seconds += dt
        self._intervals += 1
        self.task_seconds += len(snapshot.tasks) * dt
        self.node_seconds += len(nodes) * dt
        self.core_seconds += float(nodes.cores.sum()) * dt
        self.busy_core_seconds += float(snapshot.tasks.cpu.sum()) * dt
        self.cost = snapshot.cost
        self._alternates = snapshot.alternates
        produced = float(snapshot.sources.produced_rps.sum()) * dt
        self._produced += produced
        self._held += snapshot.constraints.held
        for i, latencies in enumerate(self._latencies):
            if snapshot.constraints.known[i]:
                latencies.append(float(snapshot.constraints.latency_s[i]))
        for i, sketch in enumerate(snapshot.sinks.sketch):
            self._sketches[i] = self._sketches[i].merge(sketch)
            self._moments[i] = self._moments[i].merge(snapshot.sinks.latency_s.take(np.array([i])))
            if snapshot.sinks.known[i]:
                self._accuracy[i] += produced * float(snapshot.sinks.accuracy[i])
                self._accuracy_weight[i] += produced

    def _add_dropped(self, snapshot: Snapshot) -> None:
        """What was dropped in the interval goes to the decisions that were in force."""
        operators, sources, streams = snapshot.dataflow.operators, snapshot.sources, snapshot.streams
        read = np.where(sources.known, sources.read_rps, 0.0) * snapshot.interval_s
        found = [
            *zip([operators[o].id for o in sources.operator], read * (1 - sources.keep), read, strict=True),
            *zip(
                [s.id for s in snapshot.dataflow.streams],
                streams.shed,
                streams.records + streams.shed,
                strict=True,
            ),
        ]
        for where, dropped, offered in found:
            if dropped > 0:
                self._dropped[(where, *self._why.get(where, ("", "")))] += float(dropped)
            self._passed[where] += float(offered)

    def dropped(self) -> list[dict[str, Any]]:
        """Where records were dropped, for which sink and why, the most first; `share` is of what came by there."""
        return [
            {
                "where": where,
                "records": round(records),
                "share": records / self._passed[where],
                "sink": sink or None,
                "why": why or None,
            }
            for (where, sink, why), records in sorted(self._dropped.items(), key=lambda item: -item[1])
            if round(records)
        ]

    def constraints(self) -> list[dict[str, Any]]:
        """Per constraint: bound, share of intervals held, mean and 95th percentile over the intervals."""
        return [
            {
                "name": c.name,
                "bound_ms": c.bound_ms,
                "statistic": c.statistic,
                "held": float(self._held[i] / self._intervals) if self._intervals else None,
                "mean_ms": 1e3 * float(np.mean(latencies)) if latencies else None,
                "p95_ms": 1e3 * float(np.quantile(latencies, 0.95)) if latencies else None,
            }
            for i, (c, latencies) in enumerate(zip(self._flow.constraints, self._latencies, strict=True))
        ]

    def accuracy(self) -> dict[str, float | None]:
        """Per sink: share of the input that counted, weighted by how much came in."""
        return {
            sink.id: self._accuracy[i] / self._accuracy_weight[i] if self._accuracy_weight[i] else None
            for i, sink in enumerate(self._flow.sinks)
        }

    def alternates(self) -> list[dict[str, Any]]:
        """What was measured of each alternate, where there is a choice; None where nothing was."""
        found: list[dict[str, Any]] = []
        if (table := self._alternates) is None:
            return found
        for r in range(len(table)):
            operator = self._flow.operators[int(table.operator[r])]
            if len(operator.alternates) == 1:
                continue
            ran = bool(table.service_s.count[r])
            found.append(
                {
                    "operator": operator.id,
                    "alternate": operator.alternates[int(table.index[r])].name,
                    "records": int(table.records_in[r]),
                    "ms_per_record": 1e3 * float(table.service_s.mean[r]) if ran else None,
                    "agreement": float(table.agreement[r]) if table.known[r] else None,
                }
            )
        return found

    def latency_ms(self) -> dict[str, float | None]:
        """Of all records at all sinks: mean, p50, p95, p99."""
        moments, sketch = Moments.empty(1), Sketch.empty()
        for m, s in zip(self._moments, self._sketches, strict=True):
            moments, sketch = moments.merge(m), sketch.merge(s)
        quantiles = {f"p{round(100 * q)}": sketch.quantile(q) for q in (0.5, 0.95, 0.99)}
        mean = float(moments.mean[0]) if moments.count[0] else None
        return {name: None if v is None else 1e3 * v for name, v in {"mean": mean, **quantiles}.items()}

    @property
    def shed(self) -> float:
        """Records dropped anywhere; one that two sinks lose on two streams counts twice."""
        return sum(self._dropped.values())

    @property
    def records_out(self) -> int:
        """Records that reached the sinks."""
        return round(sum(float(m.count[0]) for m in self._moments))

    def actions(self) -> dict[str, dict[str, int]]:
        """Kind of action to how often each outcome was seen."""
        found: dict[str, dict[str, int]] = {}
        for (kind, status), n in sorted(self._counts.items()):
            found.setdefault(kind, {})[status] = n
        return found

    def begun(self) -> dict[str, int]:
        """Kind of action to how many of the plans' actions the runtime took on."""
        kinds: Counter[str] = Counter()
        for cycle in self.cycles:
            mine = {id(p.action) for p in cycle.plan.actions}
            kinds.update(
                o.action.kind
                for o in cycle.outcomes
                if id(o.action) in mine and o.status in ("applied", "deferred")
            )
        return dict(kinds)

    @property
    def throughput_rps(self) -> float | None:
        """Records per second at the sinks."""
        return self.records_out / self.seconds if self.seconds else None

    @property
    def utilisation(self) -> float | None:
        """Busy share of all cores there were."""
        return self.busy_core_seconds / self.core_seconds if self.core_seconds else None
