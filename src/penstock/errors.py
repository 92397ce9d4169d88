"""What the user can mend. The command line prints such an error as it is, without a stack trace, and exits with 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class UserError(Exception):
    """Something that only the user can mend; its text says where, why, and what would do."""


class InputError(UserError):
    """Something the user gave that cannot be used."""


MOST_WORDS = 12
"""How many words a hint names when it has nothing nearer to say."""


def did_you_mean(word: str, known: Iterable[str], *, or_all: bool = True) -> str:
    """A hint to the nearest known word, or to all of them (of many, the first) when none is near; starts with `; `."""
    words = list(known)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    if not or_all or not words:
        return ""
    more = f" and {len(words) - MOST_WORDS} more" if len(words) > MOST_WORDS else ""
    return f"; known are {', '.join(words[:MOST_WORDS])}{more}"


def check_ranges(options: object, promises: Mapping[str, bool]) -> None:
    """Refuse options that break a promise, written as `name is at least 1`, with a ValueError that tells the value."""
    for promise, holds in promises.items():
        if not holds:
            name = promise.split()[0]
            raise ValueError(f"{name} = {getattr(options, name)!r} is out of range; {promise}")
