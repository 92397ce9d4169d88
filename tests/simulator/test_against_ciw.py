"""The discrete simulation against an independent simulator, ciw, on the same arrivals and service times."""

from __future__ import annotations

import math

import ciw
import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.simulator import SimulatedRuntime, SimulationOptions
from penstock.simulator.discrete_kernel import CREATED, ENDED, STARTED
from tests.simulator.scenes import cluster, rows_of, trace_of

Floats = NDArray[np.float64]
UNTIL_S = 30.0


def ciw_services(
    arrivals: list[Floats | None], services: list[Floats], routes: list[list[float]]
) -> list[Floats]:
    """Start and end of every service at each single server, as ciw has them: rows sorted by start."""

    def sequential(values: Floats) -> object:
        return ciw.dists.Sequential([*values.tolist(), math.inf])

    network = ciw.create_network(
        arrival_distributions=[None if a is None else sequential(np.diff(a, prepend=0.0)) for a in arrivals],
        service_distributions=[sequential(s) for s in services],
        number_of_servers=[1] * len(services),
        routing=routes,
    )
    simulation = ciw.Simulation(network, exact=False)
    simulation.simulate_until_max_time(UNTIL_S * 10)
    found: list[list[tuple[float, float]]] = [[] for _ in services]
    for record in simulation.get_all_records():
        found[record.node - 1].append((record.service_start_date, record.service_end_date))
    return [np.array(sorted(each)) for each in found]


def ours(runtime: SimulatedRuntime, names: list[str]) -> tuple[Floats, list[Floats]]:
    """Arrival times, and start and end of every finished service at each operator."""
    trace = trace_of(runtime)
    runtime.advance(UNTIL_S)
    row = {o.id: i for i, o in enumerate(runtime.dataflow.operators)}
    services = []
    for name in names:
        ended = rows_of(trace, ENDED, row[name])["time_s"]
        services.append(np.column_stack([rows_of(trace, STARTED, row[name])["time_s"][: len(ended)], ended]))
    return rows_of(trace, CREATED, 0)["time_s"], services


def assert_same(mine: Floats, theirs: Floats) -> None:
    assert len(mine) > 5000
    np.testing.assert_allclose(mine, theirs[: len(mine)], rtol=0, atol=1e-9)


def padded(services: Floats) -> Floats:
    """Service times, with one for the record that was not finished when our run ended."""
    return np.append(services[:, 1] - services[:, 0], np.full(100, 1e-3))


def test_tandem() -> None:
    builder = flow("tandem")
    at = builder.source("source", replay(load=constant(300.0)))
    at.map("a", cost_s=0.002).map("b", cost_s=0.0025, cost_cv=2.0).sink(
        "c", discard(), cost_s=0.003, cost_cv=0.5
    )
    runtime = SimulatedRuntime(builder.build(), cluster(), seed=8)
    created, mine = ours(runtime, ["a", "b", "c"])
    routes = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    theirs = ciw_services([created, None, None], [padded(m) for m in mine], routes)
    for each, other in zip(mine, theirs, strict=True):
        assert_same(each, other)


def test_diamond() -> None:
    """a -> b and c -> d. Every record of a goes to both, which ciw cannot: its a stands alone, and what leaves it
    enters b and c, which meet in d.
    """
    builder = flow("diamond")
    a = builder.source("source", replay(load=constant(200.0))).map("a", cost_s=0.003)
    b, c = a.map("b", cost_s=0.002, cost_cv=0.0), a.map("c", cost_s=0.004, cost_cv=1.5)
    builder.sink("d", discard(), inputs=[b, c], cost_s=0.002)
    runtime = SimulatedRuntime(
        builder.build(), cluster(), seed=9, options=SimulationOptions(queue_records=10**9)
    )
    created, (of_a, of_b, of_c, of_d) = ours(runtime, ["a", "b", "c", "d"])
    (their_a,) = ciw_services([created], [padded(of_a)], [[0.0]])
    assert_same(of_a, their_a)
    routes = [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    left = their_a[: len(of_a), 1]
    theirs = ciw_services([left, left, None], [padded(m) for m in (of_b, of_c, of_d)], routes)
    for each, other in zip((of_b, of_c, of_d), theirs, strict=True):
        assert_same(each, other)
    # Also as the snapshot tells it: waits at b, c and d.
    snapshot = runtime.observe()
    waits = snapshot.streams.latency_s.mean
    b_starts = theirs[0][: len(of_b), 0]
    expected = (b_starts - left[: len(b_starts)]).mean()
    np.testing.assert_allclose(
        waits[snapshot.dataflow.streams.index(snapshot.dataflow.upstream("b")[0])], expected, rtol=1e-6
    )
