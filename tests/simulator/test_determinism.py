"""The same seed gives the same bytes, however time is sliced."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow import OperatorId, sine
from penstock.policies.actions import Acquire, Move, Pace, Scale, Shed
from penstock.simulator import Cluster, Disturbance, Link, SimulatedRuntime, SimulationOptions
from tests.simulator.ledger import ledger_of
from tests.simulator.scenes import WHY, act, as_bytes, machine, pipeline, trace_of

END_S = 6.0


def run(seed: int, cuts: list[float], fidelity: str = "discrete") -> tuple[bytes, bytes]:
    """Bytes of the snapshots every two seconds and of the trace, with time cut at the given places too."""
    one = machine(cores=2, startup_s=0.7, price_per_hour=1.0)
    cluster = Cluster(
        classes=(one,),
        nodes={"node-0": "node", "node-1": "node"},
        link=Link(latency_s=0.001),
        disturbances={"node-1": Disturbance(foreign=sine(0.5, 0.5, 3.0), speed=sine(1.0, 0.3, 2.0))},
    )
    options = SimulationOptions(keys=100, key_skew=0.8, step_s=0.1)
    runtime = SimulatedRuntime(pipeline(400.0), cluster, seed=seed, fidelity=fidelity, options=options)
    trace = trace_of(runtime) if fidelity == "discrete" else []
    work, count = OperatorId("work"), OperatorId("count")
    plans = {
        2.0: [Scale(operator=work, current=3, target=5, reason=WHY), Acquire(machine="node", reason=WHY)],
        4.0: [
            Move(operator=count, index=0, source="", target="node-2", reason=WHY),
            Pace(stream="work->count", deadline_s=0.01, reason=WHY),
            Shed(operator=OperatorId("source"), keep=0.7, reason=WHY),
        ],
    }
    snapshots = []
    for time_s in sorted({*cuts, 2.0, 4.0, END_S}):
        runtime.advance(time_s)
        if time_s in (2.0, 4.0, END_S):
            snapshots.append(as_bytes(runtime.observe()))
            act(runtime, *plans.get(time_s, []))
    return b"".join(snapshots), b"".join(rows.tobytes() for rows in trace)


@pytest.mark.parametrize("fidelity", ["discrete", "fluid"])
@settings(max_examples=15)
@given(cuts=st.lists(st.floats(0.0, END_S), max_size=30))
def test_slicing_does_not_matter(fidelity: str, cuts: list[float]) -> None:
    assert run(1, cuts, fidelity) == run(1, [], fidelity)


def test_observing_changes_nothing() -> None:
    ends = []
    for often in (False, True):
        runtime = SimulatedRuntime(pipeline(400.0), Cluster.of(machine(cores=1), 2), seed=1)
        trace = trace_of(runtime)
        for time_s in np.arange(0.05, 3.0, 0.05):
            runtime.advance(float(time_s))
            if often:
                runtime.observe()
                ledger_of(runtime)
        ends.append(b"".join(rows.tobytes() for rows in trace))
    assert ends[0] == ends[1]


def test_another_seed_is_another_run() -> None:
    assert run(1, []) != run(2, [])


def test_the_same_record_costs_the_same_under_every_policy() -> None:
    """Total work is the same whether two tasks or six share it."""
    work = []
    for tasks in (3, 6):
        runtime = SimulatedRuntime(
            pipeline(200.0),
            Cluster.of(machine(cores=8), 1),
            seed=4,
            options=SimulationOptions(queue_records=10**6),
        )
        if tasks != 3:
            act(runtime, Scale(operator=OperatorId("work"), current=3, target=tasks, reason=WHY))
        runtime.advance(5.0)
        act(runtime, Shed(operator=OperatorId("source"), keep=0.0, reason=WHY))
        runtime.advance(20.0)
        work.append(runtime.observe().alternates.service_s.total)
    np.testing.assert_allclose(work[0], work[1], rtol=1e-12)


def test_a_record_kept_at_40_percent_is_kept_at_60_percent() -> None:
    kept = []
    for keep in (0.4, 0.6):
        runtime = SimulatedRuntime(pipeline(200.0), Cluster.of(machine(cores=8), 1), seed=4)
        trace = trace_of(runtime)
        act(runtime, Shed(operator=OperatorId("source"), keep=keep, reason=WHY))
        runtime.advance(5.0)
        rows = np.concatenate(trace)
        kept.append(set(rows["number"][(rows["kind"] == 1) & (rows["operator"] == 0)].tolist()))
    assert kept[0] < kept[1]
    assert len(kept[0]) / len(kept[1]) == pytest.approx(0.4 / 0.6, rel=0.1)
