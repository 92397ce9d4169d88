"""Figures for Prometheus: what a person would alert on, and decisions with what came of them as counters."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.control import Cycle
from penstock.control.brief import class_briefs
from penstock.telemetry import Snapshot
from penstock.web.detail import partition_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One exported metric."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, *labels: str) -> Figure:
    return Figure(name=f"penstock_{name}", kind="gauge", help=text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> Figure:
    return Figure(name=f"penstock_{name}_total", kind="counter", help=text, labels=labels)


FIGURES: tuple[Figure, ...] = (
    _gauge("goal_latency_seconds", "Latency that a goal bounds.", "query", "goal"),
    _gauge("goal_bound_seconds", "Its bound.", "query", "goal"),
    _gauge(
        "goal_held",
        "1 while it is within its bound, 0 while not; absent while not measured.",
        "query",
        "goal",
    ),
    _gauge("source_produced_records_per_second", "Records that come into being.", "query", "source"),
    _gauge("source_read_records_per_second", "Records that are read.", "query", "source"),
    _gauge("source_backlog_records", "Records that wait to be read.", "query", "source"),
    _gauge("source_kept_ratio", "Share of the records that shedding keeps.", "query", "source"),
    _gauge("sink_latency_mean_seconds", "Mean latency of the records of the last interval.", "query", "sink"),
    _gauge("sink_latency_p95_seconds", "95th percentile of the same.", "query", "sink"),
    _gauge("sink_accuracy_ratio", "Share of the input that counts for the result.", "query", "sink"),
    _gauge("sink_min_accuracy_ratio", "Least share that must count.", "query", "sink"),
    _counter("sink_records", "Records that arrived.", "query", "sink"),
    _counter("shed_records", "Records that shedding dropped on streams.", "query", "stream"),
    _gauge("operator_tasks", "Tasks of an operator.", "query", "operator"),
    _gauge("operator_utilisation_ratio", "Busy share of its tasks.", "query", "operator"),
    _gauge("operator_state_bytes", "State that it keeps.", "query", "operator"),
    _gauge("operator_alternate_active", "1 for the alternate that runs.", "query", "operator", "alternate"),
    _gauge("batch_duration_seconds", "Mean length of the micro-batches of the last interval.", "query"),
    _gauge("batch_fixed_seconds", "Of that, planning, offsets and commit.", "query"),
    _gauge("batch_running_seconds", "How long the micro-batch under way has run; 0: none runs.", "query"),
    _gauge(
        "query_last_batch_timestamp_seconds",
        "When the last micro-batch ended; stands still when a query hangs, fails or ends.",
        "query",
    ),
    _counter("batches", "Micro-batches that ended.", "query"),
    _counter("batch_records", "Records in them.", "query"),
    _gauge("executors", "Executors by state.", "state"),
    _gauge("executor_cores", "Cores of an executor.", "executor", "host"),
    _gauge("executor_cpu_cores", "Cores that our tasks keep busy.", "executor", "host"),
    _gauge("executor_foreign_cpu_cores", "Cores of its host that others keep busy.", "executor", "host"),
    _gauge("executor_speed_ratio", "Speed of a core relative to the reference core.", "executor", "host"),
    _gauge("executor_memory_used_bytes", "Memory in use.", "executor", "host"),
    _gauge("executor_state_partitions", "State partitions that live on it.", "executor", "host"),
    _gauge("cost_per_hour", "Price of the executors that run."),
    _counter("cost", "Money spent since the start."),
    _counter("executor_seconds", "Time of executors that is paid for.", "class", "billing_seconds"),
    _counter(
        "executor_cost", "The same times its price, before units are rounded up.", "class", "billing_seconds"
    ),
    _gauge("value_given_up_ratio", "1 less the mean value of the active alternates.", "query"),
    _counter("decisions", "Actions that were decided.", "policy", "kind"),
    _counter("outcomes", "What became of actions.", "kind", "status"),
    _counter("withheld", "Actions that were held back.", "policy", "reason"),
    _counter("effects", "Actions whose effect was judged.", "kind", "verdict"),
    _counter("unreached", "Cycles in which a goal was out of reach.", "goal", "reason"),
    _counter("faults", "Faults of Penstock that were survived.", "stage"),
    _counter("changes", "Changes of goals and mode by hand.", "what"),
    _counter("cycles", "Turns of the loop."),
    _counter("cycles_skipped", "Turns that were due and did not happen."),
    _counter("cycles_blind", "Turns in which nothing could be observed."),
    _gauge("cycle_duration_seconds", "Length of the last turn."),
    _gauge("last_cycle_timestamp_seconds", "When it was."),
    _gauge("mode", "1 for the mode in force.", "mode"),
)
"""Everything that is exported. The reference, the dashboard and the alert rules are checked against it."""

Sample = tuple[str, tuple[str, ...], float]


class Metrics:
    """Subscribes to a loop; `text` is what a scraper gets. Safe to read from other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cycle: Cycle | None = None
        self._snapshot: Snapshot | None = None
        self._counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._last_batch: dict[str, float] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None) -> None:
        """Take one cycle in."""
        with self._lock:
            self._cycle = cycle
            self._snapshot = snapshot if snapshot is not None else self._snapshot
            for name, labels, value in (
                *_counted(cycle),
                *(_counted_in(snapshot) if snapshot is not None else ()),
            ):
                self._counts[name, labels] += value
            self._last_batch.update(_ended(snapshot) if snapshot is not None else ())

    def text(self) -> bytes:
        """The exposition in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The families of metrics, for the registry."""
        with self._lock:
            cycle, snapshot, counts = self._cycle, self._snapshot, dict(self._counts)
            last_batch = dict(self._last_batch)
        samples = [(name, labels, float(value)) for (name, labels), value in counts.items()]
        samples += [("penstock_query_last_batch_timestamp_seconds", (q,), t) for q, t in last_batch.items()]
        if cycle is not None:
            samples += _of_cycle(cycle)
        if snapshot is not None:
            samples += [("penstock_cost_total", (), snapshot.cost)]
            samples += [*_of_goals(snapshot), *_of_ends(snapshot), *_of_operators(snapshot)]
            samples += [*_of_batches(snapshot), *_of_executors(snapshot)]
        yield from _families(samples)


def _families(samples: Iterable[Sample]) -> Iterator[Metric]:
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample[0], []).append(sample)
    for figure in FIGURES:
        make = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
        name = figure.name.removesuffix("_total") if figure.kind == "counter" else figure.name
        family = make(name, figure.help, labels=figure.labels)
        for _, labels, value in by_name.get(figure.name, ()):
            family.add_metric(labels, value)
        yield family


def _counted(cycle: Cycle) -> Iterator[Sample]:
    """What a cycle adds to the counters."""
    yield "penstock_cycles_total", (), 1.0
    yield "penstock_cycles_skipped_total", (), float(cycle.skipped)
    yield "penstock_cycles_blind_total", (), float(cycle.brief is None)
    for planned in cycle.plan.actions:
        yield "penstock_decisions_total", (planned.policy, planned.action.kind), 1.0
    for outcome in cycle.outcomes:
        yield "penstock_outcomes_total", (outcome.action.kind, outcome.status), 1.0
    for withheld in cycle.plan.withheld:
        yield "penstock_withheld_total", (withheld.policy, withheld.reason.code), 1.0
    for notice in cycle.plan.notices:
        yield "penstock_unreached_total", (notice.goal, notice.reason.code), 1.0
    for effect in cycle.effects:
        yield "penstock_effects_total", (effect.kind, effect.verdict), 1.0
    for fault in cycle.faults:
        yield "penstock_faults_total", (fault.stage,), 1.0
    for change in cycle.changes:
        yield "penstock_changes_total", (change.what,), 1.0


def _counted_in(snapshot: Snapshot) -> Iterator[Sample]:
    """What an interval adds to the counters."""
    flow, names = snapshot.dataflow, snapshot.query_names
    for i, row in enumerate(snapshot.sinks.operator):
        yield (
            "penstock_sink_records_total",
            (names[row], flow.operators[row].id),
            float(snapshot.sinks.records[i]),
        )
    for i, stream in enumerate(flow.streams):
        if snapshot.streams.shed[i]:
            labels = (names[flow.row[stream.source]], stream.id)
            yield "penstock_shed_records_total", labels, float(snapshot.streams.shed[i])
    for paid in class_briefs(snapshot):
        labels = (paid.machine, "" if paid.billing_s is None else f"{paid.billing_s:g}")
        yield "penstock_executor_seconds_total", labels, paid.nodes * snapshot.interval_s
        yield "penstock_executor_cost_total", labels, paid.per_hour * snapshot.interval_s / 3600
    for query, rows in _batches_by_query(snapshot):
        assert snapshot.batches is not None
        yield "penstock_batches_total", (query,), float(len(rows))
        yield "penstock_batch_records_total", (query,), float(snapshot.batches.records[rows].sum())


def _of_cycle(cycle: Cycle) -> Iterator[Sample]:
    yield "penstock_cycle_duration_seconds", (), cycle.took_s
    yield "penstock_last_cycle_timestamp_seconds", (), cycle.time_s
    yield "penstock_mode", (cycle.mode,), 1.0


def _of_goals(snapshot: Snapshot) -> Iterator[Sample]:
    table, names, row = snapshot.constraints, snapshot.query_names, snapshot.dataflow.row
    for i, goal in enumerate(snapshot.dataflow.constraints):
        labels = (names[row[goal.sequence.operators[0]]], goal.name)
        yield "penstock_goal_bound_seconds", labels, float(table.bound_s[i])
        if table.known[i]:
            yield "penstock_goal_latency_seconds", labels, float(table.latency_s[i])
            yield "penstock_goal_held", labels, float(table.held[i])


def _of_ends(snapshot: Snapshot) -> Iterator[Sample]:
    """Sources and sinks."""
    flow, names, sources, sinks = snapshot.dataflow, snapshot.query_names, snapshot.sources, snapshot.sinks
    for i, row in enumerate(sources.operator):
        labels = (names[row], flow.operators[row].id)
        yield "penstock_source_kept_ratio", labels, float(sources.keep[i])
        if sources.known[i]:
            yield "penstock_source_produced_records_per_second", labels, float(sources.produced_rps[i])
            yield "penstock_source_read_records_per_second", labels, float(sources.read_rps[i])
            yield "penstock_source_backlog_records", labels, float(sources.backlog_records[i])
    for i, row in enumerate(sinks.operator):
        labels = (names[row], flow.operators[row].id)
        yield "penstock_sink_min_accuracy_ratio", labels, float(sinks.min_accuracy[i])
        if sinks.known[i]:
            yield "penstock_sink_accuracy_ratio", labels, float(sinks.accuracy[i])
        if sinks.latency_s.count[i]:
            yield "penstock_sink_latency_mean_seconds", labels, float(sinks.latency_s.mean[i])
        p95_s = sinks.quantile_s(i, 0.95)
        if p95_s is not None:
            yield "penstock_sink_latency_p95_seconds", labels, p95_s


def _of_operators(snapshot: Snapshot) -> Iterator[Sample]:
    flow, names, view, tasks = snapshot.dataflow, snapshot.query_names, snapshot.by_operator, snapshot.tasks
    state = np.bincount(tasks.operator, tasks.state_bytes, len(flow.operators))
    values: dict[str, list[float]] = {}
    for i, operator in enumerate(flow.operators):
        labels = (names[i], operator.id)
        yield "penstock_operator_tasks", labels, float(snapshot.operators.parallelism[i])
        if view.known[i]:
            yield "penstock_operator_utilisation_ratio", labels, float(view.utilisation[i])
        if operator.is_stateful:
            yield "penstock_operator_state_bytes", labels, float(state[i])
        if len(operator.alternates) > 1:
            active = operator.alternates[int(snapshot.operators.alternate[i])]
            yield "penstock_operator_alternate_active", (*labels, active.name), 1.0
            if operator.best.value > 0:
                values.setdefault(names[i], []).append(active.value / operator.best.value)
    for query, shares in values.items():
        yield "penstock_value_given_up_ratio", (query,), 1 - float(np.mean(shares))


def _of_batches(snapshot: Snapshot) -> Iterator[Sample]:
    for query, rows in _batches_by_query(snapshot):
        assert snapshot.batches is not None
        yield "penstock_batch_duration_seconds", (query,), float(snapshot.batches.duration_s[rows].mean())
        yield "penstock_batch_fixed_seconds", (query,), float(snapshot.batches.fixed_s[rows].mean())
    queries = snapshot.queries
    for i in np.flatnonzero(queries.known):
        yield "penstock_batch_running_seconds", (queries.names[i],), float(queries.running_s[i])


def _ended(snapshot: Snapshot) -> Iterator[tuple[str, float]]:
    """When the last batch of each query ended. Queries that are gone keep theirs: that is how their end is seen."""
    queries = snapshot.queries
    for i in np.flatnonzero(queries.known & (queries.last_batch >= 0)):
        yield queries.names[i], float(queries.last_end_s[i])


def _batches_by_query(snapshot: Snapshot) -> Iterator[tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    batches = snapshot.batches
    for row in np.unique(batches.query) if batches is not None else ():
        assert batches is not None
        name = snapshot.queries.names[row] if len(snapshot.queries) else snapshot.dataflow.name
        yield name, np.flatnonzero(batches.query == row)


def _of_executors(snapshot: Snapshot) -> Iterator[Sample]:
    nodes, placed = snapshot.nodes, snapshot.tasks.node[partition_rows(snapshot)]
    partitions = np.bincount(placed[placed >= 0], minlength=len(nodes))
    yield "penstock_executors", ("ready",), float(nodes.staying.sum())
    yield "penstock_executors", ("starting",), float((~nodes.ready & ~nodes.draining).sum())
    yield "penstock_executors", ("draining",), float(nodes.draining.sum())
    yield "penstock_cost_per_hour", (), float(nodes.price_per_hour.sum())
    for i, id_ in enumerate(nodes.ids):
        labels = (id_, nodes.hosts[i])
        yield "penstock_executor_cores", labels, float(nodes.cores[i])
        yield "penstock_executor_speed_ratio", labels, float(nodes.speed[i])
        yield "penstock_executor_state_partitions", labels, float(partitions[i])
        if nodes.known[i]:
            yield "penstock_executor_cpu_cores", labels, float(nodes.own_cpu[i])
            yield "penstock_executor_foreign_cpu_cores", labels, float(nodes.foreign_cpu[i])
            yield "penstock_executor_memory_used_bytes", labels, float(nodes.memory_used_bytes[i])
