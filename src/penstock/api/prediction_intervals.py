"""How sure a prediction is: the middle of several simulations, the error of the replay, and the interval of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import t as students_t

from penstock.simulator.calibration.actual import Figures

CONFIDENCE = 0.9
LATENCIES = ("mean", "p50", "p95", "p99")


def _numbers(one: Figures) -> dict[str, float | None]:
    """The figures that have an error and an interval."""
    return {
        **{f"latency_ms.{name}": one.latency_ms.get(name) for name in LATENCIES},
        "batch_ms": one.batch_ms,
        "held": one.held,
        "executor_seconds": one.executor_seconds,
        "cost": one.cost,
    }


def middle(runs: Sequence[Figures]) -> Figures:
    """The middle of several simulations, figure by figure; actions and course are those of the first."""
    found: dict[str, float | None] = {}
    for name in _numbers(runs[0]):
        known = [v for one in runs if (v := _numbers(one)[name]) is not None]
        found[name] = float(np.median(known)) if known else None
    return Figures(
        latency_ms={name: found[f"latency_ms.{name}"] for name in LATENCIES},
        batch_ms=found["batch_ms"],
        held=found["held"],
        executor_seconds=found["executor_seconds"],
        cost=found["cost"],
        actions=runs[0].actions,
        series=runs[0].series,
    )


def error(happened: Figures, replayed: Figures) -> dict[str, float | None]:
    """How far the run as it was, played again, is from what happened: shares; of `held` the difference."""
    found: dict[str, float | None] = {}
    was, now = _numbers(happened), _numbers(replayed)
    for name, truth in was.items():
        guess = now[name]
        if truth is None or guess is None:
            found[name] = None
        elif name == "held":
            found[name] = guess - truth
        else:
            found[name] = guess / truth - 1 if truth else (0.0 if not guess else None)
    return found


def interval(runs: Sequence[Figures], off: Mapping[str, float | None]) -> dict[str, list[float] | None]:
    """Within which each figure lies with `CONFIDENCE`: from the spread of the models, and the error of the replay."""
    found: dict[str, list[float] | None] = {}
    for name in _numbers(runs[0]):
        values = np.array([v for one in runs if (v := _numbers(one)[name]) is not None])
        away = abs(off.get(name) or 0.0)
        if not len(values):
            found[name] = None
            continue
        reach = float(students_t.ppf((1 + CONFIDENCE) / 2, max(1, len(values) - 1)))
        if name == "held" or values.min() <= 0:
            wide = reach * math.hypot(float(values.std()) * math.sqrt(1 + 1 / len(values)), away)
            centre = float(np.median(values))
            low, high = centre - wide, centre + wide
            found[name] = [max(0.0, low), min(1.0, high) if name == "held" else high]
            continue
        logs = np.log(values)
        wide = reach * math.hypot(float(logs.std()) * math.sqrt(1 + 1 / len(values)), math.log1p(away))
        centre = float(np.median(logs))
        found[name] = [math.exp(centre - wide), math.exp(centre + wide)]
    return found
