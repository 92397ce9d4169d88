"""What single values must be: types that carry their check, and the walk that applies them to a declaration.

A field's type says what it may hold, once: files, the builder and the reference in the documentation all go by it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from penstock.dataflow.columns import ColumnsError, column_names
from penstock.dataflow.errors import Problem
from penstock.dataflow.functions import Function
from penstock.errors import did_you_mean

MAX_TASKS = 1_000_000
"""More tasks than this of one operator is taken for a slip of the pen."""

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
FUNCTION_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def number(
    place: str,
    value: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    whole: bool = False,
) -> Iterator[Problem]:
    """The problem with `value` as a number of that range, if there is one."""
    message = None
    # NumPy's numbers count too: they register with `numbers`.
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        message = "must be a whole number" if whole else "must be a number"
    elif not math.isfinite(size := _as_float(value)):
        message = "must be a finite number"
    elif at_least is not None and size < at_least:
        message = "must not be negative" if at_least == 0 else f"must be at least {at_least:.12g}"
    elif above is not None and size <= above:
        message = f"must be above {above:.12g}"
    elif at_most is not None and size > at_most:
        message = f"must be at most {at_most:.12g}"
    if message:
        yield Problem(place=place, message=f"{message} (got {shown(value)})")


def choice(place: str, value: object, choices: Sequence[str]) -> Iterator[Problem]:
    """The problem with `value` as one of `choices`, if it is none of them."""
    if not isinstance(value, str) or value not in choices:
        hint = did_you_mean(value, choices, or_all=False) if isinstance(value, str) else ""
        yield Problem(place=place, message=f"must be one of {', '.join(choices)} (got {shown(value)}){hint}")


def text(place: str, value: object) -> Iterator[Problem]:
    """The problem with `value` as a text that says something."""
    if not isinstance(value, str) or not value.strip():
        yield Problem(place=place, message=f"must be a text that is not empty (got {shown(value)})")


def truth(place: str, value: object) -> Iterator[Problem]:
    """The problem with `value` as true or false."""
    if not isinstance(value, bool):
        yield Problem(place=place, message=f"must be true or false (got {shown(value)})")


def identifier(place: str, value: object) -> Iterator[Problem]:
    """The problem with `value` as a name of a dataflow, operator or alternate."""
    if not isinstance(value, str) or not _ID.fullmatch(value) or len(value) > 100:
        rule = "must be letters, digits, '_', '-' and '.', beginning with a letter, at most 100"
        yield Problem(place=place, message=f"{rule} (got {shown(value)})")


def names(place: str, value: Sequence[object]) -> Iterator[Problem]:
    """The problems with `value` as names of columns."""
    for i, name in enumerate(value):
        yield from text(f"{place}[{i}]", name)
        if name in value[:i]:
            yield Problem(place=f"{place}[{i}]", message=f"'{name}' is there twice")


def columns(place: str, value: object) -> Iterator[Problem]:
    """The problem with `value` as columns with their types."""
    if not isinstance(value, str):
        yield Problem(place=place, message=f"must be a text (got {shown(value)})")
        return
    try:
        column_names(value)
    except ColumnsError as problem:
        yield Problem(place=place, message=str(problem))


def function(place: str, value: object) -> Iterator[Problem]:
    """The problem with `value` as a function that can at least be named or called."""
    if not isinstance(value, Function):
        yield Problem(place=place, message=f"must be a function (got {shown(value)})")
    elif value.path is not None and not FUNCTION_PATH.fullmatch(value.path):
        yield Problem(place=place, message=f"must be of the form 'module:name' (got '{value.path}')")
    elif value.path is None and not callable(value.resolve()):
        yield Problem(place=place, message=f"cannot be called (got {shown(value.resolve())})")


Id = Annotated[str, identifier]
Text = Annotated[str, text]
Columns = Annotated[str, columns]
"""`name type, …`, as Spark writes columns."""
Names = Annotated[tuple[str, ...], names]
Amount = Annotated[float, partial(number, at_least=0)]
Positive = Annotated[float, partial(number, above=0)]
Share = Annotated[float, partial(number, at_least=0, at_most=1)]
ValueShare = Annotated[float, partial(number, above=0, at_most=1)]
TaskCount = Annotated[int, partial(number, whole=True, at_least=1, at_most=MAX_TASKS)]
Count = Annotated[int, partial(number, whole=True, at_least=0)]

_PLAIN: dict[Any, Callable[[str, object], Iterator[Problem]]] = {
    float: number,
    int: partial(number, whole=True),
    bool: truth,
    str: text,
    Function: function,
}


def check(place: str, value: object, hint: Any) -> Iterator[Problem]:
    """The problems with `value` as what the type says."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from arguments[1](place, value)
    elif origin is Literal:
        yield from choice(place, value, arguments)
    elif origin in (Union, UnionType):  # only ever with None
        if value is not None:
            yield from check(place, value, arguments[0])
    elif origin in (tuple, list, Sequence):
        yield from _items(place, value, arguments)
    elif dataclasses.is_dataclass(hint):
        yield from check_fields(place, value)
    elif hint in _PLAIN:
        yield from _PLAIN[hint](place, value)


def check_fields(place: str, value: Any, *, but: Sequence[str] = ()) -> Iterator[Problem]:
    """The problems with the fields of a dataclass."""
    kind: Any = type(value)
    for name, hint in hints_of(kind).items():
        if name not in but:
            yield from check(f"{place}.{name}", getattr(value, name), hint)


@cache
def hints_of(of: Any) -> dict[str, Any]:
    """The types of a dataclass's fields or of a function's parameters, with their checks."""
    return {name: hint for name, hint in get_type_hints(of, include_extras=True).items() if name != "return"}


def _items(place: str, value: object, arguments: tuple[Any, ...]) -> Iterator[Problem]:
    if not isinstance(value, list | tuple):
        yield Problem(place=place, message=f"must be a list (got {shown(value)})")
        return
    fixed = len(arguments) > 1 and arguments[1] is not Ellipsis
    if fixed and len(value) != len(arguments):
        amount = "few" if len(value) < len(arguments) else "many"
        yield Problem(place=place, message=f"has too {amount} parts (got {shown(value)})")
        return
    for i, each in enumerate(value):
        yield from check(f"{place}[{i}]", each, arguments[i] if fixed else arguments[0])


def shown(value: object) -> str:
    """`value` as a message shows it: short, on one line, numbers without their type."""
    if isinstance(value, Real) and not isinstance(value, Integral):
        return f"{float(value):.12g}"
    written = str(value) if isinstance(value, Integral) else repr(value)
    return written if len(written) <= 60 else f"{written[:57]}…"


def _as_float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return math.inf
