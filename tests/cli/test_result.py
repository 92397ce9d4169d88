"""Whether a run held its goals: constraints and minima, and what was not measured is not missed."""

from __future__ import annotations

import pytest

from penstock.api.result import RunResult, missed_goals
from penstock.dataflow import Dataflow, flow
from penstock.dataflow.connectors import discard, rate


def two_sinks() -> Dataflow:
    builder = flow("f")
    source = builder.source("s", rate(1))
    source.sink("a", discard(), min_accuracy=0.9)
    source.sink("b", discard())
    return builder.build()


def figures(held: float | None, a: float | None, b: float | None) -> dict[str, object]:
    constraint = {"name": "c", "statistic": "mean", "bound_ms": 30, "held": held}
    return {"constraints": [constraint], "accuracy": {"a": a, "b": b}}


@pytest.mark.parametrize(
    ("held", "a", "b", "missed"),
    [
        (1, 0.95, 0.0, []),
        (None, None, None, []),
        (1, 0.899, 1.0, []),  # the hash kept a little less than it was told
        (0.5, 1.0, 1.0, ["c: mean latency at most 30 ms, held in 50% of the intervals"]),
        (1, 0.6, 1.0, ["a: accuracy at least 90%, was 60%"]),
    ],
)
def test_goals_that_were_missed(
    held: float | None, a: float | None, b: float | None, missed: list[str]
) -> None:
    found = missed_goals(two_sinks(), figures(held, a, b))
    assert list(found) == missed
    assert RunResult(figures={}, missed=found).held is not bool(missed)
