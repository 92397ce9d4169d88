"""Several policies, one plan: who yields to whom, and no action that contradicts another.

Pure. Actions are admitted one after another: first those that relieve, the cheapest remedy first, then those that
give capacity back, the dearest remedy first (remedies are undone in reverse). An action is withheld, with a
reason, when it cannot be done, when it contradicts one already admitted, or when a cheaper remedy for the same
need, proposed by another policy, has yet to take effect. `docs/guide/control-loop.md` states the rules in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.control.conflicts import Claims, Remedies, Settling, ranks
from penstock.control.plan import Plan, Planned, Withheld
from penstock.policies.actions import Action, Direction
from penstock.policies.policy import Notice, Proposal
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Arbitration:
    """How long a dearer remedy waits for a cheaper one."""

    patience: int = 6
    """Cycles after which a dearer remedy goes ahead although cheaper ones are still being tried (0..)."""

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ValueError(f"patience cannot be negative: {self.patience}")


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
    *,
    resting: Iterable[Withheld] = (),
) -> tuple[Plan, ArbitrationMemory]:
    """The plan, and who waits. Every proposed action is in the plan or withheld with a reason.

    `resting` are actions that damping has held back for now: dearer remedies wait for them as well.
    """
    now_s = snapshot.time_s
    settling = tuple(s for s in memory.settling if s.until_s > now_s)
    paused = [
        Settling.of(r.action, r.policy, snapshot, now_s) for r in resting if _is_remedy(r.action, snapshot)
    ]
    remedies = Remedies(snapshot, proposals, (*settling, *paused))
    claims = Claims(snapshot)
    planned: list[Planned] = []
    withheld: list[Withheld] = []
    waiting: dict[str, float] = {}
    for candidate in _candidates(proposals, snapshot):
        policy, action, way = candidate.policy, candidate.action, candidate.direction
        reason = action.impossible(snapshot) or claims.contradiction(action, way)
        if reason is None and way == "relieves":
            reason = remedies.cheaper_than(action, policy)
            if reason is not None:
                key = f"{policy} {action.kind} {action.subject}"
                waiting[key] = since_s = memory.waiting.get(key, now_s)
                # Half an interval of grace, as everywhere cycles are counted by time.
                if now_s - since_s >= (options.patience - 0.5) * snapshot.interval_s:
                    reason = None
        if reason is not None:
            withheld.append(Withheld(action=action, policy=policy, reason=reason))
            continue
        planned.append(Planned(action=action, policy=policy))
        claims.add(action, policy, way)
        if way == "relieves":
            remedies.add(action, policy)
    plan = Plan(
        time_s=now_s,
        actions=tuple(planned),
        withheld=tuple(withheld),
        notices=_distinct(n for p in proposals for n in p.notices),
    )
    return plan, ArbitrationMemory(settling=settling, waiting=waiting)


def settle(memory: ArbitrationMemory, done: Iterable[Planned], snapshot: Snapshot) -> ArbitrationMemory:
    """The memory after the given actions were carried out: dearer remedies let them take effect first."""
    begun = tuple(
        Settling.of(p.action, p.policy, snapshot, snapshot.time_s + _settling_s(p.action, snapshot))
        for p in done
        if _is_remedy(p.action, snapshot)
    )
    return replace(memory, settling=memory.settling + begun)


def _is_remedy(action: Action, snapshot: Snapshot) -> bool:
    return action.direction(snapshot) == "relieves"


def _candidates(proposals: Sequence[Proposal], snapshot: Snapshot) -> list[_Candidate]:
    """All proposed actions in the order of admission; those that cannot be done come first."""
    order = ranks(snapshot.dataflow.goals)
    candidates = []
    for position, proposal in enumerate(proposals):
        for action in proposal.actions:
            possible = action.impossible(snapshot) is None
            way: Direction = action.direction(snapshot) if possible else "neutral"
            rank = order[action.remedy]
            candidates.append(
                _Candidate(
                    phase=-1 if not possible else int(way == "returns"),
                    rank=-rank if way == "returns" else rank,
                    kind=action.kind,
                    subject=action.subject,
                    strength=action.room(snapshot) if possible else 0.0,
                    position=position,
                    tie=repr(action),
                    policy=proposal.policy,
                    action=action,
                    direction=way,
                )
            )
    return sorted(candidates, key=lambda c: c.key)


def _settling_s(action: Action, snapshot: Snapshot) -> float:
    promised_s = action.expects.within_s if action.expects is not None else 0.0
    return max(promised_s, snapshot.interval_s) + snapshot.interval_s / 2


def _distinct(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    found: dict[tuple[str, str], Notice] = {}
    for notice in notices:
        found.setdefault((notice.goal, notice.reason.code), notice)
    return tuple(found.values())
