"""What can be done: every kind of action, with its reason, what it should bring and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.dataflow.graph import OperatorId, Remedy
from penstock.policies.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What an action should bring: the metric of a subject reaches `value` within `within_s`.

    Later cycles compare. `metric` is a name that `control.effects` can read from a snapshot, such as
    `latency_s`, `utilisation`, `parallelism`, `nodes`, `keep`, `alternate`, `node`.
    """

    metric: str
    subject: str
    value: float
    within_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an action takes: a pause of the records it touches, and money."""

    pause_s: float = 0.0
    per_hour: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do, why, what it should bring and what it costs."""

    reason: Reason
    expects: Expectation | None = None
    cost: Cost = Cost()

    kind: ClassVar[str]
    remedy: ClassVar[Remedy]
    """Which remedy it belongs to: who yields to whom is decided by remedy."""

    @property
    def subject(self) -> str:
        """What the action is about: two actions of one kind on one subject contradict each other."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale(Action):
    """Change how many tasks an operator has; with `operator=None`, how many nodes (executors) there are."""

    kind: ClassVar[str] = "scale"
    remedy: ClassVar[Remedy] = "scale"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Move(Action):
    """Move one task, state and all, to another node."""

    kind: ClassVar[str] = "move"
    remedy: ClassVar[Remedy] = "move"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shed(Action):
    """Keep only a share of the records: of a source's output (`operator` alone), or on the stream to `target`."""

    kind: ClassVar[str] = "shed"
    remedy: ClassVar[Remedy] = "shed"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch(Action):
    """Let an operator run another of its alternates."""

    kind: ClassVar[str] = "switch"
    remedy: ClassVar[Remedy] = "switch"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace(Action):
    """Set how long records may wait to be batched: on one stream, or (`stream=None`) between micro-batches."""

    kind: ClassVar[str] = "pace"
    remedy: ClassVar[Remedy] = "switch"
    stream: str | None = None
    deadline_s: float

    def __post_init__(self) -> None:
        if not self.deadline_s >= 0:
            raise ValueError(f"a batching deadline cannot be negative: {self.deadline_s}")

    @property
    def subject(self) -> str:
        """The stream as `source->target`, or `batches`."""
        return self.stream or "batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire(Action):
    """Rent more nodes of a class."""

    kind: ClassVar[str] = "acquire"
    remedy: ClassVar[Remedy] = "scale"
    machine: str
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"one acquires at least one node, not {self.count}")

    @property
    def subject(self) -> str:
        """The machine class."""
        return f"class:{self.machine}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Action):
    """Give a node back, after its tasks have been moved away."""

    kind: ClassVar[str] = "release"
    remedy: ClassVar[Remedy] = "scale"
    node: str

    @property
    def subject(self) -> str:
        """The node."""
        return f"node:{self.node}"
