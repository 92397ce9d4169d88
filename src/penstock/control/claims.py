"""What the actions admitted so far lay claim to, and which further ones would contradict them.

The rules, each with the name that a withheld action carries as `rule`:

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
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from penstock.control.direction import Direction, Reach, overlap, touched
from penstock.control.plan import Planned
from penstock.control.yielding import ranks
from penstock.policies.actions import Acquire, Action, Move, Release, Scale, Shed, Switch
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot

Rule = Literal[
    "one-per-subject",
    "relief-first",
    "undo-dearest-first",
    "node-in-use",
    "task-would-go",
    "one-way-to-size-nodes",
]


class Claims:
    """Built up while actions are admitted; relieving actions come before those that give back."""

    def __init__(self, snapshot: Snapshot, reach: Reach) -> None:
        self._snapshot = snapshot
        self._reach = reach
        self._subjects: dict[tuple[str, str], Planned] = {}
        self._relieved: dict[str, Planned] = {}
        self._returned: dict[str, Planned] = {}
        self._receiving: dict[str, Planned] = {}
        self._last_moved: dict[str, Planned] = {}
        """Per operator, the move of the task with the highest index."""
        self._classes: dict[str, Planned] = {}
        """Machine class to the first acquisition or release of it."""
        self._node_count: Planned | None = None
        self._shed_now = _shed_now(snapshot, reach)
        self._sheds_more: Planned | None = None

    def add(self, action: Action, policy: str, way: Direction) -> None:
        """Claim what the action needs."""
        planned = Planned(action=action, policy=policy)
        self._subjects[action.kind, action.subject] = planned
        match action:
            case Move():
                self._receiving.setdefault(action.target, planned)
                last = self._last_moved.get(action.operator)
                if last is None or _index(last) < action.index:
                    self._last_moved[action.operator] = planned
                return
            case Scale(operator=None):
                self._node_count = planned
            case Acquire() | Release():
                self._classes.setdefault(self._machine(action), planned)
            case Shed() if way == "relieves":
                self._sheds_more = planned
        claimed = {"relieves": self._relieved, "returns": self._returned}.get(way)
        if claimed is not None:
            for operator in touched(action, self._reach):
                claimed.setdefault(operator, planned)

    def contradiction(self, action: Action, policy: str, way: Direction) -> Reason | None:
        """Why the action cannot join those admitted so far, or None."""
        taken = self._subjects.get((action.kind, action.subject))
        if taken is not None:
            same = (
                replace(taken.action, reason=action.reason, expects=action.expects, cost=action.cost)
                == action
            )
            return _because(taken, "one-per-subject", "already-planned" if same else "contradicts")
        other = self._node_conflict(action)
        if other is not None:
            return other
        if way != "returns":
            return None
        return self._operator_conflict(action) or self._still_shedding(action)

    def _node_conflict(self, action: Action) -> Reason | None:
        if isinstance(action, Release) and action.node in self._receiving:
            return _because(self._receiving[action.node], "node-in-use")
        shrinks = isinstance(action, Release) or (
            isinstance(action, Scale) and action.operator is None and action.target < action.current
        )
        if shrinks and self._sheds_more is not None:
            return _because(self._sheds_more, "relief-first")
        if isinstance(action, Acquire | Release):
            opposite = self._classes.get(self._machine(action))
            if opposite is not None and opposite.action.kind != action.kind:
                return _because(opposite, "one-way-to-size-nodes")
            if self._node_count is not None:
                return _because(self._node_count, "one-way-to-size-nodes")
        if isinstance(action, Scale) and action.operator is None and self._classes:
            return _because(next(iter(self._classes.values())), "one-way-to-size-nodes")
        return None

    def _still_shedding(self, action: Action) -> Reason | None:
        if not self._shed_now or not isinstance(action, Scale | Switch):
            return None
        order = ranks(self._snapshot.dataflow.goals)
        if order[action.remedy] > order["shed"]:
            return None
        operators = touched(action, self._reach)
        fed = min(self._shed_now) if not operators else overlap(self._shed_now, operators)
        if fed is None:
            return None
        subject, keep = self._shed_now[fed]
        return Reason(code="still-shedding", facts={"subject": subject, "keep": keep})

    def _operator_conflict(self, action: Action) -> Reason | None:
        operators = touched(action, self._reach)
        if isinstance(action, Scale) and action.operator is not None:
            moved = self._last_moved.get(action.operator)
            if moved is not None and _index(moved) >= action.target:
                return _because(moved, "task-would-go")
        relieved = overlap(self._relieved, operators)
        if relieved is not None and not isinstance(action, Shed):
            return _because(self._relieved[relieved], "relief-first")
        for operator in sorted(operators & self._returned.keys()):
            if self._returned[operator].action.kind != action.kind:
                return _because(self._returned[operator], "undo-dearest-first")
        return None

    def _machine(self, action: Acquire | Release) -> str:
        if isinstance(action, Acquire):
            return action.machine
        nodes = self._snapshot.nodes
        return nodes.machines[nodes.row[action.node]]


def _shed_now(snapshot: Snapshot, reach: Reach) -> dict[str, tuple[str, float]]:
    """Operator to where records on their way to it are being shed now, and the share that is kept there."""
    shed: dict[str, tuple[str, float]] = {}
    rows = zip(snapshot.sources.operator, snapshot.sources.keep, strict=True)
    places = [(id_, id_, keep) for row, keep in rows for id_ in [str(snapshot.dataflow.operators[row].id)]]
    streams = zip(snapshot.dataflow.streams, snapshot.streams.keep, strict=True)
    places += [(stream.id, str(stream.target), keep) for stream, keep in streams]
    for subject, first, keep in places:
        if keep < 1:
            for operator in reach[first]:
                shed.setdefault(operator, (subject, float(keep)))
    return shed


def _index(planned: Planned) -> int:
    assert isinstance(planned.action, Move)
    return planned.action.index


def _because(other: Planned, rule: Rule, code: str = "contradicts") -> Reason:
    with_ = f"{other.action.kind} {other.action.subject}"
    return Reason(code=code, facts={"with": with_, "policy": other.policy, "rule": rule})
