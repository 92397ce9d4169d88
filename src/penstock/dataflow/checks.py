"""Checks of single values: a number within its range, a word among its choices, a text that is not empty."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Integral, Real

from penstock.dataflow.errors import Problem
from penstock.errors import did_you_mean


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
