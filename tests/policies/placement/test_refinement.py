import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.placement import refinement
from penstock.policies.placement.budget import budget_of
from penstock.policies.placement.packing import first_fit
from penstock.policies.placement.problem import placement_problem
from penstock_papers.i_scheduler.instances import random_cluster
from penstock_papers.i_scheduler.storm import round_robin
from tests.policies.placement.clocks import TickingClock


def no_time():
    return budget_of(0.0, TickingClock())


@given(seed=st.integers(0, 10_000), tasks=st.integers(5, 60), nodes=st.integers(2, 8), two=st.booleans())
@settings(deadline=None, max_examples=60)
def test_it_fits_costs_no_more_and_ends_where_no_move_or_swap_helps(seed, tasks, nodes, two):
    problem = random_cluster(
        tasks=tasks, nodes=nodes, seed=seed, fill=0.6, resources=("cpu", "memory") if two else ("cpu",)
    )
    try:
        start = first_fit(problem)
    except ValueError:
        return
    state = refinement._state(problem, start)
    while refinement._descend(*refinement._graph(problem), *refinement._arrays(state)):
        assert np.allclose(state.load, problem.node_loads(state.node))
    assert problem.fits(state.node)
    cost = problem.objective(state.node)
    assert cost <= problem.objective(start) + 1e-9
    assert cost <= min(_neighbours(problem, state.node), default=cost) + 1e-6


def _neighbours(problem, assignment):
    """Objective of every placement one move or one swap away, computed from scratch."""
    for task in range(problem.tasks):
        for node in range(problem.nodes):
            moved = assignment.copy()
            moved[task] = node
            if problem.fits(moved):
                yield problem.objective(moved)
        for other in range(task):
            swapped = assignment.copy()
            swapped[task], swapped[other] = assignment[other], assignment[task]
            if problem.fits(swapped):
                yield problem.objective(swapped)


def test_the_compiled_kernel_does_what_the_plain_one_does():
    problem = random_cluster(tasks=300, nodes=20, seed=4)
    start = round_robin(problem)
    plain, compiled = refinement._state(problem, start), refinement._state(problem, start)
    for _ in range(3):
        done = refinement._descend(*refinement._graph(problem), *refinement._arrays(plain))
        assert done == refinement._descend_compiled(
            *refinement._graph(problem), *refinement._arrays(compiled)
        )
        assert plain.node.tolist() == compiled.node.tolist()


def test_annealing_goes_on_improving_and_never_loses_the_best():
    problem = random_cluster(tasks=2000, nodes=60, seed=8)
    quick = refinement.refined(problem, round_robin(problem), no_time())
    # 60 looks at the clock: about as many slices of proposals, however fast the machine.
    longer = refinement.refined(problem, quick, budget_of(60.0, TickingClock(step_s=1.0)))
    assert problem.fits(longer)
    assert problem.cost(longer) < 0.95 * problem.cost(quick)
    hurried = refinement.refined(problem, longer, budget_of(3.0, TickingClock(step_s=1.0)))
    assert problem.cost(hurried) <= problem.cost(longer)


def test_the_same_seed_gives_the_same_placement():
    problem = random_cluster(tasks=400, nodes=20, seed=8)
    start = round_robin(problem)
    once, again, other = (
        refinement.refined(problem, start, budget_of(20.0, TickingClock(step_s=1.0)), seed=s)
        for s in (1, 1, 2)
    )
    assert once.tolist() == again.tolist()
    assert once.tolist() != other.tolist()


def test_swaps_work_where_no_node_has_room():
    # Two full nodes, each with one half of two pairs.
    problem = placement_problem(loads=np.ones(4), capacities=[2, 2], sources=[0, 1], targets=[2, 3])
    crossed = np.array([0, 0, 1, 1])
    assert problem.cost(crossed) == 2.0
    assert problem.cost(refinement.refined(problem, crossed, no_time())) == 0.0


def test_a_task_leaves_home_only_for_more_than_its_price():
    def task_of(price):
        problem = placement_problem(
            loads=[1, 1],
            capacities=[2, 2],
            sources=[0],
            targets=[1],
            rates=[5],
            running=[0, 1],
            move_prices=price,
        )
        return problem.cost(refinement.refined(problem, np.array([0, 1]), no_time()))

    assert task_of(4.0) == 0.0
    assert task_of(6.0) == 5.0


def test_only_placements_that_fit_are_refined():
    problem = placement_problem(loads=[1, 1], capacities=[1, 1])
    with pytest.raises(ValueError, match="only a placement that fits"):
        refinement.refined(problem, np.array([0, 0]), budget_of(0.0, time.monotonic))
