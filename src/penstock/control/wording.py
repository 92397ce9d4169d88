"""What actions should bring and what they brought, in words."""

from __future__ import annotations

from penstock.control.effects import Effect
from penstock.policies.actions import KINDS, Expectation
from penstock.policies.wording import duration, plain, quantity


def promise(expects: Expectation) -> str:
    """What an action should bring: `on-time at 80 ms within 10 s`."""
    what = metric(expects.metric, expects.subject)
    return f"{what} at {quantity(expects.metric, expects.value)} within {duration(expects.within_s)}"


def metric(name: str, subject: str) -> str:
    """A metric of a subject in words; latency goes without saying."""
    return subject if name == "latency_s" else f"{plain(name)} of {subject}"


def verdict(effect: Effect) -> str:
    """What came of an action, with the numbers."""
    kind = KINDS.get(effect.kind)
    head = f"{effect.kind if kind is None else kind.doing} {effect.subject}"
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
