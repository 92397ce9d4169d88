"""The two applications of I-Scheduler's trials in simulation, and how much a placement of their tasks lets through.

A topology of the paper's Storm has a bounded number of tuples under way (`max.spout.pending`), so a placement lets
through more the sooner tuples arrive: by Little's law, rate = tuples under way / time under way. Here the rate at which
a simulated placement has so many tuples under way is found by bisection; a node short of CPU shows as a queue.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.arrays import Floats
from penstock.control import Damping, Loop, PolicyRun, Settings
from penstock.dataflow import Dataflow, OperatorId, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.policies.placement import (
    Placement,
    PlacementOptions,
    PlacementProblem,
    TaskPlacement,
    placement_problem,
)
from penstock.simulator import Cluster, Link, SimulatedClock, SimulatedRuntime
from penstock.telemetry import MachineClass, Snapshot
from penstock_papers.common.trials import ADJUSTMENT_S
from penstock_papers.i_scheduler.solvers import place

SLOTS, CPU = "slots", "CPU"
"""Capacity models: every scheduler places by both."""
UTILISATION = PlacementOptions().utilisation
"""By CPU, nodes are filled to this share of their cores at the measured rate, for everybody."""
COST_SD = 0.3
"""How far drawn costs and selectivities are off the application's own (standard deviation of the logarithm)."""
HIGH, LOW = MachineClass(name="high", cores=4), MachineClass(name="low", cores=2)
NETWORK_S = 0.02
"""Time a tuple takes from one node to another: the transport's batches, virtual machines, a 1 Gbit/s network."""
WARM_S, MEASURED_S, STEERED_S = 5.0, 10.0, 60.0
BISECTIONS = 16
MOST_RPS = 20_000.0
"""More than any source task can read on one core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A dataflow of the paper, how many of its tasks nodes hold, and its clusters."""

    name: str
    dataflow: Dataflow
    capacities: Mapping[str, int]
    """Tasks that a node of each class holds: with these the paper's schedulers fill the nodes it says they used."""
    clusters: Mapping[str, Mapping[str, int]]
    """Cluster to nodes of each class."""
    r_storm: float
    """R-Storm's throughput on the equal cluster in the paper: tells how many tuples are under way."""


def smart_homes() -> Application:
    """Load prediction: a diamond, ten tasks per operator; its source feeds two predictors, their results a sink."""
    app = flow("smart-homes")
    readings = app.source("readings", replay(load=constant(1.0)), parallelism=10, cost_s=2e-5)
    plugs, houses = (
        readings.map(name, wiring="spread", parallelism=10, cost_s=2e-4, cost_cv=0.5)
        for name in ("plugs", "houses")
    )
    both = [plugs.wired("spread"), houses.wired("spread")]
    app.sink("predictions", discard(), inputs=both, parallelism=10, cost_s=2e-5)
    return Application(
        name="smart homes",
        dataflow=app.build(),
        capacities={"high": 10, "low": 5},
        clusters={"equal": {"high": 8}, "unequal": {"high": 2, "low": 4}},
        r_storm=5_200.0,
    )


def taxi_routes() -> Application:
    """Frequent routes: a line of 16, 16, 8, 4 and 1 tasks, each operator halving or quartering what it gets."""
    app = flow("taxi-routes")
    trips = app.source("trips", replay(load=constant(1.0)), parallelism=16, cost_s=2e-5)
    passes = {"preprocess": (16, 0.5), "counts": (8, 0.5), "ranks": (4, 0.25)}
    at = trips
    for name, (tasks, share) in passes.items():
        at = at.map(name, wiring="spread", parallelism=tasks, cost_s=1e-4, cost_cv=0.5, selectivity=share)
    at.wired("spread").sink("top", discard(), cost_s=1e-4)
    return Application(
        name="taxi routes",
        dataflow=app.build(),
        capacities={"high": 15, "low": 8},
        clusters={"equal": {"high": 8}, "unequal": {"high": 2, "low": 2}},
        r_storm=15_500.0,
    )


def drawn(app: Application, seed: int) -> Application:
    """The application with other costs and selectivities, drawn around its own."""
    random = np.random.default_rng([seed, 5])
    operators = []
    for operator in app.dataflow.operators:
        best = operator.best
        cost, share = random.lognormal(0.0, COST_SD, 2)
        # No operator multiplies its input: the applications' own do not either.
        changed = replace(best, cost_s=best.cost_s * cost, selectivity=min(1.0, best.selectivity * share))
        operators.append(replace(operator, alternates=(changed,)))
    return replace(app, dataflow=replace(app.dataflow, operators=tuple(operators)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What one scheduler's placement came to."""

    scheduler: str
    model: str
    cut: float
    """Share of the traffic that crosses nodes."""
    nodes: int
    tuples: float
    """Tuples that a task executes in 10 s, mean over all tasks: the paper's throughput."""
    latency_s: float
    """Mean latency at the rate that round robin lets through."""


class Trial:
    """One application on one cluster: traffic measured under round robin, and throughput of any placement."""

    def __init__(
        self, app: Application, cluster: str, *, pending: float, monitored_rps: float | None = None
    ) -> None:
        self._app, self._pending = app, pending
        counts = app.clusters[cluster]
        self._machines = Cluster(
            classes=tuple(m for m in (HIGH, LOW) if m.name in counts),
            nodes={f"{name}-{i}": name for name, count in counts.items() for i in range(count)},
            link=Link(latency_s=NETWORK_S),
        )
        self._monitored_rps = self._rate(None)[0] if monitored_rps is None else monitored_rps
        seen = self.run(None, self._monitored_rps)
        self.problems: Mapping[str, PlacementProblem] = {
            SLOTS: self._problem(
                seen, np.ones(len(seen.tasks)), [app.capacities[m] for m in seen.nodes.machines]
            ),
            CPU: self._problem(seen, seen.tasks.busy_s / seen.interval_s, UTILISATION * seen.nodes.cores),
        }

    @staticmethod
    def _problem(seen: Snapshot, loads: Floats, capacities: Any) -> PlacementProblem:
        return placement_problem(
            loads=loads,
            capacities=capacities,
            sources=seen.traffic.from_task,
            targets=seen.traffic.to_task,
            rates=seen.traffic.records_rps,
            operators=seen.tasks.operator,
            task_ids=[seen.task_id(row) for row in range(len(seen.tasks))],
            node_ids=seen.nodes.ids,
        )

    def schedule(self, scheduler: str, model: str = SLOTS, *, seconds: float = 1.0) -> Schedule:
        """A scheduler's placement by slots (so many tasks to a node) or by measured CPU, and what it lets through."""
        problem = self.problems[model]
        placement = place(problem, policy=scheduler, clock=time.process_time, seconds=seconds)
        where = _where(problem, placement)
        return Schedule(
            scheduler=scheduler,
            model=model,
            cut=placement.cost / problem.traffic,
            nodes=placement.nodes_used,
            tuples=self._rate(where)[1],
            latency_s=self.latency_s(where),
        )

    def latency_s(self, where: Mapping[str, str]) -> float:
        """Mean latency at the rate that round robin let through when traffic was measured."""
        seen = self.run(where, self._monitored_rps)
        return float(seen.sinks.latency_s.grouped(np.zeros(len(seen.sinks), np.int64), 1).mean[0])

    def policy(self) -> Schedule:
        """What our policy comes to by live moves from round robin, by measured traffic and measured CPU."""
        runtime = self._runtime(None, self._monitored_rps)
        seen: list[Snapshot] = []
        options = PlacementOptions(every_s=ADJUSTMENT_S, confirmations=1, cool_down_s=10.0, most_moves=50)
        Loop(
            runtime,
            [PolicyRun(policy=TaskPlacement(time.monotonic), options=options)],
            clock=SimulatedClock(runtime),
            settings=Settings(interval_s=ADJUSTMENT_S, damping=Damping(rest_after_growth=0)),
            subscribers=[lambda cycle, snapshot: seen.append(snapshot) if snapshot is not None else None],
        ).run(for_s=STEERED_S)
        last = seen[-1]
        where = {last.task_id(r): last.nodes.ids[n] for r, n in enumerate(last.tasks.node.tolist())}
        return Schedule(
            scheduler="penstock",
            model="live moves, by CPU",
            cut=float(last.streams.remote_bytes.sum() / last.streams.bytes.sum()),
            nodes=len(set(where.values())),
            tuples=self._rate(where)[1],
            latency_s=self.latency_s(where),
        )

    def _rate(self, where: Mapping[str, str] | None) -> tuple[float, float]:
        """Records a second per source task at which `pending` tuples are under way, and tuples per task in 10 s."""
        low, high, tuples = 0.0, MOST_RPS, 0.0
        for _ in range(BISECTIONS):
            rate = (low + high) / 2
            seen = self.run(where, rate)
            if under_way(seen) <= self._pending:
                low, tuples = rate, _tuples(seen)
            else:
                high = rate
        return low, tuples

    def run(self, where: Mapping[str, str] | None, rate_rps: float) -> Snapshot:
        """A placement (None: round robin) at so many records a second per source task, once it is steady."""
        runtime = self._runtime(where, rate_rps)
        runtime.advance(WARM_S)
        runtime.observe()
        runtime.advance(WARM_S + MEASURED_S)
        return runtime.observe()

    def _runtime(self, where: Mapping[str, str] | None, rate_rps: float) -> SimulatedRuntime:
        source = self._app.dataflow.sources[0]
        return SimulatedRuntime(
            self._app.dataflow,
            self._machines,
            placement=where,
            fidelity="fluid",
            loads={OperatorId(source.id): [constant(rate_rps)] * source.parallelism.minimum},
        )


def tuples_under_way(app: Application) -> float:
    """How many tuples are under way when R-Storm's placement on equal nodes has the paper's throughput."""
    low, high = 0.0, 1e6
    trial = Trial(app, "equal", pending=np.inf, monitored_rps=1.0)
    problem = trial.problems[SLOTS]
    where = _where(problem, place(problem, policy="r-storm", clock=time.process_time))
    while high - low > 1e-3 * high:
        rate = (low + high) / 2
        seen = trial.run(where, rate)
        low, high = (rate, high) if _tuples(seen) < app.r_storm else (low, rate)
    return under_way(trial.run(where, high))


def under_way(seen: Snapshot) -> float:
    """Tuples between their source and the end of their last task: of each stream, rate times latency."""
    waiting = seen.streams.records / seen.interval_s * seen.streams.latency_s.mean
    return float(waiting.sum() + seen.tasks.busy_s.sum() / seen.interval_s)


def _tuples(seen: Snapshot) -> float:
    return float(seen.tasks.processed.mean()) * 10.0 / seen.interval_s


def _where(problem: PlacementProblem, placement: Placement) -> dict[str, str]:
    at = placement.assignment.tolist()
    return {t: problem.node_ids[n] for t, n in zip(problem.task_ids, at, strict=True)}
