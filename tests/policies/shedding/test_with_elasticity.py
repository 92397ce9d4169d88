"""Shedding and elasticity together: what is dropped is still demand, so tasks come and nothing stays shed."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control import Damping, Loop, PolicyRun, Settings
from penstock.control.plan import Plan, Planned
from penstock.dataflow import Load, constant, staircase
from penstock.dataflow.graph import OperatorId
from penstock.policies.actions import Shed
from penstock.policies.elasticity import Elasticity, ElasticityOptions
from penstock.policies.elasticity.demand import Learnt, demand_of
from penstock.policies.elasticity.microbatch import BatchCost
from penstock.policies.reasons import Reason
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime, SimulationOptions
from penstock.telemetry import Batches, MachineClass, Snapshot
from penstock.testing import a_dataflow, a_snapshot
from tests.policies.elasticity.scenes import a_line

CORES = 4


def together(
    load: Load, nodes: int, seconds: float, first_keep: float = 1.0, interval_s: float = 1.0
) -> list[Snapshot]:
    """A line of 10 ms a record under both policies, cycle by cycle."""
    runtime = SimulatedRuntime(
        a_line(load, mean_ms=50),
        Cluster.of(MachineClass(name="machine", cores=CORES), nodes),
        options=SimulationOptions(task_startup_s=1.5, traffic=False),
    )
    shed = Shed(operator=OperatorId("in"), keep=first_keep, reason=Reason(code="test"))
    runtime.apply(Plan(time_s=0.0, actions=(Planned(action=shed, policy="test"),)))
    seen: list[Snapshot] = []
    loop = Loop(
        runtime,
        [
            PolicyRun(policy=Elasticity(), options=ElasticityOptions()),
            PolicyRun(policy=Shedding(), options=SheddingOptions()),
        ],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=interval_s, damping=Damping(rest_after_growth=0)),
        subscribers=[lambda cycle, snapshot: seen.append(snapshot)],
    )
    loop.run(for_s=seconds)
    assert not loop.faults
    return seen


def test_what_is_shed_brings_tasks_and_is_kept_again() -> None:
    """At first a fifth is kept, which two tasks can do; the whole load takes ten, for which there is room."""
    seen = together(constant(1000.0), nodes=4, seconds=120.0, first_keep=0.2, interval_s=5.0)
    assert seen[0].sources.keep[0] == 0.2
    assert all(s.sources.keep[0] == 1.0 for s in seen[-10:])
    assert all(s.constraints.held[0] for s in seen[-10:])
    assert 11 <= seen[-1].operators.parallelism[1] <= 20


def test_where_machines_are_too_few_both_settle_and_all_is_kept_when_the_load_falls() -> None:
    seen = together(staircase([(90.0, 1000.0), (30.0, 150.0)]), nodes=2, seconds=115.0)
    full, after = seen[50:88], seen[-10:]
    # 8 cores, of which 90 % are planned for, are enough for 72 % of what takes 10.
    assert np.mean([s.sources.keep[0] for s in full]) == pytest.approx(0.72, abs=0.04)
    assert all(s.constraints.held[0] for s in full[-10:])
    assert all(s.sources.keep[0] == 1.0 for s in after)
    assert after[-1].operators.parallelism[1] < 10


def test_the_demand_on_operators_is_that_of_the_unshed_load() -> None:
    flow = a_dataflow("in", "work", "out")
    whole = a_snapshot(flow, demand_rps=1000.0)
    part = a_snapshot(flow, demand_rps=250.0, keep={"in": 0.5, "in->work": 0.5})
    start = Learnt.start(3, 2)
    asked = demand_of(whole, start.learn(whole), np.array([1000.0])).shared_rps
    # The source itself kept half of 1,000 and the stream half of that.
    tasks = part.tasks
    sent = np.where(tasks.operator == 0, 2.0, 1.0)
    part_seen = a_snapshot(
        flow,
        demand_rps=250.0,
        keep={"in": 0.5, "in->work": 0.5},
        tasks=tasks.with_columns(processed=tasks.processed * sent, emitted=tasks.emitted * sent),
    )
    shed = demand_of(part_seen, start.learn(part_seen), np.array([1000.0])).shared_rps
    assert shed.tolist() == pytest.approx(asked.tolist())


@pytest.mark.parametrize("keep", [1.0, 0.5, 0.1])
def test_the_cost_of_a_record_is_learnt_from_those_kept(keep: float) -> None:
    """Batches that kept a part were quick; a kept record costs what any does, so the whole load is sized for."""
    read = np.array([500.0, 1000.0, 1500.0])
    batches = Batches(
        id=np.arange(3),
        records=read,
        duration_s=0.3 + 1e-3 * keep * read,
        fixed_s=np.full(3, 0.3),
        busy_s=np.full(3, np.nan),
        interval_s=0.0,
    )
    assert BatchCost().learn(batches, 1.0, keep).record_s == pytest.approx(1e-3)
