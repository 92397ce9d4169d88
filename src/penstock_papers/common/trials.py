"""One simulated run under one policy, added up by adjustment intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.control import Cycle, Damping, Loop, PolicyRun, Settings
from penstock.dataflow import Dataflow
from penstock.policies.policy import AnyPolicy
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime, SimulationOptions
from penstock.simulator.layout import Loads
from penstock.telemetry import Sketch, Snapshot

ADJUSTMENT_S = 5.0
"""The paper's adjustment interval: bounds are judged by it, however often a policy looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to run: a dataflow on a cluster, under a policy that decides every `interval_s`."""

    dataflow: Dataflow
    cluster: Cluster
    seconds: float
    policy: AnyPolicy
    options: Any
    interval_s: float = 1.0
    simulation: SimulationOptions = field(default_factory=SimulationOptions)
    loads: Loads | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """What happened: a row per adjustment interval, a column per constraint, operator or source."""

    time_s: Floats
    rate_rps: Floats
    latency_s: Floats
    held: Floats
    """1, 0, or NaN where nothing was measured."""
    p95_s: Floats
    """95th percentile of the latency of single records, at the sinks."""
    throughput_rps: Floats
    """At the sinks."""
    parallelism: Ints
    busy_s: Floats
    """Seconds that the tasks of each operator were busy."""
    task_s: Floats
    """Seconds that tasks of each operator were there."""
    resizes: Ints
    """Changes of an operator's size that were decided on."""
    faults: int = 0

    @property
    def task_hours(self) -> float:
        """Tasks over time, all operators."""
        return float(self.task_s.sum()) / 3600

    def held_share(self, first: int = 0, last: int | None = None) -> Floats:
        """Per constraint, the share of adjustment intervals in which its bound was held."""
        return np.asarray(np.nanmean(self.held[first:last], axis=0))

    def utilisation(self, operators: list[int]) -> float:
        """Busy share of the tasks of some operators."""
        return float(self.busy_s[:, operators].sum() / self.task_s[:, operators].sum())


class _Recorder:
    """Subscribes to the loop and gathers adjustment intervals."""

    def __init__(self, interval_s: float) -> None:
        self._per = max(1, round(ADJUSTMENT_S / interval_s))
        self._open: list[Snapshot] = []
        self._resizes = 0
        self._rows: list[dict[str, Any]] = []

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None) -> None:
        if snapshot is None:
            return
        self._open.append(snapshot)
        self._resizes += sum(planned.action.kind == "scale" for planned in cycle.plan.actions)
        if len(self._open) == self._per:
            self._rows.append({**_row(self._open), "resizes": self._resizes})
            self._open, self._resizes = [], 0

    def course(self, faults: int) -> Course:
        columns = {name: np.array([row[name] for row in self._rows]) for name in self._rows[0]}
        return Course(**columns, faults=faults)


def _row(snapshots: list[Snapshot]) -> dict[str, Any]:
    last, seconds = snapshots[-1], sum(s.interval_s for s in snapshots)
    sketch = Sketch.empty()
    for each in (sketch for s in snapshots for sketch in s.sinks.sketch):
        sketch = sketch.merge(each)
    p95 = sketch.quantile(0.95)
    count = len(last.dataflow.operators)
    return {
        "time_s": last.time_s,
        "rate_rps": sum(s.sources.produced_rps.sum() * s.interval_s for s in snapshots) / seconds,
        "latency_s": np.where(last.constraints.known, last.constraints.latency_s, np.nan),
        "held": np.where(last.constraints.known, last.constraints.held, np.nan),
        "p95_s": np.nan if p95 is None else p95,
        "throughput_rps": sum(s.sinks.records.sum() for s in snapshots) / seconds,
        "parallelism": last.operators.parallelism,
        "busy_s": sum(s.by_operator.busy_s for s in snapshots),
        "task_s": sum(
            np.bincount(s.tasks.operator, minlength=count).astype(np.float64) * s.interval_s
            for s in snapshots
        ),
    }


def run(trial: Trial) -> Course:
    """The course of a trial. Policies steady themselves: the loop's own rests are off."""
    runtime = SimulatedRuntime(
        trial.dataflow, trial.cluster, seed=trial.seed, loads=trial.loads, options=trial.simulation
    )
    recorder = _Recorder(trial.interval_s)
    loop = Loop(
        runtime,
        [PolicyRun(policy=trial.policy, options=trial.options)],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=trial.interval_s, damping=Damping(rest_after_growth=0)),
        subscribers=[recorder],
    )
    loop.run(for_s=trial.seconds)
    return recorder.course(sum(loop.faults.values()))
