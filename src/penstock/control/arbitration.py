"""Several policies, one plan: who yields to whom, and no action that contradicts another.

Pure. Actions are admitted one after another: first those that relieve, the cheapest remedy first, then those that
give capacity back, the dearest remedy first (remedies are undone in reverse). An action is withheld, with a
reason, when it cannot be done, when it contradicts one already admitted, or when a cheaper remedy for the same
need, proposed by another policy, has yet to take effect. `docs/concepts.md` states the rules in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.control.claims import Claims
from penstock.control.direction import Direction, Reach, alternate_cost_s, direction, overlap, touched
from penstock.control.plan import Plan, Planned, Withheld
from penstock.dataflow import Goals
from penstock.dataflow.model import CHEAPEST_FIRST, Remedy
from penstock.policies.proposal import (
    Acquire,
    Action,
    Move,
    Notice,
    Pace,
    Proposal,
    Reason,
    Release,
    Scale,
    Shed,
    Switch,
)
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Arbitration:
    """How long a dearer remedy waits for a cheaper one."""

    patience: int = 3
    """Cycles after which a dearer remedy goes ahead although cheaper ones are still being tried (0..)."""

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ValueError(f"patience cannot be negative: {self.patience}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """A remedy that was carried out and has until `until_s` to take effect."""

    policy: str
    remedy: Remedy
    goal: str | None
    operators: tuple[str, ...]
    action: str
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbitrationMemory:
    """Remedies that are settling, and since when dearer ones have been waiting."""

    settling: tuple[Settling, ...] = ()
    waiting: Mapping[str, float] = field(default_factory=dict)
    """`policy kind subject` to the time it was first made to wait."""


class _Candidate(NamedTuple):
    """An action on its way into the plan; sorts into the order of admission."""

    phase: int
    rank: int
    kind: str
    subject: str
    strength: float
    position: int
    tie: str
    """So that the order within a proposal never matters."""
    policy: str
    action: Action
    direction: Direction

    @property
    def key(self) -> tuple[int, int, str, str, float, int, str]:
        return self[:7]


def arbitrate(
    proposals: Sequence[Proposal],
    snapshot: Snapshot,
    memory: ArbitrationMemory,
    options: Arbitration,
) -> tuple[Plan, ArbitrationMemory]:
    """The plan, and who waits. Every proposed action is in the plan or withheld with a reason."""
    order = _order(snapshot.dataflow.goals)
    reach = Reach(snapshot.dataflow)
    claims = Claims(snapshot, reach)
    admitted: list[_Candidate] = []
    withheld: list[Withheld] = []
    waiting: dict[str, float] = {}
    now_s = snapshot.time_s

    def refuse(policy: str, action: Action, reason: Reason) -> None:
        withheld.append(Withheld(action=action, policy=policy, reason=reason))

    candidates = []
    for position, proposal in enumerate(proposals):
        for action in proposal.actions:
            if (reason := _impossible(action, snapshot)) is not None:
                refuse(proposal.policy, action, reason)
            else:
                candidates.append(_candidate(action, proposal.policy, position, snapshot, order))
    given_up = {(p.policy, notice.goal) for p in proposals for notice in p.notices}
    settling = [s for s in memory.settling if s.until_s > now_s]
    for candidate in sorted(candidates, key=lambda c: c.key):
        policy, action = candidate.policy, candidate.action
        if (reason := claims.contradiction(action, policy, candidate.direction)) is not None:
            refuse(policy, action, reason)
            continue
        cheaper = _cheaper(candidate, admitted, settling, given_up, snapshot, reach, order)
        if cheaper is not None:
            key = f"{policy} {action.kind} {action.subject}"
            since_s = memory.waiting.get(key, now_s)
            waiting[key] = since_s
            # Half an interval of grace, as everywhere cycles are counted by time.
            if now_s - since_s < (options.patience - 0.5) * snapshot.interval_s:
                refuse(policy, action, cheaper)
                continue
        claims.add(action, policy, candidate.direction)
        admitted.append(candidate)
    plan = Plan(
        time_s=now_s,
        actions=tuple(Planned(action=c.action, policy=c.policy) for c in admitted),
        withheld=tuple(withheld),
        notices=_distinct(n for p in proposals for n in p.notices),
    )
    return plan, ArbitrationMemory(settling=tuple(settling), waiting=waiting)


def settle(memory: ArbitrationMemory, done: Iterable[Planned], snapshot: Snapshot) -> ArbitrationMemory:
    """The memory after the given actions were carried out: dearer remedies let them take effect first."""
    reach = Reach(snapshot.dataflow)
    begun = tuple(
        Settling(
            policy=planned.policy,
            remedy=planned.action.remedy,
            goal=goal_of(planned.action),
            operators=tuple(sorted(touched(planned.action, reach))),
            action=f"{planned.action.kind} {planned.action.subject}",
            until_s=snapshot.time_s + _settling_s(planned.action, snapshot),
        )
        for planned in done
        if not isinstance(planned.action, Pace) and direction(planned.action, snapshot) == "relieves"
    )
    return ArbitrationMemory(settling=memory.settling + begun, waiting=memory.waiting)


def goal_of(action: Action) -> str | None:
    """The goal an action serves: what its reason calls `goal` or `constraint`, or whose latency it promises."""
    for name in ("goal", "constraint", "sink"):
        stated = action.reason.facts.get(name)
        if isinstance(stated, str):
            return stated
    if action.expects is not None and action.expects.metric in ("latency_s", "accuracy"):
        return action.expects.subject
    return None


def _order(goals: Goals) -> Mapping[Remedy, int]:
    """Remedy to rank; remedies the user left out come after those named, cheapest first."""
    named = (*goals.remedies, *(r for r in CHEAPEST_FIRST if r not in goals.remedies))
    return {remedy: rank for rank, remedy in enumerate(named)}


def _candidate(
    action: Action, policy: str, position: int, snapshot: Snapshot, order: Mapping[Remedy, int]
) -> _Candidate:
    way = direction(action, snapshot)
    rank = order[action.remedy]
    return _Candidate(
        phase=int(way == "returns"),
        rank=-rank if way == "returns" else rank,
        kind=action.kind,
        subject=action.subject,
        strength=_strength(action, snapshot),
        position=position,
        tie=repr(action),
        policy=policy,
        action=action,
        direction=way,
    )


def _strength(action: Action, snapshot: Snapshot) -> float:
    """Smaller goes first among actions of one kind on one subject: the one that leaves more room."""
    match action:
        case Scale():
            return -action.target
        case Acquire():
            return -action.count
        case Shed():
            return action.keep
        case Pace():
            return action.deadline_s
        case Switch():
            return alternate_cost_s(snapshot, action.operator, action.target)
        case _:
            return 0.0


def _impossible(action: Action, snapshot: Snapshot) -> Reason | None:
    """Why the action cannot be done at all: it names what does not exist, or leaves the declared bounds."""
    dataflow, nodes = snapshot.dataflow, snapshot.nodes
    operators = [getattr(action, "operator", None)]
    if isinstance(action, Shed):
        operators.append(action.target)
    for operator in operators:
        if operator is not None and operator not in dataflow.row:
            return Reason(code="no-such-operator", facts={"operator": operator})
    match action:
        case Scale(operator=operator, target=target) if operator is not None:
            bounds = dataflow.operator(operator).parallelism
            if not bounds.minimum <= target <= bounds.maximum:
                facts = {"target": target, "minimum": bounds.minimum, "maximum": bounds.maximum}
                return Reason(code="out-of-bounds", facts=facts)
        case Switch():
            known = {a.name for a in dataflow.operator(action.operator).alternates}
            if missing := [n for n in (action.current, action.target) if n not in known]:
                return Reason(code="no-such-alternate", facts={"alternate": missing[0]})
        case Move(target=node) | Release(node=node):
            row = nodes.row.get(node)
            if row is None or (isinstance(action, Move) and nodes.draining[row]):
                return Reason(code="no-such-node", facts={"node": node})
    return None


def _cheaper(
    candidate: _Candidate,
    admitted: Sequence[_Candidate],
    settling: Sequence[Settling],
    given_up: set[tuple[str, str]],
    snapshot: Snapshot,
    reach: Reach,
    order: Mapping[Remedy, int],
) -> Reason | None:
    """The cheaper remedy of another policy that the candidate waits for, if there is one.

    A policy's own actions belong together and never wait for one another. A cheaper remedy that says itself that
    it will not be enough (a notice about the goal, or an expectation short of it) holds nothing up.
    """
    action = candidate.action
    if candidate.direction != "relieves" or candidate.rank == 0:
        return None
    goal, operators = goal_of(action), touched(action, reach)

    def same_need(other_goal: str | None, other_operators: Iterable[str]) -> bool:
        if goal is not None and other_goal is not None:
            return goal == other_goal
        others = frozenset(other_operators)
        # Nodes serve every operator.
        return not others or not operators or overlap(others, operators) is not None

    for other in admitted:
        if other.rank >= candidate.rank or other.policy == candidate.policy or other.direction != "relieves":
            continue
        other_goal = goal_of(other.action)
        if not same_need(other_goal, touched(other.action, reach)):
            continue
        if _not_enough(other.action, snapshot) or _gave_up(other.policy, (goal, other_goal), given_up):
            continue
        to = f"{other.kind} {other.subject}"
        return Reason(code="yields-to-cheaper", facts={"to": to, "policy": other.policy})
    for earlier in settling:
        if order[earlier.remedy] >= candidate.rank or earlier.policy == candidate.policy:
            continue
        if same_need(earlier.goal, earlier.operators) and not _gave_up(
            earlier.policy, (goal, earlier.goal), given_up
        ):
            left_s = earlier.until_s - snapshot.time_s
            return Reason(
                code="settling", facts={"of": earlier.action, "policy": earlier.policy, "left_s": left_s}
            )
    return None


def _gave_up(policy: str, goals: Iterable[str | None], given_up: set[tuple[str, str]]) -> bool:
    return any(goal is not None and (policy, goal) in given_up for goal in goals)


def _not_enough(action: Action, snapshot: Snapshot) -> bool:
    """Whether the action's own expectation falls short of the goal it is about."""
    expects = action.expects
    if expects is None:
        return False
    if expects.metric == "latency_s":
        bounds = {
            c.name: float(b)
            for c, b in zip(snapshot.dataflow.constraints, snapshot.constraints.bound_s, strict=True)
        }
        return expects.value > bounds.get(expects.subject, float("inf"))
    if expects.metric == "accuracy" and expects.subject in snapshot.dataflow.row:
        return expects.value < snapshot.dataflow.operator(expects.subject).min_accuracy
    return False


def _settling_s(action: Action, snapshot: Snapshot) -> float:
    promised_s = action.expects.within_s if action.expects is not None else 0.0
    return max(promised_s, snapshot.interval_s) + snapshot.interval_s / 2


def _distinct(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    found: dict[tuple[str, str], Notice] = {}
    for notice in notices:
        found.setdefault((notice.goal, notice.reason.code), notice)
    return tuple(found.values())
