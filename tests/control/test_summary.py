"""What a run adds up to: each figure by its definition, and the same whether it is read live or from the journal."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control import Cycle, Loop, Outcome, Plan, PolicyRun, SqliteJournal, explain
from penstock.control.brief import Brief
from penstock.control.plan import Planned
from penstock.control.summary import RunSummary, Summary, summary_of
from penstock.dataflow import OperatorId
from penstock.policies.actions import Action, Scale, Shed
from penstock.policies.reasons import Reason
from penstock.telemetry import MachineClass, Moments, Nodes, Sketch, Snapshot
from penstock.testing import FakeClock, RecordingRuntime, ScriptedPolicy, a_dataflow, a_snapshot
from penstock.testing.builders import TWO_WAYS

FLOW = a_dataflow("in", "work", "out", alternates=TWO_WAYS, min_accuracy=0.5)


def a_cycle(snapshot: Snapshot | None, *actions: Action, **more: object) -> Cycle:
    planned = tuple(Planned(action=a, policy="p") for a in actions)
    brief = None if snapshot is None else Brief.of(snapshot)
    return Cycle(number=1, time_s=0.0, plan=Plan(time_s=0.0, actions=planned), brief=brief, **more)


def of(*snapshots: Snapshot | None) -> RunSummary:
    return summary_of(a_cycle(s) for s in snapshots)


def test_what_was_not_measured_is_neither_held_nor_missed() -> None:
    seen = [a_snapshot(FLOW, latency_s=s) for s in (0.05, None, None, 0.2, 0.05)]
    (goal,) = of(*seen, None).constraints
    assert goal.held == pytest.approx(2 / 3)
    assert goal.unknown == pytest.approx(2 / 5)
    assert (goal.mean_ms, goal.worst_ms) == (pytest.approx(100.0), pytest.approx(200.0))


def test_a_goal_that_was_never_measured_has_no_figures() -> None:
    (goal,) = of(a_snapshot(FLOW, latency_s=None)).constraints
    assert (goal.held, goal.unknown, goal.mean_ms, goal.p95_ms) == (None, 1.0, None, None)


def test_nodes_that_start_or_drain_are_paid_for() -> None:
    snapshot = a_snapshot(FLOW, nodes=4, interval_s=5.0)
    nodes = snapshot.nodes.with_columns(
        ready=np.array([True, True, False, True]), draining=np.array([False, False, False, True])
    )
    found = of(replace(snapshot, nodes=nodes))
    assert found.node_seconds == 4 * 5.0
    assert found.core_seconds == 4 * 5.0 * 4
    assert Brief.of(replace(snapshot, nodes=nodes)).nodes == 2
    assert isinstance(nodes, Nodes)


def test_latency_is_of_all_records_at_all_sinks() -> None:
    early, late = np.full(90, 0.1), np.full(10, 1.0)
    snapshots = []
    for values in (early, late):
        snapshot = a_snapshot(FLOW)
        sinks = snapshot.sinks.with_columns(latency_s=Moments.of(values), sketch=(Sketch.of(values),))
        snapshots.append(replace(snapshot, sinks=sinks))
    latency = of(*snapshots).latency_ms
    assert latency["mean"] == pytest.approx(190.0)
    assert latency["p50"] == pytest.approx(100.0, rel=0.02)
    assert latency["p95"] == pytest.approx(1000.0, rel=0.02)


def test_accuracy_is_weighted_by_what_came_in() -> None:
    found = of(
        a_snapshot(FLOW, demand_rps=900, accuracy=1.0),
        a_snapshot(FLOW, demand_rps=100, accuracy=0.5, backlog_records=70),
    )
    (sink,) = found.sinks
    assert (sink.accuracy, sink.lowest, sink.min_accuracy) == (pytest.approx(0.95), 0.5, 0.5)
    assert found.backlog_records == 70
    assert found.throughput_rps == pytest.approx(500)


def test_value_that_cheaper_alternates_give_up() -> None:
    found = of(a_snapshot(FLOW), a_snapshot(FLOW, alternate={"work": "fast"}))
    assert found.value_given_up == pytest.approx(0.2)
    assert of(a_snapshot(a_dataflow())).value_given_up is None


def test_the_bill_is_the_cost_by_class() -> None:
    small, large = MachineClass(name="small", billing_s=1.0), MachineClass(name="large", billing_s=3600.0)
    found = of(
        a_snapshot(FLOW, nodes=2, machine="small", price_per_hour=0.1, classes=(small, large)),
        a_snapshot(FLOW, nodes=1, machine="large", price_per_hour=0.6, classes=(small, large), cost=1.2),
    )
    assert [(b.machine, b.billing_s, b.node_seconds) for b in found.bill] == [
        ("large", 3600.0, 5.0),
        ("small", 1.0, 10.0),
    ]
    assert [b.cost for b in found.bill] == [pytest.approx(0.9), pytest.approx(0.3)]
    assert sum(b.cost for b in found.bill) == pytest.approx(found.cost)


def test_only_what_the_runtime_took_on_has_begun() -> None:
    grow = Scale(reason=Reason(code="test"), operator=OperatorId("work"), current=2, target=3)
    shed = Shed(reason=Reason(code="test"), operator=OperatorId("in"), keep=0.5)
    outcomes = (
        Outcome(action=grow, status="deferred"),
        Outcome(action=shed, status="blocked"),
        Outcome(action=grow, status="applied"),  # of an earlier cycle
    )
    found = summary_of([a_cycle(None, grow, shed, outcomes=outcomes)])
    assert (found.planned, found.begun) == ({"scale": 1, "shed": 1}, {"scale": 1})
    assert found.outcomes == {"scale": {"deferred": 1, "applied": 1}, "shed": {"blocked": 1}}


def test_what_was_dropped_goes_to_the_decision_that_was_in_force() -> None:
    calm = a_snapshot(FLOW, demand_rps=100.0)
    shedding = a_snapshot(FLOW, demand_rps=100.0, keep={"in": 0.5, "work->out": 0.8})
    passed, lost = np.array([250.0, 200.0]), np.array([0.0, 50.0])
    shedding = replace(shedding, streams=shedding.streams.with_columns(records=passed, shed=lost))

    def shed(operator: str, target: str | None, code: str) -> Shed:
        facts = dict.fromkeys(("node", "needed_cores", "available_cores", "accuracy", "sink"))
        to = None if target is None else OperatorId(target)
        reason = Reason(code=code, facts=facts)
        return Shed(operator=OperatorId(operator), target=to, keep=0.5, reason=reason, goal="out")

    found = summary_of(
        [
            a_cycle(calm, shed("in", None, "cpu-short"), shed("work", "out", "cpu-short")),
            a_cycle(shedding, shed("in", None, "neighbour-warms-up")),
            a_cycle(shedding),
        ]
    )
    dropped = {(d.where, d.why): d for d in found.dropped}
    read = calm.sources.read_rps[0] * calm.interval_s
    assert dropped["in", "cpu-short"].records == pytest.approx(read / 2)
    assert dropped["in", "neighbour-warms-up"].records == pytest.approx(read / 2)
    assert dropped["in", "cpu-short"].share == pytest.approx(1 / 6)
    assert dropped["work->out", "cpu-short"].records == 100
    assert {d.sink for d in found.dropped} == {"out"}
    assert found.shed == pytest.approx(read + 100)


facts = st.fixed_dictionaries(
    {
        "demand_rps": st.just(0.0) | st.floats(1, 5000),
        "latency_s": st.none() | st.floats(0.001, 3),
        "utilisation": st.floats(0, 1),
        "parallelism": st.integers(1, 4),
        "nodes": st.integers(1, 5),
        "keep": st.dictionaries(st.sampled_from(["in", "in->work"]), st.floats(0, 1)),
        "alternate": st.sampled_from([{}, {"work": "fast"}]),
        "backlog_records": st.floats(0, 1e6),
        "accuracy": st.floats(0, 1),
        "cost": st.floats(0, 10),
    }
)


@settings(max_examples=30)
@given(st.lists(st.none() | facts, min_size=1, max_size=6), st.lists(st.floats(0, 1), max_size=6))
def test_live_and_from_the_journal_a_run_has_the_same_figures(worlds, keeps) -> None:
    shown = [
        ConnectionError("lost") if w is None else a_snapshot(FLOW, time_s=5.0 * (i + 1), **w)
        for i, w in enumerate(worlds)
    ]
    lines = [[Shed(reason=Reason(code="test"), operator=OperatorId("in"), keep=k, goal="out")] for k in keeps]
    live, clock = Summary(), FakeClock()
    with tempfile.TemporaryDirectory() as folder, SqliteJournal(Path(folder) / "runs.sqlite") as journal:
        loop = Loop(
            RecordingRuntime(clock, shown),
            [PolicyRun(policy=ScriptedPolicy(lines))],
            clock=clock,
            journal=journal,
            subscribers=[live],
        )
        loop.run(for_s=5.0 * len(shown))
        assert loop.run_id is not None
        recorded = summary_of(journal.cycles(loop.run_id))
        assert explain(journal, loop.run_id).summary == recorded
    assert live.result() == recorded
    assert live.result().figures() == recorded.figures()
