"""What is remembered of a cycle and of a run: the values that the journal keeps and `explain` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.control.brief import Brief
from penstock.control.changes import Change, Mode
from penstock.control.effects import Effect
from penstock.control.plan import Outcome, Plan
from penstock.dataflow.secrets import masked_text
from penstock.policies.policy import Proposal
from penstock.telemetry import Snapshot

Stage = Literal["observe", "decide", "arbitrate", "apply", "effects", "journal", "recover", "subscriber"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something in Penstock that went wrong and was survived."""

    stage: Stage
    cause: str
    """Kind and message of the error, in one short line."""
    policy: str | None = None

    @property
    def code(self) -> str:
        """The reason code under which repeats are counted rather than logged again."""
        return f"{self.stage}-failed"

    @classmethod
    def of(cls, stage: Stage, problem: BaseException, *, policy: str | None = None) -> Fault:
        """The fault behind an exception."""
        text = masked_text(" ".join(str(problem).split()))
        cause = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
        return cls(stage=stage, cause=cause if len(cause) <= 200 else cause[:199] + "…", policy=policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One turn of the loop, from what was seen to what came of it."""

    number: int
    time_s: float
    plan: Plan
    brief: Brief | None = None
    """None: nothing could be observed."""
    unready: str = ""
    """Why nothing could be observed, where there was nothing yet."""
    proposals: tuple[Proposal, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    effects: tuple[Effect, ...] = ()
    """What came of actions of earlier cycles."""
    faults: tuple[Fault, ...] = ()
    changes: tuple[Change, ...] = ()
    """What was changed by hand since the last cycle."""
    mode: Mode = "act"
    dry_run: bool = False
    recovering: bool = False
    """The first cycle after a restart, in which the recovered state is asserted."""
    skipped: int = 0
    """Turns that were due since the last cycle and did not happen because it took too long."""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of the loop, as the journal knows it."""

    id: str
    dataflow: str
    started_unix: float
    version: str
    settings: str = "{}"
    """The loop's settings, as JSON."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Whatever the caller wants to keep with the run: the command line, the policies."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """All that went into a cycle's decision, so that it can be made again."""

    number: int
    snapshot: Snapshot
    memories: Mapping[str, bytes]
    """Policy to its packed memory before the cycle."""
    standing: bytes
    """The loop's own packed standing before the cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Where a run stands: what a restarted controller goes on from."""

    number: int
    time_s: float
    memories: Mapping[str, bytes]
    standing: bytes
