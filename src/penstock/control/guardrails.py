"""What a careful owner allows: which remedies may act, how often, when and at what cost; and no repeated harm.

Guardrails come last, after arbitration: they take actions out of a plan and say why. An action that made things worse
is taken back by the opposite action, and not tried again for a while.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.control.plan import Plan, Planned, Withheld
from penstock.dataflow.graph import Remedy
from penstock.policies.actions import Action
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.telemetry.metrics import load_rps

TAKE_BACK = "take-back"
"""The policy name under which the opposite of a harmful action is proposed."""
HOUR_S, DAY_S = 3600.0, 86_400.0
WORSE = 1.3
"""A goal is worse off when its figure is this many times what it was, and missed."""
SAME_LOAD = 1.1
"""A load up to this many times the earlier one does not explain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """Limits on what the loop does, whatever policies propose."""

    only_recommend: tuple[Remedy, ...] = ()
    """Remedies (move, switch, scale, shed) that are decided and explained, and not carried out."""
    changes_per_hour: int = 0
    """Most cycles within an hour that change anything; 0: no limit."""
    quiet_from_h: float = 0.0
    """Hour of the day (UTC, 0 to 24) from which nothing is changed; the same as `quiet_until_h`: no quiet hours."""
    quiet_until_h: float = 0.0
    """Hour of the day at which the quiet hours end."""
    most_per_hour: float = 0.0
    """Most money per hour that nodes may cost; 0: no limit."""
    take_back: bool = True
    """Whether an action after which a goal is worse off is taken back."""
    watch_s: float = 60.0
    """Seconds after an action in which harm is put down to it."""
    ban_s: float = 900.0
    """Seconds for which an action that was taken back is not tried again."""

    def __post_init__(self) -> None:
        if self.changes_per_hour < 0 or self.most_per_hour < 0 or not 0 < self.watch_s < float("inf"):
            raise ValueError("limits cannot be negative, and harm is watched for longer than 0 s")
        if not all(0 <= hour <= 24 for hour in (self.quiet_from_h, self.quiet_until_h)):
            raise ValueError("quiet hours lie within 0 to 24")

    def is_quiet(self, time_s: float) -> bool:
        """Whether nothing may be changed at this time of the day."""
        begin, end, hour = self.quiet_from_h, self.quiet_until_h, time_s % DAY_S / HOUR_S
        return begin <= hour < end if begin <= end else hour >= begin or hour < end


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Actions of one cycle, and how things stood before them."""

    time_s: float
    actions: tuple[Action, ...]
    worst: float
    """Largest latency as a share of its bound."""
    load_rps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardMemory:
    """When changes were made, what is being watched, and what is not to be tried again before when."""

    changed_s: tuple[float, ...] = ()
    watched: tuple[Watched, ...] = ()
    banned: Mapping[str, float] = field(default_factory=dict)


def harmful(snapshot: Snapshot, memory: GuardMemory, options: Guardrails) -> Proposal:
    """The opposite of what was done before a goal became worse off, with no more load than then."""
    if not options.take_back:
        return Proposal(policy=TAKE_BACK)
    worst, load = _worst(snapshot), load_rps(snapshot) or 0.0
    actions: list[Action] = []
    for watched in memory.watched:
        if worst is None or worst <= max(1.0, WORSE * watched.worst) or load > SAME_LOAD * watched.load_rps:
            continue
        reason = Reason(
            code="made-things-worse",
            facts={
                "before": watched.worst,
                "after": worst,
                "since_s": snapshot.time_s - watched.time_s,
            },
        )
        actions += [o for a in watched.actions if (o := a.undone(reason)) is not None]
    return Proposal(policy=TAKE_BACK, actions=tuple(actions))


def guard(
    plan: Plan, snapshot: Snapshot, memory: GuardMemory, options: Guardrails
) -> tuple[Plan, GuardMemory]:
    """The plan without what the guardrails forbid, each with its reason, and what is remembered until the next."""
    now_s = snapshot.time_s
    recent = tuple(t for t in memory.changed_s if t > now_s - HOUR_S)
    banned = {what: until for what, until in memory.banned.items() if until > now_s}
    kept: list[Planned] = []
    withheld: list[Withheld] = []
    budget = options.most_per_hour - float(snapshot.nodes.price_per_hour.sum())
    for planned in plan.actions:
        reason = _forbidden(planned, now_s, recent, banned, budget, options)
        if reason is None:
            kept.append(planned)
            budget -= planned.action.cost.per_hour
        else:
            withheld.append(Withheld(action=planned.action, policy=planned.policy, reason=reason))
    taken_back = [p.action for p in kept if p.policy == TAKE_BACK]
    banned |= {_name(action, undone=True): now_s + options.ban_s for action in taken_back}
    watched = tuple(
        w for w in memory.watched if now_s - w.time_s < options.watch_s and not _undone(w, taken_back)
    )
    own = tuple(p.action for p in kept if p.policy != TAKE_BACK and p.action.undone(p.action.reason))
    worst = _worst(snapshot)
    if own and worst is not None:
        watched = (
            *watched,
            Watched(time_s=now_s, actions=own, worst=worst, load_rps=load_rps(snapshot) or 0.0),
        )
    after = GuardMemory(changed_s=(*recent, now_s) if kept else recent, watched=watched, banned=banned)
    return replace(plan, actions=tuple(kept), withheld=(*plan.withheld, *withheld)), after


def _forbidden(
    planned: Planned,
    now_s: float,
    recent: Sequence[float],
    banned: Mapping[str, float],
    budget: float,
    options: Guardrails,
) -> Reason | None:
    action = planned.action
    if action.remedy in options.only_recommend:
        return Reason(code="only-recommended", facts={"remedy": action.remedy})
    if planned.policy == TAKE_BACK:
        return None  # putting back what did harm is always allowed
    if (until_s := banned.get(_name(action))) is not None:
        return Reason(code="made-things-worse-before", facts={"left_s": until_s - now_s})
    if options.is_quiet(now_s):
        hours = f"{options.quiet_from_h:g} to {options.quiet_until_h:g}"
        return Reason(code="quiet-hours", facts={"hours": hours})
    if options.changes_per_hour and len(recent) >= options.changes_per_hour:
        return Reason(
            code="too-many-changes", facts={"changes": len(recent), "limit": options.changes_per_hour}
        )
    dearer = action.cost.per_hour > 0 or action.kind == "acquire"
    if options.most_per_hour and dearer and action.cost.per_hour > budget:
        facts = {"limit_per_hour": options.most_per_hour, "more_per_hour": action.cost.per_hour}
        return Reason(code="over-the-budget", facts=facts)
    return None


def _name(action: Action, *, undone: bool = False) -> str:
    """The step on its subject, which is not tried again; with `undone`, the step that this one takes back."""
    value = action.before if undone else action.value
    step = "" if action.before is None else f" to {value}"
    return f"{action.kind} {action.subject}{step}"


def _undone(watched: Watched, taken_back: Sequence[Action]) -> bool:
    names = {_name(action, undone=True) for action in taken_back}
    return any(_name(action) in names for action in watched.actions)


def _worst(snapshot: Snapshot) -> float | None:
    """The largest latency as a share of its bound; None where none is known."""
    table = snapshot.constraints
    known = table.known & (table.bound_s > 0)
    return float(np.max(table.latency_s[known] / table.bound_s[known])) if known.any() else None
