import time

import numpy as np
import pytest

from penstock.policies.placement.budget import budget_of
from penstock.policies.placement.problem import placement_problem
from penstock_papers.i_scheduler.instances import benchmark, benchmarks, random_cluster
from penstock_papers.i_scheduler.iterative import calibrated_threshold, first_level, i_scheduler
from penstock_papers.i_scheduler.partition import metis_alone, worker_groups
from penstock_papers.i_scheduler.solvers import place
from tests.policies.placement.clocks import TickingClock


def worked_example():
    """12 tasks on nodes 1×4, 2×3, 1×2 (I-Scheduler, section 4.5).

    The text prints no edges of its figure; this graph has the figure's parts: four tasks that talk most, and eight
    that fall apart into three, three and two.
    """
    groups = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11]]
    rates = [9, 7, 6, 5]
    inside = [(a, b, rate) for g, rate in zip(groups, rates, strict=True) for a in g for b in g if a < b]
    between = [(3, 4, 1), (6, 7, 1), (9, 10, 1)]
    sources, targets, weights = zip(*inside, *between, strict=True)
    return placement_problem(
        loads=np.ones(12), capacities=[4, 3, 3, 2], sources=sources, targets=targets, rates=weights
    )


def test_the_worked_example_step_by_step():
    problem = worked_example()
    done = first_level(problem, threshold=8, budget=budget_of(60, time.monotonic))
    first, second = done.iterations
    # Equation 6: 12 tasks on a node of 4 are 3 parts. Equation 8: reaching 8 takes ceil(4 / 3) = 2 fusions.
    assert (first.capacity.tolist(), first.parts, first.wanted) == ([4.0], 3, 2)
    # Equation 9: there is one such node, so one part of 4 is fused; 8 unfused tasks and 1 fused one are left.
    assert [sorted(part.tolist()) for part in first.fused] == [[0, 1, 2, 3]]
    assert first.vertices == 9
    # 9 > 8: once more, with nodes of 3. 8 tasks are 3 parts, of which 1 is enough although there are 2 nodes.
    assert (second.capacity.tolist(), second.parts, second.wanted) == ([3.0], 3, 1)
    (part,) = second.fused
    assert sorted(part.tolist()) == [4, 5, 6]
    # 5 single and 2 fused tasks: within the threshold, the solver takes over and finds the optimum.
    assert second.vertices == 7
    assert done.solver
    assert problem.cost(done.assignment) == 3.0
    assert place(problem, policy="exact", clock=time.monotonic, seconds=60).cost == 3.0


def test_without_a_solver_every_part_is_mapped_to_a_node_of_its_size():
    problem = worked_example()
    done = first_level(problem, threshold=0, budget=budget_of(0, TickingClock()))
    assert not done.solver
    assert [i.parts for i in done.iterations] == [3, 3, 1]
    assert [len(i.fused) for i in done.iterations] == [1, 2, 1]
    assert problem.node_loads(done.assignment).ravel().tolist() == [4, 3, 3, 2]
    assert problem.cost(done.assignment) == 3.0


def test_more_parts_than_the_threshold_means_no_solver():
    problem = worked_example()
    assert first_level(problem, threshold=3, budget=budget_of(60, time.monotonic)).solver
    assert not first_level(problem, threshold=2, budget=budget_of(60, time.monotonic)).solver


def test_a_threshold_of_all_tasks_is_the_solver_alone():
    problem = benchmark("diamond", 30, "heterogeneous")
    done = first_level(problem, threshold=30, budget=budget_of(60, time.monotonic))
    assert done.iterations == ()
    assert problem.cost(done.assignment) == 146


@pytest.mark.parametrize(
    "instance", list(benchmarks())[::5], ids=lambda i: f"{i.shape}-{i.cluster}-{i.tasks}"
)
@pytest.mark.parametrize("threshold", [0, 8, 16])
def test_it_fits_and_is_never_better_than_the_optimum(instance, threshold):
    found = i_scheduler(instance.problem, threshold=threshold, budget=budget_of(60, time.monotonic))
    optimum = place(instance.problem, policy="exact", clock=time.monotonic, seconds=60)
    assert instance.problem.fits(found)
    assert instance.problem.cost(found) >= optimum.cost


def test_several_resources_are_kept():
    problem = random_cluster(tasks=60, nodes=8, seed=5, resources=("cpu", "memory", "bandwidth"))
    done = first_level(problem, threshold=0, budget=budget_of(0, TickingClock()))
    assert problem.fits(done.assignment)


def test_calibration_measures_with_the_clock_it_is_given():
    assert calibrated_threshold(0.0, TickingClock()) == 0
    slow = calibrated_threshold(1.0, TickingClock(step_s=10.0))
    assert slow == 0
    assert calibrated_threshold(1e6, TickingClock(step_s=1e-9), largest=12) == 12


def test_workers_hold_at_most_their_number_of_tasks_and_stay_on_their_node():
    problem = random_cluster(tasks=200, nodes=8, seed=2)
    assignment = metis_alone(problem)
    workers = worker_groups(problem, assignment, tasks_per_worker=5)
    for node in np.unique(assignment):
        sizes = np.bincount(workers[assignment == node])
        assert sizes.max() <= 5
        assert len(sizes) == -(-np.count_nonzero(assignment == node) // 5)


def test_workers_keep_groups_that_talk_together():
    pairs = [(a, b) for g in ([0, 1, 2], [3, 4, 5]) for a in g for b in g if a < b]
    problem = placement_problem(
        loads=np.ones(6), capacities=[6], sources=[a for a, _ in pairs], targets=[b for _, b in pairs]
    )
    workers = worker_groups(problem, np.zeros(6, dtype=np.int64), tasks_per_worker=3)
    assert len(set(workers[:3])) == len(set(workers[3:])) == 1
    assert workers[0] != workers[3]
