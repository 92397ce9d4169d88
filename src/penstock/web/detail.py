"""The newest snapshot in tables: executors, where state partitions are, sinks, shedders, alternates."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.telemetry import Snapshot

PARTITIONS_SHOWN = 20_000
"""Of more tasks only the count per executor is shown."""
MOVES_KEPT = 500


def tables(snapshot: Snapshot) -> dict[str, Any]:
    """Everything the page shows of one moment."""
    return {
        "executors": _executors(snapshot),
        "placement": _placement(snapshot),
        "sinks": _sinks(snapshot),
        "shedders": _shedders(snapshot),
        "alternates": _alternates(snapshot),
        "operators": _operators(snapshot),
        "warnings": list(snapshot.warnings[:20]),
    }


def _executors(snapshot: Snapshot) -> list[dict[str, Any]]:
    nodes, rows = snapshot.nodes, partition_rows(snapshot)
    placed = snapshot.tasks.node[rows]
    partitions = np.bincount(placed[placed >= 0], minlength=len(nodes))
    known = [bool(k) for k in nodes.known]

    def figure(column: NDArray[np.float64], i: int) -> float | None:
        return _number(column[i]) if known[i] else None

    return [
        {
            "id": id_,
            "host": nodes.hosts[i],
            "machine": nodes.machines[i],
            "state": "draining" if nodes.draining[i] else "ready" if nodes.ready[i] else "starting",
            "cores": _number(nodes.cores[i]),
            "speed": _number(nodes.speed[i]),
            "own_cpu": figure(nodes.own_cpu, i),
            "foreign_cpu": figure(nodes.foreign_cpu, i),
            "memory_bytes": _number(nodes.memory_bytes[i]),
            "memory_used_bytes": _number(nodes.memory_used_bytes[i]),
            "per_hour": _number(nodes.price_per_hour[i]),
            "partitions": int(partitions[i]),
        }
        for i, id_ in enumerate(nodes.ids)
    ]


def partition_rows(snapshot: Snapshot) -> NDArray[np.int64]:
    """Tasks with state; all tasks of a dataflow that has none with state."""
    stateful = np.array([o.is_stateful for o in snapshot.dataflow.operators], np.bool_)
    mine = stateful[snapshot.tasks.operator] if stateful.any() else np.ones(len(snapshot.tasks), np.bool_)
    return np.flatnonzero(mine)


def _placement(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Per operator the executor (a row of `executors`, -1: none) and the state bytes of each partition."""
    tasks, rows = snapshot.tasks, partition_rows(snapshot)
    if len(rows) > PARTITIONS_SHOWN:
        return []
    found = []
    for row in np.unique(tasks.operator[rows]):
        mine = rows[tasks.operator[rows] == row]
        mine = mine[np.argsort(tasks.index[mine])]
        found.append(
            {
                "operator": snapshot.dataflow.operators[row].id,
                "query": snapshot.query_names[row],
                "index": tasks.index[mine].tolist(),
                "executor": tasks.node[mine].tolist(),
                "state_bytes": np.round(tasks.state_bytes[mine]).tolist(),
                "cpu": np.round(tasks.cpu[mine], 3).tolist(),
                "moving": np.flatnonzero(tasks.moving[mine]).tolist(),
            }
        )
    return found


def _sinks(snapshot: Snapshot) -> list[dict[str, Any]]:
    table, flow = snapshot.sinks, snapshot.dataflow
    return [
        {
            "id": flow.operators[row].id,
            "query": snapshot.query_names[row],
            "priority": int(table.priority[i]),
            "accuracy": _number(table.accuracy[i]) if table.known[i] else None,
            "min_accuracy": _number(table.min_accuracy[i]),
            "rps": _number(table.records[i] / snapshot.interval_s),
            "mean_s": _number(table.latency_s.mean[i]) if table.latency_s.count[i] else None,
            "p95_s": table.quantile_s(i, 0.95),
        }
        for i, row in enumerate(table.operator)
    ]


def _shedders(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Where only a share of the records is kept now."""
    flow, sources, streams = snapshot.dataflow, snapshot.sources, snapshot.streams
    keeps = [(flow.operators[row].id, sources.keep[i]) for i, row in enumerate(sources.operator)]
    keeps += [(stream.id, streams.keep[i]) for i, stream in enumerate(flow.streams)]
    return [{"id": id_, "keep": _number(keep)} for id_, keep in keeps if keep < 1]


def _alternates(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Every alternate of operators that have a choice, with what was measured of it."""
    table, flow, found = snapshot.alternates, snapshot.dataflow, []
    for r in range(len(table)):
        row, index = int(table.operator[r]), int(table.index[r])
        operator = flow.operators[row]
        if len(operator.alternates) > 1:
            ran = bool(table.service_s.count[r])
            found.append(
                {
                    "operator": operator.id,
                    "query": snapshot.query_names[row],
                    "alternate": operator.alternates[index].name,
                    "value": operator.alternates[index].value,
                    "active": int(snapshot.operators.alternate[row]) == index,
                    "cost_s": _number(table.service_s.mean[r]) if ran else None,
                    "agreement": _number(table.agreement[r]) if table.known[r] else None,
                }
            )
    return found


def _operators(snapshot: Snapshot) -> list[dict[str, Any]]:
    flow, view = snapshot.dataflow, snapshot.by_operator
    state = np.bincount(snapshot.tasks.operator, snapshot.tasks.state_bytes, len(flow.operators))
    return [
        {
            "id": operator.id,
            "query": snapshot.query_names[i],
            "kind": operator.kind,
            "tasks": int(snapshot.operators.parallelism[i]),
            "rps": _number(view.arrival_rps[i]) if view.known[i] else None,
            "utilisation": _number(view.utilisation[i]) if view.known[i] else None,
            "state_bytes": _number(state[i]) if operator.is_stateful else None,
        }
        for i, operator in enumerate(flow.operators)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A partition that was seen on another executor than before."""

    time_s: float
    operator: str
    index: int
    source: str
    target: str


class MoveWatch:
    """Compares where partitions are from snapshot to snapshot, whoever moved them."""

    def __init__(self) -> None:
        self.moves: deque[Moved] = deque(maxlen=MOVES_KEPT)
        self._where: dict[tuple[str, int], str] = {}

    def look(self, snapshot: Snapshot) -> None:
        """Note what is elsewhere than at the last look."""
        rows = partition_rows(snapshot)
        if len(rows) > PARTITIONS_SHOWN:
            return
        tasks, ids = snapshot.tasks, (*snapshot.nodes.ids, "")
        names = [o.id for o in snapshot.dataflow.operators]
        now = {
            (str(names[operator]), index): ids[node]
            for operator, index, node in zip(
                tasks.operator[rows].tolist(),
                tasks.index[rows].tolist(),
                tasks.node[rows].tolist(),
                strict=True,
            )
        }
        for place, node in now.items():
            before = self._where.get(place, "")
            if before and node and before != node:
                self.moves.append(
                    Moved(
                        time_s=snapshot.time_s, operator=place[0], index=place[1], source=before, target=node
                    )
                )
        # A partition that nobody has right now keeps the place where it was seen last.
        self._where = {place: node or self._where.get(place, "") for place, node in now.items()}


def _number(value: float | np.floating) -> float:
    return float(f"{float(value):.4g}")
