"""Each workload in simulation, from the command line."""

from __future__ import annotations

import json

import pytest

from penstock.api.choices import find_flow
from penstock.dataflow import Dataflow
from tests.cli.running import penstock


def leaving_rps(flow: Dataflow, rate_scale: float) -> float:
    """Records that reach all sinks in a second, by the declared selectivities and the load's mean of ten minutes."""
    rates: dict[str, float] = {}
    for id_ in flow.topological:
        operator = flow.operator(id_)
        arriving = sum(rates[stream.source] for stream in flow.upstream(id_))
        if operator.kind == "source":
            assert operator.connector is not None
            assert operator.connector.load is not None
            arriving = operator.connector.load.records_until(600.0) / 600.0 * rate_scale
        rates[id_] = arriving * operator.best.selectivity
    return sum(rates[sink.id] for sink in flow.sinks)


@pytest.mark.parametrize(
    ("name", "rate_scale"),
    [
        ("linear-road", 0.01),
        ("smart-homes", 0.02),
        ("taxi-routes", 0.02),
        ("linear", 0.5),
        ("diamond", 0.5),
        ("star", 0.5),
    ],
)
def test_runs_in_simulation(name: str, rate_scale: float) -> None:
    ran = penstock(
        "simulate", name, "--for", "10m", "--rate-scale", str(rate_scale), "--nodes", "40", "--json"
    )
    assert ran.code in (0, 1), ran.err  # 1: a goal was missed, which is not what this is about
    wanted = leaving_rps(find_flow(name), rate_scale)
    assert json.loads(ran.out)["throughput"] == pytest.approx(wanted, rel=0.15)
