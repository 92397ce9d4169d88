import time

import numpy as np
import pytest
from hypothesis import given, settings

from penstock.policies.placement import exact
from penstock.policies.placement.budget import budget_of
from penstock.policies.placement.exact import (
    _patterns,
    _patterns_of,
    grain_of,
    node_classes,
    proved,
    task_groups,
)
from penstock.policies.placement.placement import place
from penstock.policies.placement.problem import DoesNotFitError, placement_problem
from penstock_papers.i_scheduler.instances import benchmark, benchmarks
from tests.policies.placement.clocks import TickingClock
from tests.policies.placement.strategies import brute_force, problems

LONG_S = 60.0
"""Far more than any of these needs: tests check answers, benchmarks/placement.py checks seconds."""

# Optima that the paper prints (section 5), and those that follow by hand: a chain of two-task operators cut
# between nodes costs 4 per cut.
KNOWN = {
    ("diamond", "heterogeneous", 30): 146,
    ("star", "heterogeneous", 30): 86,
    ("linear", "homogeneous", 32): 28,
    ("linear", "heterogeneous", 12): 4,
}


def solve(problem, start=None):
    return proved(problem, start, budget_of(LONG_S, time.monotonic))


@given(problems(running=True))
@settings(deadline=None, max_examples=120)
def test_exact_equals_brute_force(problem):
    best = brute_force(problem)
    if best is None:
        with pytest.raises(DoesNotFitError):
            solve(problem)
        return
    answer = solve(problem)
    assert problem.fits(answer.assignment)
    assert problem.objective(answer.assignment) == pytest.approx(best)
    assert answer.lower_bound == pytest.approx(best)


@given(problems(max_tasks=5, max_nodes=3))
@settings(deadline=None, max_examples=60)
def test_a_bad_start_changes_nothing(problem):
    best = brute_force(problem)
    if best is None:
        return
    worst = max(
        (np.array(a) for a in np.ndindex(*(problem.nodes,) * problem.tasks) if problem.fits(np.array(a))),
        key=problem.objective,
    )
    assert problem.objective(solve(problem, worst).assignment) == pytest.approx(best)


@pytest.mark.parametrize("instance", list(benchmarks()), ids=lambda i: f"{i.shape}-{i.cluster}-{i.tasks}")
def test_all_72_are_proved_by_both_of_our_policies(instance):
    exact = place(instance.problem, policy="exact", clock=time.monotonic, seconds=LONG_S)
    default = place(instance.problem, clock=time.monotonic, seconds=LONG_S)
    assert exact.optimal
    assert default.optimal
    assert exact.cost == default.cost == exact.lower_bound
    known = KNOWN.get((instance.shape, instance.cluster, instance.tasks))
    assert known is None or exact.cost == known


def test_there_are_72():
    assert len(list(benchmarks())) == 72


def test_a_proof_needs_no_good_start():
    problem = benchmark("linear", 12, "heterogeneous")
    answer = solve(problem)
    assert problem.cost(answer.assignment) == answer.lower_bound == 4


def test_interchangeable_tasks_and_nodes_are_found():
    diamond = benchmark("diamond", 32, "heterogeneous")
    groups = task_groups(diamond)
    # Source and sink tasks all talk to every task in the middle: they are alike, and so are those in the middle.
    assert sorted(len(g) for g in groups) == [8, 24]
    assert [len(nodes) for nodes in node_classes(diamond, groups)] == [3, 3, 4]


def test_nodes_that_are_home_to_tasks_are_alike_only_at_the_same_prices():
    problem = placement_problem(
        loads=[1, 1, 1], capacities=[2, 2, 2], running=[0, 1, 2], move_prices=[3, 3, 5], rates=()
    )
    (group,) = groups = task_groups(problem)
    assert len(group) == 3
    assert [nodes.tolist() for nodes in node_classes(problem, groups)] == [[0, 1], [2]]
    assert solve(problem).assignment.tolist() == [0, 1, 2]


def test_patterns_are_all_fillings_of_a_node(monkeypatch):
    problem = placement_problem(loads=[1, 1, 2], capacities=[2, 2], sources=[0, 1], targets=[2, 2])
    patterns = _patterns(problem)
    assert sorted(map(tuple, patterns.counts.tolist())) == [(0, 0), (0, 1), (1, 0), (2, 0)]
    used = patterns.counts[_patterns_of(problem, patterns, np.array([0, 0, 1]))]
    assert sorted(map(tuple, used.tolist())) == [(0, 1), (2, 0)]
    monkeypatch.setattr(exact, "PATTERN_CELLS", 6)
    assert _patterns(problem) is None


@pytest.mark.parametrize("policy", ["exact", "default"])
def test_solvers_print_nothing(policy, capfd):
    for instance in benchmarks():
        if instance.cluster == "heterogeneous" and instance.tasks in (10, 24):
            place(instance.problem, policy=policy, clock=time.monotonic, seconds=LONG_S)
    assert capfd.readouterr() == ("", "")


def test_a_packing_that_cannot_exist_is_proved_so():
    # Three tasks of 2 on two nodes of 3: six fit into six, but not whole.
    problem = placement_problem(loads=[2, 2, 2], capacities=[3, 3])
    assert problem.shortages() == ()
    with pytest.raises(DoesNotFitError) as refusal:
        place(problem, policy="exact", clock=time.monotonic, seconds=LONG_S)
    assert [m.kind for m in refusal.value.missing] == ["proved"]
    assert "proved" in str(refusal.value)


def test_a_packing_only_search_finds_is_found():
    # First fit, largest first, puts 6 and 4 apart from where they must go.
    problem = placement_problem(loads=[6, 5, 5, 4, 3, 3, 2, 2], capacities=[10, 10, 10])
    placement = place(problem, clock=time.monotonic, seconds=LONG_S)
    assert problem.fits(placement.assignment)


def test_without_time_the_bound_is_still_a_bound():
    rng = np.random.default_rng(3)
    sources, targets = np.triu_indices(18, 1)
    problem = placement_problem(
        loads=np.ones(18),
        capacities=np.full(6, 4.0),
        sources=sources,
        targets=targets,
        rates=rng.integers(1, 50, len(sources)),
    )
    start = np.arange(18) // 3
    hurried = proved(problem, start, budget_of(0.0, TickingClock()))
    thorough = solve(problem, start)
    assert hurried.lower_bound <= problem.cost(thorough.assignment) <= problem.cost(hurried.assignment)
    assert thorough.lower_bound == pytest.approx(problem.cost(thorough.assignment))


@pytest.mark.parametrize(("rates", "grain"), [([4, 6], 2.0), ([3, 5], 1.0), ([0.5, 1], None), ([0], None)])
def test_the_grain_divides_all_traffic(rates, grain):
    ends = list(range(1, len(rates) + 1))
    problem = placement_problem(
        loads=np.ones(len(rates) + 1), capacities=[9], sources=[0] * len(rates), targets=ends, rates=rates
    )
    assert grain_of(problem) == grain
