"""Rings and scores: what is in them stays, and the numbers are those of the paper's listing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.forecast import forecast, start, update
from penstock.policies.interference import RingShape
from penstock.policies.interference.expectations import Learned, _issued, _options, expected_rps, observe
from penstock.policies.interference.rings import summed
from penstock_papers.neptune.method import scores_on_nodes, smoothed

SHAPE = RingShape(windows=(4, 3, 2), seconds=(1.0, 2.0, 5.0))
values = st.lists(st.lists(st.floats(0, 100), min_size=9, max_size=9), min_size=1, max_size=4).map(
    lambda rows: np.array(rows)
)
NO_LIMIT = np.full(1, np.inf)


def test_nodes_have_the_sum_of_their_computations() -> None:
    rows = np.arange(36.0).reshape(4, 9)
    total = summed(rows, np.array([1, 1, -1, 0]), 3)
    assert total.tolist() == [rows[3].tolist(), (rows[0] + rows[1]).tolist(), [0.0] * 9]


@pytest.mark.parametrize("bad", [{"windows": (3,)}, {"seconds": (1.0, 0.0, 1.0)}, {"windows": (1, 0, 1)}])
def test_odd_shapes_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="ring"):
        RingShape(**bad)


def listing(cw: np.ndarray, rw: np.ndarray, n: int, shape: RingShape) -> float:
    """Figure 5 of the paper, line by line."""
    total, p_all, offset, fraction = 0.0, 0, 0.0, 0.666 * 0.7
    for count, res in zip(shape.windows, shape.seconds, strict=True):
        dist = offset
        for _ in range(count):
            low, high = max(p_all - 1, 0), min(p_all + 1, shape.count - 1)
            ru = 0.5 * rw[low] + rw[p_all] + 0.5 * rw[high]
            cu = ru + 0.5 * cw[low] + cw[p_all] + 0.5 * cw[high]
            total += (cu**n - ru**n) / fraction**n / res * (1 - dist / shape.span_s)
            dist += res
            p_all += 1
        offset += count * res
    return total


@given(computation=values, n=st.integers(2, 6))
def test_scores_are_those_of_the_listing(computation: np.ndarray, n: int) -> None:
    cw, rest = computation[0], computation[::-1] + 1.0
    weights, one = SHAPE.weights / (0.666 * 0.7) ** n, np.ones(1)
    found = scores_on_nodes(
        smoothed(cw), one, smoothed(rest)[:, None, :], np.ones((len(rest), 1)), NO_LIMIT, weights, n
    )
    assert found == pytest.approx([listing(cw, rw, n, SHAPE) for rw in rest], rel=1e-9)


def test_the_same_load_costs_more_on_a_full_node_and_less_when_it_is_late() -> None:
    load = np.stack([np.full((1, 9), 0.1), np.full((1, 9), 2.0)])
    early, late = np.zeros(9), np.zeros(9)
    early[0] = late[7] = 1.0

    def scores(ring: np.ndarray) -> np.ndarray:
        return scores_on_nodes(ring, np.ones(1), load, np.ones((2, 1)), NO_LIMIT, SHAPE.weights, 3)

    assert scores(early)[1] > 10 * scores(early)[0]
    assert np.all(scores(late) < scores(early))


def test_a_surprise_is_measured_by_the_forecast_that_was_issued() -> None:
    rng, options = np.random.default_rng(0), _options(12, 36)
    state = start(4, options)
    for _ in range(80):
        state = update(state, rng.uniform(0, 10, 4), options, known=rng.uniform(size=4) > 0.2)
        ahead, (mean, sigma) = forecast(state, 1, options), _issued(state)
        seen = np.isfinite(state.last)
        np.testing.assert_allclose(mean[seen], ahead.mean[seen, 0])
        np.testing.assert_allclose(sigma[seen], ahead.sigma[seen, 0])


def learned(rates: np.ndarray) -> Learned:
    """What is known after steps of 5 s with these rates, [step, computation]."""
    known, ids = Learned.nothing(), np.arange(rates.shape[1])
    for now in rates:
        known = observe(
            known, ids, now, np.ones(len(ids), bool), np.full(len(ids), 1e-3), np.full(len(ids), 100.0),
            step_s=5.0, season_s=0.0, mean_steps=1, span_s=RingShape().span_s,
        )  # fmt: skip
    return known


def test_a_computation_that_wakes_up_is_believed_at_once_in_the_whole_ring() -> None:
    rates = 10.0 + np.random.default_rng(1).normal(0, 0.1, (40, 2))
    rates[-1, 0] = 200.0
    expected = expected_rps(learned(rates), RingShape(), season_s=0.0)
    assert expected[0].min() > 150.0
    assert expected[1] == pytest.approx(10.0, rel=0.05)


def test_gathered_windows_are_means_of_the_rings_own() -> None:
    known = learned(np.random.default_rng(2).uniform(0, 50, (30, 3)))
    shape = RingShape()
    halves = np.zeros((shape.count, 2))
    halves[: shape.count // 2, 0] = halves[shape.count // 2 :, 1] = 2 / shape.count
    ring = expected_rps(known, shape, season_s=0.0)
    assert expected_rps(known, shape, season_s=0.0, onto=halves) == pytest.approx(ring @ halves)


def test_without_forecasts_the_last_rates_stay() -> None:
    rising = learned(np.arange(1.0, 41.0)[:, None])
    last = expected_rps(rising, RingShape(), season_s=0.0, forecasts=False)
    assert last == pytest.approx(np.full(last.shape, np.nanmean(rising.recent)))
    assert expected_rps(rising, RingShape(), season_s=0.0)[0, -1] > last[0, -1]
