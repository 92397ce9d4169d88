"""Fluid and discrete agree on what is steady."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.dataflow import Dataflow, OperatorId, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.policies.actions import Shed
from penstock.simulator import Cluster, Disturbance, Link, SimulatedRuntime, SimulationOptions
from penstock.telemetry import MachineClass, Snapshot
from tests.simulator.scenes import WHY, act


def diamond(rate_rps: float) -> Dataflow:
    d = flow("diamond")
    source = d.source("source", replay(load=constant(rate_rps)), record_bytes=1000)
    a = source.map("a", cost_s=0.002, parallelism=3, wiring="spread")
    b = a.map("b", cost_s=0.004, parallelism=4, wiring="spread", selectivity=0.5)
    c = a.keyed("c", key="k", state="n long", cost_s=0.001, cost_cv=0.5, parallelism=2)
    d.sink("d", discard(), inputs=[b.wired("spread"), c.wired("spread")], cost_s=0.0005, parallelism=2)
    d.constrain("-> a -> b", mean_ms=100, window_s=100)
    return d.build()


def steady(rate_rps: float, fidelity: str, *, disturbed: bool = False, keep: float = 1.0) -> Snapshot:
    """What is seen from 20 s to 80 s."""
    machine = MachineClass(name="node", cores=2, bandwidth_bytes_per_s=2e6)
    disturbances = {"node-1": Disturbance(foreign=constant(0.8), speed=constant(0.7))} if disturbed else {}
    cluster = Cluster(
        classes=(machine,),
        nodes={f"node-{i}": "node" for i in range(4)},
        link=Link(latency_s=0.001),
        disturbances=disturbances,
    )
    options = SimulationOptions(step_s=0.05, queue_records=200, spread="random")
    runtime = SimulatedRuntime(diamond(rate_rps), cluster, seed=6, fidelity=fidelity, options=options)
    act(runtime, Shed(operator=OperatorId("source"), keep=keep, reason=WHY))
    runtime.advance(20.0)
    runtime.observe()
    runtime.advance(80.0)
    return runtime.observe()


CASES = {
    "light": {"rate_rps": 200.0},
    "busy": {"rate_rps": 700.0},
    "disturbed": {"rate_rps": 500.0, "disturbed": True},
    "shedding": {"rate_rps": 900.0, "keep": 0.5},
    "overloaded": {"rate_rps": 2500.0},
}


@pytest.mark.parametrize("case", CASES)
def test_throughput_and_use_agree(case: str) -> None:
    exact, fluid = (steady(fidelity=f, **CASES[case]) for f in ("discrete", "fluid"))  # type: ignore[arg-type]
    tolerance = 0.06 if case == "overloaded" else 0.03
    np.testing.assert_allclose(fluid.by_operator.processed, exact.by_operator.processed, rtol=tolerance)
    np.testing.assert_allclose(fluid.nodes.own_cpu, exact.nodes.own_cpu, rtol=0.05, atol=0.01)
    np.testing.assert_allclose(fluid.streams.records, exact.streams.records, rtol=tolerance)
    np.testing.assert_allclose(fluid.streams.remote_bytes, exact.streams.remote_bytes, rtol=0.06)
    np.testing.assert_allclose(fluid.sinks.accuracy, exact.sinks.accuracy, rtol=0.05)
    assert fluid.cost == exact.cost


@pytest.mark.parametrize("case", ["light", "busy"])
def test_latency_is_of_the_same_size(case: str) -> None:
    """Kingman's formula is an approximation, above all behind other queues: a quarter is what it promises here."""
    exact, fluid = (steady(fidelity=f, **CASES[case]) for f in ("discrete", "fluid"))  # type: ignore[arg-type]
    assert fluid.constraints.latency_s[0] == pytest.approx(exact.constraints.latency_s[0], rel=0.25)
    assert fluid.sinks.latency_s.mean[0] == pytest.approx(exact.sinks.latency_s.mean[0], rel=0.25)


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.9])
def test_the_fluid_wait_of_one_queue_is_that_of_mm1(utilisation: float) -> None:
    q = flow("queue")
    q.source("source", replay(load=constant(utilisation * 1000))).sink("server", discard(), cost_s=0.001)
    cluster = Cluster.of(MachineClass(name="node", cores=4), 1)
    runtime = SimulatedRuntime(q.build(), cluster, fidelity="fluid", options=SimulationOptions(step_s=0.1))
    runtime.advance(60.0)
    runtime.observe()
    runtime.advance(120.0)
    wait_s = runtime.observe().streams.latency_s.mean[0]
    assert wait_s == pytest.approx(0.001 * utilisation / (1 - utilisation), rel=0.01)


def test_a_backlog_grows_and_drains_at_the_same_pace() -> None:
    """Ten seconds at twice the capacity, then none: both see the same queue and the same wait."""
    from penstock.dataflow import staircase

    q = flow("queue")
    load = staircase([(10.0, 2000.0), (100.0, 0.0)])
    q.source("source", replay(load=load)).sink("server", discard(), cost_s=0.001)
    seen = []
    for fidelity in ("discrete", "fluid"):
        cluster = Cluster.of(MachineClass(name="node", cores=4), 1)
        options = SimulationOptions(step_s=0.1, queue_records=10**6)
        runtime = SimulatedRuntime(q.build(), cluster, fidelity=fidelity, seed=1, options=options)
        rows = []
        for until_s in (5.0, 10.0, 15.0, 22.0):
            runtime.advance(until_s)
            snapshot = runtime.observe()
            rows.append((snapshot.tasks.queued[1], snapshot.sinks.latency_s.mean[0]))
        seen.append(np.array(rows))
    np.testing.assert_allclose(seen[1][:, 0], seen[0][:, 0], atol=300)
    np.testing.assert_allclose(seen[1][:2, 1], seen[0][:2, 1], rtol=0.1)
