"""Numbers, units and reasons in words. Everything else handles data; here, last of all, it becomes text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from penstock.policies.reasons import Fact, Reason, kind_of

_LONGER = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def number(value: float) -> str:
    """Three figures, thousands apart; whole numbers as they are."""
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e5):
        return f"{int(value):,}"
    if value != value or value in (float("inf"), float("-inf")):
        return "unbounded" if value == value else "unknown"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    if abs(seconds) == float("inf") or seconds != seconds:
        return "forever"
    if seconds and abs(seconds) < 1:
        return f"{number(seconds * 1e3)} ms" if abs(seconds) >= 1e-3 else f"{number(seconds * 1e6)} µs"
    for length, unit in _LONGER:
        if abs(seconds) >= 1.5 * length:
            return f"{number(seconds / length)} {unit}"
    return f"{number(seconds)} s"


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{number(count)} {unit}"
        count /= 1000
    return f"{number(count)} TB"


def share(value: float) -> str:
    """A share of 1 in per cent."""
    return f"{number(100 * value)} %"


UNITS: Mapping[str, Callable[[float], str]] = {
    "bytes_per_s": lambda value: f"{size(value)}/s",
    "per_hour": lambda value: f"{number(value)} an hour",
    "rps": lambda value: f"{number(value)}/s",
    "bytes": size,
    "records": lambda value: f"{number(value)} records",
    "cores": lambda value: f"{number(value)} {'core' if value == 1 else 'cores'}",
    "ms": lambda value: duration(value / 1e3),
    "us": lambda value: duration(value / 1e6),
    "s": duration,
    **dict.fromkeys(
        ("utilisation", "keep", "accuracy", "share", "change", "band", "gain", "throughput", "use"), share
    ),
}
"""How a fact's name may end, which says its unit, and how it is then told. The first that fits is taken."""


def quantity(name: str, value: Fact) -> str:
    """A fact with its unit, which the end of its name tells.

    >>> quantity("rate_rps", 1234.5), quantity("latency_s", 0.0213), quantity("keep", 0.4)
    ('1,230/s', '21.3 ms', '40 %')
    """
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    ending = unit_of(name)
    return number(value) if ending is None else UNITS[ending](value)


def sentence(reason: Reason) -> str:
    """The reason as a clause, without a capital and without a full stop; plainly where it is not registered.

    >>> sentence(Reason(code="cooling-down", facts={"left_s": 90}))
    'it still rests for 1.5 min after the last change'
    """
    facts = {name: quantity(name, value) for name, value in reason.facts.items()}
    kind = kind_of(reason.code)
    if kind is not None and all(name in facts for name in kind.facts):
        return kind.sentence.format(**facts)
    told = ", ".join(f"{plain(name)} {text}" for name, text in facts.items())
    words = reason.code.replace("-", " ")
    return f"{words} ({told})" if told else words


def plain(name: str) -> str:
    """A fact's name in words, without its unit.

    >>> plain("backlog_records"), plain("own_share")
    ('backlog', 'own share')
    """
    ending = unit_of(name)
    if ending is not None and UNITS[ending] is not share and name != ending:
        name = name.removesuffix(f"_{ending}")
    return name.replace("_", " ")


def shown(value: Any) -> str:
    """A value as a person wants to read it: four significant digits, thousands separated, `-` for nothing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "∞" if value > 0 else "-"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def unit_of(name: str) -> str | None:
    """The end of a fact's name that says its unit; None where it is a count or a text."""
    return next((e for e in UNITS if name == e or name.endswith(f"_{e}")), None)
