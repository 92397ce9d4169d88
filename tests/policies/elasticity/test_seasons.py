"""Seasons: found where a series repeats itself, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.elasticity.seasons import season_steps
from penstock_papers.nephele.primetester import PAPER_STEPS_RPS

CYCLE = np.repeat(np.array(PAPER_STEPS_RPS, dtype=float), 60)


def noisy(series: np.ndarray, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson(series).astype(float)


def test_a_repeated_staircase_is_found_early_in_its_second_round() -> None:
    two = noisy(np.tile(CYCLE, 2))
    assert season_steps(two[:700]) == 0, "one round is no repetition"
    assert season_steps(two[:930]) == 720
    assert season_steps(two) == 720


def test_the_shortest_period_is_the_season() -> None:
    assert season_steps(noisy(np.tile(CYCLE, 4))) == 720


@pytest.mark.parametrize(
    "series",
    [
        np.full(1000, 500.0),
        np.arange(1000.0),
        np.random.default_rng(1).normal(500, 50, 1000),
        500 + np.cumsum(np.random.default_rng(2).normal(0, 10, 1000)),
        np.concatenate([np.full(500, 100.0), np.full(500, 300.0)]),
        np.zeros(0),
        np.full(50, np.nan),
    ],
    ids=["constant", "ramp", "noise", "random walk", "one step", "nothing", "not measured"],
)
def test_no_season_where_there_is_none(series: np.ndarray) -> None:
    assert season_steps(series) == 0


@given(period=st.integers(12, 300), share=st.floats(1.5, 4.0), seed=st.integers(0, 50))
@settings(max_examples=40)
def test_any_repeated_shape_is_found(period: int, share: float, seed: int) -> None:
    shape = np.random.default_rng(seed).uniform(100, 1000, period)
    series = np.tile(shape, 5)[: int(period * share)]
    assert season_steps(series) == period
