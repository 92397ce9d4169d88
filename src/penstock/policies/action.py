"""What every kind of action says of itself: all that the rest of Penstock must know about it.

To add a kind: a class in `actions.py`, decorated with `@action`; its reasons in `reason_catalogue.py`; if it sets
something new that can be measured, a reader in `telemetry/metrics.py`; and the runtimes that can carry it out. Damping,
arbitration, the desired state, effects, the journal and `explain` work from what the class says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, TypeVar

from penstock.dataflow.graph import OperatorId, Remedy
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.telemetry.metrics import read

Direction = Literal["relieves", "returns", "neutral"]
"""What an action does to the load on operators: take some away, give spare capacity back, or neither."""
Value = str | int | float
CoolDown = Literal["size", "move", "switch"]
"""Which cool-down of `control.damping` an action starts: sizes, places, or alternates."""
Places = Mapping[str, str]
"""Task to the node where it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What an action should bring: the metric of a subject reaches `value` within `within_s`.

    Later cycles compare. `metric` is a name that `telemetry.metrics` can read from a snapshot, such as
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
class Footprint:
    """What an action touches. Actions that touch the same thing may contradict each other."""

    operators: frozenset[str] = frozenset()
    """Whose load it changes; empty for actions on nodes, which serve all operators."""
    machine: str | None = None
    """The class of which nodes come or go; `*`: whichever."""
    node_taken: str | None = None
    """A node that gets a task."""
    node_left: str | None = None
    """A node that is given back."""
    task: tuple[str, int] | None = None
    """Operator and index of a task that must be there."""
    tasks_left: tuple[str, int] | None = None
    """Operator, and how many of its tasks are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do, why, what it should bring and what it costs."""

    reason: Reason
    expects: Expectation | None = None
    cost: Cost = Cost()
    goal: str | None = None
    """The goal it serves: the name of a constraint or a sink. Policies that serve one goal wait for one another."""

    kind: ClassVar[str]
    doing: ClassVar[str]
    """The kind as a noun, before the subject: `scaling`."""
    remedy: ClassVar[Remedy]
    """Which remedy it belongs to: who yields to whom is decided by remedy."""
    setting: ClassVar[str | None] = None
    """What it sets, as `telemetry.metrics` reads it. The desired state keeps it under this name, by subject."""
    value_field: ClassVar[str | None] = None
    """The field with what the setting becomes."""
    before_field: ClassVar[str | None] = None
    """The field with what the setting was."""
    way: ClassVar[Direction] = "neutral"
    """Its direction, where that is always the same."""
    tolerance: ClassVar[float] = 0.0
    """How far the measured setting may be off and still count as set."""
    cool_down: ClassVar[CoolDown | None] = None
    continuous: ClassVar[bool] = False
    """Adjusted a little in every cycle: only the first and the last of a row are told."""
    bridges: ClassVar[bool] = False
    """Takes effect at once and ends as easily: it need not wait for a cheaper remedy that takes its time."""
    eventful: ClassVar[bool] = True
    """Whether it makes a stretch of a run worth telling."""

    @property
    def subject(self) -> str:
        """What the action is about: two actions of one kind on one subject contradict each other."""
        raise NotImplementedError

    @property
    def value(self) -> Value | None:
        """What the setting becomes."""
        return None if self.value_field is None else getattr(self, self.value_field)

    @property
    def before(self) -> Value | None:
        """What the setting was, where the action says so."""
        return None if self.before_field is None else getattr(self, self.before_field)

    @property
    def text(self) -> str:
        """The action as an instruction: `scale work from 2 to 4 tasks`."""
        return f"{self.kind} {self.subject}"

    @property
    def steps(self) -> tuple[str, str] | None:
        """Before and after, where a title can tell them."""
        return None

    def direction(self, snapshot: Snapshot) -> Direction:
        """Whether it relieves its operators, returns spare capacity, or does neither."""
        return self.way

    def room(self, snapshot: Snapshot) -> float:
        """How little room it leaves: of two of a kind on one subject, the one with the smaller figure goes first."""
        return 0.0

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        """Why it cannot be done at all: it names what does not exist, or leaves the declared bounds."""
        return None

    def footprint(self, snapshot: Snapshot) -> Footprint:
        """What it touches."""
        return Footprint()

    def change(self, snapshot: Snapshot) -> float | None:
        """How much it changes, for the dead band; None: there is none, or it is always worth it."""
        return None

    def reached(self, observed: float, snapshot: Snapshot) -> bool | None:
        """Whether the measured metric is as expected; None: compare the numbers."""
        return None

    def places_left(self, places: Places) -> Places:
        """The places of tasks that are still wanted after it."""
        return places

    def undone(self, reason: Reason) -> Action | None:
        """What takes it back if it did harm by taking something away; None: it cannot do such harm."""
        return None

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        """The action that sets a subject to a value again; None if it is so, or cannot be any more."""
        return None

    @classmethod
    def is_set(cls, subject: str, value: float, snapshot: Snapshot) -> bool | None:
        """Whether the setting has this value; None if that cannot be told."""
        now = None if cls.setting is None else read(snapshot, cls.setting, subject)
        return None if now is None else abs(now - value) <= cls.tolerance


KINDS: dict[str, type[Action]] = {}
"""Every kind of action by its name."""
ActionT = TypeVar("ActionT", bound=Action)


def action(kind: type[ActionT]) -> type[ActionT]:
    """Make a kind of action known to the rest."""
    KINDS[kind.kind] = kind
    return kind


def is_setting(metric: str) -> bool:
    """Whether actions set this metric outright: reached means done, there is no need to wait."""
    return metric == "nodes" or any(kind.setting == metric for kind in KINDS.values())


def no_such_operator(operator: OperatorId | None, snapshot: Snapshot) -> Reason | None:
    """Why nothing can be done to an operator: there is none of that name. None if there is, or none is meant."""
    if operator is None or operator in snapshot.dataflow.row:
        return None
    return Reason(code="no-such-operator", facts={"operator": operator})
