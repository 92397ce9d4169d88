"""Each published rule against a case worked out by hand."""

import numpy as np

from penstock.policies.placement.partition import largest_nodes
from penstock.policies.placement.problem import UNPLACED, placement_problem
from penstock_papers.i_scheduler.jobs import jobs, neighbours, producers_first
from penstock_papers.i_scheduler.pairing import _pair_up, _pair_up_compiled, paired
from penstock_papers.i_scheduler.partition import kahypar_alone, metis_alone, metis_on
from penstock_papers.i_scheduler.slots import flink, least_cpu
from penstock_papers.i_scheduler.storm import executor_orders, ols, r_storm, round_robin, t_storm


def chain(tasks_per_operator, capacities, **more):
    """Operators in a row, every task of one to every task of the next, load and rate 1."""
    operators = np.repeat(np.arange(len(tasks_per_operator)), tasks_per_operator)
    pairs = [
        (a, b)
        for a in range(len(operators))
        for b in range(len(operators))
        if operators[b] == operators[a] + 1
    ]
    return placement_problem(
        loads=np.ones(len(operators)),
        capacities=capacities,
        sources=[a for a, _ in pairs],
        targets=[b for _, b in pairs],
        operators=operators,
        **more,
    )


def test_round_robin_deals_tasks_out_and_skips_full_nodes():
    problem = chain([3, 3], [1, 2, 3])
    # Largest first: nodes 2, 1, 0 in turn; node 0 is full after one round, node 1 after two.
    assert round_robin(problem).tolist() == [2, 1, 0, 2, 1, 2]


def test_r_storm_orders_components_by_connections_each_with_its_neighbours():
    # Connections: a 1*3, b 3*(1+2), c 2*3. So b first, with c (more tasks) before a, one task in turn.
    problem = chain([1, 3, 2], [9])
    a, b, c = 0, (1, 2, 3), (4, 5)
    assert executor_orders(problem) == [[b[0], c[0], a, b[1], c[1], b[2]]]


def test_r_storm_fills_nodes_in_order_the_one_with_most_first():
    # Order a0 b0 a1 b1: node 1 has most and takes three, what is left goes to the next.
    assert r_storm(chain([2, 2], [2, 3])).tolist() == [1, 1, 1, 0]


def test_r_storm_sorts_nodes_by_their_scarcest_resource_and_exceeds_none():
    problem = placement_problem(
        loads=[[2, 1], [2, 1]],
        capacities=[[9, 1], [4, 4], [2, 2]],
        sources=[0],
        targets=[1],
        operators=[0, 1],
        resources=["cpu", "memory"],
    )
    # Node 0 has most CPU, but a seventh of the memory; node 1 has at least a quarter of both.
    assert r_storm(problem).tolist() == [1, 1]


def test_t_storm_places_busy_tasks_first_where_they_add_least_traffic():
    # 1 is busiest (5 + 4), then 0 (5), then 2 (4), then 3.
    problem = placement_problem(
        loads=np.ones(4), capacities=[2, 2], sources=[0, 1, 3], targets=[1, 2, 2], rates=[5, 4, 1]
    )
    # 1 first; 0 joins it; 2 finds that node full and opens the other; 3 joins 2.
    assert t_storm(problem).tolist() == [0, 0, 1, 1]


def test_t_storm_never_puts_more_than_its_share_of_tasks_on_a_node():
    problem = chain([4, 4], [8, 8])
    assert np.bincount(t_storm(problem, consolidation=1.0)).tolist() == [4, 4]
    assert np.bincount(t_storm(problem, consolidation=2.0)).tolist() == [8]


def test_ols_keeps_the_heaviest_pairs_together():
    problem = placement_problem(
        loads=np.ones(4), capacities=[2, 2], sources=[0, 2, 1], targets=[1, 3, 2], rates=[9, 8, 1]
    )
    answer = ols(problem)
    assert answer[0] == answer[1] != answer[2] == answer[3]


def test_ols_puts_new_pairs_on_the_least_loaded_node():
    problem = placement_problem(
        loads=np.ones(6), capacities=[4, 4, 4], sources=[0, 2, 4], targets=[1, 3, 5], rates=[3, 2, 1]
    )
    answer = ols(problem)
    assert len(set(answer.tolist())) == 3
    assert problem.cost(answer) == 0.0


def test_ols_spreads_workers_evenly_over_all_nodes_unless_told_otherwise():
    # Three workers of up to two tasks, all in one chain: the authors' defaults leave no node empty.
    problem = chain([1, 1, 1, 1, 1], [4, 4, 4])
    assert sorted(np.bincount(ols(problem), minlength=3)) == [1, 2, 2]
    few = np.bincount(ols(problem, beta=0.0, delta=1.0), minlength=3)
    assert sorted(few) == [0, 1, 4], "as few nodes as hold five tasks"


def test_pairing_compiled_is_pairing():
    rng = np.random.default_rng(0)
    problem = placement_problem(
        loads=rng.uniform(0.5, 1.5, 60),
        capacities=np.full(12, 8.0),
        sources=rng.integers(0, 60, 200),
        targets=rng.integers(0, 60, 200),
        rates=rng.integers(1, 20, 200),
    )
    rows = problem.adjacency
    ends = np.repeat(np.arange(60), np.diff(rows.indptr))
    arguments = (
        ends, rows.indices.astype(np.int64), rows.data, rows.indptr.astype(np.int64),
        rows.indices.astype(np.int64), rows.data, problem.loads, problem.limits.copy(), 6,
    )  # fmt: skip
    plain = _pair_up(*arguments)
    assert plain.tolist() == _pair_up_compiled(*arguments).tolist()
    assert np.bincount(paired(problem, problem.limits, 6)).max() <= 6


def test_flink_puts_one_task_of_every_operator_in_a_slot_and_fills_node_by_node():
    problem = chain([2, 2, 2], [6, 6])
    # Slot 0 holds a0 b0 c0, slot 1 a1 b1 c1; both fit the first node.
    assert flink(problem).tolist() == [0] * 6
    assert flink(chain([2, 2, 2], [3, 3])).tolist() == [0, 1] * 3


def test_flink_divides_a_slot_that_no_node_can_hold():
    problem = chain([1, 1, 1, 1], [2, 2])
    assert flink(problem).tolist() == [0, 0, 1, 1]


def test_least_cpu_counts_foreign_use_and_spreads():
    problem = placement_problem(loads=np.ones(3), capacities=[4, 4], resources=["cpu"])
    assert sorted(least_cpu(problem, foreign_use=np.array([1.5, 0.0])).tolist()) == [0, 1, 1]
    assert least_cpu(problem, foreign_use=np.array([3.5, 0.0])).tolist() == [1, 1, 1]


def test_least_cpu_breaks_ties_by_its_seed_alone():
    problem = placement_problem(loads=np.ones(40), capacities=np.full(40, 2.0), resources=["cpu"])
    answers = {tuple(least_cpu(problem, seed=s).tolist()) for s in range(5)}
    assert len(answers) == 5
    assert least_cpu(problem, seed=1).tolist() == least_cpu(problem, seed=1).tolist()


def test_least_cpu_follows_a_preference_unless_that_machine_lacks_the_cpu():
    problem = placement_problem(loads=[1, 1, 1], capacities=[4, 2], resources=["cpu"])
    preferred = np.array([1, 1, 1])
    assert least_cpu(problem, preferred=preferred).tolist() == [1, 1, 0]
    assert least_cpu(problem, preferred=np.array([UNPLACED, 1, UNPLACED]))[1] == 1


def test_least_cpu_takes_an_unmeasured_task_for_a_full_core():
    problem = placement_problem(loads=[0.1, 0.6, 0.1], capacities=[2, 2], resources=["cpu"])
    first = least_cpu(problem, seed=0)[0]
    # The first task counts 1.0 on its node, the second 0.6 on the other, so the third joins the second.
    answer = least_cpu(problem, seed=0, measured=np.array([False, True, True]))
    assert answer.tolist() == [first, 1 - first, 1 - first]


def test_metis_alone_cuts_between_cliques():
    pairs = [(a, b) for g in range(3) for a in range(4 * g, 4 * g + 4) for b in range(4 * g, a)]
    problem = placement_problem(
        loads=np.ones(12),
        capacities=[4, 4, 4],
        sources=[a for a, _ in pairs] + [0, 4],
        targets=[b for _, b in pairs] + [4, 8],
        rates=[10] * len(pairs) + [1, 1],
    )
    assert problem.cost(metis_alone(problem)) == 2.0


def test_the_largest_nodes_are_the_fewest_that_hold_all():
    problem = placement_problem(loads=np.ones(8), capacities=[2, 6, 4, 6])
    assert largest_nodes(problem, 1.0).tolist() == [1, 3]
    assert largest_nodes(problem, 0.6).tolist() == [1, 3, 2]
    assert set(metis_on(problem, largest_nodes(problem, 1.0)).tolist()) <= {1, 3}


def test_producers_come_first_and_every_operator_once_even_in_cycles():
    problem = placement_problem(
        loads=np.ones(5),
        capacities=[9],
        sources=[0, 1, 2, 3],
        targets=[1, 2, 1, 4],
        operators=[0, 1, 2, 3, 4],
    )
    found = producers_first(problem)
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert found.index(0) < found.index(1)
    assert found.index(3) < found.index(4)


def test_neighbours_are_operators_on_either_side():
    assert neighbours(chain([2, 1, 1], [9])) == {0: [1], 1: [2, 0], 2: [1]}


def test_jobs_are_what_streams_connect():
    problem = placement_problem(
        loads=np.ones(4), capacities=[9], sources=[0, 3], targets=[1, 2], operators=[7, 8, 9, 9]
    )
    found = jobs(problem)
    assert found[0] == found[1] != found[2] == found[3]


def test_kahypar_takes_rooms_that_each_hold_everything():
    """Eight parts of 2^28 are more than its 32 bits."""
    problem = placement_problem(
        loads=np.ones(8), capacities=np.full(8, 100.0), sources=[0, 2, 4, 6], targets=[1, 3, 5, 7]
    )
    assert problem.cost(kahypar_alone(problem)) <= 4.0
