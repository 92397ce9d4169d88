"""Three queries at twice the capacity of their application, in simulated micro-batches, shed as `attach` does it."""

from __future__ import annotations

import numpy as np
import pytest

from penstock import staircase
from penstock.control import Loop, PolicyRun, Settings
from penstock.dataflow import Dataflow, Operator, OperatorId, Stream, together
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.simulator import SimulatedClock
from penstock.simulator.microbatch import MicrobatchRuntime
from penstock.simulator.microbatch_model import Engine, Query, Stage
from penstock.telemetry import MachineClass, Snapshot

QUERIES = {"batch": (1, 0.2, 0.5), "reports": (2, 0.5, 0.3), "alerts": (3, 0.8, 0.2)}
"""Priority, minimum, and share of the load."""
RECORD_S, EXECUTORS, INTERVAL_S = 0.45e-3, 3, 5.0
RISE_S, FALL_S, END_S = 20.0, 90.0, 120.0


def a_query(name: str) -> Dataflow:
    priority, minimum, _ = QUERIES[name]
    source, sink = OperatorId("source"), OperatorId("sink")
    operators = (
        Operator(id=source, kind="source"),
        Operator(id=sink, kind="sink", priority=priority, min_accuracy=minimum),
    )
    return Dataflow(name, operators=operators, streams=(Stream(source=source, target=sink),))


@pytest.fixture(scope="module")
def story() -> list[Snapshot]:
    capacity_rps = 0.8 * EXECUTORS / RECORD_S
    queries = tuple(
        Query(
            name=name,
            stages=(
                Stage(
                    operators=(OperatorId(f"{name}.source"), OperatorId(f"{name}.sink")),
                    partitions=3,
                    record_s=RECORD_S,
                    task_s=0.03,
                ),
            ),
            plan_s=0.12,
            stage_s=0.03,
            commit_s=0.06,
        )
        for name in QUERIES
    )
    steps = ((RISE_S, 0.5), (FALL_S - RISE_S, 2.0), (END_S - FALL_S, 0.5))
    runtime = MicrobatchRuntime(
        together(*map(a_query, QUERIES), name="app"),
        Engine(queries=queries),
        loads=[
            staircase([(s, f * capacity_rps * share) for s, f in steps]) for *_, share in QUERIES.values()
        ],
        machine=MachineClass(name="executor", available=EXECUTORS),
        executors=EXECUTORS,
        seed=0,
    )
    options = SheddingOptions(moves="none", by_slots=True)
    seen: list[Snapshot] = []
    loop = Loop(
        runtime,
        [PolicyRun(policy=Shedding(), options=options)],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=INTERVAL_S),
        subscribers=[lambda cycle, snapshot: seen.append(snapshot)],
    )
    loop.run(for_s=END_S)
    assert not loop.faults
    return seen


def keeps(story: list[Snapshot], since_s: float, until_s: float) -> np.ndarray:
    return np.array([s.sources.keep for s in story if since_s < s.time_s <= until_s])


def test_it_begins_within_two_intervals(story: list[Snapshot]) -> None:
    assert (keeps(story, 0, RISE_S) == 1).all()
    assert (keeps(story, RISE_S, RISE_S + 2 * INTERVAL_S)[-1] < 1).any()


def test_no_minimum_is_missed_and_the_least_important_gives_first(story: list[Snapshot]) -> None:
    found = keeps(story, 0, END_S)
    minima = np.array([minimum for _, minimum, _ in QUERIES.values()])
    assert (found >= minima).all()
    alerts = found[:, 2]
    assert (found[alerts < 1, 0] < minima[0] + 0.05).all()
    assert (found[alerts < 1, 1] < minima[1] + 0.05).all()


def test_lag_settles(story: list[Snapshot]) -> None:
    peak = [s.sources.oldest_s.max() for s in story if RISE_S < s.time_s <= FALL_S]
    assert max(peak) < 10
    assert max(peak[-len(peak) // 3 :]) < 3


def test_all_is_kept_again_within_three_intervals(story: list[Snapshot]) -> None:
    assert (keeps(story, FALL_S + 3 * INTERVAL_S, END_S) == 1).all()
