"""Foresight: a repeated step is expected before it comes; an unheard-of one is believed when it does."""

from __future__ import annotations

import numpy as np

from penstock.policies.elasticity.foresight import Foresight

ROUND = np.repeat([100.0, 300.0, 500.0, 300.0], 30)


def watched(series: np.ndarray) -> Foresight:
    rng = np.random.default_rng(0)
    foresight = Foresight.start(1, step_s=1.0, horizon_s=20.0)
    for rate in series:
        foresight = foresight.observe(np.array([float(rng.poisson(rate * 10)) / 10]))
    return foresight


def ready_for(foresight: Foresight, within_s: float) -> float:
    return float(foresight.highest_rps(within_s, sigmas=1.0, most=0.3)[0])


def test_a_step_of_a_repeated_round_is_foreseen() -> None:
    seen = watched(np.tile(ROUND, 3)[: 2 * len(ROUND) + 28])  # two seconds before 100 becomes 300
    assert seen.season_steps == len(ROUND)
    assert ready_for(seen, 1.0) < 150
    assert ready_for(seen, 5.0) > 270


def test_the_first_round_knows_of_no_step() -> None:
    seen = watched(ROUND[:28])
    assert ready_for(seen, 5.0) < 150


def test_an_unheard_of_rise_is_believed_at_once() -> None:
    seen = watched(np.append(np.full(60, 100.0), 400.0))
    assert seen.surprised
    assert ready_for(seen, 1.0) > 380


def test_what_was_not_measured_is_no_rate_of_zero() -> None:
    seen = watched(np.full(40, 100.0)).observe(np.array([np.nan])).observe(np.array([np.nan]))
    assert 90 < ready_for(seen, 1.0) < 130
