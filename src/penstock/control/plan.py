"""A plan, what became of it, and the two ports of the loop: a runtime and a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from penstock.policies.actions import Action
from penstock.policies.policy import Notice
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot

Status = Literal["applied", "held", "deferred", "blocked", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An action and the policy that wanted it."""

    action: Action
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """An action that was proposed and left out of the plan, and why."""

    action: Action
    policy: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions that do not contradict one another, what was left out, and the goals nothing reaches."""

    time_s: float
    actions: tuple[Planned, ...] = ()
    withheld: tuple[Withheld, ...] = ()
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one action.

    *applied*: the runtime confirms it; *held*: already so, nothing to do; *deferred*: under way or waiting, it
    will be asserted again; *blocked*: this runtime cannot (reason says why); *failed*: tried, did not work.
    """

    action: Action
    status: Status
    reason: Reason | None = None
    took_s: float = 0.0


class Runtime(Protocol):
    """Where a dataflow runs. Level-triggered: what was asked for is kept and asserted again until it is so."""

    def observe(self) -> Snapshot:
        """The facts of the interval since the last call. `NotReadyError`: nothing to see yet, try next cycle."""
        ...

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Carry the plan out as far as possible now: one outcome per action, in order, then (with their own
        actions) those of earlier deferred ones that have since been decided.
        """
        ...


class Clock(Protocol):
    """Time, injected. The simulator's clock advances the simulation while it sleeps."""

    def now(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def sleep_until(self, time_s: float) -> None:
        """Return when `now()` is at least `time_s`."""
        ...


class NotReadyError(Exception):
    """Nothing can be observed yet; the loop tries again next cycle without calling it a fault."""
