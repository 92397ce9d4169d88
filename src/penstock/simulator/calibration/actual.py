"""What a history says happened, in the figures that a simulation gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.control.record import Cycle
from penstock.control.summary import RunSummary, summary_of
from penstock.dataflow.graph import Constraint
from penstock.policies.wording import sentence
from penstock.simulator import microbatch_kernel as kernel
from penstock.simulator.calibration.fit import Calibration
from penstock.simulator.calibration.history import History
from penstock.simulator.microbatch_latency import QUANTILES, Ended, load_points, over_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run came to, real or simulated."""

    latency_ms: Mapping[str, float | None]
    """Of single records: mean, p50, p95, p99."""
    batch_ms: float | None
    """Mean length of a batch."""
    held: float | None
    """Share of the intervals in which every goal was held; None: there was none, or nothing was measured."""
    executor_seconds: float | None
    cost: float | None
    actions: tuple[Mapping[str, object], ...] = ()
    """What was begun, with the reason."""
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Over time: `time_s`, `latency_s` of the first goal, `nodes`."""


def actions_of(cycle: Cycle, began_s: float) -> list[dict[str, object]]:
    """The actions that a cycle began, in words."""
    return [
        {
            "time_s": round(cycle.time_s - began_s, 3),
            "kind": outcome.action.kind,
            "what": outcome.action.text,
            "status": outcome.status,
            "why": sentence(outcome.action.reason),
        }
        for outcome in cycle.outcomes[: len(cycle.plan.actions)]
        if outcome.status in ("applied", "deferred")
    ]


def figures_of_summary(
    summary: RunSummary,
    *,
    duration_s: float,
    batch_ms: float | None,
    actions: Sequence[Mapping[str, object]],
) -> Figures:
    """The figures of a run that the loop wrote down; its intervals may not fill the time."""
    whole = duration_s / summary.seconds if summary.seconds else 1.0
    held = [c.held for c in summary.constraints if c.held is not None]
    return Figures(
        latency_ms=dict(summary.latency_ms),
        batch_ms=batch_ms,
        held=min(held) if held else None,
        executor_seconds=whole * summary.node_seconds,
        cost=whole * summary.cost,
        actions=tuple(actions),
    )


def actual(history: History, model: Calibration, price_per_hour: float) -> Figures:
    """What happened. Latencies that were measured in the run count as such; otherwise records count as having come
    when the sources tell, or evenly between two batches. Goals are those of the model's dataflow.
    """
    seconds = history.executor_seconds()
    found = figures_of_batches(
        _ended(history, model),
        model,
        duration_s=model.duration_s,
        interval_s=history.interval_s,
        executor_seconds=seconds,
        price_per_hour=price_per_hour,
    )
    series = dict(found.series)
    if history.executors:
        times = np.array(series["time_s"], np.float64) + history.began_s
        there = [(times >= e.ready_s) & (times < e.gone_s) for e in history.executors]
        series["nodes"] = np.sum(there, axis=0).tolist()
    cycles = [c for c in history.cycles if c.time_s > history.began_s]
    if not cycles:
        return replace(found, series=series)
    summary = summary_of(cycles)
    if summary.seconds:
        seconds = summary.node_seconds * model.duration_s / summary.seconds
    held, late = _measured(cycles, model)
    if late is not None:
        series["latency_s"] = late
    return replace(
        found,
        latency_ms=summary.latency_ms if summary.latency_ms["mean"] is not None else found.latency_ms,
        held=found.held if held is None else held,
        executor_seconds=seconds,
        cost=None if seconds is None else seconds / 3600.0 * price_per_hour,
        actions=tuple(a for c in cycles for a in actions_of(c, history.began_s)),
        series=series,
    )


def figures_of_batches(
    ended: Ended,
    model: Calibration,
    *,
    duration_s: float,
    interval_s: float,
    executor_seconds: float | None,
    price_per_hour: float,
) -> Figures:
    """The figures of batches in the order they ended, real or simulated, where no loop was there to add them up."""
    lengths = ended.log[:, kernel.ENDED] - ended.log[:, kernel.BEGAN]
    sketch = ended.sketch()
    late_s = {"mean": ended.statistic_s("mean"), **{n: sketch.quantile(q) for n, q in QUANTILES.items()}}
    ticks = np.arange(interval_s, duration_s + 1e-9, interval_s)
    shares, series = [], dict[str, Sequence[float | None]](time_s=ticks.tolist())
    for constraint in model.dataflow.constraints:
        mine = ended.of_query(_query_of(model, constraint))
        late = over_windows(mine, constraint.statistic, constraint.window_s, ticks)
        known = [one for one in late if one is not None]
        if known:
            shares.append(float(np.mean(np.array(known) <= constraint.bound_ms / 1e3)))
        series.setdefault("latency_s", late)
    return Figures(
        latency_ms={name: None if s is None else 1e3 * s for name, s in late_s.items()},
        batch_ms=1e3 * float(lengths.mean()) if len(lengths) else None,
        held=min(shares, default=None),
        executor_seconds=executor_seconds,
        cost=None if executor_seconds is None else executor_seconds / 3600.0 * price_per_hour,
        series=series,
    )


def _ended(history: History, model: Calibration) -> Ended:
    """The batches of a history as the kernel logs them."""
    parts = []
    for number, query in enumerate(history.queries):
        log = np.zeros((len(query), kernel.LAST_COLUMN))
        log[:, kernel.QUERY], log[:, kernel.BATCH] = number, np.arange(len(query))
        log[:, kernel.BEGAN] = query.began_s - history.began_s
        log[:, kernel.ENDED] = query.ended_s - history.began_s
        log[:, kernel.RECORDS] = query.records
        log[:, kernel.FIRST] = np.cumsum(query.records) - query.records
        parts.append(log)
    log = np.vstack(parts)
    points = [load_points(load) for load in model.loads]
    # A measured rate that is a little low would have a batch read records before they came.
    return Ended.of_log(log[np.argsort(log[:, kernel.ENDED], kind="stable")], points)


def _query_of(model: Calibration, constraint: Constraint) -> int:
    first = constraint.sequence.operators[0]
    found = [i for i, q in enumerate(model.engine.queries) if any(first in s.operators for s in q.stages)]
    return found[0] if found else 0


def _measured(cycles: Sequence[Cycle], model: Calibration) -> tuple[float | None, list[float | None] | None]:
    """As the loop saw the same goals: share of the intervals in which the worst was held, and the first's course."""
    shares, course = [], None
    for constraint in model.dataflow.constraints:
        late = [
            next((c.latency_s for c in cycle.brief.constraints if c.name == constraint.name), None)
            for cycle in cycles
            if cycle.brief is not None
        ]
        known = [one for one in late if one is not None]
        if known:
            shares.append(float(np.mean(np.array(known) <= constraint.bound_ms / 1e3)))
            course = course or late
    return min(shares, default=None), course
