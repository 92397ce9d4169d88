"""What a run adds up to."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.cli.totals import Totals
from penstock.control import Cycle, Plan
from penstock.control.plan import Planned
from penstock.dataflow import OperatorId
from penstock.policies.actions import Shed
from penstock.policies.reasons import Reason
from penstock.testing import a_dataflow, a_snapshot


def shed(operator: str, target: str | None, keep: float, why: str) -> Planned:
    facts = dict.fromkeys(("node", "needed_cores", "available_cores", "accuracy"))
    reason = Reason(code=why, facts={**facts, "sink": "out"})
    to = None if target is None else OperatorId(target)
    return Planned(
        action=Shed(operator=OperatorId(operator), target=to, keep=keep, reason=reason), policy="shedding"
    )


def test_what_was_dropped_goes_to_the_decision_that_was_in_force():
    flow = a_dataflow("in", "work", "out")
    totals = Totals(flow)
    calm = a_snapshot(flow, demand_rps=100.0)
    shedding = a_snapshot(flow, demand_rps=100.0, keep={"in": 0.5, "work->out": 0.8})
    passed, lost = np.array([250.0, 200.0]), np.array([0.0, 50.0])
    shedding = replace(shedding, streams=shedding.streams.with_columns(records=passed, shed=lost))

    def cycle(*actions: Planned) -> Cycle:
        return Cycle(number=1, time_s=0.0, plan=Plan(time_s=0.0, actions=actions))

    totals(cycle(shed("in", None, 0.5, "cpu-short"), shed("work", "out", 0.8, "cpu-short")), calm)
    totals(cycle(shed("in", None, 0.5, "neighbour-warms-up")), shedding)
    totals(cycle(), shedding)
    found = {(d["where"], d["why"]): d for d in totals.dropped()}
    read = calm.sources.read_rps[0] * calm.interval_s
    assert found["in", "cpu-short"]["records"] == pytest.approx(read / 2)
    assert found["in", "neighbour-warms-up"]["records"] == pytest.approx(read / 2)
    assert found["in", "cpu-short"]["share"] == pytest.approx(1 / 6)
    assert found["work->out", "cpu-short"]["records"] == 100
    assert {d["sink"] for d in found.values()} == {"out"}
    assert totals.shed == pytest.approx(read + 100)
