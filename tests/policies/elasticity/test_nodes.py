"""Sizing the nodes of a micro-batch engine: held bounds, few nodes, no see-saw, clear words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow import Dataflow, Load, constant, staircase
from penstock.policies.elasticity import NodeOptions
from penstock.policies.elasticity.microbatch import BatchCost, latency_s
from penstock.policies.proposal import Scale
from penstock.telemetry import Batches
from penstock.workloads import primetester
from tests.policies.elasticity.engine import BatchEngine, steer


def bounded(load: Load, bound_ms: float = 2500) -> Dataflow:
    return primetester(load=load, bound_ms=bound_ms)


def scales(cycles: list) -> list[tuple[int, int]]:
    return [(a.current, a.target) for _, p in cycles for a in p.actions if isinstance(a, Scale)]


def test_follows_a_staircase_up_and_down() -> None:
    load = staircase([(60, 300), (60, 1500), (120, 300)])
    engine = BatchEngine(bounded(load), load, overhead_s=0.4, record_s=1e-3, limit=3)
    cycles = steer(engine, 240)
    sizes = [len(s.nodes) for s, _ in cycles]
    assert max(sizes) == 3
    assert sizes[-1] == 1
    held = np.mean([s.constraints.held[0] for s, _ in cycles])
    assert held >= 0.9
    assert sum(sizes) <= 0.75 * 3 * len(sizes), "fewer than the fixed peak"


@pytest.mark.parametrize("rate", [50, 300, 700, 1500, 2400])
def test_constant_load_settles_and_stays(rate: float) -> None:
    engine = BatchEngine(bounded(constant(rate)), constant(rate), overhead_s=0.3, record_s=1e-3, limit=6)
    cycles = steer(engine, 300)
    half = len(cycles) // 2
    assert not scales(cycles[half:]), "still scaling after the first half"
    assert all(s.constraints.held[0] for s, _ in cycles[half:])


@given(rate=st.floats(10, 5000), more=st.floats(1.0, 3.0), overhead=st.floats(0.05, 1.0))
@settings(max_examples=20, deadline=None)
def test_more_load_never_gets_fewer_nodes(rate: float, more: float, overhead: float) -> None:
    settled = []
    for r in (rate, rate * more):
        engine = BatchEngine(bounded(constant(r)), constant(r), overhead_s=overhead, record_s=1e-3, limit=12)
        settled.append(len(steer(engine, 300)[-1][0].nodes))
    assert settled[1] >= settled[0]


def test_says_when_no_number_of_nodes_suffices() -> None:
    engine = BatchEngine(bounded(constant(5000)), constant(5000), overhead_s=0.3, record_s=1e-3, limit=3)
    cycles = steer(engine, 60)
    notices = [n for _, p in cycles for n in p.notices]
    assert notices
    assert notices[-1].reason.code == "bound-out-of-reach"
    assert "shedding" in notices[-1].helps
    assert len(cycles[-1][0].nodes) == 3, "what can be had is used all the same"


def test_a_bound_below_the_overhead_names_a_bound_that_would_do() -> None:
    engine = BatchEngine(bounded(constant(100), 100), constant(100), overhead_s=0.5, record_s=1e-3, limit=3)
    notice = [n for _, p in steer(engine, 60) for n in p.notices][-1]
    assert "a bound of at least" in notice.helps


def test_limits_are_kept() -> None:
    engine = BatchEngine(bounded(constant(2500)), constant(2500), overhead_s=0.3, record_s=1e-3, limit=9)
    cycles = steer(engine, 120, NodeOptions(min_nodes=2, max_nodes=3))
    assert {t for _, t in scales(cycles)} <= {2, 3}


def test_no_traffic_and_no_batches_is_no_reason_to_act() -> None:
    engine = BatchEngine(bounded(constant(0)), constant(0), overhead_s=0.3, record_s=1e-3)
    assert not scales(steer(engine, 60))


@given(
    overhead=st.floats(0.05, 1.0),
    record=st.floats(1e-5, 5e-3),
    sizes=st.lists(st.integers(10, 5000), min_size=8, max_size=40),
)
def test_learns_the_line_from_batches(overhead: float, record: float, sizes: list[int]) -> None:
    cores = 2.0
    n = np.array(sizes, dtype=float)
    cost = BatchCost().learn(
        Batches(
            id=np.arange(len(n)),
            records=n,
            duration_s=overhead + record * n / cores,
            fixed_s=np.full(len(n), overhead),
            busy_s=np.full(len(n), np.nan),
            interval_s=0.0,
        ),
        cores,
    )
    assert cost.overhead_s == pytest.approx(overhead, rel=1e-6)
    assert cost.record_s == pytest.approx(record, rel=1e-4)


def test_predicted_latency_is_that_of_the_engine() -> None:
    for rate in (200.0, 600.0, 900.0):
        engine = BatchEngine(bounded(constant(rate)), constant(rate), overhead_s=0.3, record_s=1e-3)
        for _ in range(40):
            engine.interval(5.0)
        seen = np.mean([late for at, late in engine.late if at > 100])
        assert latency_s(0.3, 1e-3, rate, np.array([1.0]))[0] == pytest.approx(seen, rel=0.02)
