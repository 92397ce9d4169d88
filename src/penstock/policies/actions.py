"""What can be done: every kind of action. `penstock.policies.action` says what a kind must tell, and how to add one.

Here are those on records, and on nodes that are rented; `task_actions` has the size and the place of tasks.
"""

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
    no_such_operator,
)
from penstock.policies.reasons import Reason
from penstock.policies.task_actions import Move, Scale
from penstock.policies.wording import duration, share
from penstock.telemetry import Snapshot
from penstock.telemetry.metrics import alternate_cost_s, read

__all__ = [
    "KINDS",
    "Acquire",
    "Action",
    "CoolDown",
    "Cost",
    "Direction",
    "Expectation",
    "Footprint",
    "Limit",
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
    bridges: ClassVar[bool] = True
    value_field: ClassVar[str | None] = "keep"
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
        return no_such_operator(self.operator, snapshot) or no_such_operator(self.target, snapshot)

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
    value_field: ClassVar[str | None] = "target"
    before_field: ClassVar[str | None] = "current"
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
        unknown = no_such_operator(self.operator, snapshot)
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
    """Set how long records may wait to be batched: on one stream, or between the micro-batches of one query."""

    kind: ClassVar[str] = "pace"
    doing: ClassVar[str] = "pacing"
    remedy: ClassVar[Remedy] = "switch"
    setting: ClassVar[str | None] = "deadline_s"
    tolerance: ClassVar[float] = 0.001
    continuous: ClassVar[bool] = True
    eventful: ClassVar[bool] = False
    value_field: ClassVar[str | None] = "deadline_s"
    stream: str | None = None
    query: str | None = None
    deadline_s: float

    def __post_init__(self) -> None:
        if not self.deadline_s >= 0:
            raise ValueError(f"a batching deadline cannot be negative: {self.deadline_s}")
        if (self.stream is None) == (self.query is None):
            raise ValueError("a stream or a query is paced: name one of them")

    @property
    def subject(self) -> str:
        """The stream as `source->target`, or `query:name`."""
        return self.stream or f"query:{self.query}"

    @property
    def text(self) -> str:
        """`start batches of orders 2 s apart`."""
        if self.stream is not None:
            return f"let records wait {duration(self.deadline_s)} on {self.stream}"
        if not self.deadline_s:
            return f"start a batch of {self.query} as soon as the one before has ended"
        return f"start batches of {self.query} {duration(self.deadline_s)} apart"

    def room(self, snapshot: Snapshot) -> float:
        """The shorter wait goes first."""
        return self.deadline_s

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """A query that is not there."""
        if self.query is None or self.query in snapshot.queries.names:
            return None
        return Reason(code="no-such-query", facts={"query": self.query})

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        """Back to the deadline; asserted also where nobody can tell what it is."""
        if cls.is_set(subject, float(value), snapshot):
            return None
        name = subject.removeprefix("query:")
        stream, query = (subject, None) if name == subject else (None, name)
        return cls(reason=reason, stream=stream, query=query, deadline_s=float(value))


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(Action):
    """Let a micro-batch read at most so many records of a source; 0: all there are."""

    kind: ClassVar[str] = "limit"
    doing: ClassVar[str] = "limiting what is read of"
    remedy: ClassVar[Remedy] = "switch"
    setting: ClassVar[str | None] = "read_limit"
    tolerance: ClassVar[float] = 0.5
    continuous: ClassVar[bool] = True
    eventful: ClassVar[bool] = False
    value_field: ClassVar[str | None] = "records"
    operator: OperatorId
    records: int

    def __post_init__(self) -> None:
        if self.records < 0:
            raise ValueError(f"a read limit cannot be negative: {self.records}")

    @property
    def subject(self) -> str:
        """The source."""
        return self.operator

    @property
    def text(self) -> str:
        """`let a batch read at most 1,200 records of orders.source`."""
        if not self.records:
            return f"let a batch read all there is of {self.operator}"
        return f"let a batch read at most {self.records:,} records of {self.operator}"

    def room(self, snapshot: Snapshot) -> float:
        """The smaller limit goes first."""
        return self.records or float("inf")

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """An operator that is not there."""
        return no_such_operator(self.operator, snapshot)

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        """Back to the limit."""
        if cls.is_set(subject, float(value), snapshot) is not False:
            return None
        return cls(reason=reason, operator=OperatorId(subject), records=int(value))


@action
@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire(Action):
    """Rent more nodes of a class."""

    kind: ClassVar[str] = "acquire"
    doing: ClassVar[str] = "acquiring"
    remedy: ClassVar[Remedy] = "scale"
    cool_down: ClassVar[CoolDown | None] = "size"
    way: ClassVar[Direction] = "relieves"
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
    way: ClassVar[Direction] = "returns"
    node: str

    @property
    def subject(self) -> str:
        """The node."""
        return f"node:{self.node}"

    @property
    def text(self) -> str:
        """`release n7`."""
        return f"release {self.node}"

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
