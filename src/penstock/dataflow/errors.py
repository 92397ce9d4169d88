"""How a bad declaration is told: every problem with its place, all at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import UserError


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


class DataflowError(UserError, ValueError):
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
