"""Hand-written twins of the loop's ports: a clock, a runtime, a policy and a journal that do what a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.control import Desired, Outcome, Plan, Status
from penstock.policies.actions import Action
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot


class FakeClock:
    """A clock that stands still until somebody sleeps or the test advances it."""

    def __init__(self, start_s: float = 0.0) -> None:
        self.time_s = start_s

    def now(self) -> float:
        """The time the test has brought it to."""
        return self.time_s

    def sleep_until(self, time_s: float) -> None:
        """Be at `time_s` at once; never goes back."""
        self.time_s = max(self.time_s, time_s)

    def advance(self, seconds: float) -> None:
        """Let time pass, as slow work would."""
        self.time_s += seconds


World = Callable[[float, Desired], Snapshot]
"""The snapshot at a time, given everything that has been applied so far."""


class RecordingRuntime:
    """A runtime that remembers every plan and shows what it is told to.

    `world` is a function of the time and of what was applied so far, or a script: snapshots and exceptions in order,
    the last one repeated. `answers` maps a kind of action to what becomes of it: a status, or an exception that
    `apply` raises; kinds not named are applied.
    """

    def __init__(
        self,
        clock: FakeClock,
        world: World | Sequence[Snapshot | Exception],
        *,
        answers: Mapping[str, Status | Exception] | None = None,
    ) -> None:
        self.clock, self.answers = clock, dict(answers or {})
        self._world = world
        self._turn = 0
        self.desired = Desired()
        self.plans: list[Plan] = []

    def observe(self) -> Snapshot:
        """What the script or the function says, or its exception."""
        if callable(self._world):
            return self._world(self.clock.now(), self.desired)
        shown = self._world[min(self._turn, len(self._world) - 1)]
        self._turn += 1
        if isinstance(shown, Exception):
            raise shown
        return shown

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Remember the plan and answer as told."""
        self.plans.append(plan)
        outcomes = []
        for planned in plan.actions:
            answer = self.answers.get(planned.action.kind, "applied")
            if isinstance(answer, Exception):
                raise answer
            reason = None if answer == "applied" else Reason(code="as-told")
            outcomes.append(Outcome(action=planned.action, status=answer, reason=reason))
        self.desired = self.desired.after(o.action for o in outcomes if o.status in ("applied", "held"))
        return tuple(outcomes)

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions of all plans, in order."""
        return tuple(p.action for plan in self.plans for p in plan.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The memory of a `ScriptedPolicy`: how often it has decided."""

    number: int = 0


Line = Proposal | Exception | Iterable[Action]


class ScriptedPolicy:
    """A policy that says what is written: a line for each cycle, or a function of the snapshot.

    A line is a proposal, some actions, or an exception to raise; after the last line it has nothing to say. It is as
    pure as any: which line comes next is in its memory.
    """

    def __init__(
        self, script: Sequence[Line] | Callable[[Snapshot], Line], *, name: str = "scripted"
    ) -> None:
        self.name, self._script = name, script

    def start(self, options: object) -> Turn:
        """Before the first line."""
        return Turn()

    def decide(self, snapshot: Snapshot, memory: Turn, options: object) -> tuple[Proposal, Turn]:
        """The line of this turn."""
        line: Line
        if callable(self._script):
            line = self._script(snapshot)
        else:
            line = self._script[memory.number] if memory.number < len(self._script) else ()
        if isinstance(line, Exception):
            raise line
        after = Turn(number=memory.number + 1)
        return (
            line if isinstance(line, Proposal) else Proposal(policy=self.name, actions=tuple(line))
        ), after
