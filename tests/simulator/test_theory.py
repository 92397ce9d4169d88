"""The discrete simulation against queueing theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from penstock.dataflow import constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.policies.actions import Shed
from penstock.simulator import SimulatedRuntime, SimulationOptions
from tests.simulator.scenes import WHY, act, cluster, single_queue

SERVICE_S = 0.001
QUEUES = {"M/M/1": (1.0, 1.0), "M/D/1": (1.0, 0.0), "D/M/1": (0.0, 1.0), "M/H2/1": (1.0, 2.0)}
"""Coefficients of variation of arrivals and of services."""


def theoretical_wait_s(arrival_cv: float, service_cv: float, utilisation: float) -> float:
    """Pollaczek-Khinchine for Poisson arrivals; for D/M/1 the root of σ = exp(-(1-σ)/ρ)."""
    if arrival_cv == 0:
        sigma = brentq(lambda s: s - math.exp(-(1 - s) / utilisation), 1e-12, 1 - 1e-9)
        return SERVICE_S * sigma / (1 - sigma)
    return SERVICE_S * utilisation / (1 - utilisation) * (1 + service_cv**2) / 2


def mean_wait_s(arrival_cv: float, service_cv: float, utilisation: float, items: float, seed: int) -> float:
    rate = utilisation / SERVICE_S
    runtime = SimulatedRuntime(
        single_queue(rate, SERVICE_S, service_cv),
        cluster(),
        seed=seed,
        options=SimulationOptions(arrival_cv=arrival_cv, queue_records=10**9),
    )
    runtime.advance(items / rate)
    snapshot = runtime.observe()
    assert snapshot.streams.latency_s.count[0] == pytest.approx(items, rel=0.01)
    four_errors = 4 * math.sqrt((arrival_cv**2 + service_cv**2) / items)
    assert snapshot.by_operator.utilisation[1] == pytest.approx(utilisation, rel=four_errors)
    return float(snapshot.streams.latency_s.mean[0])


@pytest.mark.parametrize("queue", QUEUES)
def test_mean_wait_of_a_short_run(queue: str) -> None:
    """Within four standard errors, which at 0.5 are about 4 √((cA² + cS²) 15 / n)."""
    arrival_cv, service_cv = QUEUES[queue]
    tolerance = 4 * math.sqrt((arrival_cv**2 + service_cv**2) * 15 / 4e5)
    expected = theoretical_wait_s(arrival_cv, service_cv, 0.5)
    assert mean_wait_s(arrival_cv, service_cv, 0.5, 4e5, seed=1) == pytest.approx(expected, rel=tolerance)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("utilisation", "tolerance"), [(0.5, 0.02), (0.8, 0.02), (0.95, 0.05)])
@pytest.mark.parametrize("queue", QUEUES)
def test_mean_wait(queue: str, utilisation: float, tolerance: float) -> None:
    """10⁷ items in three runs of different seeds, equally long."""
    waits = [mean_wait_s(*QUEUES[queue], utilisation, 1e7 / 3, seed) for seed in (1, 2, 3)]
    expected = theoretical_wait_s(*QUEUES[queue], utilisation)
    assert np.mean(waits) == pytest.approx(expected, rel=tolerance)


def test_tandem_of_three_queues() -> None:
    """By Burke's theorem each of the three M/M/1 queues is as if alone."""
    builder = flow("tandem")
    at = builder.source("source", replay(load=constant(500.0)))
    at = at.map("a", cost_s=0.001).map("b", cost_s=0.0015)
    at.sink("c", discard(), cost_s=0.0005)
    runtime = SimulatedRuntime(
        builder.build(), cluster(), seed=3, options=SimulationOptions(queue_records=10**9)
    )
    runtime.advance(2000.0)
    snapshot = runtime.observe()
    costs = np.array([0.001, 0.0015, 0.0005])
    use = 500.0 * costs
    np.testing.assert_allclose(snapshot.streams.latency_s.mean, use / (1 - use) * costs, rtol=0.03)
    sojourn_s = (costs / (1 - use)).sum()
    assert snapshot.sinks.latency_s.mean[0] == pytest.approx(sojourn_s, rel=0.02)


def test_sojourn_times_of_mm1_are_exponential() -> None:
    runtime = SimulatedRuntime(single_queue(700.0, 0.001), cluster(), seed=5)
    runtime.advance(3000.0)
    snapshot = runtime.observe()
    mean = 0.001 / (1 - 0.7)
    assert snapshot.sinks.latency_s.cv2[0] == pytest.approx(1.0, rel=0.05)
    for q in (0.5, 0.95, 0.99):
        assert snapshot.sinks.quantile_s(0, q) == pytest.approx(-mean * math.log(1 - q), rel=0.05)


def test_two_servers_that_share_one_core_are_a_processor_sharing_queue() -> None:
    """Two operators on one core, each with its own Poisson input: the core is busy with both.

    With 'random' spreading to many tasks on one core, hardly any record finds its task busy, and the node is an
    M/M/1-PS queue, whose sojourn time is S/(1-ρ).
    """
    builder = flow("shared")
    source = builder.source("source", replay(load=constant(600.0)))
    source.sink("work", discard(), wiring="spread", parallelism=200, cost_s=0.001, cost_cv=2.0)
    runtime = SimulatedRuntime(
        builder.build(), cluster(cores=1), seed=2, options=SimulationOptions(spread="random")
    )
    runtime.advance(2000.0)
    snapshot = runtime.observe()
    assert snapshot.nodes.own_cpu[0] == pytest.approx(0.6, rel=0.02)
    assert snapshot.sinks.latency_s.mean[0] == pytest.approx(0.001 / 0.4, rel=0.03)


def test_thinned_poisson_arrivals_are_poisson() -> None:
    runtime = SimulatedRuntime(single_queue(1000.0, 0.001), cluster(), seed=4)
    act(runtime, Shed(operator=runtime.dataflow.sources[0].id, keep=0.5, reason=WHY))
    runtime.advance(1000.0)
    snapshot = runtime.observe()
    assert snapshot.sinks.accuracy[0] == pytest.approx(0.5, rel=0.01)
    assert snapshot.by_operator.interarrival_s.cv2[1] == pytest.approx(1.0, rel=0.03)
    assert snapshot.streams.latency_s.mean[0] == pytest.approx(0.001, rel=0.04)
