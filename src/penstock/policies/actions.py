"""What can be done: every kind of action. `penstock.policies.action` says what a kind must tell, and how to add one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from penstock.dataflow.graph import OperatorId, Remedy
from penstock.policies.action import (
    KINDS,
    Action,
    CoolDown,
    Cost,
    Direction,
    Expectation,
    Footprint,
    Places,
    Value,
    action,
    is_setting,
)
from penstock.policies.reasons import Reason
from penstock.policies.wording import duration, share
from penstock.telemetry import Snapshot
from penstock.telemetry.metrics import alternate_cost_s, read, task_row

__all__ = [
    "KINDS",
    "Acquire",
    "Action",
    "CoolDown",
    "Cost",
    "Direction",
    "Expectation",
    "Footprint",
    "Move",
    "Pace",
    "Places",
    "Release",
    "Scale",
    "Shed",
    "Switch",
    "Value",
    "action",
    "is_setting",
]


def _unknown(operator: OperatorId | None, snapshot: Snapshot) -> Reason | None:
    if operator is None or operator in snapshot.dataflow.row:
        return None
    return Reason(code="no-such-operator", facts={"operator": operator})


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Action):
    """Change how many tasks an operator has; with `operator=None`, how many nodes (executors) there are."""

    kind: ClassVar[str] = "scale"
    doing: ClassVar[str] = "scaling"
    remedy: ClassVar[Remedy] = "scale"
    setting: ClassVar[str | None] = "parallelism"
    cool_down: ClassVar[CoolDown | None] = "size"
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
    def value(self) -> int:
        """The size."""
        return self.target

    @property
    def before(self) -> int:
        """The size now."""
        return self.current

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
        if self.operator is None or (unknown := _unknown(self.operator, snapshot)) is not None:
            return None if self.operator is None else unknown
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
    def value(self) -> str:
        """The node."""
        return self.target

    @property
    def before(self) -> str:
        """The node now."""
        return self.source

    @property
    def text(self) -> str:
        """`move work[0] from n0 to n1`."""
        return f"move {self.subject} from {self.source} to {self.target}"

    def direction(self, snapshot: Snapshot) -> Direction:
        """A move is a remedy."""
        return "relieves"

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """An operator or a node that is not there, or that leaves."""
        row = snapshot.nodes.row.get(self.target)
        gone = row is None or bool(snapshot.nodes.draining[row])
        no_node = Reason(code="no-such-node", facts={"node": self.target}) if gone else None
        return _unknown(self.operator, snapshot) or no_node

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


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Shed(Action):
    """Keep only a share of the records: of a source's output (`operator` alone), or on the stream to `target`."""

    kind: ClassVar[str] = "shed"
    doing: ClassVar[str] = "shedding at"
    remedy: ClassVar[Remedy] = "shed"
    setting: ClassVar[str | None] = "keep"
    tolerance: ClassVar[float] = 0.005
    continuous: ClassVar[bool] = True
    operator: OperatorId
    target: OperatorId | None = None
    keep: float

    def __post_init__(self) -> None:
        if not 0 <= self.keep <= 1:
            raise ValueError(f"the share to keep of {self.subject} lies in 0..1, not {self.keep}")

    @property
    def subject(self) -> str:
        """The source, or the stream as `source->target`."""
        return self.operator if self.target is None else f"{self.operator}->{self.target}"

    @property
    def value(self) -> float:
        """The share to keep."""
        return self.keep

    @property
    def text(self) -> str:
        """`keep 40 % of the records at events`."""
        where = f"{'on' if self.target else 'at'} {self.subject}"
        if self.keep == 1:
            return f"shed nothing more {where}"
        return f"keep {share(self.keep)} of the records {where}"

    def direction(self, snapshot: Snapshot) -> Direction:
        """Keeping less relieves."""
        now = read(snapshot, "keep", self.subject)
        return "returns" if self.keep > (1.0 if now is None else now) else "relieves"

    def room(self, snapshot: Snapshot) -> float:
        """The smaller share goes first."""
        return self.keep

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """An operator that is not there."""
        return _unknown(self.operator, snapshot) or _unknown(self.target, snapshot)

    def footprint(self, snapshot: Snapshot) -> Footprint:
        """All that is fed less."""
        first = self.operator if self.target is None else self.target
        return Footprint(operators=snapshot.dataflow.below(first))

    def change(self, snapshot: Snapshot) -> float | None:
        """Change of the share; back to all is always worth it."""
        if self.keep == 1:
            return None
        now = read(snapshot, "keep", self.subject)
        return abs(self.keep - (1.0 if now is None else now))

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        """Back to the share."""
        if cls.is_set(subject, float(value), snapshot) is not False:
            return None
        operator, _, target = subject.partition("->")
        to = OperatorId(target) if target else None
        return cls(reason=reason, operator=OperatorId(operator), target=to, keep=float(value))


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(Action):
    """Let an operator run another of its alternates."""

    kind: ClassVar[str] = "switch"
    doing: ClassVar[str] = "switching"
    remedy: ClassVar[Remedy] = "switch"
    setting: ClassVar[str | None] = "alternate"
    cool_down: ClassVar[CoolDown | None] = "switch"
    operator: OperatorId
    current: str
    target: str

    def __post_init__(self) -> None:
        if self.current == self.target:
            raise ValueError(f"switching {self.operator} from '{self.current}' to itself is no action")

    @property
    def subject(self) -> str:
        """The operator."""
        return self.operator

    @property
    def value(self) -> str:
        """The alternate."""
        return self.target

    @property
    def before(self) -> str:
        """The alternate now."""
        return self.current

    @property
    def text(self) -> str:
        """`switch score from full to quick`."""
        return f"switch {self.operator} from {self.current} to {self.target}"

    @property
    def steps(self) -> tuple[str, str]:
        """Both alternates."""
        return self.current, self.target

    def direction(self, snapshot: Snapshot) -> Direction:
        """A cheaper alternate relieves."""
        before = alternate_cost_s(snapshot, self.operator, self.current)
        return "returns" if self.room(snapshot) > before else "relieves"

    def room(self, snapshot: Snapshot) -> float:
        """The cheaper alternate goes first."""
        return alternate_cost_s(snapshot, self.operator, self.target)

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """An operator or an alternate that is not there."""
        unknown = _unknown(self.operator, snapshot)
        if unknown is not None:
            return unknown
        known = {a.name for a in snapshot.dataflow.operator(self.operator).alternates}
        missing = [name for name in (self.current, self.target) if name not in known]
        return Reason(code="no-such-alternate", facts={"alternate": missing[0]}) if missing else None

    def footprint(self, snapshot: Snapshot) -> Footprint:
        """The operator."""
        return Footprint(operators=frozenset({self.operator}))

    def undone(self, reason: Reason) -> Switch:
        """The way back."""
        return Switch(operator=self.operator, current=self.target, target=self.current, reason=reason)

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        """Back to the alternate."""
        row = snapshot.dataflow.row.get(OperatorId(subject))
        if row is None:
            return None
        names = [a.name for a in snapshot.dataflow.operators[row].alternates]
        current = names[snapshot.operators.alternate[row]]
        if current == value or value not in names:
            return None
        return cls(reason=reason, operator=OperatorId(subject), current=current, target=str(value))


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(Action):
    """Set how long records may wait to be batched: on one stream, or (`stream=None`) between micro-batches."""

    kind: ClassVar[str] = "pace"
    doing: ClassVar[str] = "pacing"
    remedy: ClassVar[Remedy] = "switch"
    setting: ClassVar[str | None] = "deadline_s"
    tolerance: ClassVar[float] = 0.001
    continuous: ClassVar[bool] = True
    eventful: ClassVar[bool] = False
    stream: str | None = None
    deadline_s: float

    def __post_init__(self) -> None:
        if not self.deadline_s >= 0:
            raise ValueError(f"a batching deadline cannot be negative: {self.deadline_s}")

    @property
    def subject(self) -> str:
        """The stream as `source->target`, or `batches`."""
        return self.stream or "batches"

    @property
    def value(self) -> float:
        """The deadline."""
        return self.deadline_s

    @property
    def text(self) -> str:
        """`let records wait 2 s between batches`."""
        where = "between batches" if self.stream is None else f"on {self.stream}"
        return f"let records wait {duration(self.deadline_s)} {where}"

    def room(self, snapshot: Snapshot) -> float:
        """The shorter wait goes first."""
        return self.deadline_s

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        """Back to the deadline; asserted also where nobody can tell what it is."""
        if cls.is_set(subject, float(value), snapshot):
            return None
        stream = None if subject == "batches" else subject
        return cls(reason=reason, stream=stream, deadline_s=float(value))


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire(Action):
    """Rent more nodes of a class."""

    kind: ClassVar[str] = "acquire"
    doing: ClassVar[str] = "acquiring"
    remedy: ClassVar[Remedy] = "scale"
    cool_down: ClassVar[CoolDown | None] = "size"
    machine: str
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"one acquires at least one node, not {self.count}")

    @property
    def subject(self) -> str:
        """The machine class."""
        return f"class:{self.machine}"

    @property
    def text(self) -> str:
        """`acquire 2 large`."""
        return f"acquire {self.count:,} {self.machine}"

    def direction(self, snapshot: Snapshot) -> Direction:
        """More nodes relieve."""
        return "relieves"

    def room(self, snapshot: Snapshot) -> float:
        """The larger number goes first."""
        return -self.count

    def footprint(self, snapshot: Snapshot) -> Footprint:
        """The nodes of the class."""
        return Footprint(machine=self.machine)

    def places_left(self, places: Places) -> Places:
        """The engine spreads its tasks anew."""
        return {}


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Action):
    """Give a node back, after its tasks have been moved away."""

    kind: ClassVar[str] = "release"
    doing: ClassVar[str] = "releasing"
    remedy: ClassVar[Remedy] = "scale"
    cool_down: ClassVar[CoolDown | None] = "size"
    node: str

    @property
    def subject(self) -> str:
        """The node."""
        return f"node:{self.node}"

    @property
    def text(self) -> str:
        """`release n7`."""
        return f"release {self.node}"

    def direction(self, snapshot: Snapshot) -> Direction:
        """Fewer nodes give capacity back."""
        return "returns"

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """A node that is not there."""
        known = self.node in snapshot.nodes.row
        return None if known else Reason(code="no-such-node", facts={"node": self.node})

    def footprint(self, snapshot: Snapshot) -> Footprint:
        """The node, and the nodes of its class."""
        nodes = snapshot.nodes
        return Footprint(machine=nodes.machines[nodes.row[self.node]], node_left=self.node)

    def places_left(self, places: Places) -> Places:
        """Nothing is wanted on a node that is given back."""
        return {task: node for task, node in places.items() if node != self.node}
