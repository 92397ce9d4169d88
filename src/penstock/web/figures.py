"""Which figures of a cycle go into the charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.control.brief import Brief
from penstock.web.series import Key

OPERATORS_CHARTED = 60
"""Operators have a chart of their own up to this many."""


def figures_of(brief: Brief) -> dict[Key, float | None]:
    """Every charted figure of the interval."""
    figures: dict[Key, float | None] = {
        Key("app", "", name): value
        for name, value in (
            ("nodes", float(brief.nodes)),
            ("cores", brief.cores),
            ("own_cpu", brief.own_cpu),
            ("foreign_cpu", brief.foreign_cpu),
            ("cost", brief.cost),
            ("per_hour", brief.per_hour),
        )
    }
    figures |= _queries(brief)
    for goal in brief.constraints:
        figures[Key("goal", goal.name, "latency_s")] = goal.latency_s
        figures[Key("goal", goal.name, "bound_s")] = goal.bound_s
    for sink in brief.sinks:
        figures[Key("sink", sink.id, "mean_s")] = sink.mean_s
        figures[Key("sink", sink.id, "p95_s")] = sink.p95_s
        figures[Key("sink", sink.id, "accuracy")] = sink.accuracy
        figures[Key("sink", sink.id, "min_accuracy")] = sink.min_accuracy
    for source in brief.sources:
        figures[Key("keep", source.id, "keep")] = source.keep
    for stream, keep in brief.keep.items():
        figures[Key("keep", stream, "keep")] = keep
    for node in brief.executors:
        figures[Key("executor", node.id, "own_cpu")] = node.own_cpu
        figures[Key("executor", node.id, "foreign_cpu")] = node.foreign_cpu
        figures[Key("executor", node.id, "speed")] = node.speed
        figures[Key("executor", node.id, "tasks")] = float(node.tasks)
    if len(brief.operators) <= OPERATORS_CHARTED:
        for operator in brief.operators:
            figures[Key("operator", operator.id, "utilisation")] = operator.utilisation
    return figures


def _queries(brief: Brief) -> Mapping[Key, float | None]:
    figures: dict[Key, float | None] = {}
    for name in dict.fromkeys(s.query for s in brief.sources):
        mine = [s for s in brief.sources if s.query == name]
        figures[Key("query", name, "produced_rps")] = total(s.produced_rps for s in mine)
        figures[Key("query", name, "read_rps")] = total(s.read_rps for s in mine)
        figures[Key("query", name, "backlog_records")] = sum(s.backlog_records for s in mine)
    for batch in brief.batches:
        figures[Key("query", batch.query, "duration_s")] = batch.duration_s
        figures[Key("query", batch.query, "fixed_s")] = batch.fixed_s
    return figures


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
