"""Figures of a snapshot by name: what an expectation may promise, and what a control stands at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.arrays import Bools
from penstock.dataflow import OperatorId
from penstock.telemetry.snapshot import Snapshot


def read(snapshot: Snapshot, metric: str, subject: str) -> float | None:
    """The named figure of a subject in a snapshot; None where it was not measured or there is no such thing."""
    reader = METRICS.get(metric)
    return None if reader is None else reader(snapshot, subject)


def load_rps(snapshot: Snapshot) -> float | None:
    """Records per second that came into being at all sources, as far as known."""
    known = snapshot.sources.known
    return float(snapshot.sources.produced_rps[known].sum()) if known.any() else None


def alternate_cost_s(snapshot: Snapshot, operator: OperatorId, name: str) -> float:
    """Core-seconds per record of an alternate: as measured, or as declared while it has never run."""
    declared = snapshot.dataflow.operator(operator)
    index = declared.alternate_index(name)
    table = snapshot.alternates
    rows = np.flatnonzero((table.operator == snapshot.dataflow.row[operator]) & (table.index == index))
    if rows.size and table.service_s.count[rows[0]] > 0:
        return float(table.service_s.mean[rows[0]])
    return declared.alternates[index].cost_s


def task_row(snapshot: Snapshot, subject: str) -> int | None:
    """The row of the task written `operator[index]`; None if there is no such task."""
    operator, _, index = subject.rstrip("]").rpartition("[")
    row = snapshot.dataflow.row.get(OperatorId(operator))
    if row is None or not index.isdigit():
        return None
    order, starts = snapshot.tasks.rows_by_operator
    if row + 1 >= len(starts):
        return None
    rows = order[starts[row] : starts[row + 1]]
    at = int(np.searchsorted(snapshot.tasks.index[rows], int(index)))
    return int(rows[at]) if at < len(rows) and snapshot.tasks.index[rows[at]] == int(index) else None


def _latency_s(snapshot: Snapshot, subject: str) -> float | None:
    for i, constraint in enumerate(snapshot.dataflow.constraints):
        if constraint.name == subject:
            known = bool(snapshot.constraints.known[i])
            return float(snapshot.constraints.latency_s[i]) if known else None
    row = _sink_row(snapshot, subject)
    if row is None or not snapshot.sinks.latency_s.count[row]:
        return None
    return float(snapshot.sinks.latency_s.mean[row])


def _accuracy(snapshot: Snapshot, subject: str) -> float | None:
    row = _sink_row(snapshot, subject)
    return None if row is None or not snapshot.sinks.known[row] else float(snapshot.sinks.accuracy[row])


def _sink_row(snapshot: Snapshot, subject: str) -> int | None:
    return _first(snapshot.sinks.operator == snapshot.dataflow.row.get(OperatorId(subject), -1))


def _operator(column: str) -> Callable[[Snapshot, str], float | None]:
    def reader(snapshot: Snapshot, subject: str) -> float | None:
        row = snapshot.dataflow.row.get(OperatorId(subject))
        if row is None:
            return None
        if column in ("parallelism", "alternate"):
            return float(getattr(snapshot.operators, column)[row])
        view = snapshot.by_operator
        return float(getattr(view, column)[row]) if view.known[row] else None

    return reader


def _parallelism(snapshot: Snapshot, subject: str) -> float | None:
    return _nodes(snapshot, subject) if subject == "nodes" else _operator("parallelism")(snapshot, subject)


def _nodes(snapshot: Snapshot, subject: str) -> float | None:
    up = snapshot.nodes.staying
    machine = subject.removeprefix("class:")
    if machine != subject:
        up = up & np.array([m == machine for m in snapshot.nodes.machines], dtype=np.bool_)
    return float(up.sum())


def _stream_row(snapshot: Snapshot, subject: str) -> int | None:
    return next((i for i, stream in enumerate(snapshot.dataflow.streams) if stream.id == subject), None)


def _keep(snapshot: Snapshot, subject: str) -> float | None:
    stream = _stream_row(snapshot, subject)
    if stream is not None:
        return float(snapshot.streams.keep[stream])
    row = _first(snapshot.sources.operator == snapshot.dataflow.row.get(OperatorId(subject), -1))
    return None if row is None else float(snapshot.sources.keep[row])


def _deadline_s(snapshot: Snapshot, subject: str) -> float | None:
    if subject.startswith("query:"):
        queries, name = snapshot.queries, subject.removeprefix("query:")
        known = name in queries.names and bool(queries.interval_known[queries.names.index(name)])
        return float(queries.interval_s[queries.names.index(name)]) if known else None
    stream = _stream_row(snapshot, subject)
    known = stream is not None and bool(snapshot.streams.known[stream])
    return float(snapshot.streams.deadline_s[stream]) if known else None


def _read_limit(snapshot: Snapshot, subject: str) -> float | None:
    row = _first(snapshot.sources.operator == snapshot.dataflow.row.get(OperatorId(subject), -1))
    told = row is not None and bool(snapshot.sources.limitable[row])
    return float(snapshot.sources.read_limit[row]) if told else None


def _node(snapshot: Snapshot, subject: str) -> float | None:
    row = task_row(snapshot, subject)
    return None if row is None or snapshot.tasks.node[row] < 0 else float(snapshot.tasks.node[row])


def _backlog(snapshot: Snapshot, subject: str) -> float | None:
    row = _first(snapshot.sources.operator == snapshot.dataflow.row.get(OperatorId(subject), -1))
    if row is not None:
        return float(snapshot.sources.backlog_records[row]) if snapshot.sources.known[row] else None
    return float(snapshot.sources.backlog_records.sum()) if snapshot.sources.known.any() else None


def _first(mask: Bools) -> int | None:
    rows = np.flatnonzero(mask)
    return int(rows[0]) if rows.size else None


METRICS: dict[str, Callable[[Snapshot, str], float | None]] = {
    "latency_s": _latency_s,
    "accuracy": _accuracy,
    "utilisation": _operator("utilisation"),
    "arrival_rps": _operator("arrival_rps"),
    "queued": _operator("queued"),
    "alternate": _operator("alternate"),
    "parallelism": _parallelism,
    "nodes": _nodes,
    "keep": _keep,
    "deadline_s": _deadline_s,
    "read_limit": _read_limit,
    "node": _node,
    "backlog_records": _backlog,
    "cost_per_hour": lambda snapshot, _: float(snapshot.nodes.price_per_hour.sum()),
}
"""What an `Expectation` may name, and how it is read."""
