"""A snapshot in brief: what the journal keeps of every cycle, and what people are told about it.

Made of sums over columns only, so that a hundred thousand tasks cost a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import Operator
from penstock.telemetry import Snapshot

NODES_TOLD = 200
"""Nodes are told one by one up to this many; of more there are only the sums."""
STREAMS_TOLD = 200
"""Of more streams than this, only those are told on which records were dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintBrief:
    """How a latency goal stood; None: nothing was measured, so it was neither held nor missed."""

    name: str
    bound_s: float
    latency_s: float | None
    held: bool | None
    statistic: str = "mean"
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorBrief:
    """An operator: its size, its active alternate and its load."""

    id: str
    parallelism: int
    alternate: str
    arrival_rps: float | None
    utilisation: float | None
    queued: float
    value: float = 1.0
    """Value of the active alternate, as a share of the best one's."""
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBrief:
    """A source: what comes into being, what is read, what waits, what is kept."""

    id: str
    produced_rps: float | None
    read_rps: float | None
    backlog_records: float
    keep: float
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBrief:
    """A sink: how much of the input counted, and how late it was."""

    id: str
    records: float
    accuracy: float | None
    min_accuracy: float
    mean_s: float | None
    p95_s: float | None
    measured: float = 0.0
    """Records whose latency is known."""
    latencies: Mapping[int, float] = field(default_factory=dict)
    """Their distribution, as `telemetry.Sketch` counts it: bin to records."""
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBrief:
    """A node: what it is, how fast it was seen to be, and who keeps it busy; None: not measured."""

    id: str
    host: str
    state: Literal["ready", "starting", "draining"]
    cores: float
    speed: float
    own_cpu: float | None
    foreign_cpu: float | None
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternateBrief:
    """What was measured of an alternate since the start, where there is a choice; None: nothing."""

    operator: str
    alternate: str
    records: float
    ms_per_record: float | None
    agreement: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBrief:
    """The micro-batches of the interval: how many, their records, and their mean length."""

    query: str
    batches: int
    records: float
    duration_s: float
    fixed_s: float
    """Of that, planning, offsets and logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassBrief:
    """The nodes of one machine class that are paid for, starting and draining ones included."""

    machine: str
    billing_s: float | None
    """Billed by started units of this length; None: not known."""
    nodes: int
    per_hour: float
    """Price of all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """The facts of one interval in a page."""

    time_s: float
    interval_s: float
    nodes: int
    """Nodes that are ready and stay."""
    nodes_paid: int
    """Nodes that are there, starting and draining ones included."""
    cores_paid: float
    tasks: int
    task_cpu: float
    """Cores that tasks kept busy."""
    cores: float
    own_cpu: float
    foreign_cpu: float
    cost: float
    per_hour: float
    constraints: tuple[ConstraintBrief, ...] = ()
    operators: tuple[OperatorBrief, ...] = ()
    sources: tuple[SourceBrief, ...] = ()
    sinks: tuple[SinkBrief, ...] = ()
    keep: Mapping[str, float] = field(default_factory=dict)
    """Streams on which records are shed now, with the share that is kept."""
    passed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Source or stream to records that were dropped there and records that came by, in the interval."""
    alternates: tuple[AlternateBrief, ...] = ()
    executors: tuple[NodeBrief, ...] = ()
    """The nodes one by one, where there are at most `NODES_TOLD`."""
    batches: tuple[BatchBrief, ...] = ()
    """Per query that ended a micro-batch."""
    classes: tuple[ClassBrief, ...] = ()
    """What is paid for, by machine class."""
    warnings: tuple[str, ...] = ()

    @property
    def produced_rps(self) -> float | None:
        """Records per second that came into being at all sources; None where none could tell."""
        known = [s.produced_rps for s in self.sources if s.produced_rps is not None]
        return sum(known) if known else None

    @classmethod
    def of(cls, snapshot: Snapshot) -> Brief:
        """The brief of a snapshot."""
        nodes = snapshot.nodes
        up = nodes.staying
        return cls(
            time_s=snapshot.time_s,
            interval_s=snapshot.interval_s,
            nodes=int(up.sum()),
            nodes_paid=len(nodes),
            cores_paid=_tidy(nodes.cores.sum()),
            tasks=len(snapshot.tasks),
            task_cpu=_tidy(snapshot.tasks.cpu.sum()),
            cores=_tidy(nodes.cores[up].sum()),
            own_cpu=_tidy(nodes.own_cpu.sum()),
            foreign_cpu=_tidy(nodes.foreign_cpu.sum()),
            cost=_tidy(snapshot.cost),
            per_hour=_tidy(nodes.price_per_hour.sum()),
            constraints=_constraints(snapshot),
            operators=_operators(snapshot),
            sources=_sources(snapshot),
            sinks=_sinks(snapshot),
            keep={
                stream.id: _tidy(keep)
                for stream, keep in zip(snapshot.dataflow.streams, snapshot.streams.keep, strict=True)
                if keep < 1
            },
            passed=_passed(snapshot),
            alternates=_alternates(snapshot),
            executors=_executors(snapshot) if len(nodes) <= NODES_TOLD else (),
            batches=_batches(snapshot),
            classes=class_briefs(snapshot),
            warnings=snapshot.warnings,
        )


def class_briefs(snapshot: Snapshot) -> tuple[ClassBrief, ...]:
    """The nodes that are paid for, by machine class."""
    names, rows = np.unique(snapshot.nodes.machines, return_inverse=True)
    billing = {c.name: c.billing_s for c in snapshot.classes}
    counts = np.bincount(rows, minlength=len(names))
    per_hour = np.bincount(rows, snapshot.nodes.price_per_hour, len(names))
    return tuple(
        ClassBrief(machine=str(name), billing_s=billing.get(str(name)), nodes=int(n), per_hour=_tidy(price))
        for name, n, price in zip(names, counts, per_hour, strict=True)
    )


def _executors(snapshot: Snapshot) -> tuple[NodeBrief, ...]:
    nodes, tasks = snapshot.nodes, snapshot.tasks
    count = np.bincount(tasks.node[tasks.node >= 0], minlength=len(nodes))
    return tuple(
        NodeBrief(
            id=id_,
            host=nodes.hosts[i],
            state="draining" if nodes.draining[i] else "ready" if nodes.ready[i] else "starting",
            cores=_tidy(nodes.cores[i]),
            speed=_tidy(nodes.speed[i]),
            own_cpu=_tidy(nodes.own_cpu[i]) if nodes.known[i] else None,
            foreign_cpu=_tidy(nodes.foreign_cpu[i]) if nodes.known[i] else None,
            tasks=int(count[i]),
        )
        for i, id_ in enumerate(nodes.ids)
    )


def _batches(snapshot: Snapshot) -> tuple[BatchBrief, ...]:
    batches = snapshot.batches
    if batches is None or not len(batches):
        return ()
    briefs = []
    for row in np.unique(batches.query):
        mine = batches.of_query(row)
        briefs.append(
            BatchBrief(
                query=snapshot.queries.names[row] if len(snapshot.queries) else snapshot.dataflow.name,
                batches=len(mine),
                records=_tidy(mine.records.sum()),
                duration_s=_tidy(mine.duration_s.mean()),
                fixed_s=_tidy(mine.fixed_s.mean()),
            )
        )
    return tuple(briefs)


def _constraints(snapshot: Snapshot) -> tuple[ConstraintBrief, ...]:
    table, names, row = snapshot.constraints, snapshot.query_names, snapshot.dataflow.row
    return tuple(
        ConstraintBrief(
            name=constraint.name,
            bound_s=_tidy(table.bound_s[i]),
            latency_s=_tidy(table.latency_s[i]) if table.known[i] else None,
            held=bool(table.held[i]) if table.known[i] else None,
            statistic=constraint.statistic,
            query=names[row[constraint.sequence.operators[0]]],
        )
        for i, constraint in enumerate(snapshot.dataflow.constraints)
    )


def _operators(snapshot: Snapshot) -> tuple[OperatorBrief, ...]:
    # Three sums instead of `snapshot.by_operator`, whose many columns take ten times as long.
    tasks, table, count = snapshot.tasks, snapshot.operators, len(snapshot.dataflow.operators)
    everything = bool(tasks.known.all())
    rows = tasks.operator if everything else tasks.operator[tasks.known]

    def total(column: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(rows, column if everything else column[tasks.known], count).astype(np.float64)

    seen = np.bincount(rows, minlength=count)
    arrival_rps = total(tasks.arrived) / snapshot.interval_s
    utilisation = total(tasks.busy_s) / (np.maximum(seen, 1) * snapshot.interval_s)
    queued = total(tasks.queued)
    names = snapshot.query_names
    return tuple(
        OperatorBrief(
            id=operator.id,
            parallelism=int(table.parallelism[i]),
            alternate=operator.alternates[table.alternate[i]].name,
            arrival_rps=_tidy(arrival_rps[i]) if seen[i] else None,
            utilisation=_tidy(utilisation[i]) if seen[i] else None,
            queued=_tidy(queued[i]),
            value=_value(operator, int(table.alternate[i])),
            query=names[i],
        )
        for i, operator in enumerate(snapshot.dataflow.operators)
    )


def _sources(snapshot: Snapshot) -> tuple[SourceBrief, ...]:
    table, names = snapshot.sources, snapshot.query_names
    return tuple(
        SourceBrief(
            id=snapshot.dataflow.operators[row].id,
            produced_rps=_tidy(table.produced_rps[i]) if table.known[i] else None,
            read_rps=_tidy(table.read_rps[i]) if table.known[i] else None,
            backlog_records=_tidy(table.backlog_records[i]),
            keep=_tidy(table.keep[i]),
            query=names[row],
        )
        for i, row in enumerate(table.operator)
    )


def _sinks(snapshot: Snapshot) -> tuple[SinkBrief, ...]:
    table, names = snapshot.sinks, snapshot.query_names
    briefs = []
    for i, row in enumerate(table.operator):
        p95_s = table.quantile_s(i, 0.95)
        briefs.append(
            SinkBrief(
                id=snapshot.dataflow.operators[row].id,
                records=_tidy(table.records[i]),
                accuracy=_tidy(table.accuracy[i]) if table.known[i] else None,
                min_accuracy=_tidy(table.min_accuracy[i]),
                mean_s=_tidy(table.latency_s.mean[i]) if table.latency_s.count[i] else None,
                p95_s=None if p95_s is None else _tidy(p95_s),
                measured=_tidy(table.latency_s.count[i]),
                latencies=table.sketch[i].occupied,
                query=names[row],
            )
        )
    return tuple(briefs)


def _value(operator: Operator, active: int) -> float:
    best = operator.best.value
    return _tidy(operator.alternates[active].value / best) if best else 1.0


def _passed(snapshot: Snapshot) -> dict[str, tuple[float, float]]:
    operators, sources, streams = snapshot.dataflow.operators, snapshot.sources, snapshot.streams
    read = np.where(sources.known, sources.read_rps, 0.0) * snapshot.interval_s
    ids = [operators[o].id for o in sources.operator]
    passed = {
        str(id_): (_tidy(dropped), _tidy(offered))
        for id_, dropped, offered in zip(ids, read * (1 - sources.keep), read, strict=True)
    }
    rows = np.arange(len(streams)) if len(streams) <= STREAMS_TOLD else np.flatnonzero(streams.shed > 0)
    for row in rows.tolist():
        dropped = streams.shed[row]
        passed[snapshot.dataflow.streams[row].id] = _tidy(dropped), _tidy(streams.records[row] + dropped)
    return passed


def _alternates(snapshot: Snapshot) -> tuple[AlternateBrief, ...]:
    table, operators, briefs = snapshot.alternates, snapshot.dataflow.operators, list[AlternateBrief]()
    for row in range(len(table)):
        operator = operators[int(table.operator[row])]
        if len(operator.alternates) > 1:
            ran = bool(table.service_s.count[row])
            briefs.append(
                AlternateBrief(
                    operator=operator.id,
                    alternate=operator.alternates[int(table.index[row])].name,
                    records=_tidy(table.records_in[row]),
                    ms_per_record=_tidy(1e3 * table.service_s.mean[row]) if ran else None,
                    agreement=_tidy(table.agreement[row]) if table.known[row] else None,
                )
            )
    return tuple(briefs)


def _tidy(value: float | np.floating) -> float:
    # Six figures: the exact ones are in the stored snapshot, where there is one.
    return float(f"{float(value):.6g}")
