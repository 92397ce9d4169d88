import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.placement.options import PlacementOptions
from penstock.policies.placement.problem import UNPLACED, placement_problem
from penstock.policies.placement.replacement import (
    Keep,
    Replace,
    ReplacementMemory,
    priced,
    replacement,
)
from penstock_papers.i_scheduler.instances import random_cluster
from penstock_papers.i_scheduler.solvers import place
from tests.policies.placement.clocks import TickingClock

OPTIONS = PlacementOptions(horizon_s=100.0, least_gain=0.05, cool_down_s=60.0, confirmations=2)
FRESH = ReplacementMemory()


def crossed(rate=10.0, running=(0, 1, 0, 1)):
    """Two pairs that talk across two nodes; two moves bring them together."""
    return placement_problem(
        loads=np.ones(4),
        capacities=[3, 3],
        sources=[0, 2],
        targets=[1, 3],
        rates=[rate, rate],
        running=running,
    )


def solved(problem):
    return place(problem, clock=TickingClock(), rounds=4).assignment


def ask(problem, memory=FRESH, *, move_costs=1.0, now_s=1000.0, options=OPTIONS):
    return replacement(problem, memory, options, move_costs=move_costs, now_s=now_s, solve=solved)


def test_a_change_is_confirmed_made_and_followed_by_a_cool_down():
    trace, memory = [], FRESH
    problem = crossed()
    for now_s in (0.0, 10.0, 20.0, 75.0):
        decision, memory = ask(problem, memory, now_s=now_s)
        trace.append(decision.code)
        if isinstance(decision, Replace):
            assert decision.facts["saved"] == 20.0
            assert decision.facts["moves"] == 2
            problem = replace(problem, running=decision.assignment)
    assert trace == ["unconfirmed", "worth-it", "cool-down", "gain-too-small"]
    assert memory == ReplacementMemory(changed_at_s=10.0, worth_it=0)


@pytest.mark.parametrize(
    ("move_cost", "code"), [(10.0, "unconfirmed"), (999.0, "unconfirmed"), (1001.0, "gain-too-small")]
)
def test_moves_have_to_pay_within_the_horizon(move_cost, code):
    # One move joins a pair and saves 10 a second: 1,000 over the horizon.
    assert ask(crossed(), move_costs=move_cost)[0].code == code


def test_a_small_gain_moves_nothing():
    problem = placement_problem(
        loads=[1, 1, 2, 2],
        capacities=[2, 3, 2],
        sources=[0, 2],
        targets=[1, 3],
        rates=[1, 99],
        running=[0, 1, 2, 1],
    )
    decision, _ = ask(problem, options=replace(OPTIONS, least_gain=0.02), move_costs=0.0)
    assert decision == Keep(code="gain-too-small", facts=decision.facts)
    assert ask(problem, options=replace(OPTIONS, least_gain=0.005), move_costs=0.0)[0].code == "unconfirmed"


def test_an_interrupted_confirmation_starts_again():
    _, memory = ask(crossed())
    assert memory.worth_it == 1
    decision, memory = ask(crossed(rate=0.0), memory)
    assert (decision.code, memory.worth_it) == ("gain-too-small", 0)


def test_what_no_longer_fits_moves_at_once_cool_down_or_not():
    problem = placement_problem(loads=[2, 2], capacities=[3, 3], sources=[0], targets=[1], running=[0, 0])
    decision, memory = ask(problem, ReplacementMemory(changed_at_s=999.0), move_costs=1e9)
    assert isinstance(decision, Replace)
    assert decision.code == "does-not-fit"
    assert decision.facts["moves"] == 1
    assert memory.changed_at_s == 1000.0


def test_a_new_task_is_placed_without_moving_the_others():
    problem = crossed(running=(0, 0, 1, UNPLACED))
    decision, _ = ask(problem)
    assert decision.code == "does-not-fit"
    assert decision.assignment.tolist() == [0, 0, 1, 1]


@given(seed=st.integers(0, 500), cost=st.floats(0.0, 500.0))
@settings(deadline=None, max_examples=25)
def test_never_worse_than_staying_over_the_horizon(seed, cost):
    problem = random_cluster(tasks=24, nodes=4, seed=seed, fill=0.7)
    running = place(problem, policy="flink", clock=time.monotonic).assignment
    charged = priced(replace(problem, running=running), cost, 100.0)
    placement = place(charged, clock=time.monotonic, seconds=0.3)
    assert placement.cost + placement.move_cost <= problem.cost(running) + 1e-9


@pytest.mark.parametrize(
    "bad", [{"horizon_s": 0.0}, {"least_gain": 2.0}, {"cool_down_s": -1.0}, {"confirmations": 0}]
)
def test_options_reject_nonsense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        PlacementOptions(**bad)
