"""`penstock.whatif`: what a run would have been with other goals, sizes, policies or loads.

A model of the engine is fitted to the run's own history; the shipped policies then run on it, through the same loop as
live. Each prediction is made several times, with other draws and with models fitted to other samples of the history:
their spread, and the error with which the run as it was is played again, are its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock.api.choices import Options
from penstock.api.histories import find_history
from penstock.api.prediction_intervals import CONFIDENCE, error, interval, middle
from penstock.api.scenarios import Change, Scenario, bound_ms, in_parallel, scenarios, with_goal
from penstock.dataflow import Load, read_trace
from penstock.dataflow.graph import Statistic
from penstock.simulator.calibration import calibrate
from penstock.simulator.calibration.actual import Figures, actual

HOLDS = 0.95
"""A size holds a goal that it holds in this share of the intervals."""


def whatif(
    run: str | Path,
    *,
    journal: Path | None = None,
    latency_ms: Sequence[float] = (),
    statistic: Statistic | None = None,
    rate: float = 1.0,
    rate_trace: Load | str | Path | None = None,
    executors: tuple[int, int] | None = None,
    policies: Sequence[str] = (),
    options: Options | None = None,
    kills_s: Sequence[float] = (),
    read_limit: float | None = None,
    was: tuple[int, int] | None = None,
    price_per_hour: float | None = None,
    draws: int = 8,
    processes: int | None = None,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """What happened beside what would have happened, as one document.

    `run` is a run's id or `last`, an event log of Spark, or a file of progress JSON. `executors` are the sizes to try
    (and the bounds of the policies); `policies` the shipped ones by name, or `as-it-was`; `was` says how many executors
    with how many cores there were, where the history does not tell. `draws` models stand for what is not known.
    """
    history = find_history(run, journal)
    price = history.price_per_hour if price_per_hour is None else price_per_hour
    trace = read_trace(rate_trace) if isinstance(rate_trace, str | Path) else rate_trace
    change = Change(
        rate=rate,
        trace=trace,
        kills_s=tuple(kills_s),
        read_limit=read_limit,
        statistic=statistic,
        price_per_hour=price,
        interval_s=history.interval_s,
        options=options,
    )
    models = [calibrate(history, was=was)]
    models += [calibrate(history, seed=seed, was=was) for seed in range(1, draws + 1)]
    tried = scenarios(models[0], latency_ms, executors, policies, options)
    replay = Scenario(label="replay", replay=True, latency_ms=latency_ms[0] if latency_ms else None)
    plain = replace(change, rate=1.0, trace=None, kills_s=(), read_limit=None)
    jobs = [(m, seed, plain, replay) for seed, m in enumerate(models)]
    jobs += [(m, seed, change, s) for s in tried for seed, m in enumerate(models)]
    found = in_parallel(jobs, processes, tell)
    count = len(models)
    base = with_goal(models[0], replay.latency_ms, statistic)
    happened = actual(history, replace(models[0], dataflow=base), price)
    off = error(happened, middle(found[:count]))
    rows = []
    for number, scenario in enumerate(tried, start=1):
        mine = found[number * count : (number + 1) * count]
        rows.append(
            {
                "label": scenario.label,
                "executors": scenario.executors,
                "policies": list(scenario.policies),
                "latency_bound_ms": bound_ms(models[0], scenario.latency_ms),
                "predicted": _document(middle(mine)),
                "interval": interval(mine, off),
            }
        )
    cheapest = _cheapest(rows)
    asked = _asked(rows, cheapest)
    return {
        "source": history.source,
        "duration_s": models[0].duration_s,
        "queries": [q.name for q in models[0].engine.queries],
        "actual": _document(happened),
        "replayed": _document(middle(found[:count])),
        "error": off,
        "predicted": asked["predicted"],
        "interval": asked["interval"],
        "confidence": CONFIDENCE,
        "asked": asked["label"],
        "scenarios": rows,
        "cheapest": cheapest,
        "assumed": [asdict(a) for a in models[0].assumed],
        "unknown": list(models[0].unknown),
        "draws": draws,
    }


def _document(one: Figures) -> dict[str, Any]:
    return {**asdict(one), "actions": [dict(a) for a in one.actions]}


def _cheapest(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each goal the fixed size with the fewest executor-seconds that holds it."""
    found = []
    for bound in dict.fromkeys(r["latency_bound_ms"] for r in rows if r["latency_bound_ms"] is not None):
        sizes = [r for r in rows if r["latency_bound_ms"] == bound and r["executors"] is not None]
        if not sizes:
            continue
        held = [r for r in sizes if (r["predicted"]["held"] or 0.0) >= HOLDS]
        best = min(held, key=lambda r: r["predicted"]["executor_seconds"], default=None)
        found.append(
            {
                "latency_bound_ms": bound,
                "executors": None if best is None else best["executors"],
                "executor_seconds": None if best is None else best["predicted"]["executor_seconds"],
                "cost": None if best is None else best["predicted"]["cost"],
            }
        )
    return found


def _asked(rows: Sequence[dict[str, Any]], cheapest: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The scenario that the question is about: the policy's, else the cheapest size that holds, else the last."""
    if rows[0]["executors"] is None:
        return rows[0]
    wanted = cheapest[0]["executors"] if cheapest else None
    return next((r for r in rows if r["executors"] == wanted), rows[-1])
