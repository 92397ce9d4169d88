"""Whether actions brought what they promised: expectations of earlier cycles against what is measured now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.policies.actions import Action, Expectation, is_setting
from penstock.telemetry import Snapshot
from penstock.telemetry.metrics import load_rps, read

Verdict = Literal["worked", "did-not", "unknown"]

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
    if not (due or (done and is_setting(expects.metric))):
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
    reached = check.action.reached(observed, snapshot)
    if reached is not None:
        return reached
    own = check.action.tolerance if expects.metric == check.action.setting else 0.0
    slack = own if is_setting(expects.metric) else TOLERANCE * abs(expects.value)
    if _falls(expects, check.before):
        return observed <= expects.value + max(slack, 1e-9)
    return observed >= expects.value - max(slack, 1e-9)


def _falls(expects: Expectation, before: float | None) -> bool:
    return expects.metric in LESS_IS_BETTER or (before is not None and expects.value < before)
