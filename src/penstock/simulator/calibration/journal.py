"""A history from a run in a Penstock journal: its cycles, and the full snapshots where they are kept."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from penstock.control.journal import SqliteJournal
from penstock.control.record import Cycle
from penstock.dataflow import Dataflow, OperatorId, applications
from penstock.simulator.calibration.history import ExecutorLife, History, HistoryError, QueryHistory
from penstock.telemetry import Snapshot

Row = tuple[float, float, float, float, float]
"""Duration, records, fixed part, core-seconds of records and of tasks as such (NaN where not measured)."""
Batch = tuple[float, float, float, float, float, float]
"""When it began, and the row."""


def read_journal(journal: SqliteJournal, run: str) -> History:
    """The history of a run. Raise HistoryError if it did not work in micro-batches, or is too short."""
    cycles = tuple(c for c in journal.cycles(run) if c.brief is not None)
    where = f"run '{run}'"
    if not cycles:
        raise HistoryError(f"{where} has no cycle in which anything was observed")
    snapshots = {e.number: e.snapshot for e in journal.evidence(run)}
    batches: dict[str, list[Batch]] = defaultdict(list)
    for cycle in cycles:
        for name, rows in _batches(cycle, snapshots.get(cycle.number)).items():
            batches[name] += rows
    if not batches:
        raise HistoryError(f"{where} tells of no micro-batches; what-if needs a run on Spark or of one")
    last = snapshots[max(snapshots)] if snapshots else None
    flow = last.dataflow if last is not None else None
    names = list(batches) if last is None else _names(last)
    unknown = [] if last is not None else ["no full snapshot is kept: skew by partition is not known"]
    queries = tuple(_query(n, batches[n], cycles, snapshots, last) for n in names if batches.get(n))
    if flow is not None and len(queries) != len(applications(flow)):
        flow = None  # a query that never ended a batch: the others are modelled without it
        unknown.append(
            "the dataflow has parts without batches; queries are modelled as source, state and sink"
        )
    return History(
        source=where,
        queries=queries,
        began_s=cycles[0].time_s - (cycles[0].brief.interval_s if cycles[0].brief else 0.0),
        ended_s=cycles[-1].time_s,
        executors=_executors(cycles),
        startup_s=tuple(_startups(cycles)),
        price_per_hour=_price(cycles),
        interval_s=float(np.median([c.brief.interval_s for c in cycles if c.brief is not None])),
        dataflow=flow,
        cycles=cycles,
        unknown=tuple(unknown),
    )


def _names(snapshot: Snapshot) -> list[str]:
    if len(snapshot.queries):
        return list(snapshot.queries.names)
    return [snapshot.dataflow.name]


def _batches(cycle: Cycle, snapshot: Snapshot | None) -> dict[str, list[Batch]]:
    """The batches that a cycle tells of, oldest first. Their starts are worked out back from the end of the last."""
    brief, found = cycle.brief, dict[str, list[Batch]]()
    assert brief is not None
    if snapshot is None or snapshot.batches is None:
        for told in brief.batches:
            row = (told.duration_s, told.records / told.batches, told.fixed_s, math.nan, math.nan)
            found[told.query] = _placed([row] * told.batches, cycle.time_s, 0.0)
        return found
    queries = snapshot.queries
    for row in np.unique(snapshot.batches.query).tolist():
        mine = snapshot.batches.of_query(row)
        name = queries.names[row] if len(queries) else snapshot.dataflow.name
        ended_s = float(queries.last_end_s[row]) if len(queries) else 0.0
        beat_s = float(queries.interval_s[row]) if len(queries) and queries.interval_known[row] else 0.0
        if not cycle.time_s - 2 * brief.interval_s < ended_s <= cycle.time_s:
            ended_s = cycle.time_s
        columns = (mine.duration_s, mine.records, mine.fixed_s, mine.busy_s, mine.task_core_s)
        found[name] = _placed(list(zip(*(c.tolist() for c in columns), strict=True)), ended_s, beat_s)
    return found


def _placed(rows: Sequence[Row], ended_s: float, beat_s: float) -> list[Batch]:
    found, began_s = list[Batch](), math.inf
    for row in reversed(rows):
        began_s = ended_s - row[0] if began_s == math.inf else began_s - max(row[0], beat_s)
        found.append((began_s, *row))
    return found[::-1]


def _query(
    name: str,
    rows: Sequence[Batch],
    cycles: Sequence[Cycle],
    snapshots: Mapping[int, Snapshot],
    last: Snapshot | None,
) -> QueryHistory:
    began, duration, records, fixed, busy, tasks = np.array(rows, np.float64).T
    measured = bool(np.isfinite(busy).mean() > 0.5 and np.nansum(tasks) > 0)
    fixed = np.clip(np.where(np.isfinite(fixed), fixed, 0.0), 0.0, duration)
    beats = _beats(name, snapshots.values())
    part = None if last is None else _part(last.dataflow, name, last)
    weights = _weights(part, snapshots.values()) if part is not None else ()
    state = [] if last is None or part is None else _state_rows(part, last)
    widest = 0 if part is None else max((_widest(part, s) for s in snapshots.values()), default=0)
    return QueryHistory(
        name=name,
        began_s=began,
        duration_s=duration,
        records=records,
        plan_s=fixed,
        work_s=duration - fixed,
        busy_s=busy if measured else None,
        task_core_s=tasks if measured else None,
        trigger_s=beats[-1] if beats else None,
        partitions=len(weights) or widest or None,
        weights=weights,
        stateful=part is not None and any(o.state is not None for o in part.operators),
        state_bytes=float(last.tasks.state_bytes[state].mean()) if last is not None and len(state) else 0.0,
        operators=() if part is None else _ordered(part),
        rates=_rates(name, cycles),
    )


def _widest(part: Dataflow, snapshot: Snapshot) -> int:
    """Tasks of the operator that had most of them; 0: none was seen."""
    seen = np.bincount(snapshot.tasks.operator, minlength=len(snapshot.dataflow.operators))
    rows = snapshot.dataflow.row
    return max((int(seen[rows[o.id]]) for o in part.operators if o.id in rows), default=0)


def _part(flow: Dataflow, name: str, snapshot: Snapshot) -> Dataflow | None:
    """The connected part of the dataflow that is this query."""
    parts = applications(flow)
    names = _names(snapshot)
    return parts[names.index(name)] if len(parts) == len(names) and name in names else None


def _ordered(part: Dataflow) -> tuple[OperatorId, ...]:
    """Its operators, the one that holds state last: a stage's tasks are told under its last operator."""
    ids = list(part.topological)
    held = [i for i in ids if part.operator(i).state is not None]
    return (*(i for i in ids if i not in held[-1:]), *held[-1:])


def _state_rows(part: Dataflow, snapshot: Snapshot) -> list[int]:
    held = [o.id for o in part.operators if o.state is not None]
    rows = {snapshot.dataflow.row[id_] for id_ in held[-1:]}
    return [i for i, o in enumerate(snapshot.tasks.operator.tolist()) if o in rows]


def _weights(part: Dataflow, snapshots: Iterable[Snapshot]) -> tuple[float, ...]:
    """Work of each state partition over the run, where tasks were measured; empty: all alike, as far as is known."""
    total: dict[int, float] = defaultdict(float)
    count = 0
    for snapshot in snapshots:
        rows = [r for r in _state_rows(part, snapshot) if snapshot.tasks.known[r]]
        busy = (
            snapshot.tasks.busy_s[rows]
            if snapshot.tasks.busy_s[rows].any()
            else snapshot.tasks.processed[rows]
        )
        count = max(count, len(_state_rows(part, snapshot)))
        for row, seconds in zip(rows, busy.tolist(), strict=True):
            total[int(snapshot.tasks.index[row])] += seconds
    if count < 2 or len(total) != count or not sum(total.values()):
        return ()
    return tuple(total[i] for i in sorted(total))


def _beats(name: str, snapshots: Iterable[Snapshot]) -> list[float]:
    return [
        float(interval_s)
        for s in snapshots
        for own, interval_s, known in zip(
            s.queries.names, s.queries.interval_s, s.queries.interval_known, strict=True
        )
        if own == name and known
    ]


def _rates(name: str, cycles: Iterable[Cycle]) -> tuple[tuple[float, float], ...]:
    found = []
    for cycle in cycles:
        brief = cycle.brief
        assert brief is not None
        told = [s.produced_rps for s in brief.sources if s.query in (name, "") and s.produced_rps is not None]
        if told:
            found.append((cycle.time_s - brief.interval_s, sum(told)))
    return tuple(found)


def _executors(cycles: Sequence[Cycle]) -> tuple[ExecutorLife, ...]:
    """Executors from the first cycle that sees them ready to the first that misses them."""
    first: dict[str, float] = {}
    cores: dict[str, int] = {}
    gone: dict[str, float] = {}
    for number, cycle in enumerate(cycles):
        brief = cycle.brief
        assert brief is not None
        middle_s = cycle.time_s - brief.interval_s / 2
        ready = {e.id: e.cores for e in brief.executors if e.state != "starting"}
        if not brief.executors:  # too many to be told one by one
            ready = {f"node-{i}": brief.cores / max(1, brief.nodes) for i in range(brief.nodes)}
        for id_, count in ready.items():
            first.setdefault(id_, -math.inf if number == 0 else middle_s)
            cores[id_] = max(1, round(count))
            gone.pop(id_, None)
        for id_ in first.keys() - ready.keys() - gone.keys():
            gone[id_] = middle_s
    return tuple(
        ExecutorLife(id=id_, cores=cores[id_], ready_s=ready_s, gone_s=gone.get(id_, math.inf))
        for id_, ready_s in first.items()
    )


def _startups(cycles: Iterable[Cycle]) -> Iterable[float]:
    for cycle in cycles:
        for outcome in cycle.outcomes:
            if outcome.action.kind in ("scale", "acquire") and outcome.status == "applied" and outcome.took_s:
                yield float(outcome.took_s)


def _price(cycles: Sequence[Cycle]) -> float:
    briefs = [c.brief for c in cycles if c.brief is not None and c.brief.nodes_paid]
    return briefs[-1].per_hour / briefs[-1].nodes_paid if briefs else 0.0
