"""Why rows of the reproductions are red, in words: for the page, which is made from the figures alone."""

from __future__ import annotations

from collections.abc import Mapping

STEPWISE = (
    "a step is met in two changes or more, a second or two apart: the forecast of a step is a short ramp, and so is "
    "the measured rate after one. DS2 and threshold change less often, with more task-seconds"
)
REASONS: Mapping[str, Mapping[tuple[str, str], str]] = {
    "nephele": {
        ("PrimeTester, 20 ms, cycle", "changes of size"): STEPWISE,
        (
            "PrimeTester, 20 ms, cycle",
            "task-seconds",
        ): "at a tenth of the paper's size a step of the load is a few tasks, "
        "and ours keeps one or two more than the oracle on each",
        (
            "PrimeTester",
            "task-hours",
        ): "the price of the rows beside it: the bound is held in more intervals, with fewer changes of size",
    },
    "neptune": {
        (
            "",
            "messages/s at the end",
        ): "who has let messages wait processes more at the end than arrives: the paper's "
        "method still works them off, as its p99 of latency at the end shows, and ours has none left",
        (
            "foreign",
            "s.d. of CPU load",
        ): "ours moves more off the nodes that others load, so those have less to do",
        (
            "variable",
            "moves in the last third",
        ): "the waves do not end, and nothing limits moves but their own gain",
        ("foreign", "moves"): "the price of what came back: messages/s since the change, and p99 of latency",
        (
            "",
            "moves",
        ): "the price of evenness: the spread of CPU load and p99 of latency are the rows beside. Forecasts "
        "move more than the last value does, and win little over it here",
        (
            "",
            "p99 of latency",
        ): "no seed is worse than the rival; on most of them neither has anything waiting, and the "
        "interval of the mean reaches over 0",
    },
    "dynamic-dataflows": {
        (
            "deployment",
            "ga",
        ): "the genetic search is the paper's as we read it; it ends further from the optimum than "
        "theirs did",
    },
}
"""Paper to how trial and metric begin; the first that fits counts."""


def reason(paper: str, trial: str, metric: str) -> str:
    """Why that row is red; empty where nobody has found out."""
    known = REASONS.get(paper, {}).items()
    return next((why for (t, m), why in known if trial.startswith(t) and metric.startswith(m)), "")
