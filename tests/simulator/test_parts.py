"""The pieces below the simulation: draws, the agenda, timers, layout, summary."""

from __future__ import annotations

import heapq
import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from penstock.dataflow import sine, staircase
from penstock.simulator import Cluster, SimulationOptions
from penstock.simulator import discrete_tables as tb
from penstock.simulator.agenda import ARRIVAL, DEADLINE, FINISH, new_event, schedule, withdraw
from penstock.simulator.discrete_kernel import sketch_bin
from penstock.simulator.draws import GOLDEN, bucket, distribution, mix, positive, uniform
from penstock.simulator.records import Tables, chained
from penstock.simulator.timers import next_change_s, value_at
from penstock.telemetry import Sketch
from penstock.telemetry.sketch import LARGEST, RELATIVE_ERROR, SMALLEST
from tests.simulator.scenes import machine


@numba.njit
def _many(count: int, kind: int, cv: float) -> np.ndarray:
    drawn = np.empty(count)
    for i in range(count):
        drawn[i] = positive(mix(np.uint64(i) * GOLDEN), kind, cv)
    return drawn


@pytest.mark.parametrize("cv", [0.0, 0.2, 0.5, 1.0, 1.5, 3.0])
def test_draws_have_the_mean_and_variation_asked_for(cv: float) -> None:
    drawn = _many(400_000, distribution(cv), cv)
    assert (drawn > 0).all()
    assert drawn.mean() == pytest.approx(1.0, abs=4 * max(cv, 1e-9) / math.sqrt(400_000))
    assert drawn.std() == pytest.approx(cv, rel=0.03, abs=1e-9)


@pytest.mark.parametrize(
    ("cv", "law"),
    [(1.0, stats.expon()), (0.5, stats.gamma(4.0, scale=0.25)), (0.2, stats.gamma(25.0, scale=0.04))],
)
def test_draws_follow_their_law(cv: float, law: stats.rv_continuous) -> None:
    assert stats.kstest(_many(20_000, distribution(cv), cv), law.cdf).pvalue > 0.001


def test_buckets_are_even() -> None:
    counts = np.bincount([bucket(np.uint64(mix(np.uint64(i))), 7) for i in range(7000)], minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts).pvalue > 0.001
    assert 0 <= uniform(np.uint64(2**64 - 1)) < 1


@given(st.floats(1e-9, 1e9))
def test_bins_are_those_of_the_sketch(value: float) -> None:
    (place,) = np.flatnonzero(Sketch.of([value]).bins)
    found = sketch_bin(value)
    # At the very edge of a bin rounding may put it on either side; the middle of either is within the error.
    edge = math.log(min(max(value, SMALLEST), LARGEST) / SMALLEST) / math.log(
        (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
    )
    assert found == int(place) or (abs(found - int(place)) == 1 and abs(edge - round(edge)) < 1e-9)


commands = st.lists(
    st.tuples(st.integers(0, 9), st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.5, 7.0]))), max_size=60
)


@given(commands)
def test_the_agenda_is_a_heap_by_time_kind_and_sequence(commands: list[tuple[int, float | None]]) -> None:
    tables = Tables(tb.SCHEMA, {"free_events": 16})
    tables["events"], tables["agenda"] = chained(np.zeros(16, tb.EVENT), 0), np.zeros(16, tb.AGENDA)
    kinds = [(FINISH, DEADLINE, ARRIVAL)[i % 3] for i in range(10)]
    events = [new_event(tables.w, kind, i) for i, kind in enumerate(kinds)]
    expected: dict[int, tuple[float, int, int]] = {}
    for turn, (which, time) in enumerate(commands):
        if time is None:
            withdraw(tables.w, events[which])
            expected.pop(which, None)
        else:
            schedule(tables.w, events[which], time)
            expected[which] = (time, kinds[which], turn)
    heap = [(*key, which) for which, key in expected.items()]
    heapq.heapify(heap)
    while heap:
        top = tables["agenda"][0]
        assert tables["events"]["subject"][top["event"]] == heapq.heappop(heap)[-1]
        withdraw(tables.w, int(top["event"]))
    assert tables.w["scheduled"] == 0


def test_profiles() -> None:
    steps = staircase([(2.0, 1.0), (3.0, 5.0)], repeat=True)
    assert [value_at(steps, t, 0.0) for t in (0.0, 1.9, 2.0, 4.9, 5.0, 7.0)] == [1.0, 1.0, 5.0, 5.0, 1.0, 5.0]
    assert [next_change_s(steps, t) for t in (0.0, 2.0, 4.9, 5.0, 6.9)] == [2.0, 5.0, 5.0, 7.0, 7.0]
    assert next_change_s(staircase([(2.0, 1.0), (3.0, 5.0)]), 2.0) == math.inf
    assert value_at(None, 3.0, 1.5) == 1.5
    assert next_change_s(None, 3.0) == math.inf


@given(st.floats(0.0, 1e5))
def test_the_next_change_comes_later_and_is_the_first(time_s: float) -> None:
    profile = sine(1.0, 0.5, 7.3)
    following = next_change_s(profile, time_s)
    assert time_s < following <= time_s + 7.3 / 100 + 1e-6
    between = np.linspace(time_s, following, 7)[:-1]
    assert len({value_at(profile, float(t), 0.0) for t in between[1:-1]}) == 1


BAD_CLUSTERS = {
    "no nodes": {"nodes": {}},
    "unknown class": {"nodes": {"a": "huge"}},
    "two classes of one name": {"classes": (machine(), machine())},
    "too many nodes": {"nodes": {"a": "node", "b": "node"}, "max_nodes": 1},
    "no cores": {"classes": (machine(cores=0),)},
    "no speed": {"classes": (machine(speed=0.0),)},
    "no bandwidth": {"classes": (machine(bandwidth_bytes_per_s=0.0),)},
}


@pytest.mark.parametrize("case", BAD_CLUSTERS)
def test_impossible_clusters_are_refused(case: str) -> None:
    good: dict[str, object] = {"classes": (machine(),), "nodes": {"a": "node"}}
    with pytest.raises(ValueError, match=r"."):
        Cluster(**{**good, **BAD_CLUSTERS[case]})  # type: ignore[arg-type]


BAD_OPTIONS: list[dict[str, object]] = [
    {"arrival_cv": -1.0},
    {"arrival_cv": math.nan},
    {"queue_records": 0},
    {"deadline_s": -0.1},
    {"batch_bytes": 0.0},
    {"send_s": math.inf},
    {"task_startup_s": -1.0},
    {"step_s": 0.0},
    {"key_skew": 1.0},
]


@pytest.mark.parametrize("given_options", BAD_OPTIONS, ids=lambda o: next(iter(o)))
def test_impossible_options_are_refused(given_options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        SimulationOptions(**given_options)  # type: ignore[arg-type]
