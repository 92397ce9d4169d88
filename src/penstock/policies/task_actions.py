"""Actions on tasks: how many there are, and where each runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from penstock.dataflow.graph import OperatorId, Remedy
from penstock.policies.action import (
    Action,
    CoolDown,
    Direction,
    Footprint,
    Places,
    Value,
    action,
    no_such_operator,
)
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.telemetry.metrics import read, task_row


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Action):
    """Change how many tasks an operator has; with `operator=None`, how many nodes (executors) there are."""

    kind: ClassVar[str] = "scale"
    doing: ClassVar[str] = "scaling"
    remedy: ClassVar[Remedy] = "scale"
    setting: ClassVar[str | None] = "parallelism"
    cool_down: ClassVar[CoolDown | None] = "size"
    value_field: ClassVar[str | None] = "target"
    before_field: ClassVar[str | None] = "current"
    operator: OperatorId | None = None
    current: int
    target: int

    def __post_init__(self) -> None:
        if self.target == self.current:
            raise ValueError(f"scaling {self.subject} from {self.current} to itself is no action")
        if self.target < 0 or self.current < 0:
            raise ValueError(f"a number of tasks cannot be negative: {self.current} -> {self.target}")

    @property
    def subject(self) -> str:
        """The operator, or `nodes`."""
        return self.operator or "nodes"

    @property
    def text(self) -> str:
        """`scale work from 2 to 4 tasks`."""
        what, things = ("", "nodes") if self.operator is None else (f"{self.operator} ", "tasks")
        return f"scale {what}from {self.current:,} to {self.target:,} {things}"

    @property
    def steps(self) -> tuple[str, str]:
        """Both sizes."""
        return f"{self.current:,}", f"{self.target:,}"

    def direction(self, snapshot: Snapshot) -> Direction:
        """More relieves."""
        return "relieves" if self.target > self.current else "returns"

    def room(self, snapshot: Snapshot) -> float:
        """The larger size goes first."""
        return -self.target

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """An operator that is not there, or a size outside its bounds."""
        unknown = no_such_operator(self.operator, snapshot)
        if self.operator is None or unknown is not None:
            return unknown
        bounds = snapshot.dataflow.operator(self.operator).parallelism
        if bounds.minimum <= self.target <= bounds.maximum:
            return None
        facts = {"target": self.target, "minimum": bounds.minimum, "maximum": bounds.maximum}
        return Reason(code="out-of-bounds", facts=facts)

    def footprint(self, snapshot: Snapshot) -> Footprint:
        """The operator and how many tasks are left, or all nodes."""
        if self.operator is None:
            return Footprint(machine="*")
        return Footprint(operators=frozenset({self.operator}), tasks_left=(self.operator, self.target))

    def change(self, snapshot: Snapshot) -> float | None:
        """Relative change."""
        return abs(self.target / self.current - 1) if self.current else None

    def places_left(self, places: Places) -> Places:
        """Tasks beyond the new size are gone; over another number of nodes the engine spreads its tasks anew."""
        if self.operator is None:
            return {}
        mine = f"{self.operator}["
        return {
            task: node
            for task, node in places.items()
            if not task.startswith(mine) or int(task[len(mine) : -1]) < self.target
        }

    def undone(self, reason: Reason) -> Scale | None:
        """As many nodes as before, where there were more."""
        shrinks = self.operator is None and self.target < self.current
        return Scale(current=self.target, target=self.current, reason=reason) if shrinks else None

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        """Back to the size."""
        now = read(snapshot, "parallelism", subject)
        if now is None or int(now) == int(value):
            return None
        operator = None if subject == "nodes" else OperatorId(subject)
        return cls(reason=reason, operator=operator, current=int(now), target=int(value))


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Action):
    """Move one task, state and all, to another node."""

    kind: ClassVar[str] = "move"
    doing: ClassVar[str] = "moving"
    remedy: ClassVar[Remedy] = "move"
    setting: ClassVar[str | None] = "node"
    cool_down: ClassVar[CoolDown | None] = "move"
    value_field: ClassVar[str | None] = "target"
    before_field: ClassVar[str | None] = "source"
    way: ClassVar[Direction] = "relieves"
    operator: OperatorId
    index: int
    source: str
    target: str

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise ValueError(f"moving {self.subject} from node {self.source} to itself is no action")

    @property
    def subject(self) -> str:
        """The task."""
        return f"{self.operator}[{self.index}]"

    @property
    def text(self) -> str:
        """`move work[0] from n0 to n1`."""
        return f"move {self.subject} from {self.source} to {self.target}"

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """An operator or a node that is not there, or that leaves."""
        row = snapshot.nodes.row.get(self.target)
        gone = row is None or bool(snapshot.nodes.draining[row])
        no_node = Reason(code="no-such-node", facts={"node": self.target}) if gone else None
        return no_such_operator(self.operator, snapshot) or no_node

    def footprint(self, snapshot: Snapshot) -> Footprint:
        """The task and the node that gets it."""
        return Footprint(
            operators=frozenset({self.operator}), task=(self.operator, self.index), node_taken=self.target
        )

    def reached(self, observed: float, snapshot: Snapshot) -> bool | None:
        """By the node's id: rows of nodes may shift between two snapshots."""
        at_node = self.expects is not None and self.expects.metric == "node"
        return snapshot.nodes.ids[int(observed)] == self.target if at_node else None

    def undone(self, reason: Reason) -> Move:
        """The way back."""
        return Move(
            operator=self.operator, index=self.index, source=self.target, target=self.source, reason=reason
        )

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        """Back to the node, unless it is there, on its way, or the node leaves."""
        row, to = task_row(snapshot, subject), snapshot.nodes.row.get(str(value))
        if row is None or to is None or snapshot.nodes.draining[to]:
            return None
        at = int(snapshot.tasks.node[row])
        if at < 0 or at == to or snapshot.tasks.moving[row]:
            return None
        operator = snapshot.dataflow.operators[snapshot.tasks.operator[row]].id
        index, ids = int(snapshot.tasks.index[row]), snapshot.nodes.ids
        return cls(reason=reason, operator=operator, index=index, source=ids[at], target=ids[to])
