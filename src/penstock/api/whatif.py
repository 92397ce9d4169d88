"""`penstock.whatif`: what a run would have been with other goals, sizes, policies or loads.

A model of the engine is fitted to the run's own history; the shipped policies then run on it, through the same loop as
live. Each prediction is made several times, with other draws and with models fitted to other samples of the history:
their spread, and the error with which the run as it was is played again, are its interval.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as students_t

from penstock.api.choices import OWN, Options, choose_policies, loop_settings
from penstock.api.histories import find_history
from penstock.control import Cycle, Loop
from penstock.control.summary import Summary
from penstock.dataflow import Constraint, Dataflow, Load, OperatorId, applications, read_trace
from penstock.dataflow.graph import Sequence as OperatorSequence
from penstock.dataflow.graph import Statistic
from penstock.errors import InputError
from penstock.simulator import SimulatedClock
from penstock.simulator.calibration import Calibration, History, calibrate
from penstock.simulator.calibration.actual import (
    Figures,
    actions_of,
    actual,
    figures_of_batches,
    figures_of_summary,
)
from penstock.simulator.microbatch import Kill, MicrobatchRuntime
from penstock.simulator.microbatch_executors import Life
from penstock.telemetry import MachineClass, Snapshot

AS_IT_WAS = "as-it-was"
CONFIDENCE = 0.9
HOLDS = 0.95
"""A size holds a goal that it holds in this share of the intervals."""
MOST_SIZES = 12
"""Of a wider range of sizes, this many are tried."""
LATENCIES = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing to try."""

    label: str
    executors: int | None = None
    """A fixed number; None: as it was, or as the policies have it."""
    bounds: tuple[int, int] | None = None
    """Fewest and most executors of the policies."""
    policies: tuple[str, ...] = ()
    latency_ms: float | None = None
    """The goal; None: that of the run."""
    replay: bool = False
    """The run as it was, to see how far off the model is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different from the run in every scenario."""

    rate: float = 1.0
    trace: Load | None = None
    kills_s: tuple[float, ...] = ()
    read_limit: float | None = None
    statistic: Statistic | None = None
    price_per_hour: float = 0.0
    interval_s: float = 5.0
    options: Options | None = None


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
    scenarios = _scenarios(models[0], latency_ms, executors, policies, options)
    replay = Scenario(label="replay", replay=True, latency_ms=latency_ms[0] if latency_ms else None)
    plain = replace(change, rate=1.0, trace=None, kills_s=(), read_limit=None)
    jobs = [(m, seed, plain, replay) for seed, m in enumerate(models)]
    jobs += [(m, seed, change, s) for s in scenarios for seed, m in enumerate(models)]
    found = _in_parallel(jobs, processes, tell)
    count = len(models)
    base = _goal(models[0], replay.latency_ms, statistic)
    happened = actual(history, replace(models[0], dataflow=base), price)
    off = _error(happened, _middle(found[:count]))
    rows = []
    for number, scenario in enumerate(scenarios, start=1):
        mine = found[number * count : (number + 1) * count]
        rows.append(
            {
                "label": scenario.label,
                "executors": scenario.executors,
                "policies": list(scenario.policies),
                "latency_bound_ms": _bound(models[0], scenario.latency_ms),
                "predicted": _document(_middle(mine)),
                "interval": _interval(mine, off),
            }
        )
    cheapest = _cheapest(rows)
    asked = _asked(rows, cheapest)
    return {
        "source": history.source,
        "duration_s": models[0].duration_s,
        "queries": [q.name for q in models[0].engine.queries],
        "actual": _document(happened),
        "replayed": _document(_middle(found[:count])),
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


# --- what to try -------------------------------------------------------------------------------------------------


def _scenarios(
    model: Calibration,
    bounds_ms: Sequence[float],
    executors: tuple[int, int] | None,
    policies: Sequence[str],
    options: Options | None,
) -> list[Scenario]:
    names = [word.strip() for given in policies for word in given.split(",") if word.strip()]
    as_it_was = AS_IT_WAS in names
    if as_it_was and len(names) > 1:
        raise InputError(f"--policy {AS_IT_WAS} stands alone, not with {', '.join(names)}")
    if executors is not None and not 1 <= executors[0] <= executors[1]:
        raise InputError(f"--executors takes 4 or 2..8, not {executors[0]}..{executors[1]}")
    for name in names if not as_it_was else ():
        if name in OWN:
            choose_policies([name], _own(options, name))  # refused now rather than in another process
        else:
            choose_policies([name])
    goals: list[float | None] = list(bounds_ms) or [None]
    if names and not as_it_was and goals == [None] and not model.dataflow.constraints:
        raise InputError("a policy needs a goal, and the history has none; give --latency")
    found = []
    if names and not as_it_was:
        there = sum(1 for one in model.lives if one.ready_s <= 0) or 1
        least, most = executors or (1, max(there, len(model.lives)))
        label = "+".join(names)
        found += [
            Scenario(label=label, bounds=(least, most), policies=tuple(names), latency_ms=g) for g in goals
        ]
    elif as_it_was or executors is None:
        found += [Scenario(label="as it was", latency_ms=g) for g in goals]
    if executors is not None:
        sizes = _sizes(*executors)
        found += [
            Scenario(label=f"{n} executor{'s' if n > 1 else ''}", executors=n, latency_ms=g)
            for g in goals
            for n in sizes
        ]
    return found


def _sizes(least: int, most: int) -> list[int]:
    if most - least < MOST_SIZES:
        return list(range(least, most + 1))
    return sorted({round(x) for x in np.geomspace(least, most, MOST_SIZES)})


def _own(options: Options | None, name: str) -> dict[str, object]:
    return {k: v for k, v in (options or {}).items() if k.partition(".")[0] in (name, "loop")}


def _goal(model: Calibration, bound_ms: float | None, statistic: Statistic | None) -> Dataflow:
    """The dataflow with the bound that is asked for, on every query."""
    flow = model.dataflow
    if bound_ms is None:
        if statistic is None:
            return flow
        return replace(flow, constraints=tuple(replace(c, statistic=statistic) for c in flow.constraints))
    found = []
    for part in applications(flow):
        own = [c for c in flow.constraints if c in part.constraints]
        if own:
            found += [replace(c, bound_ms=bound_ms, statistic=statistic or c.statistic) for c in own]
        else:
            path = _path(part)
            name = f"{path[0].rpartition('.')[0] or part.name}.latency"
            found.append(
                Constraint(
                    name=name,
                    sequence=OperatorSequence(operators=path),
                    bound_ms=bound_ms,
                    statistic=statistic or "mean",
                )
            )
    return replace(flow, constraints=tuple(found))


def _path(part: Dataflow) -> tuple[OperatorId, ...]:
    """From its first source along first streams to a sink."""
    path = [part.sources[0].id]
    while streams := part.downstream(path[-1]):
        path.append(streams[0].target)
    return tuple(path)


def _bound(model: Calibration, asked_ms: float | None) -> float | None:
    known = [c.bound_ms for c in model.dataflow.constraints]
    return asked_ms if asked_ms is not None else min(known, default=None)


# --- one simulation ----------------------------------------------------------------------------------------------

Job = tuple[Calibration, int, Change, Scenario]


def predict(model: Calibration, seed: int, change: Change, scenario: Scenario) -> Figures:
    """One simulation of a scenario with one model."""
    flow = _goal(model, scenario.latency_ms, change.statistic)
    loads, duration_s = _loads(model, change)
    engine = model.engine
    if change.read_limit is not None:
        limited = tuple(replace(q, read_limit=change.read_limit) for q in engine.queries)
        engine = replace(engine, queries=limited)
    lives = [Life(ready_s=one.ready_s, gone_s=one.gone_s) for one in model.lives]
    there = max(1, sum(1 for one in lives if one.ready_s <= 0))
    most: int | None = None
    size: int | list[Life] = lives
    options = dict(change.options or {})
    if scenario.executors is not None:
        size = scenario.executors
    elif scenario.policies:
        least, most = scenario.bounds or (1, there)
        size = min(max(there, least), most)
        if "elasticity" in scenario.policies:
            options = {"elasticity.min_nodes": least, "elasticity.max_nodes": most, **options}
    machine = MachineClass(
        name="executor",
        cores=engine.executors.cores,
        price_per_hour=change.price_per_hour,
        billing_s=1.0,
        available=most,
    )
    runtime = MicrobatchRuntime(
        flow,
        engine,
        loads=loads,
        machine=machine,
        executors=size,
        seed=seed,
        first_s=model.first_s,
        kills=[Kill(time_s=t) for t in change.kills_s],
    )
    if not scenario.policies:
        return _unsteered(runtime, replace(model, dataflow=flow), duration_s, change)
    told = _Told()
    summary = Summary()
    loop = Loop(
        runtime,
        choose_policies(scenario.policies, options),
        clock=SimulatedClock(runtime),
        settings=loop_settings(
            {k: v for k, v in options.items() if k.startswith("loop.")}, interval_s=change.interval_s
        ),
        name=flow.name,
        subscribers=[summary, told],
    )
    loop.run(for_s=duration_s)
    if told.faults:
        raise RuntimeError(f"the loop had faults in simulation: {told.faults[0]}")
    found = figures_of_summary(
        summary.result(), duration_s=duration_s, batch_ms=told.batch_ms, actions=told.actions
    )
    return replace(found, series=told.series)


def _unsteered(runtime: MicrobatchRuntime, model: Calibration, duration_s: float, change: Change) -> Figures:
    """Without policies no loop is needed: a day takes a second."""
    runtime.advance(duration_s)
    return figures_of_batches(
        runtime.taken(),
        model,
        duration_s=duration_s,
        interval_s=change.interval_s,
        executor_seconds=runtime.executor_seconds,
        price_per_hour=change.price_per_hour,
    )


class _Told:
    """Subscribes to the loop: batches, actions and the course of things."""

    def __init__(self) -> None:
        self.actions: list[dict[str, object]] = []
        self.faults: list[str] = []
        self.series: dict[str, list[float | None]] = {"time_s": [], "latency_s": [], "nodes": []}
        self._seconds = self._batches = 0.0

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None) -> None:
        self.faults += [f.cause for f in cycle.faults]
        self.actions += actions_of(cycle, 0.0)
        if snapshot is None or snapshot.batches is None or cycle.brief is None:
            return
        self._seconds += float(snapshot.batches.duration_s.sum())
        self._batches += len(snapshot.batches)
        self.series["time_s"].append(cycle.time_s)
        self.series["nodes"].append(float(cycle.brief.nodes))
        goals = cycle.brief.constraints
        self.series["latency_s"].append(goals[0].latency_s if goals else None)

    @property
    def batch_ms(self) -> float | None:
        """Mean length of a batch."""
        return 1e3 * self._seconds / self._batches if self._batches else None


def _loads(model: Calibration, change: Change) -> tuple[list[Load], float]:
    """What each query's sources produce, and for how long."""
    if change.trace is None:
        return [load.scaled(rate=change.rate) for load in model.loads], model.duration_s
    total = [load.records_until(model.duration_s) for load in model.loads]
    shares = [n / sum(total) if sum(total) else 1 / len(total) for n in total]
    loads = [change.trace.scaled(rate=change.rate * share) for share in shares]
    return loads, change.trace.duration_s or model.duration_s


def _job(job: Job) -> Figures:
    return predict(*job)


def _in_parallel(
    jobs: Sequence[Job], processes: int | None, tell: Callable[[int, int], None]
) -> list[Figures]:
    """The jobs' figures in their order; in several processes where that pays."""
    wanted = min(len(jobs), processes or os.cpu_count() or 1)
    found: list[Figures | None] = [None] * len(jobs)
    if wanted < 2:
        for number, job in enumerate(jobs):
            found[number] = _job(job)
            tell(number + 1, len(jobs))
    else:
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        with ProcessPoolExecutor(wanted, mp_context=multiprocessing.get_context(method)) as pool:
            rows = {pool.submit(_job, job): number for number, job in enumerate(jobs)}
            for done, future in enumerate(as_completed(rows), start=1):
                found[rows[future]] = future.result()
                tell(done, len(jobs))
    return [one for one in found if one is not None]


# --- what came of it ---------------------------------------------------------------------------------------------


def _numbers(one: Figures) -> dict[str, float | None]:
    """The figures that have an error and an interval."""
    return {
        **{f"latency_ms.{name}": one.latency_ms.get(name) for name in LATENCIES},
        "batch_ms": one.batch_ms,
        "held": one.held,
        "executor_seconds": one.executor_seconds,
        "cost": one.cost,
    }


def _middle(runs: Sequence[Figures]) -> Figures:
    """The middle of several simulations, figure by figure; actions and course are those of the first."""
    middle: dict[str, float | None] = {}
    for name in _numbers(runs[0]):
        known = [v for one in runs if (v := _numbers(one)[name]) is not None]
        middle[name] = float(np.median(known)) if known else None
    return Figures(
        latency_ms={name: middle[f"latency_ms.{name}"] for name in LATENCIES},
        batch_ms=middle["batch_ms"],
        held=middle["held"],
        executor_seconds=middle["executor_seconds"],
        cost=middle["cost"],
        actions=runs[0].actions,
        series=runs[0].series,
    )


def _error(happened: Figures, replayed: Figures) -> dict[str, float | None]:
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


def _interval(runs: Sequence[Figures], off: Mapping[str, float | None]) -> dict[str, list[float] | None]:
    """Within which each figure lies with `CONFIDENCE`: from the spread of the models, and the error of the replay."""
    found: dict[str, list[float] | None] = {}
    for name in _numbers(runs[0]):
        values = np.array([v for one in runs if (v := _numbers(one)[name]) is not None])
        error = abs(off.get(name) or 0.0)
        if not len(values):
            found[name] = None
            continue
        reach = float(students_t.ppf((1 + CONFIDENCE) / 2, max(1, len(values) - 1)))
        if name == "held" or values.min() <= 0:
            wide = reach * math.hypot(float(values.std()) * math.sqrt(1 + 1 / len(values)), error)
            middle = float(np.median(values))
            low, high = middle - wide, middle + wide
            found[name] = [max(0.0, low), min(1.0, high) if name == "held" else high]
            continue
        logs = np.log(values)
        wide = reach * math.hypot(float(logs.std()) * math.sqrt(1 + 1 / len(values)), math.log1p(error))
        middle = float(np.median(logs))
        found[name] = [math.exp(middle - wide), math.exp(middle + wide)]
    return found


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


__all__ = ["AS_IT_WAS", "Change", "History", "Scenario", "predict", "whatif"]
