"""Cheapest first: which remedies serve the same need, and whether a dearer one has to wait for a cheaper one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.control.direction import Reach, overlap, touched
from penstock.dataflow import Goals
from penstock.dataflow.graph import CHEAPEST_FIRST, Remedy
from penstock.policies.actions import Action
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """A remedy that was carried out and has until `until_s` to take effect."""

    policy: str
    remedy: Remedy
    goal: str | None
    operators: tuple[str, ...]
    action: str
    until_s: float

    @classmethod
    def of(cls, action: Action, policy: str, reach: Reach, until_s: float) -> Settling:
        """The note that later cycles read."""
        return cls(
            policy=policy,
            remedy=action.remedy,
            goal=goal_of(action),
            operators=tuple(sorted(touched(action, reach))),
            action=f"{action.kind} {action.subject}",
            until_s=until_s,
        )


def goal_of(action: Action) -> str | None:
    """The goal an action serves: what its reason calls so, or whose latency or accuracy it promises."""
    for name in ("goal", "constraint", "sink"):
        stated = action.reason.facts.get(name)
        if isinstance(stated, str):
            return stated
    if action.expects is not None and action.expects.metric in ("latency_s", "accuracy"):
        return action.expects.subject
    return None


def ranks(goals: Goals) -> Mapping[Remedy, int]:
    """Remedy to rank; remedies the user left out come after those named, cheapest first."""
    named = (*goals.remedies, *(r for r in CHEAPEST_FIRST if r not in goals.remedies))
    return {remedy: rank for rank, remedy in enumerate(named)}


class Remedies:
    """The relieving actions under way: in the plan so far, resting, or settling since earlier cycles.

    A remedy holds up dearer ones of other policies for the same need, unless its own policy says that it will not
    be enough: by a notice about the goal, or by an expectation that falls short of it. The actions of one policy
    belong together and never wait for one another.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        reach: Reach,
        proposals: Iterable[Proposal],
        earlier: Iterable[Settling],
    ) -> None:
        self._snapshot, self._reach = snapshot, reach
        self._ranks = ranks(snapshot.dataflow.goals)
        self._given_up = {(p.policy, notice.goal) for p in proposals for notice in p.notices}
        self._under_way = [
            (settling, Reason(code="settling", facts=self._facts(settling))) for settling in earlier
        ]

    def add(self, action: Action, policy: str) -> None:
        """Admitted into this plan."""
        if not self._not_enough(action):
            settling = Settling.of(action, policy, self._reach, self._snapshot.time_s)
            facts = {"to": settling.action, "policy": policy}
            self._under_way.append((settling, Reason(code="yields-to-cheaper", facts=facts)))

    def cheaper_than(self, action: Action, policy: str) -> Reason | None:
        """What the action has to wait for, if anything."""
        rank, goal, operators = self._ranks[action.remedy], goal_of(action), touched(action, self._reach)
        for other, reason in reversed(self._under_way):
            if other.policy == policy or self._ranks[other.remedy] >= rank:
                continue
            if self._given_up & {(other.policy, goal), (other.policy, other.goal)}:
                continue
            # Actions on nodes touch no operator in particular: they serve all.
            everywhere = not operators or not other.operators
            if everywhere or (goal and goal == other.goal) or overlap(other.operators, operators):
                return reason
        return None

    def _facts(self, settling: Settling) -> dict[str, str | int | float | bool | None]:
        left_s = settling.until_s - self._snapshot.time_s
        return {"of": settling.action, "policy": settling.policy, "left_s": left_s}

    def _not_enough(self, action: Action) -> bool:
        """Whether the action's own expectation falls short of the goal it is about."""
        expects, snapshot = action.expects, self._snapshot
        if expects is None:
            return False
        if expects.metric == "latency_s":
            for i, constraint in enumerate(snapshot.dataflow.constraints):
                if constraint.name == expects.subject:
                    return bool(expects.value > snapshot.constraints.bound_s[i])
        if expects.metric == "accuracy" and expects.subject in snapshot.dataflow.row:
            return expects.value < snapshot.dataflow.operator(expects.subject).min_accuracy
        return False
