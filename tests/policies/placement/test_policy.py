"""Placement as a policy: in micro-batches on made snapshots, and closed-loop in the simulator."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control import Damping, Loop, PolicyRun, Settings
from penstock.control.codec import pack, unpack
from penstock.dataflow import constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.policies.placement import PlacementMemory, PlacementOptions, TaskPlacement
from penstock.policies.placement.measured import MeasuredTraffic, running
from penstock.policies.placement.policy import next_moves
from penstock.policies.placement.problem import placement_problem
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime
from penstock.telemetry import Batches, MachineClass, Traffic
from penstock.testing import a_dataflow, a_snapshot
from tests.policies.placement.clocks import TickingClock
from tests.policies.placement.strategies import problems
from tests.simulator.ledger import ledger_of

NOW = PlacementOptions(confirmations=1, every_s=1.0, pause_s=0.0, least_bytes_per_s=0.0)
ONE_BATCH = Batches(
    id=np.array([1]),
    records=np.ones(1),
    duration_s=np.ones(1),
    fixed_s=np.zeros(1),
    busy_s=np.full(1, np.nan),
    interval_s=0.0,
)


def chain(partitions=6, nodes=3, *, seed=0, batches=ONE_BATCH, time_s=0.0):
    """Two stateful operators whose keys are correlated: partition i of the first talks to one of the second."""
    flow = a_dataflow("events", "first", "second", "out", stateful=True)
    shown = a_snapshot(flow, parallelism=partitions, nodes=nodes, time_s=time_s, batches=batches)
    partner = np.random.default_rng(seed).permutation(partitions)
    traffic = Traffic.blank(
        3 * partitions,
        # From the source too, evenly: nobody can save that.
        from_task=[*range(partitions), *range(partitions, 2 * partitions), *range(partitions)],
        to_task=[*range(partitions, 2 * partitions), *(2 * partitions + partner), *range(partitions, 2 * partitions)],
        bytes_per_s=[50.0] * partitions + [1000.0] * partitions + [50.0] * partitions,
    )  # fmt: skip
    return replace(shown, traffic=traffic)


def moved(snapshot, actions):
    """The snapshot after the moves."""
    node = snapshot.tasks.node.copy()
    for action in actions:
        row = next(r for r in range(len(node)) if snapshot.task_id(r) == action.subject)
        assert snapshot.nodes.ids[node[row]] == action.source
        node[row] = snapshot.nodes.row[action.target]
    return replace(snapshot, tasks=snapshot.tasks.with_columns(node=node))


def between_stateful(snapshot):
    """Bytes per second between nodes, of tasks that can move."""
    node, traffic = snapshot.tasks.node, snapshot.traffic
    stateful = snapshot.tasks.operator[traffic.from_task] == 1
    crosses = node[traffic.from_task] != node[traffic.to_task]
    return float(traffic.bytes_per_s[stateful & crosses].sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("partitions", [6, 16])
def test_correlated_state_partitions_come_together_and_every_operator_stays_even(partitions, seed):
    snapshot = chain(partitions, seed=seed)
    policy = TaskPlacement(time.monotonic)
    proposal, _ = policy.decide(snapshot, policy.start(NOW), replace(NOW, most_moves=99))
    after = moved(snapshot, proposal.actions)
    assert {a.operator for a in proposal.actions} <= {"first", "second"}
    assert between_stateful(snapshot) > 0
    assert between_stateful(after) <= 0.1 * between_stateful(snapshot)
    for operator in (1, 2):
        held = np.bincount(after.tasks.node[after.tasks.operator == operator], minlength=3)
        assert held.max() <= -(-partitions // 3)
    assert all(a.reason.code == "worth-it" and a.expects.metric == "node" for a in proposal.actions)


def test_a_decision_is_carried_out_a_few_moves_at_a_time_and_then_rests():
    snapshot, options = chain(12, seed=3), replace(NOW, most_moves=2, cool_down_s=600.0)
    policy = TaskPlacement(TickingClock())
    memory, told = policy.start(options), []
    for cycle in range(20):
        proposal, memory = policy.decide(replace(snapshot, time_s=5.0 * cycle), memory, options)
        told.append(len(proposal.actions))
        snapshot = moved(snapshot, proposal.actions)
    assert max(told) == 2
    assert sum(told) > 2
    assert told[-5:] == [0] * 5
    assert between_stateful(snapshot) == 0


def test_a_refused_decision_ends_with_the_cool_down():
    snapshot, options = chain(6, seed=1), replace(NOW, cool_down_s=20.0, every_s=5.0)
    policy = TaskPlacement(TickingClock())
    memory, told = policy.start(options), []
    for cycle in range(8):  # nothing ever moves
        proposal, memory = policy.decide(replace(snapshot, time_s=5.0 * cycle), memory, options)
        told.append(bool(proposal.actions))
    assert told == [True, True, True, True, False, True, True, True]


def test_nothing_is_decided_without_traffic_while_tasks_move_or_before_it_is_confirmed():
    policy, snapshot = TaskPlacement(TickingClock()), chain(6, seed=1)
    silent = replace(snapshot, traffic=Traffic.blank(0))
    assert not policy.decide(silent, policy.start(NOW), NOW)[0].actions
    moving = replace(snapshot, tasks=snapshot.tasks.with_columns(moving=np.ones(len(snapshot.tasks), bool)))
    assert not policy.decide(moving, policy.start(NOW), NOW)[0].actions
    patient = replace(NOW, confirmations=2)
    proposal, memory = policy.decide(snapshot, policy.start(patient), patient)
    assert not proposal.actions
    # Traffic is remembered: the batch that ends in the next interval need not be told of.
    proposal, memory = policy.decide(replace(snapshot, time_s=5.0), memory, patient)
    assert proposal.actions
    assert policy.decide(replace(silent, time_s=10.0), memory, patient)[0].actions


def test_a_saving_that_does_not_pay_for_the_moves_moves_nothing():
    policy, options = TaskPlacement(TickingClock()), replace(NOW, pause_s=1e6)
    assert not policy.decide(chain(6, seed=1), policy.start(options), options)[0].actions


def test_kilobytes_a_second_move_no_state():
    policy, options = (
        TaskPlacement(TickingClock()),
        replace(NOW, least_bytes_per_s=PlacementOptions().least_bytes_per_s),
    )
    small = chain(6, seed=1)
    assert not policy.decide(small, policy.start(options), options)[0].actions
    large = small.traffic.with_columns(bytes_per_s=1000 * small.traffic.bytes_per_s)
    assert policy.decide(replace(small, traffic=large), policy.start(options), options)[0].actions


def test_what_moves_were_seen_to_pause_is_part_of_their_price():
    policy, options = TaskPlacement(TickingClock()), replace(NOW, pause_s=1.0)
    snapshot = chain(6, seed=1)
    actions = policy.decide(snapshot, policy.start(options), options)[0].actions
    assert actions
    assert actions[0].cost.pause_s == 1.0
    slow = replace(snapshot, pause_factor=1e6)
    assert not policy.decide(slow, policy.start(options), options)[0].actions


def test_a_hot_partition_weighs_what_it_works_and_state_must_fit_the_memory():
    snapshot = chain(6)
    rows = np.flatnonzero(snapshot.tasks.operator == 1)
    busy = snapshot.tasks.busy_s.copy()
    busy[rows] = [5.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    known = snapshot.tasks.with_columns(
        busy_s=busy,
        known=np.ones(len(busy), bool),
        state_bytes=np.full(len(busy), 7.0),
        state_known=busy >= 0,
    )
    memory = snapshot.nodes.with_columns(memory_bytes=np.full(3, 100.0))
    now = running(replace(snapshot, tasks=known, nodes=memory), MeasuredTraffic(), NOW)
    assert now.problem.resources == ("first", "second", "memory")
    first = now.problem.loads[snapshot.tasks.operator[now.rows] == 1]
    assert first[:, 0].tolist() == [3.0, 0.5, 0.5, 0.5, 0.5, 0.5], "in halves of the mean"
    assert first[:, 2].tolist() == [7.0] * 6
    even = now.problem.loads[snapshot.tasks.operator[now.rows] == 2]
    assert even[:, 1].tolist() == [1.0] * 6, "those that are alike count one each"
    assert now.problem.limits[:, 0].tolist() == pytest.approx([5.5 / 3 + 2.0] * 3), (
        "room for the hot one, not for two"
    )
    assert now.problem.limits[:, 1].tolist() == pytest.approx([2.0] * 3)
    assert now.problem.limits[:, 2].tolist() == pytest.approx([100.0] * 3)


def test_leaving_nodes_get_no_task_and_unmovable_tasks_stay():
    options = replace(NOW, moves="stateful", most_moves=99, utilisation=1.0)
    snapshot = chain(6, seed=2, batches=None)
    draining = snapshot.nodes.with_columns(draining=np.array([False, False, True]))
    proposal, _ = (policy := TaskPlacement(TickingClock())).decide(
        replace(snapshot, nodes=draining), policy.start(options), options
    )
    assert proposal.actions
    assert {a.operator for a in proposal.actions} <= {"first", "second"}
    assert all(a.target != "n2" for a in proposal.actions)


def test_memory_survives_the_journal():
    policy, options = TaskPlacement(TickingClock()), replace(NOW, most_moves=2)
    snapshot = chain(6, seed=1)
    proposal, memory = policy.decide(snapshot, policy.start(options), options)
    back = unpack(PlacementMemory, pack(PlacementMemory, memory))
    later = moved(replace(snapshot, time_s=5.0), proposal.actions)
    assert policy.decide(later, back, options)[0] == policy.decide(later, memory, options)[0]


def test_traffic_is_the_faded_mean_of_what_was_told():
    snapshot = chain(4)
    twice = replace(snapshot, traffic=replace(snapshot.traffic, bytes_per_s=2 * snapshot.traffic.bytes_per_s))
    learnt = MeasuredTraffic().learn(snapshot, 5.0).learn(twice, 5.0)
    share = 1 - np.exp(-1.0)
    every = np.arange(len(snapshot.tasks))
    sources, targets, rates = learnt.between(snapshot, every)
    told = {}
    for a, b, r in zip(
        *(getattr(snapshot.traffic, c) for c in ("from_task", "to_task", "bytes_per_s")), strict=True
    ):
        told[int(a), int(b)] = told.get((int(a), int(b)), 0.0) + r
    assert {(int(a), int(b)) for a, b in zip(sources, targets, strict=True)} == set(told)
    for a, b, r in zip(sources, targets, rates, strict=True):
        assert r == pytest.approx(told[int(a), int(b)] * (1 + share))


@given(problem=problems(running=True), most=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_next_moves_lead_to_what_is_wanted(problem, most, seed):
    at = np.where(problem.running < 0, 0, problem.running)
    problem = replace(problem, running=at)
    wanted = np.random.default_rng(seed).integers(0, problem.nodes, problem.tasks)
    for _ in range(problem.tasks + 1):
        chosen = next_moves(problem, wanted, most)
        assert len(chosen) <= most
        assert len(set(chosen.tolist())) == len(chosen)
        now = problem.running.copy()
        now[chosen] = wanted[chosen]
        problem = replace(problem, running=now)
    assert np.array_equal(problem.running, wanted)


def test_the_largest_saving_goes_first():
    problem = placement_problem(
        loads=np.ones(4),
        capacities=[4, 4],
        sources=[0, 2],
        targets=[1, 3],
        rates=[1, 9],
        running=[0, 1, 0, 1],
    )
    assert next_moves(problem, np.array([0, 0, 0, 0]), 1).tolist() == [3]


@given(cores=st.lists(st.floats(0.5, 8.0), min_size=2, max_size=5), batches=st.booleans())
@settings(max_examples=30)
def test_what_runs_always_fits(cores, batches):
    snapshot = chain(6, len(cores), batches=ONE_BATCH if batches else None)
    snapshot = replace(snapshot, nodes=snapshot.nodes.with_columns(cores=np.array(cores)))
    now = running(snapshot, MeasuredTraffic().learn(snapshot, 1.0), PlacementOptions())
    assert now.problem.fits(now.problem.running)


@pytest.mark.parametrize(
    "bad", [{"solver": "magic"}, {"seconds": 0}, {"most_moves": 0}, {"least_gain": 2}], ids=str
)
def test_options_reject_nonsense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        PlacementOptions(**bad)


def test_in_the_simulator_remote_traffic_falls_and_no_record_is_lost():
    app = flow("lanes")
    source = app.source("in", replay(load=constant(400.0)), record_bytes=1000)
    a = source.map("a", cost_s=0.002, parallelism=8, wiring="spread", record_bytes=1000)
    b = a.map("b", cost_s=0.002, parallelism=8, record_bytes=1000)
    c = b.map("c", cost_s=0.002, parallelism=8, record_bytes=1000)
    c.sink("out", discard())
    lanes = app.build()
    random = np.random.default_rng(0)
    ids = ["in[0]", *(f"{o}[{i}]" for o in "abc" for i in range(8)), "out[0]"]
    runtime = SimulatedRuntime(
        lanes,
        Cluster.of(MachineClass(name="m", cores=2), 4),
        fidelity="fluid",
        placement={i: f"m-{random.integers(0, 4)}" for i in ids},
    )
    remote, busiest = [], []

    def watch(cycle, snapshot):
        remote.append(snapshot.streams.remote_bytes.sum())
        busiest.append(snapshot.node_cpu.max())

    options = PlacementOptions(every_s=10.0, most_moves=6)
    loop = Loop(
        runtime,
        [PolicyRun(policy=TaskPlacement(time.monotonic), options=options)],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=5.0, damping=Damping(rest_after_growth=0)),
        subscribers=[watch],
    )
    loop.run(for_s=90.0)
    assert not loop.faults
    assert remote[-1] < 0.4 * remote[0]
    assert remote[-1] == remote[-2]
    assert max(busiest) <= 1.5 + 1e-6  # 75 % of two cores
    ledger = ledger_of(runtime)
    assert ledger.arrived.sum() == pytest.approx((ledger.processed + ledger.queued + ledger.in_service).sum())
