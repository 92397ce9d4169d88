"""Lengths of time as people write them: `90s`, `2m`, `1h30m`, `500ms`, or a plain number of seconds."""

from __future__ import annotations

import math
import re

from penstock.errors import InputError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(text: str) -> float:
    """Seconds.

    >>> parse_duration("1h30m"), parse_duration("2.5")
    (5400.0, 2.5)
    """
    stripped = text.strip().lower().replace(" ", "")
    parts = _PART.findall(stripped)
    if parts and "".join(number + unit for number, unit in parts) == stripped:
        seconds = math.fsum(float(number) * _UNITS[unit] for number, unit in parts)
    else:
        try:
            seconds = float(stripped)
        except ValueError:
            raise InputError(f"'{text}' is not a length of time; write 500ms, 90s, 2m or 1h30m") from None
    if not (seconds > 0 and math.isfinite(seconds)):
        raise InputError(f"a length of time must be positive and finite, not '{text}'")
    return seconds


def shown_duration(seconds: float) -> str:
    """A length of time for people.

    >>> shown_duration(5400), shown_duration(0.25)
    ('1h30m', '250ms')
    """
    if seconds < 1:
        return f"{1e3 * seconds:.0f}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "m"), (rest, "s")]
    return "".join(f"{n}{unit}" for n, unit in parts if n)
