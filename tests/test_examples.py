"""Every example works: the flows are simulated as a user would, and the demo declares what it says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from tests.cli.running import penstock

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize("path", sorted((EXAMPLES / "flows").glob("*.yaml")), ids=lambda p: p.name)
def test_flows_run_in_simulation(path: Path) -> None:
    ran = penstock(
        "simulate", str(path), "--for", "30s", "--rate-scale", "0.1", "--fidelity", "fluid", "--json"
    )
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["throughput"] > 0
    assert not document["faults"]


def test_the_demo_declares_a_load_that_climbs_and_falls() -> None:
    demo = runpy.run_path(str(EXAMPLES / "demo.py"))
    flow = demo["demo_flow"]()
    load = flow.sources[0].connector.load
    *climb, again = load.rates_rps
    assert climb == sorted(set(climb))
    assert again == climb[1] < climb[-1], "back to where it was after the warm-up"
    assert [c.bound_ms for c in flow.constraints] == [demo["BOUND_MS"]]
