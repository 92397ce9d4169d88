"""Dataflows in small simulated clusters under a policy, for scenario tests."""

from __future__ import annotations

from typing import Any

from penstock.control import Cycle, Damping, Loop, PolicyRun, Settings
from penstock.dataflow import Dataflow, Load, flow
from penstock.dataflow.connectors import discard, replay
from penstock.policies.policy import AnyPolicy
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime, SimulationOptions
from penstock.telemetry import MachineClass, Snapshot

Scene = list[tuple[Cycle, Snapshot]]


def a_line(
    load: Load, *, most: int = 40, cost_s: float = 0.01, budget_per_hour: float | None = None, **bounds: float
) -> Dataflow:
    """A source, work of 10 ms a record, a sink; bounds as `mean_ms=50`."""
    line = flow("line")
    source = line.source("in", replay(load=load, schema="x long"))
    work = source.map(
        "work", schema="x long", wiring="spread", parallelism=(1, most, 2), cost_s=cost_s, cost_cv=0.5
    )
    work.sink("out", discard())
    for statistic, bound in bounds.items():
        line.constrain("-> work", window_s=5, name=statistic, **{statistic: bound})
    line.goals(budget_per_hour=budget_per_hour)
    return line.build()


def played(
    dataflow: Dataflow,
    policy: AnyPolicy,
    options: Any,
    seconds: float,
    *,
    interval_s: float = 1.0,
    price_per_hour: float = 0.0,
) -> Scene:
    """Cycle by cycle, what was measured and decided."""
    machine = MachineClass(name="machine", cores=8, price_per_hour=price_per_hour)
    runtime = SimulatedRuntime(
        dataflow,
        Cluster.of(machine, 8),
        options=SimulationOptions(task_startup_s=1.5, traffic=False),
    )
    scene: Scene = []

    def note(cycle: Cycle, snapshot: Snapshot | None) -> None:
        assert snapshot is not None
        assert not cycle.faults
        scene.append((cycle, snapshot))

    Loop(
        runtime,
        [PolicyRun(policy=policy, options=options)],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=interval_s, damping=Damping(rest_after_growth=0)),
        subscribers=[note],
    ).run(for_s=seconds)
    return scene


def sizes(scene: Scene, row: int = 1) -> list[int]:
    """Tasks of an operator, cycle by cycle."""
    return [int(snapshot.operators.parallelism[row]) for _, snapshot in scene]


def held(scene: Scene, after_s: float = 0.0) -> float:
    """Share of cycles after a time in which all bounds were held."""
    later = [bool(s.constraints.held.all()) for _, s in scene if s.time_s > after_s]
    return sum(later) / len(later)


def codes(scene: Scene) -> set[str]:
    """Reasons of everything that was done."""
    return {planned.action.reason.code for cycle, _ in scene for planned in cycle.plan.actions}
