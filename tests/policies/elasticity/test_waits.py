"""The latency model: it returns what was measured, and foretells what the discrete simulator then shows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from penstock.dataflow import constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.policies.elasticity import kingman_wait_s
from penstock.policies.elasticity.waits import measured_wait_s
from penstock.simulator import Cluster, SimulatedRuntime, SimulationOptions
from penstock.telemetry import MachineClass, Snapshot
from penstock.testing import a_snapshot
from penstock_papers.nephele.method import fit_waits

SERVICE_S, RATE_RPS = 0.005, 1440.0


def observed(tasks: int, arrival_cv: float, service_cv: float, seconds: float = 60.0) -> Snapshot:
    """So many single-server queues, fed at random by one source."""
    line = flow("line")
    source = line.source("in", replay(load=constant(RATE_RPS), schema="x long"))
    work = source.map(
        "work", schema="x long", wiring="spread", parallelism=tasks, cost_s=SERVICE_S, cost_cv=service_cv
    )
    work.sink("out", discard())
    runtime = SimulatedRuntime(
        line.build(),
        Cluster.of(MachineClass(name="machine", cores=tasks + 2), 1),
        seed=tasks,
        options=SimulationOptions(arrival_cv=arrival_cv, spread="random", traffic=False),
    )
    runtime.advance(20)
    runtime.observe()
    runtime.advance(20 + seconds)
    return runtime.observe()


@pytest.mark.slow
def test_foretells_waits_within_20_percent_on_average_up_to_90_percent_utilisation() -> None:
    errors = []
    for arrival_cv, service_cv in itertools.product((0.5, 1.0, 1.5), (0.0, 0.5, 1.0, 1.5)):
        seen = {p: observed(p, arrival_cv, service_cv) for p in (14, 10, 9, 8)}  # ρ = 0.51, 0.72, 0.8, 0.9
        fitted = fit_waits(seen[10])
        errors += [abs(fitted.at([1, p, 1])[1] / measured_wait_s(seen[p])[0][1] - 1) for p in (14, 9, 8)]
    assert np.mean(errors) < 0.2
    assert np.max(errors) < 0.35, "no single case is far off either"


def test_returns_todays_wait_at_todays_parallelism() -> None:
    seen = observed(9, 1.0, 1.0, seconds=30)
    assert fit_waits(seen).at(seen.operators.parallelism)[1] == pytest.approx(measured_wait_s(seen)[0][1])


@pytest.mark.parametrize("utilisation", [0.1, 0.5, 0.9])
def test_is_exact_for_poisson_arrivals_and_exponential_service(utilisation: float) -> None:
    assert kingman_wait_s(utilisation, 0.01, 1.0, 1.0) == pytest.approx(
        0.01 * utilisation / (1 - utilisation)
    )


def test_full_utilisation_waits_for_ever() -> None:
    assert kingman_wait_s(1.0, 0.01, 1.0, 1.0) == np.inf


def test_numbers_that_are_not_numbers_leave_no_trace() -> None:
    seen = a_snapshot()
    tasks = seen.tasks
    broken = tasks.service_s.mean.copy()
    broken[2] = np.nan
    service = type(tasks.service_s)(tasks.service_s.count, broken, tasks.service_s.m2)
    waits = fit_waits(a_snapshot(tasks=tasks.with_columns(service_s=service)))
    assert np.all(np.isfinite(waits.a))
    assert np.all(np.isfinite(waits.b))
