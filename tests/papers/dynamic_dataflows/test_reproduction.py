"""The trial in small: what every decider keeps, and that the reproduction tells all its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock_papers.dynamic_dataflows.cloud import Course, hold, play
from penstock_papers.dynamic_dataflows.reproduction import OPTIONS, at_equal_throughput, reproduce
from penstock_papers.dynamic_dataflows.roads import STEADY, machine_speeds, roads, walk

STEPS = 90


def test_the_walk_keeps_its_mean_and_bounds() -> None:
    rates = walk()
    assert rates.mean() == pytest.approx(1.0, abs=0.01)
    assert rates.min() >= 0.5 - 1e-9
    assert rates.max() <= 1.5 + 1e-9


def test_without_alternates_only_the_best_are_left() -> None:
    assert all(
        len(o.alternates) == 1 and o.alternates[0].value == 1 for o in roads(alternates=False).operators
    )


@pytest.mark.parametrize("rate", [50.0, 500.0])
def test_the_shipped_policy_holds_throughput_and_earns_more_at_equal_throughput(rate: float) -> None:
    given = {"rates": walk(steps=STEPS), "speeds": machine_speeds(None), "options": OPTIONS}
    ours = play(rate, "best", **given)
    assert ours.held_share >= 0.95
    assert ours.throughput.mean() >= 0.9
    assert ours.switches > 0, "free paid cores run better alternates"
    theirs = [play(rate, "sh", throughput=ask, **given) for ask in (0.8, 0.9, 0.95)]
    assert ours.profit > at_equal_throughput(ours, theirs)


def test_deciders_of_the_paper_adapt_in_the_loop() -> None:
    given = {"rates": walk(steps=STEPS), "speeds": machine_speeds(None), "options": OPTIONS}
    asked = [play(50.0, "ce", throughput=ask, **given) for ask in (0.8, 0.95)]
    assert len(set(asked[0].machines.tolist())) > 1, "machines come and go"
    assert asked[1].throughput.mean() > asked[0].throughput.mean()
    assert asked[1].cost > asked[0].cost


def course(throughput: float, profit: float) -> Course:
    one = np.array([throughput])
    return Course(
        throughput=one, value=one, rate_rps=one, machines=np.array([1]), cores=np.array([1]), backlog_s=0.0,
        decide_s=one, switches=0, cost=1.0, highest_per_hour=1.0, profit=profit,
    )  # fmt: skip


def test_profit_is_compared_at_the_throughput_that_ours_has() -> None:
    theirs = [course(0.9, 2.0), course(0.8, 4.0)]
    assert at_equal_throughput(course(0.85, 0.0), theirs) == pytest.approx(3.0)
    assert at_equal_throughput(course(0.99, 0.0), theirs) == 2.0


def test_a_static_deployment_suffers_from_each_kind_of_variation() -> None:
    speeds, rates, still = machine_speeds(None), walk(steps=STEPS), np.ones(STEPS)
    calm, _ = hold(50.0, "ce", rates=still, speeds=STEADY)
    assert calm.min() >= 0.8
    assert hold(50.0, "ce", rates=still, speeds=speeds)[0].mean() < calm.mean()
    assert hold(50.0, "ce", rates=rates, speeds=STEADY)[0].mean() < calm.mean()


def test_real_machines_where_there_are_any(shared_data: Path) -> None:
    speeds = machine_speeds(shared_data)
    seen = speeds.of(range(300), 5)
    assert 0.6 < seen.min() < 0.85
    assert seen.max() > 0.98
    assert play(200.0, "best", rates=walk(steps=STEPS), speeds=speeds, options=OPTIONS).held_share >= 0.95


def test_the_reproduction_tells_its_rows() -> None:
    found = reproduce(rates=(50.0,), seeds=(11, 12), steps=20, genetic=False)
    told = {(r.trial, r.metric, r.rival_name) for r in found.rows}
    trial = "adaptive at 50/s, both vary"
    assert {(trial, "profit at equal Ω", "CE"), (trial, "profit at equal Ω", "SH")} <= told
    assert all(r.interval is not None and r.seeds == (11, 12) for r in found.rows if r.rival_name)
    assert sum("other operators" in r.trial for r in found.references) == 12
    assert any("tuned on seeds" in i.source for i in found.inputs)
