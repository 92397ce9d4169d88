"""Scenarios of a what-if: the run with something different, each simulated with the shipped policies."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace

import numpy as np

from penstock.api.choices import OWN, Options, choose_policies, loop_settings
from penstock.control import Cycle, Loop
from penstock.control.summary import Summary
from penstock.dataflow import Constraint, Dataflow, Load, OperatorId, applications
from penstock.dataflow.graph import Sequence as OperatorSequence
from penstock.dataflow.graph import Statistic
from penstock.errors import InputError
from penstock.simulator import SimulatedClock
from penstock.simulator.calibration import Calibration
from penstock.simulator.calibration.actual import Figures, actions_of, figures_of_batches, figures_of_summary
from penstock.simulator.microbatch import Kill, MicrobatchRuntime
from penstock.simulator.microbatch_executors import Life
from penstock.telemetry import MachineClass, Snapshot

AS_IT_WAS = "as-it-was"
MOST_SIZES = 12
"""Of a wider range of sizes, this many are tried."""


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


def scenarios(
    model: Calibration,
    goals_ms: Sequence[float],
    executors: tuple[int, int] | None,
    policies: Sequence[str],
    options: Options | None,
) -> list[Scenario]:
    """What to try: the policies within their bounds, or the run as it was, and every size; each for each goal."""
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
    goals: list[float | None] = list(goals_ms) or [None]
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


def with_goal(model: Calibration, bound_ms: float | None, statistic: Statistic | None) -> Dataflow:
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


def bound_ms(model: Calibration, asked_ms: float | None) -> float | None:
    """The bound that is asked for, or the tightest of the run."""
    known = [c.bound_ms for c in model.dataflow.constraints]
    return asked_ms if asked_ms is not None else min(known, default=None)


Job = tuple[Calibration, int, Change, Scenario]


def predict(model: Calibration, seed: int, change: Change, scenario: Scenario) -> Figures:
    """One simulation of a scenario with one model."""
    flow = with_goal(model, scenario.latency_ms, change.statistic)
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


def in_parallel(
    jobs: Sequence[Job], processes: int | None, tell: Callable[[int, int], None]
) -> list[Figures]:
    """The jobs' figures in their order; in several processes where that pays."""
    wanted = min(len(jobs), processes or os.cpu_count() or 1)
    found: list[Figures | None] = [None] * len(jobs)
    if wanted < 2:
        for number, job in enumerate(jobs):
            found[number] = predict(*job)
            tell(number + 1, len(jobs))
    else:
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        with ProcessPoolExecutor(wanted, mp_context=multiprocessing.get_context(method)) as pool:
            rows = {pool.submit(predict, *job): number for number, job in enumerate(jobs)}
            for done, future in enumerate(as_completed(rows), start=1):
                found[rows[future]] = future.result()
                tell(done, len(jobs))
    return [one for one in found if one is not None]
