"""What a page shows of a run: collected cycle by cycle, bounded in size, told as one JSON document."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.control import Cycle, Run
from penstock.control.brief import Brief
from penstock.policies.wording import sentence
from penstock.telemetry import Snapshot
from penstock.web.detail import MoveWatch, tables
from penstock.web.figures import figures_of, total
from penstock.web.series import Series
from penstock.web.story import Story, why_nothing

EXECUTORS_CHARTED = 64
"""Executors that are gone give up their charts to newer ones beyond this many."""
POINTS = 900
"""Points of a chart, unless more are asked for."""
_UNIX = 1e9  # later than this is time since 1970, not since a start


class History:
    """Subscribes to a loop, or is fed from a journal. Safe to read from other threads."""

    def __init__(self, *, title: str, version: str, run: Run | None = None) -> None:
        self._title, self._version, self._run = title, version, run
        self._lock = threading.Lock()
        self._series, self._story, self._watch = Series(), Story(), MoveWatch()
        self._executors: OrderedDict[str, None] = OrderedDict()
        self._cycle: Cycle | None = None
        self._brief: Brief | None = None
        self._snapshot: Snapshot | None = None
        self._first_s: float | None = None
        self._measured: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._counts: Counter[tuple[str, str]] = Counter()
        self.changes = 0
        """Counts up with whatever the document tells anew."""

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None) -> None:
        """Take one cycle in."""
        with self._lock:
            self._cycle = cycle
            self._first_s = cycle.time_s if self._first_s is None else self._first_s
            self._story.add(cycle)
            self._count(cycle)
            if cycle.brief is not None:
                self._brief = cycle.brief
                self._chart_executors(cycle.brief)
                self._series.append(cycle.time_s, figures_of(cycle.brief))
            if snapshot is not None:
                self._snapshot = snapshot
                self._watch.look(snapshot)
            self.changes += 1

    def see(self, snapshot: Snapshot) -> None:
        """Take in a snapshot whose cycle has been told already."""
        with self._lock:
            self._snapshot = snapshot
            self._watch.look(snapshot)
            self.changes += 1

    def document(
        self, *, since_s: float = float("-inf"), last_s: float | None = None, points: int = POINTS
    ) -> dict[str, Any]:
        """All there is to show; charts from `since_s` on, or of the `last_s` seconds."""
        with self._lock:
            cycle, brief, snapshot = self._cycle, self._brief, self._snapshot
            now_s = cycle.time_s if cycle is not None else 0.0
            if last_s is not None:
                since_s = now_s - last_s
            series = self._series.window(since_s=since_s, points=points)
            timeline = [asdict(entry) for entry in self._story.entries()]
            moves = list(self._watch.moves)
            counts, held, measured = dict(self._counts), dict(self._held), dict(self._measured)
            serial = self.changes
        return {
            "format": 1,
            "serial": serial,
            "title": self._title,
            "version": self._version,
            "run": None
            if self._run is None
            else {"id": self._run.id, "started_unix": self._run.started_unix},
            "unix": now_s > _UNIX,
            "first_s": self._first_s,
            "now_s": now_s,
            "dry_run": cycle is not None and cycle.dry_run,
            "nothing": [] if cycle is None else why_nothing(cycle),
            "goals": [] if brief is None else _goals(brief, held, measured),
            "queries": [] if brief is None else _queries(brief),
            "app": None if brief is None else _app(brief),
            "counts": [{"kind": kind, "status": status, "n": n} for (kind, status), n in counts.items()],
            "series": series,
            "timeline": timeline,
            "moves": [asdict(move) for move in moves],
            "planned": [] if cycle is None else _planned(cycle),
            "detail": None if snapshot is None else tables(snapshot),
        }

    def _count(self, cycle: Cycle) -> None:
        self._counts.update((o.action.kind, o.status) for o in cycle.outcomes)
        self._counts.update(("effect", e.verdict) for e in cycle.effects)
        self._counts.update(("fault", f.stage) for f in cycle.faults)
        for goal in cycle.brief.constraints if cycle.brief is not None else ():
            if goal.latency_s is not None:
                self._measured[goal.name] += 1
                self._held[goal.name] += goal.held is True

    def _chart_executors(self, brief: Brief) -> None:
        for node in brief.executors:
            self._executors[node.id] = None
            self._executors.move_to_end(node.id)
        surplus = max(0, len(self._executors) - max(EXECUTORS_CHARTED, len(brief.executors)))
        gone = {self._executors.popitem(last=False)[0] for _ in range(surplus)}
        if gone:
            self._series.drop("executor", gone)


def _goals(brief: Brief, held: Mapping[str, int], measured: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "name": goal.name,
            "query": goal.query,
            "bound_s": goal.bound_s,
            "latency_s": goal.latency_s,
            "held": None if goal.latency_s is None else goal.held,
            "share": held[goal.name] / measured[goal.name] if measured.get(goal.name) else None,
        }
        for goal in brief.constraints
    ]


def _queries(brief: Brief) -> list[dict[str, Any]]:
    names = dict.fromkeys([*(o.query for o in brief.operators), *(s.query for s in brief.sources)])
    found = []
    for name in names:
        sources = [s for s in brief.sources if s.query == name]
        found.append(
            {
                "name": name,
                "produced_rps": total(s.produced_rps for s in sources),
                "read_rps": total(s.read_rps for s in sources),
                "backlog_records": sum(s.backlog_records for s in sources),
                "sinks": [s.id for s in brief.sinks if s.query == name],
                "goals": [c.name for c in brief.constraints if c.query == name],
            }
        )
    return found


def _app(brief: Brief) -> dict[str, Any]:
    return {
        "nodes": brief.nodes,
        "tasks": brief.tasks,
        "cores": brief.cores,
        "own_cpu": brief.own_cpu,
        "foreign_cpu": brief.foreign_cpu,
        "cost": brief.cost,
        "per_hour": brief.per_hour,
        "classes": [asdict(each) for each in brief.classes],
        "interval_s": brief.interval_s,
    }


def _planned(cycle: Cycle) -> list[dict[str, Any]]:
    """What the newest cycle does, and why."""
    return [
        {"deed": p.action.text, "why": sentence(p.action.reason), "policy": p.policy}
        for p in cycle.plan.actions[:20]
    ]
