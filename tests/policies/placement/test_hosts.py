"""Several executors on a host: what leaves the host counts most, what leaves the executor a little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.placement.placement import place
from penstock.policies.placement.problem import SAME_HOST, placement_problem
from penstock_papers.i_scheduler.instances import random_cluster
from tests.policies.placement.clocks import TickingClock


def placed(problem):
    return place(problem, clock=TickingClock(), seconds=1e6, rounds=8)


def test_traffic_within_a_host_counts_a_tenth():
    problem = placement_problem(
        loads=np.ones(3),
        capacities=[1, 1, 1],
        sources=[0, 1],
        targets=[1, 2],
        rates=[10, 10],
        hosts=[0, 0, 1],
    )
    assert problem.cost(np.array([0, 1, 2])) == pytest.approx(10 * SAME_HOST + 10)


def test_groups_go_to_hosts_and_pairs_to_executors():
    # Two groups of four, each of two pairs that talk most; two hosts of two executors with room for two.
    pairs, groups = [(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 2), (1, 3), (4, 6), (5, 7)]
    order = np.random.default_rng(1).permutation(8)
    ends = order[np.array([*pairs, *groups, (3, 4)])]
    problem = placement_problem(
        loads=np.ones(8), capacities=np.full(4, 2.0), sources=ends[:, 0], targets=ends[:, 1],
        rates=[9] * 4 + [5] * 4 + [1], hosts=[0, 1, 0, 1],
    )  # fmt: skip
    answer = placed(problem)
    assert answer.cost == pytest.approx(1 + 4 * 5 * SAME_HOST)


@given(seed=st.integers(0, 500), hosts=st.integers(1, 3), moved=st.booleans())
@settings(deadline=None, max_examples=25)
def test_it_fits_is_bounded_and_never_worse_than_what_runs(seed, hosts, moved):
    flat = random_cluster(tasks=18, nodes=6, seed=seed, fill=0.6)
    rng = np.random.default_rng(seed)
    problem = placement_problem(
        loads=flat.loads, capacities=np.full((6, 1), flat.loads.sum() / 3), sources=flat.sources,
        targets=flat.targets, rates=flat.rates, hosts=np.arange(6) % hosts,
        running=np.arange(18) % 6, move_prices=rng.uniform(0, 2, 18) if moved else 0.0,
    )  # fmt: skip
    answer = placed(problem)
    assert problem.fits(answer.assignment)
    assert answer.lower_bound <= answer.cost + answer.move_cost + 1e-9
    if problem.fits(problem.running):
        assert answer.cost + answer.move_cost <= problem.cost(problem.running) + 1e-9


def test_where_a_hosts_tasks_do_not_fit_its_executors_they_go_elsewhere():
    # By sums both tasks of 3 fit the first host (2 + 4), but not its executors.
    problem = placement_problem(
        loads=[3, 3], capacities=[2, 4, 3], sources=[0], targets=[1], rates=[5], hosts=[0, 0, 1]
    )
    assert sorted(placed(problem).assignment.tolist()) == [1, 2]
