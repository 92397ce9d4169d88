"""What a policy is, and what it says: actions with reasons, and goals it cannot reach.

A policy is pure: `decide(snapshot, memory, options)` returns a `Proposal` and its new memory, and touches nothing
else. The snapshot's time is its only clock and the snapshot's seed its only chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock.policies.actions import Action
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A goal that no action reaches, said aloud: which one, by how much, what would help."""

    goal: str
    reason: Reason
    helps: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one policy wants in one cycle."""

    policy: str
    actions: tuple[Action, ...] = ()
    notices: tuple[Notice, ...] = ()


MemoryT = TypeVar("MemoryT")
OptionsT_contra = TypeVar("OptionsT_contra", contravariant=True)


class Policy(Protocol[MemoryT, OptionsT_contra]):
    """A pure decider. Memory is a frozen dataclass (numbers, text, tuples, mappings, arrays) the journal can save."""

    @property
    def name(self) -> str:
        """How the user calls it."""
        ...

    def start(self, options: OptionsT_contra) -> MemoryT:
        """The memory before the first cycle."""
        ...

    def decide(
        self, snapshot: Snapshot, memory: MemoryT, options: OptionsT_contra
    ) -> tuple[Proposal, MemoryT]:
        """What to do now, and what to remember."""
        ...


AnyPolicy = Policy[Any, Any]


class OfferedPolicy(Policy[Any, Any], Protocol):
    """A policy that users can choose by name: its options are known."""

    @property
    def options_type(self) -> type[Any]:
        """The frozen dataclass of its options, with a default for each."""
        ...
