"""What a history says happened, in the figures that a simulation gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.control.record import Cycle
from penstock.control.summary import RunSummary, summary_of
from penstock.dataflow.graph import Constraint
from penstock.policies.wording import sentence
from penstock.simulator import microbatch_kernel as kernel
from penstock.simulator.calibration.fit import Calibration
from penstock.simulator.calibration.history import History
from penstock.simulator.microbatch_latency import QUANTILES, Ended, load_points


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
    ended = _ended(history, model)
    batch_ms = 1e3 * float(np.mean(ended.log[:, kernel.ENDED] - ended.log[:, kernel.BEGAN]))
    cycles = [c for c in history.cycles if c.time_s > history.began_s]
    latency: Mapping[str, float | None]
    actions: list[dict[str, object]] = []
    seconds = history.executor_seconds()
    if cycles:
        summary = summary_of(cycles)
        latency = summary.latency_ms
        seconds = summary.node_seconds * model.duration_s / summary.seconds if summary.seconds else None
        actions = [a for c in cycles for a in actions_of(c, history.began_s)]
    if not cycles or latency["mean"] is None:
        sketch = ended.sketch()
        quantiles = {name: sketch.quantile(q) for name, q in QUANTILES.items()}
        all_s = {"mean": ended.statistic_s("mean"), **quantiles}
        latency = {name: None if s is None else 1e3 * s for name, s in all_s.items()}
    cost = None if seconds is None else seconds / 3600.0 * price_per_hour
    held, series = _held(history, model, ended)
    return Figures(
        latency_ms=dict(latency),
        batch_ms=batch_ms,
        held=held,
        executor_seconds=seconds,
        cost=cost,
        actions=tuple(actions),
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


def _held(
    history: History, model: Calibration, ended: Ended
) -> tuple[float | None, dict[str, Sequence[float | None]]]:
    """Share of the intervals in which each goal was held, of the worst one; and the first one's latency over time."""
    ticks = np.arange(history.interval_s, model.duration_s + 1e-9, history.interval_s)
    shares, series = [], dict[str, Sequence[float | None]]()
    for number, constraint in enumerate(model.dataflow.constraints):
        late = _measured(history, constraint, ticks) or _windows(
            ended.of_query(_query_of(model, constraint)), constraint, ticks
        )
        known = [one for one in late if one is not None]
        if known:
            shares.append(float(np.mean(np.array(known) <= constraint.bound_ms / 1e3)))
        if number == 0:
            series["latency_s"] = late
    times = ticks + history.began_s
    series["time_s"] = ticks.tolist()
    if history.executors:
        series["nodes"] = np.sum(
            [(times >= e.ready_s) & (times < e.gone_s) for e in history.executors], axis=0
        ).tolist()
    return (min(shares) if shares else None), series


def _query_of(model: Calibration, constraint: Constraint) -> int:
    first = constraint.sequence.operators[0]
    found = [i for i, q in enumerate(model.engine.queries) if any(first in s.operators for s in q.stages)]
    return found[0] if found else 0


def _windows(ended: Ended, constraint: Constraint, ticks: np.ndarray) -> list[float | None]:
    ends = ended.log[:, kernel.ENDED]
    first = np.searchsorted(ends, ticks - constraint.window_s, side="right")
    last = np.searchsorted(ends, ticks, side="right")
    return [
        Ended(ended.log[a:b], ended.late_s[a:b]).statistic_s(constraint.statistic)
        for a, b in zip(first, last, strict=True)
    ]


def _measured(history: History, constraint: Constraint, ticks: np.ndarray) -> list[float | None] | None:
    """As the loop saw the same goal, if it had one; at the times of its cycles."""
    found = [
        next((c.latency_s for c in cycle.brief.constraints if c.name == constraint.name), None)
        for cycle in history.cycles
        if cycle.brief is not None and cycle.time_s > history.began_s
    ]
    return found[: len(ticks)] if any(late is not None for late in found) else None
