import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.placement.bounds import quick_bound
from penstock.policies.placement.problem import UNPLACED, DoesNotFitError, placement_problem
from penstock_papers.i_scheduler.packing import contracted
from tests.policies.placement.strategies import brute_force, cost_by_hand, problems


@given(problems(running=True), st.data())
@settings(deadline=None, max_examples=100)
def test_cost_is_the_traffic_between_nodes_pair_by_pair(problem, data):
    node = st.integers(0, problem.nodes - 1)
    assignment = np.array(data.draw(st.lists(node, min_size=problem.tasks, max_size=problem.tasks)))
    assert problem.cost(assignment) == pytest.approx(cost_by_hand(problem, assignment))
    by_matrix = sum(
        problem.adjacency[i, j]
        for i in range(problem.tasks)
        for j in range(i)
        if assignment[i] != assignment[j]
    )
    assert problem.cost(assignment) == pytest.approx(by_matrix)


@given(problems(), st.data())
@settings(deadline=None, max_examples=100)
def test_a_contracted_problem_costs_the_same_when_expanded(problem, data):
    raw = np.array(data.draw(st.lists(st.integers(0, 3), min_size=problem.tasks, max_size=problem.tasks)))
    labels = np.unique(raw, return_inverse=True)[1]
    small = contracted(problem, labels)
    node = st.integers(0, problem.nodes - 1)
    assignment = np.array(data.draw(st.lists(node, min_size=small.tasks, max_size=small.tasks)))
    assert small.cost(assignment) == pytest.approx(problem.cost(assignment[labels]))
    assert np.allclose(small.node_loads(assignment), problem.node_loads(assignment[labels]))


@given(problems(running=True))
@settings(deadline=None, max_examples=150)
def test_the_quick_bound_is_below_every_placement(problem):
    best = brute_force(problem)
    if best is not None:
        assert quick_bound(problem) <= best + 1e-9


def test_the_quick_bound_knows_what_cannot_stay_together():
    # A hub with four partners of rate 1, 2, 3, 4 on nodes that hold the hub and one more.
    star = placement_problem(
        loads=np.ones(5),
        capacities=np.full(5, 2.0),
        sources=[0] * 4,
        targets=[1, 2, 3, 4],
        rates=[1, 2, 3, 4],
    )
    # Kept at most: 4 at the hub, and 1 + 2 + 3 + 4 at the partners, each stream counted at both ends.
    assert quick_bound(star) == pytest.approx(10 - (4 + 10) / 2)


def test_ten_tenths_fit_a_capacity_of_one():
    problem = placement_problem(loads=np.full(10, 0.1), capacities=[1.0])
    assert problem.fits(np.zeros(10, dtype=np.int64))


def test_everything_that_is_missing_is_named_at_once():
    problem = placement_problem(
        loads=[[1, 9], [8, 1], [3, 3]],
        capacities=[[4, 1], [1, 4]],
        task_ids=["memory hog", "cpu hog", "mixed"],
        resources=["cpu", "memory"],
    )
    with pytest.raises(DoesNotFitError) as refusal:
        problem.require_room()
    told = sorted(m.kind for m in refusal.value.missing)
    assert told == ["task", "task", "task-mix", "total", "total"]
    assert refusal.value.proved
    text = str(refusal.value)
    assert "cpu: tasks need 12, all nodes together have 5" in text
    assert "task 'memory hog': needs 9 memory, no node offers more than 4" in text
    assert "task 'mixed': no single node has all the resources it needs" in text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"loads": [-1.0, 1.0]}, "loads must be finite and not negative"),
        ({"rates": [float("nan")]}, "rates must be finite and not negative"),
        ({"targets": [2]}, "targets must name an existing task"),
        ({"running": [0, 7]}, "running must name an existing node"),
        ({"operators": [0]}, "operators must have one entry per task"),
        ({"capacities": [[1.0, 1.0]]}, "must agree on the number of resources"),
    ],
)
def test_nonsense_is_refused(change, complaint):
    good = {"loads": [1.0, 1.0], "capacities": [2.0], "sources": [0], "targets": [1], "rates": [1.0]}
    assert placement_problem(**good).tasks == 2
    with pytest.raises(ValueError, match=complaint):
        placement_problem(**(good | change))


def test_moves_count_only_tasks_that_run():
    problem = placement_problem(
        loads=[1, 1, 1], capacities=[3, 3], running=[0, 1, UNPLACED], move_prices=[2, 5, 7]
    )
    assert problem.moved(np.array([1, 1, 1])).tolist() == [True, False, False]
    assert problem.move_cost(np.array([1, 0, 0])) == 7.0
