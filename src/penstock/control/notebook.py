"""A run in a notebook: as HTML that a cell shows, and as a table of figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from penstock.control.brief import Brief
from penstock.control.record import Cycle
from penstock.policies.wording import duration, quantity, sentence

if TYPE_CHECKING:
    import pandas as pd

DECISIONS_SHOWN = 6
POINTS = 120
_GOOD, _BAD, _MUTED = "#16794a", "#c02d45", "#5d6a79"


def as_html(cycles: Sequence[Cycle], *, title: str) -> str:
    """Goals with their latency so far, executors and load, and the last decisions with their reasons."""
    briefs = [c.brief for c in cycles if c.brief is not None]
    rows = "".join(_goal(briefs, goal.name) for goal in briefs[-1].constraints) if briefs else ""
    facts = "nothing has been seen yet"
    if briefs:
        now = briefs[-1]
        facts = f"{now.nodes:,} executors, load {quantity('_rps', now.produced_rps)}, {len(cycles):,} cycles"
    decided = [(c, p) for c in cycles for p in c.plan.actions if p.action.kind != "pace"][-DECISIONS_SHOWN:]
    told = "".join(
        f"<li>{escape(('would ' if c.dry_run else '') + p.action.text)}: {escape(sentence(p.action.reason))}</li>"
        for c, p in reversed(decided)
    )
    return (
        f"<div><b>Penstock: {escape(title)}</b> <span style='color:{_MUTED}'>{escape(facts)}</span>"
        f"<table>{rows}</table><ul>{told or '<li>nothing was decided yet</li>'}</ul></div>"
    )


def _goal(briefs: Sequence[Brief], name: str) -> str:
    mine = [next((c for c in b.constraints if c.name == name), None) for b in briefs[-POINTS:]]
    last = mine[-1]
    assert last is not None
    colour = _MUTED if last.latency_s is None else _GOOD if last.held else _BAD
    now = "not measured" if last.latency_s is None else duration(last.latency_s)
    line = _sparkline([None if c is None else c.latency_s for c in mine], last.bound_s, colour)
    return (
        f"<tr><td>{escape(name)}</td><td style='color:{colour}'>{escape(now)} of {escape(duration(last.bound_s))}"
        f"</td><td>{line}</td></tr>"
    )


def _sparkline(values: Sequence[float | None], bound: float, colour: str) -> str:
    """The values as a small picture, with a dashed line where the bound is."""
    top = max([bound, *(v for v in values if v is not None)]) * 1.1
    step = 160 / max(1, len(values) - 1)
    points = " ".join(
        f"{i * step:.1f},{30 * (1 - v / top):.1f}" for i, v in enumerate(values) if v is not None
    )
    y = 30 * (1 - bound / top)
    return (
        f"<svg width='160' height='30'><line x1='0' x2='160' y1='{y:.1f}' y2='{y:.1f}' stroke='{_MUTED}' "
        f"stroke-dasharray='3 3'/><polyline points='{points}' fill='none' stroke='{colour}'/></svg>"
    )


def as_frame(cycles: Sequence[Cycle]) -> pd.DataFrame:
    """A row per cycle: time, nodes, load, backlog, cost, latency and bound of each goal, and what was decided."""
    import pandas as pd

    rows = []
    for cycle in cycles:
        row: dict[str, object] = {"cycle": cycle.number, "time_s": cycle.time_s, "mode": cycle.mode}
        if cycle.brief is not None:
            row |= {
                "nodes": cycle.brief.nodes,
                "produced_rps": cycle.brief.produced_rps,
                "backlog_records": sum(s.backlog_records for s in cycle.brief.sources),
                "own_cpu": cycle.brief.own_cpu,
                "cost": cycle.brief.cost,
            }
            for goal in cycle.brief.constraints:
                row[f"{goal.name} latency_s"] = goal.latency_s
                row[f"{goal.name} bound_s"] = goal.bound_s
        row["decided"] = "; ".join(p.action.text for p in cycle.plan.actions)
        rows.append(row)
    return pd.DataFrame(rows)
