"""The scenarios of the quality-of-data trials in simulation: machines of one core, a decision every five seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats
from penstock.control import Cycle, Damping, Loop, PolicyRun, Settings
from penstock.dataflow import Dataflow, Load, OperatorId, staircase
from penstock.policies.actions import Move
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime, SimulationOptions
from penstock.spark.observe.looks import Look
from penstock.spark.observe.progress import BatchProgress
from penstock.spark.observe.source_rates import KafkaSource
from penstock.telemetry import MachineClass, Snapshot
from penstock_papers.common.trials import ADJUSTMENT_S
from penstock_papers.quality_of_data.knn import knn
from penstock_papers.quality_of_data.taxi_drives import taxi_drives

TM1, TM2 = "machine-0", "machine-1"
ZONES, STANDS, GUESSES = "by_zone", "by_stand", "guesses"
AS_THE_PAPER = SheddingOptions(relieve_after_s=float("inf"))
"""Tasks move only where minima do not fit."""

GRAIN_S = 0.01
"""Grain of the time at which records are written."""
UP_AND_DOWN = staircase([(120.0, rate) for rate in (800.0, 2_400.0, 1_200.0, 3_200.0, 800.0)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Story:
    """What happened, a row per cycle."""

    time_s: Floats
    wanted: Mapping[str, Floats]
    """Accuracy that the controller set, per sink."""
    estimated: Mapping[str, Floats]
    """Current accuracy as it was measured, per sink."""
    counted: Mapping[str, Floats]
    """Records that reached the sink of those produced in the interval."""
    produced: Floats
    """Records that came into being in each interval, all sources."""
    fed: Mapping[str, Floats]
    """Those of the sources of each sink."""
    source_gap: Floats
    """Mean difference between the share that sources read and kept and the share they were told to keep."""
    lag_s: Floats
    """Age of what waits at the sources, the worst of them."""
    latency_s: Floats
    """Inside the dataflow and before it, mean over all sinks' records."""
    moves: tuple[tuple[float, str], ...]
    """Time and task."""

    def delivered(self, sink: str, seconds: float = 30.0) -> Floats:
        """Share of what was produced that reached the sink, over a sliding window; whole windows only."""
        length = max(1, round(seconds / ADJUSTMENT_S))
        fed = self.fed[sink]
        taken, made = (np.convolve(v, np.ones(length), "valid") for v in (self.counted[sink] * fed, fed))
        return np.asarray(np.divide(taken, made, out=np.ones(len(made)), where=made > 0))

    def between(self, begin_s: float, end_s: float) -> NDArray[np.bool_]:
        """Cycles after `begin_s` and up to `end_s`."""
        return (self.time_s > begin_s) & (self.time_s <= end_s)


def equal_priorities(options: SheddingOptions = AS_THE_PAPER, *, seed: int = 0) -> Story:
    """Section 7.1: all tasks on one machine, a second one idle; load rises, falls, and rises beyond the minima."""
    load = staircase([(60.0, 150.0), (120.0, 300.0), (60.0, 150.0), (180.0, 460.0)])
    return told(taxi_drives(load=load), 420.0, {}, options, seed=seed)


def different_priorities(*, seed: int = 0) -> Story:
    """Section 7.2: KNN (lowest) joins; its load grows, then that of the taxis: stands matter more than zones."""
    taxis = taxi_drives(
        load=staircase([(180.0, 150.0), (120.0, 250.0), (120.0, 380.0)]), priorities=(5, 9), minima=(0.3, 0.3)
    )
    points = knn(load=staircase([(60.0, 0.0), (60.0, 300.0), (300.0, 800.0)]), priority=1, min_accuracy=0.2)
    both = replace(
        taxis,
        name="both",
        operators=(*taxis.operators, *points.operators),
        streams=(*taxis.streams, *points.streams),
    )
    return told(both, 420.0, {"zones": TM2, "by_zone": TM2, "points": TM2, "neighbours": TM2, "guesses": TM2},
                AS_THE_PAPER, seed=seed)  # fmt: skip


def kafka_integration(*, seed: int = 0) -> Story:
    """Section 7.3: KNN in two tasks, a machine each, while the load goes up and down."""
    return told(knn(load=UP_AND_DOWN, tasks=2), 600.0, {"[1]": TM2}, AS_THE_PAPER, seed=seed)


def overloaded(*, shedding: bool, seed: int = 0) -> Story:
    """Section 7.4: one machine, a load that climbs to twice what it can do; with our policy or without any."""
    load = staircase([(30.0, rate) for rate in (100, 150, 200, 250, 300, 350, 400, 440)] + [(60.0, 440.0)])
    flow = taxi_drives(load=load, minima=(0.2, 0.2))
    return told(flow, 300.0, {}, AS_THE_PAPER if shedding else None, machines=1, seed=seed)


def told(
    flow: Dataflow,
    seconds: float,
    elsewhere: Mapping[str, str],
    options: SheddingOptions | None,
    *,
    machines: int = 2,
    seed: int = 0,
) -> Story:
    """The story of a dataflow on machines of one core; `elsewhere` names operators (or `[index]`) not on the first."""
    where = {}
    for operator in flow.operators:
        for index in range(operator.parallelism.minimum):
            by_index = elsewhere.get(f"[{index}]", TM1)
            where[f"{operator.id}[{index}]"] = elsewhere.get(operator.id, by_index)
    runtime = SimulatedRuntime(
        flow,
        Cluster.of(MachineClass(name="machine", cores=1), machines),
        seed=seed,
        placement=where,
        options=SimulationOptions(queue_records=1_000, move_s=5.0, traffic=False),
    )
    seen: list[tuple[Cycle, Snapshot]] = []
    Loop(
        runtime,
        [] if options is None else [PolicyRun(policy=Shedding(), options=options)],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=ADJUSTMENT_S, damping=Damping(rest_after_growth=0)),
        subscribers=[
            lambda cycle, snapshot: seen.append((cycle, snapshot)) if snapshot is not None else None
        ],
    ).run(for_s=seconds)
    snapshots = [s for _, s in seen]
    names = [o.id for o in flow.sinks]
    return Story(
        time_s=np.array([s.time_s for s in snapshots]),
        wanted={n: np.array([_wanted(s, flow, n) for s in snapshots]) for n in names},
        estimated={n: np.array([s.sinks.accuracy[i] for s in snapshots]) for i, n in enumerate(names)},
        counted={n: np.array([_counted(s, flow, n) for s in snapshots]) for n in names},
        produced=np.array([s.sources.produced_rps.sum() * s.interval_s for s in snapshots]),
        fed={n: np.array([_fed(s, flow, n) for s in snapshots]) for n in names},
        source_gap=np.array([_source_gap(s) for s in snapshots]),
        lag_s=np.array([_lag_s(s) for s in snapshots]),
        latency_s=np.array([s.sinks.latency_s.grouped(np.zeros(len(names), np.int64), 1).mean[0] for s in snapshots]),
        moves=tuple(
            (cycle.plan.time_s, planned.action.subject)
            for cycle, _ in seen
            for planned in cycle.plan.actions
            if isinstance(planned.action, Move)
        ),
    )  # fmt: skip


def _wanted(seen: Snapshot, flow: Dataflow, operator: OperatorId) -> float:
    """What sources and streams let pass on the way to an operator, as they are set: the least over its inputs."""
    row = flow.row[operator]
    if not flow.upstream(operator):
        return float(seen.sources.keep[seen.sources.operator == row][0])
    rows = {s.id: i for i, s in enumerate(flow.streams)}
    return min(
        _wanted(seen, flow, s.source) * float(seen.streams.keep[rows[s.id]]) for s in flow.upstream(operator)
    )


def _counted(seen: Snapshot, flow: Dataflow, sink: OperatorId) -> float:
    """Records that the sink took over records produced; every operator here passes one for one."""
    produced = _fed(seen, flow, sink)
    taken = seen.tasks.processed[seen.tasks.operator == flow.row[sink]].sum()
    return float(taken / produced) if produced else 1.0


def _fed(seen: Snapshot, flow: Dataflow, sink: OperatorId) -> float:
    """Records that the sink's sources produced."""
    feeding = [flow.row[id_] for id_ in _sources(flow, sink)]
    return float(seen.sources.produced_rps[np.isin(seen.sources.operator, feeding)].sum() * seen.interval_s)


def _sources(flow: Dataflow, operator: OperatorId) -> set[OperatorId]:
    above = [s.source for s in flow.upstream(operator)]
    return set().union(*(_sources(flow, o) for o in above)) if above else {operator}


def _source_gap(seen: Snapshot) -> float:
    sources = seen.sources
    read = np.divide(
        sources.read_rps, sources.produced_rps, out=np.ones(len(sources)), where=sources.produced_rps > 0
    )
    return float(np.abs(np.minimum(sources.keep * read, 1.0) - sources.keep).mean())


def _lag_s(seen: Snapshot) -> float:
    rate = np.maximum(seen.sources.produced_rps, 1.0)
    return float((seen.sources.backlog_records / rate).max())


def rate_errors(load: Load, seconds: float, *, seed: int = 0) -> Floats:
    """Relative errors of the production rate that is estimated from Kafka's offsets, at every decision.

    Records come at random (Poisson). Batches begin every 0.5 to 1.5 s and tell the end offset they saw, as Spark's
    progress does. The truth is what was produced in the interval before the decision.
    """
    random, source = np.random.default_rng(seed), KafkaSource(0)
    grid_s = np.arange(0.0, seconds + GRAIN_S, GRAIN_S)
    expected = np.diff([load.records_until(float(t)) for t in grid_s], prepend=0.0)
    offsets = np.cumsum(random.poisson(np.maximum(expected, 0.0)))

    def until(time_s: float) -> int:
        return int(offsets[min(int(time_s / GRAIN_S + 1e-9), len(offsets) - 1)])

    began_s, number, errors = 0.0, 0, []
    for now_s in np.arange(ADJUSTMENT_S, seconds + 1e-9, ADJUSTMENT_S):
        batches = []
        while began_s + 1e-9 < now_s:
            batches.append(_progress(number, began_s, until(began_s)))
            began_s, number = began_s + random.uniform(0.5, 1.5), number + 1
        source.note(Look(time_s=float(now_s), run_id="simulated", batches=tuple(batches)))
        facts = source.facts(float(now_s), fresh_s=ADJUSTMENT_S)
        truth = (until(float(now_s)) - until(float(now_s) - ADJUSTMENT_S)) / ADJUSTMENT_S
        if facts.known and truth > 0:
            errors.append(facts.produced_rps / truth - 1.0)
    return np.array(errors)


def _progress(number: int, began_s: float, end: int) -> BatchProgress:
    offsets = {"points": {"0": end // 2, "1": end - end // 2}}
    return BatchProgress.model_validate(
        {
            "batchId": number,
            "runId": "simulated",
            "timestamp": datetime.fromtimestamp(began_s, tz=UTC),
            "durationMs": {"triggerExecution": 400, "addBatch": 300},
            "numInputRows": 0,
            "sources": [{"description": "KafkaV2", "endOffset": offsets, "latestOffset": offsets}],
        }
    )
