"""Nodes and alternates together: the runaway trial, budgets, paid hours, purchases that bring nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from penstock.control import Loop, PolicyRun, Settings
from penstock.control.summary import RunSummary, Summary
from penstock.dataflow import Dataflow, Goals, staircase
from penstock.policies.actions import Acquire, Release, Switch
from penstock.policies.policy import Proposal
from penstock.policies.provisioning import Provisioning, ProvisioningOptions
from penstock.policies.wording import sentence
from penstock.simulator import SimulatedClock
from penstock.simulator.microbatch import MicrobatchRuntime
from penstock.simulator.microbatch_model import Engine, Executors, Query, Stage
from penstock.telemetry import MachineClass, Snapshot
from penstock.testing import a_dataflow, a_snapshot
from tests.policies.provisioning.world import WAYS

EXECUTOR = MachineClass(name="executor", price_per_hour=0.5, billing_s=1.0, startup_s=8.0)
RENTING = ProvisioningOptions(rent=True)


def flow(budget_per_hour: float | None) -> Dataflow:
    made = a_dataflow(alternates=WAYS, bound_ms=None)
    return replace(made, goals=Goals(budget_per_hour=budget_per_hour))


@dataclass(slots=True)
class Ran:
    """What a run spent and decided."""

    summary: RunSummary
    per_hour: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    acquired: int = 0


LOAD = ((480.0, 100.0), (480.0, 900.0), (540.0, 100.0))
"""The runaway trial: seconds and records per second, 25 minutes."""


def trial(budget_per_hour: float | None, options: ProvisioningOptions, seed: int = 3) -> Ran:
    dataflow = flow(budget_per_hour)
    ids = tuple(o.id for o in dataflow.operators)
    stage = Stage(operators=ids, partitions=8, record_s=WAYS[0].cost_s)
    engine = Engine(queries=(Query(name="q", stages=(stage,)),), executors=Executors())
    runtime = MicrobatchRuntime(
        dataflow, engine, loads=[staircase(list(LOAD))], machine=EXECUTOR, executors=1, seed=seed
    )
    summary = Summary()
    ran = Ran(summary=summary.result())

    def note(cycle: object, snapshot: Snapshot | None) -> None:
        assert snapshot is not None
        ran.per_hour.append(float(snapshot.nodes.price_per_hour.sum()))
        ran.value.append(WAYS[int(snapshot.operators.alternate[1])].value)

    run = PolicyRun(policy=Provisioning(), options=options)
    loop = Loop(
        runtime,
        [run],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=5.0),
        subscribers=[summary, note],
    )
    loop.run(for_s=sum(seconds for seconds, _ in LOAD))
    assert not loop.faults
    ran.summary = summary.result()
    ran.acquired = ran.summary.begun.get("acquire", 0)
    return ran


def oracle_cost(cost_s: float) -> float:
    """What executors cost that are there exactly while the load needs them."""
    seconds = sum(length * math.ceil(rate * cost_s) for length, rate in LOAD)
    return seconds / 3600 * EXECUTOR.price_per_hour


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_runaway_trial(seed: int) -> None:
    ours, fixed = trial(3.0, RENTING, seed), trial(3.0, ProvisioningOptions(), seed)
    in_flight = 50
    assert ours.summary.records_out >= fixed.summary.records_out - in_flight
    assert ours.summary.cost <= 1.5 * oracle_cost(WAYS[0].cost_s)
    assert max(ours.per_hour) <= 3.0 + 1e-9
    assert ours.summary.backlog_records is not None
    assert ours.summary.backlog_records < 60 * 100
    assert np.mean(ours.value) > np.mean(fixed.value), "money buys better results"


def seen(
    *,
    rate: float,
    nodes: int,
    time_s: float = 0.0,
    budget: float | None = None,
    machine: MachineClass = EXECUTOR,
    backlog: float = 0.0,
    alternate: str = "good",
    left_s: float = 0.0,
    read: float | None = None,
    parallelism: int = 100,
) -> Snapshot:
    """A snapshot with one node of one core for each of `nodes`."""
    made = a_snapshot(
        flow(budget),
        time_s=time_s,
        demand_rps=rate,
        nodes=nodes,
        cores=1.0,
        machine=machine.name,
        price_per_hour=machine.price_per_hour,
        parallelism=parallelism,
        backlog_records=backlog,
        alternate={"work": alternate},
        classes=(machine,),
    )
    until = np.full(nodes, time_s + left_s)
    served = np.full(1, rate if read is None else read)
    return replace(
        made,
        nodes=made.nodes.with_columns(paid_until_s=until),
        sources=made.sources.with_columns(read_rps=served),
    )


def decisions(shown: Callable[[int], Snapshot], cycles: int) -> list[tuple[Snapshot, Proposal]]:
    """Snapshots and the proposals that the policy makes of them, one after the other."""
    policy = Provisioning()
    memory, found = policy.start(RENTING), []
    for number in range(cycles):
        snapshot = shown(number)
        proposal, memory = policy.decide(snapshot, memory, RENTING)
        found.append((snapshot, proposal))
    return found


@pytest.mark.parametrize(("budget", "asked"), [(1.0, 0), (1.5, 0), (3.0, 4), (None, 4)])
def test_a_budget_buys_the_best_alternates_or_nothing_more_than_the_cheap_ones_need(
    budget: float | None, asked: int
) -> None:
    """900/s: the good alternate needs 4 cores of 90 % each, the fast one a single core, and there are two."""
    ((snapshot, proposal),) = decisions(
        lambda n: seen(rate=900, nodes=2, budget=budget, alternate="fast"), cycles=1
    )
    acquired = [a for a in proposal.actions if isinstance(a, Acquire)]
    assert sum(a.count for a in acquired) == (asked - 2 if asked else 0)
    spent = snapshot.nodes.price_per_hour.sum() + sum(a.cost.per_hour for a in acquired)
    assert budget is None or spent <= budget + 1e-9


def test_a_decision_says_what_more_and_less_money_would_bring() -> None:
    ((_, proposal),) = decisions(lambda n: seen(rate=900, nodes=1, alternate="fast", budget=3.0), cycles=1)
    (acquire,) = (a for a in proposal.actions if isinstance(a, Acquire))
    assert acquire.reason.facts["more_money"] == "no more value"
    assert acquire.reason.facts["less_money"] == "value 0.867, for 0.5 an hour"
    assert "less value 0.867, for 0.5 an hour" in sentence(acquire.reason)


def test_what_the_budget_cannot_carry_is_said_in_words() -> None:
    ((_, proposal),) = decisions(lambda n: seen(rate=9000, nodes=2, budget=1.0), cycles=1)
    (notice,) = (n for n in proposal.notices if n.reason.code == "beyond-the-budget")
    assert notice.reason.facts["budget_per_hour"] == 1.0
    assert notice.reason.facts["share"] == pytest.approx(2 * 0.9 / 9, rel=0.1)
    assert "an hour with the cheapest alternates" in notice.helps
    assert not any(isinstance(a, Acquire) for a in proposal.actions)


def test_what_was_asked_for_counts_until_it_is_overdue_and_then_buying_pauses() -> None:
    """Executors that a cluster manager never delivers: two more are asked for once, then nobody asks for a while."""
    found = decisions(lambda n: seen(rate=900, nodes=2, time_s=5.0 * n, alternate="fast"), cycles=40)
    asked = [s.time_s for s, p in found if any(isinstance(a, Acquire) for a in p.actions)]
    told = [s.time_s for s, p in found for n in p.notices if n.reason.code == "machines-do-not-come"]
    assert asked[0] == 0.0
    assert told, "it is said"
    assert all(told[0] + 60 <= t for t in asked[1:]), "and not asked again at once"
    assert len(asked) <= 3


def test_buying_stops_when_capacity_does_not_follow() -> None:
    """Nodes come, and what is processed stays as it was: something else than cores is scarce."""
    nodes = 2

    def shown(n: int) -> Snapshot:
        return seen(rate=900, nodes=nodes, time_s=5.0 * n, alternate="fast", backlog=900.0 * 60, read=300.0)

    policy, told, asked = Provisioning(), [], 0
    memory = policy.start(RENTING)
    for number in range(120):
        proposal, memory = policy.decide(shown(number), memory, RENTING)
        more = sum(a.count for a in proposal.actions if isinstance(a, Acquire))
        nodes, asked = nodes + more, asked + more
        told += [n.reason.code for n in proposal.notices]
    assert "capacity-does-not-follow" in told
    assert nodes <= 8, "ten minutes of a growing backlog do not buy a data centre"


def test_cores_beyond_the_tasks_of_an_operator_are_not_bought() -> None:
    """One task on each operator, as a simulated operator without elasticity has: one core is all it can use."""
    found = decisions(
        lambda n: seen(rate=900, nodes=3, time_s=5.0 * n, parallelism=1, backlog=900.0 * 5 * n), cycles=30
    )
    assert not [a for _, p in found for a in p.actions if isinstance(a, Acquire)]


HOURLY = replace(EXECUTOR, billing_s=3600.0)


@pytest.mark.parametrize(("left_s", "goes"), [(1800.0, False), (3.0, True)])
def test_a_paid_hour_is_used_up(left_s: float, goes: bool) -> None:
    found = decisions(
        lambda n: seen(rate=100, nodes=4, time_s=5.0 * n, machine=HOURLY, left_s=left_s), cycles=8
    )
    released = [a for _, p in found for a in p.actions if isinstance(a, Release)]
    assert bool(released) is goes


@pytest.mark.parametrize(("machine", "goes"), [(EXECUTOR, False), (HOURLY, True)])
def test_by_the_second_a_node_goes_only_with_room_to_spare(machine: MachineClass, goes: bool) -> None:
    """650/s need 2.6 of 3.6 planned cores: one of four could go, with a tenth of a core to spare."""
    found = decisions(
        lambda n: seen(rate=650, nodes=4, time_s=5.0 * n, machine=machine, left_s=0.5), cycles=8
    )
    assert bool([a for _, p in found for a in p.actions if isinstance(a, Release)]) is goes


def test_free_paid_cores_run_the_better_alternate() -> None:
    found = decisions(
        lambda n: seen(rate=100, nodes=4, time_s=5.0 * n, machine=HOURLY, left_s=1800.0, alternate="fast"),
        cycles=8,
    )
    assert {a.target for _, p in found for a in p.actions if isinstance(a, Switch)} == {"good"}


def test_nodes_over_the_budget_go() -> None:
    found = decisions(lambda n: seen(rate=9000, nodes=6, time_s=5.0 * n, budget=1.0), cycles=8)
    assert len({a.node for a in found[-1][1].actions if isinstance(a, Release)}) == 4
