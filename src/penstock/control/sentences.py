"""Reasons, actions and effects in words. Codes are data everywhere else; here, last of all, they become text."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from typing import Any

from penstock.control.effects import Effect
from penstock.policies.actions import Acquire, Action, Expectation, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.reasons import Fact, Reason

SENTENCES: Mapping[str, tuple[str, ...]] = {
    # elasticity
    "bottleneck": (
        "{operator} is a bottleneck, busy {utilisation} of the time",
        "it is a bottleneck, busy {utilisation} of the time",
    ),
    "bottleneck-at-limit": ("it is a bottleneck and already has the {limit} tasks it may have",),
    "rebalance": (
        "that is the least with which records for {constraint} wait {predicted_wait_ms}, of the"
        " {allowed_wait_ms} they may",
    ),
    "bound-out-of-reach": (
        "even at the maximum, records would wait {wait_at_maximum_ms}, of the {allowed_wait_ms} they may",
        "even {nodes} nodes would only bring {predicted_ms}, the bound is {bound_ms}",
    ),
    "tasks-slower-than-bound": ("the tasks alone take {over_by_ms} longer than the bound",),
    # placement
    "worth-it": ("the traffic it saves is worth the moves",),
    # control
    "already-planned": ("{policy} asked for the same",),
    "contradicts": ("it contradicts {with} of {policy} ({rule})",),
    "yields-to-cheaper": ("the cheaper {to} of {policy} goes first",),
    "settling": ("{of} of {policy} has another {left_s} to take effect",),
    "still-shedding": ("only {keep} of the records at {subject} are kept, which comes first",),
    "cooling-down": ("it still rests for {left_s} after the last change",),
    "within-band": ("a change of {change} is too little to act on",),
    "shrink-delayed": ("a smaller size has only been enough for {waited_s} of {window_s}",),
    "shrink-softened": ("{largest} were needed within the last {window_s}, so {target} would be too few",),
    "out-of-bounds": ("{target} lies outside the declared {minimum} to {maximum}",),
    "no-such-operator": ("there is no operator {operator}",),
    "no-such-alternate": ("there is no alternate {alternate}",),
    "no-such-node": ("node {node} is not there or is leaving",),
    "dry-run": ("this is a dry run",),
    "not-leading": ("another controller leads by now",),
    "recovering": ("the state before the restart comes first",),
    "recovered": ("that is how it was before the restart",),
    "apply-failed": ("the runtime failed: {cause}",),
}
"""Code to sentences; the first one whose facts are all there is used. A code not in here is told with its facts."""

_SHARES = ("utilisation", "keep", "accuracy", "share", "change", "band", "gain", "throughput")
_LONGER = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def sentence(reason: Reason) -> str:
    """The reason as a clause, without a capital and without a full stop.

    >>> sentence(Reason(code="queue-grows", facts={"backlog_records": 12000, "age_s": 90}))
    'queue grows (backlog 12,000 records, age 1.5 min)'
    """
    facts = {name: quantity(name, value) for name, value in reason.facts.items()}
    for template in SENTENCES.get(reason.code, ()):
        needed = {name for _, name, _, _ in string.Formatter().parse(template) if name}
        if needed <= facts.keys():
            return template.format(**facts)
    told = ", ".join(f"{_plain(name)} {text}" for name, text in facts.items())
    words = reason.code.replace("-", " ")
    return f"{words} ({told})" if told else words


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
    if name.endswith("_ms"):
        return duration(value / 1e3)
    if name.endswith("_rps"):
        return f"{number(value)}/s"
    if name.endswith(("_bytes", "_bytes_per_s")):
        return size(value) + ("/s" if name.endswith("_bytes_per_s") else "")
    if name.endswith("_s"):
        return duration(value)
    if name.endswith("_records"):
        return f"{number(value)} records"
    if name.endswith("per_hour"):
        return f"{number(value)} an hour"
    if any(name == share or name.endswith(f"_{share}") for share in _SHARES):
        return f"{number(100 * value)} %"
    return number(value)


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


def deed(action: Action) -> str:
    """The action as an instruction: `scale work from 2 to 4 tasks`."""
    match action:
        case Scale():
            things = "nodes" if action.operator is None else "tasks"
            what = "" if action.operator is None else f"{action.operator} "
            return f"scale {what}from {action.current:,} to {action.target:,} {things}"
        case Move():
            return f"move {action.subject} from {action.source} to {action.target}"
        case Shed():
            where = "on" if action.target else "at"
            if action.keep == 1:
                return f"shed nothing more {where} {action.subject}"
            return f"keep {quantity('keep', action.keep)} of the records {where} {action.subject}"
        case Switch():
            return f"switch {action.operator} from {action.current} to {action.target}"
        case Pace():
            where = "between batches" if action.stream is None else f"on {action.stream}"
            return f"let records wait {duration(action.deadline_s)} {where}"
        case Acquire():
            return f"acquire {action.count:,} {action.machine}"
        case Release():
            return f"release {action.node}"
        case _:
            return f"{action.kind} {action.subject}"


def promise(expects: Expectation) -> str:
    """What an action should bring: `on-time at 80 ms within 10 s`."""
    what = metric(expects.metric, expects.subject)
    return f"{what} at {quantity(expects.metric, expects.value)} within {duration(expects.within_s)}"


def metric(name: str, subject: str) -> str:
    """A metric of a subject in words; latency goes without saying."""
    return subject if name == "latency_s" else f"{_plain(name)} of {subject}"


def verdict(effect: Effect) -> str:
    """What came of an action, with the numbers."""
    did = {"scale": "scaling", "move": "moving", "switch": "switching", "shed": "shedding at"}.get(
        effect.kind, effect.kind
    )
    head = f"{did} {effect.subject}"
    what = metric(effect.metric, effect.of)
    expected = quantity(effect.metric, effect.expected)
    if effect.verdict == "unknown" or effect.observed is None:
        return f"{head}: nobody can tell, {what} was not measured"
    observed = quantity(effect.metric, effect.observed)
    if effect.metric == "node":
        state = "arrived" if effect.verdict == "worked" else "has not arrived"
        return f"{head}: the task {state} after {duration(effect.after_s)}"
    was = "" if effect.before is None else f" from {quantity(effect.metric, effect.before)}"
    if effect.verdict == "worked":
        return f"{head} worked: {what} went{was} to {observed} in {duration(effect.after_s)}, expected {expected}"
    meanwhile = ""
    if effect.load_change is not None and abs(effect.load_change) >= 0.05:
        way = "more" if effect.load_change > 0 else "less"
        meanwhile = f"; meanwhile the load became {quantity('change', abs(effect.load_change))} {way}"
    return (
        f"{head} was not enough: {what} went{was} to {observed} in {duration(effect.after_s)},"
        f" expected {expected}{meanwhile}"
    )


def _plain(name: str) -> str:
    """A fact's name without its unit."""
    for unit in ("_bytes_per_s", "_ms", "_s", "_rps", "_bytes", "_records", "_per_hour"):
        if name.endswith(unit):
            name = name.removesuffix(unit)
            break
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
