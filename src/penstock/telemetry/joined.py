"""Snapshots of applications that share nodes, as one snapshot of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from penstock.arrays import Ints
from penstock.dataflow import Dataflow
from penstock.telemetry.moments import Moments
from penstock.telemetry.snapshot import (
    Alternates,
    Batches,
    Nodes,
    Queries,
    Sinks,
    Snapshot,
    Sources,
    Tasks,
    Traffic,
)
from penstock.telemetry.table import Table

TableT = TypeVar("TableT", bound=Table)
RowsT = TypeVar("RowsT", Tasks, Alternates, Sources, Sinks)
"""Tables whose rows point to an operator."""


def joined(dataflow: Dataflow, parts: Sequence[Snapshot], nodes: Nodes) -> Snapshot:
    """The facts of all parts, each of which holds some of the dataflow's operators; tasks find themselves in `nodes`.

    Where every part is one query, the dataflow lists their operators one query after the other.
    """
    streams = {s.id: i for i, s in enumerate(dataflow.streams)}
    constraints = {c.name: i for i, c in enumerate(dataflow.constraints)}
    operator_rows = [np.array([dataflow.row[o.id] for o in p.dataflow.operators], np.int64) for p in parts]
    stream_rows = [np.array([streams[s.id] for s in p.dataflow.streams], np.int64) for p in parts]
    constraint_rows = [
        np.array([constraints[c.name] for c in p.dataflow.constraints], np.int64) for p in parts
    ]

    def tables(of: Callable[[Snapshot], RowsT]) -> list[RowsT]:
        found = zip(map(of, parts), operator_rows, strict=True)
        return [table.with_columns(operator=rows[table.operator]) for table, rows in found]

    tasks = [_placed(t, p.nodes, nodes) for t, p in zip(tables(lambda p: p.tasks), parts, strict=True)]
    order = _by_operator(tasks)
    row_of_task = np.empty(len(order), np.int64)
    row_of_task[order] = np.arange(len(order))
    begins = np.cumsum([0, *(len(t) for t in tasks[:-1])])
    traffic = [
        p.traffic.with_columns(
            from_task=row_of_task[p.traffic.from_task + begin], to_task=row_of_task[p.traffic.to_task + begin]
        )
        for p, begin in zip(parts, begins, strict=True)
    ]
    last = parts[-1]
    return Snapshot(
        time_s=last.time_s,
        interval_s=last.interval_s,
        dataflow=dataflow,
        nodes=nodes,
        operators=stacked([p.operators for p in parts], np.argsort(np.concatenate(operator_rows))),
        alternates=_sorted(tables(lambda p: p.alternates)),
        tasks=stacked(tasks, order),
        streams=stacked([p.streams for p in parts], np.argsort(np.concatenate(stream_rows))),
        sources=_sorted(tables(lambda p: p.sources)),
        sinks=_sorted(tables(lambda p: p.sinks)),
        constraints=stacked([p.constraints for p in parts], np.argsort(np.concatenate(constraint_rows))),
        traffic=stacked(traffic, None) if any(len(t) for t in traffic) else Traffic.blank(0),
        classes=last.classes,
        batches=_batches([p.batches for p in parts]),
        queries=_queries([p.queries for p in parts], operator_rows),
        cost=last.cost,
        seed=last.seed,
        warnings=tuple(dict.fromkeys(w for p in parts for w in p.warnings)),
        pause_factor=max(p.pause_factor for p in parts),
    )


def _batches(parts: Sequence[Batches | None]) -> Batches | None:
    """The batches of all queries, by query; the interval is the first one's."""
    found = [(row, b) for row, b in enumerate(parts) if b is not None]
    if not found:
        return None
    whole = {
        name: np.concatenate([getattr(b, name) for _, b in found])
        for name in ("id", "records", "duration_s", "fixed_s", "busy_s", "task_core_s")
    }
    query = np.concatenate([np.full(len(b), row, np.int64) for row, b in found])
    return Batches(**whole, interval_s=found[0][1].interval_s, query=query)


def _queries(parts: Sequence[Queries], operator_rows: Sequence[Ints]) -> Queries:
    placed = [
        queries.with_columns(
            first_operator=rows[queries.first_operator], last_operator=rows[queries.last_operator]
        )
        for queries, rows in zip(parts, operator_rows, strict=True)
    ]
    return stacked(placed, None)


def stacked(tables: Sequence[TableT], order: Ints | None) -> TableT:
    """The rows of all tables in one, one table after the other, or (`order`) those rows of that in this order."""
    whole = {f.name: _column([getattr(t, f.name) for t in tables], order) for f in fields(tables[0])}
    return replace(tables[0], **whole)


def _column(columns: Sequence[Any], order: Ints | None) -> Any:
    first = columns[0]
    if isinstance(first, Moments):
        parts = ([getattr(c, name) for c in columns] for name in ("count", "mean", "m2"))
        return Moments(*(_column(p, order) for p in parts))
    if isinstance(first, tuple):
        values = tuple(value for column in columns for value in column)
        return values if order is None else tuple(values[i] for i in order.tolist())
    whole = np.concatenate(columns)
    return whole if order is None else whole[order]


def _sorted(tables: Sequence[RowsT]) -> RowsT:
    return stacked(tables, _by_operator(tables))


def _by_operator(tables: Sequence[RowsT]) -> Ints:
    return np.argsort(np.concatenate([t.operator for t in tables]), kind="stable")


def _placed(tasks: Tasks, before: Nodes, after: Nodes) -> Tasks:
    """The tasks with the rows of their nodes in another table of nodes; -1 where it lacks them."""
    rows = np.array([*(after.row.get(id_, -1) for id_ in before.ids), -1], np.int64)
    return tasks.with_columns(node=rows[tasks.node])
