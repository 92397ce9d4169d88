"""The micro-batch fidelity: it agrees with the closed form, loses nothing, and policies run on it unchanged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.choices import choose_policies
from penstock.control import Loop, Settings
from penstock.control.plan import Plan, Planned
from penstock.dataflow import OperatorId, constant, sine, staircase
from penstock.policies.actions import Action, Move, Pace, Scale, Shed
from penstock.policies.elasticity.microbatch import latency_s
from penstock.policies.reasons import Reason
from penstock.simulator import SimulatedClock
from penstock.simulator import microbatch_kernel as kernel
from penstock.simulator.microbatch import Kill, MicrobatchRuntime
from penstock.simulator.microbatch_model import Executors
from penstock.telemetry import Snapshot
from tests.simulator.microbatches import application

WHY = Reason(code="test")


def observed(runtime: MicrobatchRuntime, until_s: float, interval_s: float = 5.0) -> list[Snapshot]:
    snapshots = []
    while runtime.now_s < until_s - 1e-9:
        runtime.advance(min(until_s, runtime.now_s + interval_s))
        snapshots.append(runtime.observe())
    return snapshots


def act(runtime: MicrobatchRuntime, action: Action) -> str:
    (outcome, *_) = runtime.apply(
        Plan(time_s=runtime.now_s, actions=(Planned(action=action, policy="test"),))
    )
    return outcome.status


@pytest.mark.parametrize(("rate", "executors"), [(200, 1), (600, 1), (900, 1), (1700, 2), (2500, 4)])
def test_steady_latency_is_that_of_the_closed_form(rate: float, executors: int) -> None:
    runtime = application(
        {"q": constant(rate)}, {"q": 9e3}, executors=executors, noise=0.0, overhead_s=0.4, partitions=8
    )
    late = [s.constraints.latency_s[0] for s in observed(runtime, 300.0)][-10:]
    expected = latency_s(0.4, 1e-3, rate, np.array([float(executors)]))[0]
    assert np.mean(late) == pytest.approx(expected, rel=0.03)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 1000),
    cuts=st.lists(st.floats(0.1, 40.0), max_size=20),
    rate=st.floats(1, 1500),
)
def test_every_record_is_read_once_however_time_is_cut(seed: int, cuts: list[float], rate: float) -> None:
    ends = []
    for times in (sorted({*cuts, 40.0}), [40.0]):
        runtime = application({"q": constant(rate)}, {"q": 1e3}, seed=seed, executors=2)
        records, last = 0.0, None
        for time_s in times:
            runtime.advance(time_s)
            last = runtime.observe()
            assert last.batches is not None
            records += float(last.batches.records.sum())
        assert last is not None
        running = float(last.queries.running_records.sum())
        assert records + running + last.sources.backlog_records.sum() == pytest.approx(40.0 * rate, abs=1.0)
        ends.append((records, running))
    assert ends[0] == ends[1]


def test_queries_share_the_executors() -> None:
    alone = application({"b": constant(350)}, {"b": 9e3}, executors=1)
    beside = application({"a": constant(500), "b": constant(350)}, {"a": 9e3, "b": 9e3}, executors=1)
    late_alone = np.mean([s.constraints.latency_s[0] for s in observed(alone, 120.0)[-8:]])
    late_beside = np.mean([s.constraints.latency_s[1] for s in observed(beside, 120.0)[-8:]])
    assert late_beside > 1.2 * late_alone


def test_growth_takes_its_time_and_then_state_is_spread() -> None:
    runtime = application({"q": constant(300)}, {"q": 9e3}, executors=1, partitions=6)
    runtime.advance(20.0)
    runtime.observe()
    assert act(runtime, Scale(current=1, target=3, reason=WHY)) == "deferred"
    runtime.advance(22.0)
    early = runtime.observe()
    assert early.nodes.ready.sum() == 1
    assert len(early.nodes) == 3
    for time_s in (40.0, 60.0):
        runtime.advance(time_s)
        runtime.apply(Plan(time_s=time_s))
    late = runtime.observe()
    state = late.tasks.node[6:]
    assert np.bincount(state, minlength=3).tolist() == [2, 2, 2]


def test_what_leaves_takes_its_state_away_first() -> None:
    runtime = application({"q": constant(300)}, {"q": 9e3}, executors=3, partitions=6)
    observed(runtime, 30.0)
    assert act(runtime, Scale(current=3, target=1, reason=WHY)) == "applied"
    last = observed(runtime, 60.0)[-1]
    assert len(last.nodes) == 1
    assert set(last.tasks.node[6:].tolist()) == {0}
    assert act(runtime, Scale(current=1, target=0, reason=WHY)) == "blocked"


def test_a_move_is_paid_for_once() -> None:
    runtime = application(
        {"q": constant(100)}, {"q": 9e3}, executors=2, noise=0.0, engine_executors=Executors(restore_s=2.0)
    )
    observed(runtime, 30.0)
    operator = OperatorId("q.state")
    before = observed(runtime, 35.0)[-1]
    target = before.nodes.ids[1 - int(before.tasks.node[4])]
    source = before.nodes.ids[int(before.tasks.node[4])]
    assert (
        act(runtime, Move(operator=operator, index=0, source=source, target=target, reason=WHY)) == "applied"
    )
    after = observed(runtime, 60.0, 1.0)
    assert before.batches is not None
    usual = float(before.batches.duration_s.mean())
    longest = [float(s.batches.duration_s.max()) for s in after if s.batches is not None and len(s.batches)]
    assert sum(one > usual + 1.5 for one in longest) == 1
    assert after[-1].nodes.ids[int(after[-1].tasks.node[4])] == target


def test_a_dead_executor_costs_time_and_no_record() -> None:
    runtime = application({"q": constant(400)}, {"q": 9e3}, executors=2)
    runtime = MicrobatchRuntime(
        runtime.dataflow,
        runtime.engine,
        loads=[constant(400)],
        machine=runtime.machine,
        executors=2,
        kills=[Kill(time_s=30.3 + 7.1 * i) for i in range(6)],
    )
    snapshots = observed(runtime, 120.0)
    records = sum(float(s.batches.records.sum()) for s in snapshots if s.batches is not None)
    left = snapshots[-1].sources.backlog_records.sum() + snapshots[-1].queries.running_records.sum()
    assert records + left == pytest.approx(400 * 120.0, abs=1.0)
    durations = np.concatenate([s.batches.duration_s for s in snapshots if s.batches is not None])
    assert durations.max() > 2 * np.median(durations)


def test_a_long_batch_is_never_read_as_no_latency() -> None:
    runtime = application({"q": constant(100)}, {"q": 9e3}, executors=1, record_s=0.2, noise=0.0)
    for snapshot in observed(runtime, 200.0)[2:]:
        assert snapshot.constraints.known[0]
        assert snapshot.constraints.latency_s[0] > 1.0


def test_pace_and_shed_take_effect() -> None:
    runtime = application({"q": constant(200)}, {"q": 9e3}, executors=1, noise=0.0)
    observed(runtime, 20.0)
    assert act(runtime, Pace(query="q", deadline_s=4.0, reason=WHY)) == "applied"
    paced = observed(runtime, 60.0)[-4:]
    assert sum(len(s.batches) for s in paced if s.batches is not None) == 5
    assert act(runtime, Shed(operator=OperatorId("q.source"), keep=0.25, reason=WHY)) == "applied"
    shed = observed(runtime, 100.0)[-1]
    assert shed.sinks.accuracy[0] == 0.25
    assert shed.tasks.busy_s.sum() == pytest.approx(0.25 * paced[-1].tasks.busy_s.sum(), rel=0.3)


@pytest.mark.parametrize("policy", ["elasticity", "interference", "shedding", "provisioning"])
def test_policies_run_on_it_unchanged(policy: str) -> None:
    loads = {"a": staircase([(60, 100), (60, 900)]), "b": sine(100, 50, 40)}
    runtime = application(loads, {"a": 4e3, "b": 4e3}, executors=2, limit=4)
    loop = Loop(
        runtime, choose_policies([policy]), clock=SimulatedClock(runtime), settings=Settings(interval_s=5.0)
    )
    loop.run(for_s=180.0)
    assert not loop.faults


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    executors=st.integers(1, 6),
    cores=st.integers(1, 3),
    partitions=st.integers(1, 40),
    stateful=st.booleans(),
)
def test_tasks_take_the_slot_that_a_plain_search_finds(
    seed: int, executors: int, cores: int, partitions: int, stateful: bool
) -> None:
    rng = np.random.default_rng(seed)
    free = np.round(rng.uniform(0, 3, executors * cores), 1)
    from_s = np.round(rng.uniform(0, 2, executors), 1)
    place = rng.integers(-1, executors, partitions)
    weights, wait_s, now_s = rng.uniform(0.1, 1, partitions), 0.7, 1.0
    expected, where = free.copy(), place.copy()
    for p in range(partitions):
        start = np.maximum(np.maximum(expected, np.repeat(from_s, cores)), now_s)
        slot = int(np.argmin(start))
        begins = start[slot]
        if stateful and place[p] >= 0 and slot // cores != place[p]:
            home = place[p] * cores + int(np.argmin(start[place[p] * cores : (place[p] + 1) * cores]))
            begins = max(begins, now_s + wait_s)
            if start[home] <= begins:
                slot, begins = home, start[home]
        expected[slot] = begins + weights[p]
        where[p] = slot // cores if stateful else where[p]
    found, home_of = free.copy(), place.copy()
    none = np.zeros(0)
    queries = kernel.Queries(*[none] * len(kernel.Queries._fields))._replace(
        batch_id=np.zeros(1, np.int64),
        task_cv=np.zeros(1),
        record_s=np.ones(1),
        task_s=np.zeros(1),
        stateful=np.array([stateful]),
        part_first=np.array([0, partitions]),
        weights=weights,
        place=home_of,
        restoring=np.zeros(partitions, np.bool_),
        restore_s=np.zeros(partitions),
        part_busy=np.zeros(partitions),
        part_records=np.zeros(partitions),
    )
    slots = kernel.Executors(
        slot_free=found,
        slot_executor=np.repeat(np.arange(executors), cores),
        from_s=from_s,
        gone_s=np.full(executors, np.inf),
        warm_s=np.zeros(executors),
        busy_s=np.zeros(executors),
        speed=1.0,
        wait_s=wait_s,
        cold_s=0.0,
        cold_factor=1.0,
    )
    end_s, busy = kernel.run_stage(now_s, 0, 0, 1.0, 1.0, 0, queries, slots)
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(home_of, where)
    assert busy == pytest.approx(weights.sum())
    assert end_s <= expected.max() + 1e-9
