"""A dataflow on a simulated cluster, behind the same two ports as a live one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from penstock.control.plan import NotReadyError, Outcome, Plan
from penstock.dataflow import Dataflow
from penstock.simulator.actuation import Actuator
from penstock.simulator.cluster import Cluster, Link
from penstock.simulator.discrete import DiscreteEngine, Subscriber
from penstock.simulator.engine import Engine
from penstock.simulator.fluid import FluidEngine
from penstock.simulator.layout import Layout, Loads
from penstock.simulator.node_lifecycle import Fleet
from penstock.simulator.observation import Controls, Observer
from penstock.simulator.options import Fidelity, SimulationOptions
from penstock.simulator.task_lifecycle import Crew
from penstock.simulator.timers import Timers
from penstock.telemetry import Snapshot


class SimulatedRuntime:
    """A simulation that stands still until it is advanced. Implements `Runtime`.

    The same dataflow, cluster, seed and plans at the same times give the same snapshots, bit by bit, however the
    time between was cut into pieces.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        cluster: Cluster,
        *,
        seed: int = 0,
        fidelity: Fidelity = "discrete",
        loads: Loads | None = None,
        placement: Mapping[str, str] | None = None,
        options: SimulationOptions | None = None,
    ) -> None:
        """`placement` says `operator[index]` to node id for all first tasks; without it they are dealt in turn."""
        options = options or SimulationOptions()
        self.dataflow, self.cluster, self.fidelity = dataflow, cluster, fidelity
        self._layout = Layout.of(dataflow, loads)
        self._timers = Timers()
        self._engine = _engine(fidelity, self._layout, cluster.link, options, seed)
        self._fleet = Fleet(cluster, self._engine, self._timers, lambda: self._crew.retry())
        self._crew = Crew(self._layout, options, self._engine, self._fleet, self._timers)
        self._crew.deploy(placement)
        self._controls = Controls(
            alternate=np.zeros(len(dataflow.operators), np.int64),
            source_keep=np.ones(len(dataflow.operators)),
            stream_keep=np.ones(len(dataflow.streams)),
            deadline_s=np.full(len(dataflow.streams), options.deadline_s),
        )
        self._actuator = Actuator(
            dataflow, cluster, self._layout, self._engine, self._fleet, self._crew, self._controls
        )
        self._observer = Observer(self._layout, cluster.classes, seed)
        self._now_s = self._observed_s = 0.0

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._now_s

    def advance(self, until_s: float) -> None:
        """Let simulated time pass until `until_s`; does nothing if it already has."""
        while self._now_s < until_s:
            pause_s = min(until_s, self._timers.next_s)
            slot = self._engine.advance(pause_s)
            if slot is not None:
                self._crew.at_rest(slot)
            elif self._timers.next_s <= pause_s:
                self._timers.run_next()
            else:
                self._now_s = until_s

    def observe(self) -> Snapshot:
        """The facts of the interval since the last call. `NotReadyError` if no time (or no whole step) has passed."""
        covered_s = self._engine.covered_s
        interval_s = covered_s - self._observed_s
        if interval_s <= 0:
            raise NotReadyError("no simulated time has passed since the last snapshot")
        self._observed_s = covered_s
        return self._observer.snapshot(
            self._engine.measure(),
            time_s=self._now_s,
            interval_s=interval_s,
            fleet=self._fleet,
            crew=self._crew,
            controls=self._controls,
        )

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """One outcome per action, then those of earlier deferred actions that are decided by now."""
        decided = self._actuator.decided()
        return (*(self._actuator.act(planned.action) for planned in plan.actions), *decided)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell a function of every record created, started, ended and shed from now on (discrete only)."""
        if not isinstance(self._engine, DiscreteEngine):
            raise ValueError("only the discrete fidelity has single records to tell of")
        self._engine.subscribe(subscriber)


class Timed(Protocol):
    """A simulation, as far as its clock goes."""

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        ...

    def advance(self, until_s: float) -> None:
        """Let simulated time pass."""
        ...


class SimulatedClock:
    """The clock of a simulation: sleeping lets its time pass. Implements `Clock`."""

    def __init__(self, runtime: Timed) -> None:
        self._runtime = runtime

    def now(self) -> float:
        """Simulated seconds since the start."""
        return self._runtime.now_s

    def sleep_until(self, time_s: float) -> None:
        """Advance the simulation to `time_s`."""
        self._runtime.advance(time_s)


def _engine(fidelity: Fidelity, layout: Layout, link: Link, options: SimulationOptions, seed: int) -> Engine:
    if fidelity == "discrete":
        return DiscreteEngine(layout, link, options, seed)
    if fidelity == "fluid":
        return FluidEngine(layout, link, options, seed)
    raise ValueError(f"unknown fidelity '{fidelity}'; there are 'discrete' and 'fluid'")
