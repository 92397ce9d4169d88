"""The trial in small: what every decider keeps, and that the reproduction tells all its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock_papers.dynamic_dataflows.cloud import play
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
def test_ours_holds_throughput_and_earns_more_than_the_greedy_ones(rate: float) -> None:
    speeds, rates = machine_speeds(None), walk(steps=STEPS)
    ours = play(rate, "best", rates=rates, speeds=speeds)
    assert ours.held_share >= 0.93
    assert ours.throughput.mean() >= 0.8
    for name in ("ce", "sh"):
        assert ours.profit > play(rate, name, rates=rates, speeds=speeds).profit


def test_a_static_deployment_suffers_from_each_kind_of_variation() -> None:
    speeds, rates, still = machine_speeds(None), walk(steps=STEPS), np.ones(STEPS)
    calm = play(50.0, "ce", rates=still, speeds=STEADY, adaptive=False)
    assert calm.throughput.min() >= 0.8
    for shown in (
        play(50.0, "ce", rates=still, speeds=speeds, adaptive=False),
        play(50.0, "ce", rates=rates, speeds=STEADY, adaptive=False),
    ):
        assert shown.throughput.mean() < calm.throughput.mean()
        assert shown.cost == calm.cost


def test_real_machines_where_there_are_any(shared_data: Path) -> None:
    speeds = machine_speeds(shared_data)
    seen = speeds.of(range(300), 5)
    assert 0.6 < seen.min() < 0.85
    assert seen.max() > 0.98
    course = play(200.0, "best", rates=walk(steps=STEPS), speeds=speeds)
    assert course.held_share >= 0.93
