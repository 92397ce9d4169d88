"""How a bad declaration is told: every problem with its place, all at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where (a dotted path, as the user wrote it) and why."""

    place: str
    message: str
    line: int | None = None
    """Line in the file, counted from 1, where it is known."""
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class DataflowError(ValueError):
    """A declaration that cannot be used. Its text has one line for each problem.

    >>> print(DataflowError([Problem(place="operators.filter", message="has no input", line=3)], origin="a.yaml"))
    a.yaml:3: operators.filter: has no input
    """

    def __init__(self, problems: Iterable[Problem], *, origin: str | None = None) -> None:
        self.problems = tuple(problems)
        self.origin = origin
        super().__init__("\n".join(self._line(problem) for problem in self.problems))

    def _line(self, problem: Problem) -> str:
        where = [] if self.origin is None else [self.origin]
        where += [str(n) for n in (problem.line, problem.column) if n is not None]
        line = f"{':'.join(where)}: {problem}" if where else str(problem)
        # What a file holds must not break the line, nor write to a terminal by itself.
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.problems, self.origin))


def _rebuild(problems: tuple[Problem, ...], origin: str | None) -> DataflowError:
    return DataflowError(problems, origin=origin)


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
