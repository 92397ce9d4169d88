"""Why: a stable code and the facts behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Fact = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why, as data: a stable code and the facts behind it. `control.explain` turns it into a sentence."""

    code: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
