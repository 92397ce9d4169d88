"""Rivals on an engine that works in micro-batches: they size executors."""

import pytest

from penstock.control import Loop, PolicyRun
from penstock.dataflow import Load, constant, staircase
from penstock.simulator import SimulatedClock
from penstock_papers.rivals.autoscalers import FLINK, Ds2, Ds2Options, Threshold, ThresholdOptions
from tests.simulator.microbatches import application


def sizes(run: PolicyRun, load: Load, for_s: float, *, executors: int = 1) -> list[int]:
    """Executors at the end of each cycle."""
    runtime = application(
        {"orders": load}, {"orders": 5000.0}, executors=executors, limit=12, record_s=2e-3, partitions=12
    )
    seen = list[int]()
    loop = Loop(
        runtime,
        [run],
        clock=SimulatedClock(runtime),
        subscribers=[lambda cycle, _: seen.extend([cycle.brief.nodes] if cycle.brief else [])],
    )
    loop.run(for_s=for_s)
    return seen


@pytest.mark.parametrize(
    "run",
    [
        PolicyRun(policy=Ds2(), options=Ds2Options()),
        PolicyRun(policy=Threshold(), options=ThresholdOptions()),
    ],
    ids=["ds2", "threshold"],
)
def test_executors_follow_what_batches_cost(run: PolicyRun) -> None:
    # 900/s at 2 ms keep 1.8 cores busy; at 70 % of them used that takes 3.
    assert sizes(run, constant(900), 400, executors=6)[-1] == 3
    seen = sizes(run, staircase([(300, 300), (600, 1700)]), 900)
    assert seen[40] == 1
    assert 5 <= seen[-1] <= 8  # long batches read as all cores busy


def test_the_band_of_flink_lets_small_changes_pass() -> None:
    load = staircase([(1800, 900), (1800, 1100)])
    steady = sizes(PolicyRun(policy=Ds2(), options=FLINK), load, 3600, executors=3)
    assert set(steady) == {3}
