"""Why, as data: a registered code and the facts behind it. `penstock.policies.wording` turns it into a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.policies.reason_catalogue import CATALOGUE
from penstock.policies.reason_kind import ReasonKind

Fact = str | int | float | bool | None

_registered: dict[str, ReasonKind] = {}
_checked = False


class ReasonError(ValueError):
    """A reason that is not registered, or lacks a fact. Raised in tests only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why: a code of the catalogue and the facts behind it.

    In tests a code that is not registered, or a missing fact, is an error. In production it is told plainly, because
    a slip in an explanation must not stop a run.
    """

    code: str
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if _checked:
            kind = _registered.get(self.code)
            if kind is None:
                raise ReasonError(
                    f"reason '{self.code}' is not registered; see penstock.policies.reason_catalogue"
                )
            if missing := [name for name in kind.facts if name not in self.facts]:
                raise ReasonError(f"reason '{self.code}' lacks {', '.join(missing)}")


def register(kind: ReasonKind) -> None:
    """Add a reason that is not in Penstock's own catalogue: one of an extension, or of a user's policy."""
    if _registered.setdefault(kind.code, kind) != kind:
        raise ReasonError(f"reason '{kind.code}' is registered already, with another meaning")


def registered() -> Mapping[str, ReasonKind]:
    """All reasons by code."""
    return dict(_registered)


def kind_of(code: str) -> ReasonKind | None:
    """What is registered for a code."""
    return _registered.get(code)


def check_reasons(on: bool = True) -> None:
    """Whether `Reason` refuses what is not registered, as it does in Penstock's tests."""
    global _checked
    _checked = on


for _kind in CATALOGUE:
    register(_kind)
