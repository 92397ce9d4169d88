"""Which actions cannot be in one plan, and which remedy waits for a cheaper one.

The rules of contradiction, each with the name that a withheld action carries as `rule`:

- `one-per-subject`: one size, one alternate, one keep share, one place, one deadline for each thing.
- `relief-first`: what relieves an operator goes before what takes its capacity away: no scale-down and no dearer
  alternate while it is scaled up, switched to a cheaper one or fed less; no node given back while more is shed.
- `undo-dearest-first`: of several ways to use the same spare capacity, the dearest remedy is undone first: shed
  less, then scale down, then switch back.
- `node-in-use`: no node is given back that a task moves to.
- `task-would-go`: no task is moved that the same plan removes.
- `one-way-to-size-nodes`: nodes of one class come or go, and by number or by class, never both.

`undo-dearest-first` also holds over time: while records on their way to an operator are still being shed, its tasks,
its alternate and the number of nodes are not cut back (`still-shedding`), unless the user ranks shedding as cheaper:
what is left of the load would look like too much capacity, and the two remedies would chase each other.

Shedding is the exception to `relief-first`: keep shares of several streams are set together, and shedding less is
what the other remedies are for.

The rules read what an action says of itself (`Action.footprint`, `Action.direction`), never its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from penstock.control.plan import Planned
from penstock.dataflow import Goals
from penstock.dataflow.graph import CHEAPEST_FIRST, Remedy
from penstock.policies.actions import Action, Direction, Footprint
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot

Rule = Literal[
    "one-per-subject",
    "relief-first",
    "undo-dearest-first",
    "node-in-use",
    "task-would-go",
    "one-way-to-size-nodes",
]


def ranks(goals: Goals) -> Mapping[Remedy, int]:
    """Remedy to rank; remedies the user left out come after those named, cheapest first."""
    named = (*goals.remedies, *(r for r in CHEAPEST_FIRST if r not in goals.remedies))
    return {remedy: rank for rank, remedy in enumerate(named)}


def goal_of(action: Action) -> str | None:
    """The goal an action serves: the one it names, or whose latency or accuracy it promises."""
    if action.goal is None and action.expects is not None:
        return action.expects.subject if action.expects.metric in ("latency_s", "accuracy") else None
    return action.goal


class Claims:
    """What the admitted actions touch. Built up while they are admitted; those that relieve come first."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._subjects: dict[tuple[str, str], Planned] = {}
        self._relieved: dict[str, Planned] = {}
        self._returned: dict[str, Planned] = {}
        self._taken: dict[str, Planned] = {}
        """Node to the first action that puts a task on it."""
        self._last_task: dict[str, tuple[int, Planned]] = {}
        """Operator to the highest index of a task that must be there."""
        self._classes: dict[str, Planned] = {}
        """Machine class to the first action that changes how many nodes of it there are."""
        self._node_count: Planned | None = None
        self._shed_now = _shed_now(snapshot)
        self._sheds_more: Planned | None = None

    def add(self, action: Action, policy: str, way: Direction) -> None:
        """Claim what the action touches."""
        planned, print_ = Planned(action=action, policy=policy), action.footprint(self._snapshot)
        self._subjects[action.kind, action.subject] = planned
        if print_.node_taken is not None:
            self._taken.setdefault(print_.node_taken, planned)
        if print_.machine == "*":
            self._node_count = planned
        elif print_.machine is not None:
            self._classes.setdefault(print_.machine, planned)
        if action.remedy == "shed" and way == "relieves":
            self._sheds_more = planned
        if print_.task is not None:
            operator, index = print_.task
            if operator not in self._last_task or self._last_task[operator][0] < index:
                self._last_task[operator] = index, planned
            return  # where a task runs does not change how much its operator has to do
        claimed = {"relieves": self._relieved, "returns": self._returned}.get(way)
        if claimed is not None:
            for id_ in print_.operators:
                claimed.setdefault(id_, planned)

    def contradiction(self, action: Action, way: Direction) -> Reason | None:
        """Why the action cannot join those admitted so far, or None."""
        taken = self._subjects.get((action.kind, action.subject))
        if taken is not None:
            other = taken.action
            alike = replace(
                other, reason=action.reason, expects=action.expects, cost=action.cost, goal=action.goal
            )
            return _because(taken, "one-per-subject", "already-planned" if alike == action else "contradicts")
        touched = action.footprint(self._snapshot)
        conflict = self._node_conflict(action, touched, way)
        if conflict is not None or way != "returns":
            return conflict
        return self._operator_conflict(action, touched) or self._still_shedding(action, touched)

    def _node_conflict(self, action: Action, touched: Footprint, way: Direction) -> Reason | None:
        if touched.node_left in self._taken:
            return _because(self._taken[touched.node_left], "node-in-use")
        if touched.machine is None:
            return None
        if way == "returns" and self._sheds_more is not None:
            return _because(self._sheds_more, "relief-first")
        if touched.machine == "*":
            other = next(iter(self._classes.values()), None)
        else:
            same = self._classes.get(touched.machine)
            opposite = same is not None and same.action.kind != action.kind
            other = same if opposite else self._node_count
        return None if other is None else _because(other, "one-way-to-size-nodes")

    def _operator_conflict(self, action: Action, touched: Footprint) -> Reason | None:
        if touched.tasks_left is not None:
            operator, count = touched.tasks_left
            index, planned = self._last_task.get(operator, (-1, None))
            if planned is not None and index >= count:
                return _because(planned, "task-would-go")
        relieved = _common(self._relieved, touched.operators)
        if relieved is not None and action.remedy != "shed":
            return _because(self._relieved[relieved], "relief-first")
        for operator in sorted(touched.operators & self._returned.keys()):
            if self._returned[operator].action.kind != action.kind:
                return _because(self._returned[operator], "undo-dearest-first")
        return None

    def _still_shedding(self, action: Action, touched: Footprint) -> Reason | None:
        order = ranks(self._snapshot.dataflow.goals)
        if not self._shed_now or action.remedy == "shed" or order[action.remedy] > order["shed"]:
            return None
        if touched.node_left is not None:
            return None  # a certain node is given back for a reason of its own, such as its price
        fed = _common(self._shed_now, touched.operators) if touched.operators else min(self._shed_now)
        if fed is None:
            return None
        subject, keep = self._shed_now[fed]
        return Reason(code="still-shedding", facts={"subject": subject, "keep": keep})


def _shed_now(snapshot: Snapshot) -> dict[str, tuple[str, float]]:
    """Operator to where records on their way to it are being shed now, and the share that is kept there."""
    dataflow, shed = snapshot.dataflow, dict[str, tuple[str, float]]()
    rows = zip(snapshot.sources.operator, snapshot.sources.keep, strict=True)
    places = [(id_, id_, keep) for row, keep in rows for id_ in [str(dataflow.operators[row].id)]]
    streams = zip(dataflow.streams, snapshot.streams.keep, strict=True)
    places += [(stream.id, str(stream.target), keep) for stream, keep in streams]
    for subject, first, keep in places:
        if keep < 1:
            for operator in dataflow.below(first):
                shed.setdefault(operator, (subject, float(keep)))
    return shed


def _because(other: Planned, rule: Rule, code: str = "contradicts") -> Reason:
    with_ = f"{other.action.kind} {other.action.subject}"
    return Reason(code=code, facts={"with": with_, "policy": other.policy, "rule": rule})


def _common(one: Iterable[str], other: frozenset[str]) -> str | None:
    """An operator in both (the first by name), or None."""
    common = other.intersection(one)
    return min(common) if common else None


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
    def of(cls, action: Action, policy: str, snapshot: Snapshot, until_s: float) -> Settling:
        """The note that later cycles read."""
        return cls(
            policy=policy,
            remedy=action.remedy,
            goal=goal_of(action),
            operators=tuple(sorted(action.footprint(snapshot).operators)),
            action=f"{action.kind} {action.subject}",
            until_s=until_s,
        )


class Remedies:
    """The relieving actions under way: in the plan so far, resting, or settling since earlier cycles.

    A remedy holds up dearer ones of other policies for the same need, unless its own policy says that it will not
    be enough: by a notice about the goal, or by an expectation that falls short of it. The actions of one policy
    belong together and never wait for one another. Shedding takes effect at once and ends as easily: it bridges the
    time until nodes are there.
    """

    def __init__(
        self, snapshot: Snapshot, proposals: Iterable[Proposal], earlier: Iterable[Settling]
    ) -> None:
        self._snapshot = snapshot
        self._ranks = ranks(snapshot.dataflow.goals)
        self._given_up = {(p.policy, notice.goal) for p in proposals for notice in p.notices}
        self._under_way = [(one, Reason(code="settling", facts=self._facts(one))) for one in earlier]

    def add(self, action: Action, policy: str) -> None:
        """Admitted into this plan."""
        if not self._not_enough(action):
            settling = Settling.of(action, policy, self._snapshot, self._snapshot.time_s)
            facts = {"to": settling.action, "policy": policy}
            self._under_way.append((settling, Reason(code="yields-to-cheaper", facts=facts)))

    def cheaper_than(self, action: Action, policy: str) -> Reason | None:
        """What the action has to wait for, if anything."""
        rank, goal = self._ranks[action.remedy], goal_of(action)
        operators = action.footprint(self._snapshot).operators
        for other, reason in reversed(self._under_way):
            if other.policy == policy or self._ranks[other.remedy] >= rank:
                continue
            if self._given_up & {(other.policy, goal), (other.policy, other.goal)}:
                continue
            # Actions on nodes touch no operator in particular: they serve all.
            everywhere = not operators or not other.operators
            if action.bridges and other.remedy == "scale" and not other.operators:
                continue  # nodes take their time to come
            if everywhere or (goal and goal == other.goal) or _common(other.operators, operators):
                return reason
        return None

    def _facts(self, settling: Settling) -> dict[str, Fact]:
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
