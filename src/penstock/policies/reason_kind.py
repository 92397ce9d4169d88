"""What is registered of a reason."""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class ReasonKind:
    """One reason: its code, what it needs to know, how it is told and what it means."""

    code: str
    sentence: str
    """With `{fact}` for each fact that is told."""
    meaning: str
    """One line of documentation."""
    area: str
    """Which part of Penstock gives it."""

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """Names of the facts that it must have, in the order of the sentence."""
        named = (name for _, name, _, _ in string.Formatter().parse(self.sentence) if name)
        return tuple(dict.fromkeys(named))


def of_area(area: str, *rows: tuple[str, str, str]) -> tuple[ReasonKind, ...]:
    """The reasons of one part of Penstock, from rows of code, sentence and meaning."""
    return tuple(
        ReasonKind(code=code, sentence=sentence, meaning=meaning, area=area)
        for code, sentence, meaning in rows
    )
