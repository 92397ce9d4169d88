"""Whether actions brought what they promised: expectations of earlier cycles against what is measured now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.dataflow import OperatorId
from penstock.policies.actions import Action, Expectation, Move
from penstock.telemetry import Snapshot

Verdict = Literal["worked", "did-not", "unknown"]

SETTINGS = frozenset({"parallelism", "alternate", "keep", "node", "nodes"})
"""Metrics that an action sets outright: reached means done, no need to wait for the deadline."""
LESS_IS_BETTER = frozenset({"latency_s", "backlog_records", "queued"})
"""Metrics whose expected figure is an upper limit, whichever side they come from."""
TOLERANCE = 0.05
"""A measured figure (latency, utilisation) this much short of the expected one still counts as reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An action that was carried out and has yet to show its effect."""

    action: Action
    policy: str
    time_s: float
    before: float | None
    """The metric when the action was decided."""
    load_rps: float | None
    """What the sources produced then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What came of an action: the expected figure beside the one that was reached."""

    kind: str
    subject: str
    policy: str
    decided_s: float
    after_s: float
    metric: str
    of: str
    before: float | None
    expected: float
    observed: float | None
    verdict: Verdict
    load_change: float | None = None
    """Relative change of what the sources produced since, 0.2 = a fifth more: why it may not have been enough."""


def expect(action: Action, policy: str, snapshot: Snapshot) -> Pending | None:
    """The check to make later, or None for an action that promises nothing measurable."""
    if action.expects is None:
        return None
    before = read(snapshot, action.expects.metric, action.expects.subject)
    return Pending(
        action=action, policy=policy, time_s=snapshot.time_s, before=before, load_rps=load_rps(snapshot)
    )


def judge(pending: Sequence[Pending], snapshot: Snapshot) -> tuple[tuple[Effect, ...], tuple[Pending, ...]]:
    """(effects that can be told now, checks still open)."""
    told, still = [], []
    for check in pending:
        effect = _effect(check, snapshot)
        if effect is None:
            still.append(check)
        else:
            told.append(effect)
    return tuple(told), tuple(still)


def _effect(check: Pending, snapshot: Snapshot) -> Effect | None:
    expects = check.action.expects
    assert expects is not None
    observed = read(snapshot, expects.metric, expects.subject)
    after_s = snapshot.time_s - check.time_s
    # Half an interval of grace: a cycle may come a little early.
    due = after_s >= expects.within_s - snapshot.interval_s / 2
    done = observed is not None and _reached(check, observed, snapshot)
    if not (due or (done and expects.metric in SETTINGS)):
        return None
    verdict: Verdict = "unknown" if observed is None else "worked" if done else "did-not"
    now_rps = load_rps(snapshot)
    return Effect(
        kind=check.action.kind,
        subject=check.action.subject,
        policy=check.policy,
        decided_s=check.time_s,
        after_s=after_s,
        metric=expects.metric,
        of=expects.subject,
        before=check.before,
        expected=expects.value,
        observed=observed,
        verdict=verdict,
        load_change=now_rps / check.load_rps - 1 if check.load_rps and now_rps is not None else None,
    )


def _reached(check: Pending, observed: float, snapshot: Snapshot) -> bool:
    expects = check.action.expects
    assert expects is not None
    if expects.metric == "node" and isinstance(check.action, Move):
        # Rows of nodes may shift between two snapshots; the id is what counts.
        return snapshot.nodes.ids[int(observed)] == check.action.target
    slack = 0.0 if expects.metric in SETTINGS else TOLERANCE * abs(expects.value)
    if _falls(expects, check.before):
        return observed <= expects.value + max(slack, 1e-9)
    return observed >= expects.value - max(slack, 1e-9)


def _falls(expects: Expectation, before: float | None) -> bool:
    return expects.metric in LESS_IS_BETTER or (before is not None and expects.value < before)


def load_rps(snapshot: Snapshot) -> float | None:
    """Records per second that came into being at all sources, as far as known."""
    known = snapshot.sources.known
    return float(snapshot.sources.produced_rps[known].sum()) if known.any() else None


def read(snapshot: Snapshot, metric: str, subject: str) -> float | None:
    """The named figure of a subject in a snapshot; None where it was not measured or there is no such thing."""
    reader = METRICS.get(metric)
    return None if reader is None else reader(snapshot, subject)


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
    up = snapshot.nodes.ready & ~snapshot.nodes.draining
    machine = subject.removeprefix("class:")
    if machine != subject:
        up = up & np.array([m == machine for m in snapshot.nodes.machines], dtype=np.bool_)
    return float(up.sum())


def _keep(snapshot: Snapshot, subject: str) -> float | None:
    for i, stream in enumerate(snapshot.dataflow.streams):
        if stream.id == subject:
            return float(snapshot.streams.keep[i])
    row = _first(snapshot.sources.operator == snapshot.dataflow.row.get(OperatorId(subject), -1))
    return None if row is None else float(snapshot.sources.keep[row])


def _node(snapshot: Snapshot, subject: str) -> float | None:
    row = task_row(snapshot, subject)
    return None if row is None or snapshot.tasks.node[row] < 0 else float(snapshot.tasks.node[row])


def _backlog(snapshot: Snapshot, subject: str) -> float | None:
    row = _first(snapshot.sources.operator == snapshot.dataflow.row.get(OperatorId(subject), -1))
    if row is not None:
        return float(snapshot.sources.backlog_records[row]) if snapshot.sources.known[row] else None
    return float(snapshot.sources.backlog_records.sum()) if snapshot.sources.known.any() else None


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


def _first(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int | None:
    rows = np.flatnonzero(mask)
    return int(rows[0]) if rows.size else None


METRICS: Mapping[str, Callable[[Snapshot, str], float | None]] = {
    "latency_s": _latency_s,
    "accuracy": _accuracy,
    "utilisation": _operator("utilisation"),
    "arrival_rps": _operator("arrival_rps"),
    "queued": _operator("queued"),
    "alternate": _operator("alternate"),
    "parallelism": _parallelism,
    "nodes": _nodes,
    "keep": _keep,
    "node": _node,
    "backlog_records": _backlog,
    "cost_per_hour": lambda snapshot, _: float(snapshot.nodes.price_per_hour.sum()),
}
"""What an `Expectation` may name, and how it is read."""
