"""Improving any placement: moves and swaps to a local optimum, then annealing while there is time.

The moves are those of Fiduccia and Mattheyses (one task to another node) and of Kernighan and Lin (two tasks trade
places), on unequal nodes with several capacities. A task's pull towards the node it runs on counts like traffic,
so the same code weighs saved traffic against moves.

The kernels are plain functions that Numba compiles when a problem is large; a small one is done before the
compiler would have started.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from penstock.policies.placement.budget import Budget
from penstock.policies.placement.problem import Assignment, Floats, Ints, PlacementProblem

COMPILE_ABOVE_TASKS = 150
PROPOSALS_PER_SLICE = 50_000
MOST_PASSES = 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _State:
    """Arrays the kernels change in place: where tasks are, and who is on each node."""

    node: Ints
    load: Floats
    bag: Ints
    """[nodes, width]: tasks on each node, the first count[n] entries"""
    count: Ints
    where: Ints
    """[tasks]: position of a task in its node's bag"""


def refined(
    problem: PlacementProblem, assignment: Assignment, budget: Budget, *, seed: int = 0
) -> Assignment:
    """A placement that fits and costs no more than `assignment`, the better the longer the budget.

    Moves and swaps run until none helps (30 ms a pass for 10,000 tasks); annealing uses whatever time is left.
    """
    compiled = problem.tasks > COMPILE_ABOVE_TASKS
    state = _state(problem, assignment)
    graph = _graph(problem)
    descend = _descend_compiled if compiled else _descend
    for _ in range(MOST_PASSES):
        if not descend(*graph, *_arrays(state)):
            break
    best, best_objective = state.node.copy(), problem.objective(state.node)
    if not compiled:
        return best
    return _annealed(problem, best, best_objective, budget, seed)


def _annealed(
    problem: PlacementProblem, start: Assignment, objective: float, budget: Budget, seed: int
) -> Assignment:
    """`start`, or something better found by accepting losses that grow rarer as the time runs out."""
    graph, state = _graph(problem), _state(problem, start)
    if not len(graph[1]):
        return start
    random = np.array([2 * seed + 0x9E3779B97F4A7C15], dtype=np.uint64)
    typical = float(np.mean(problem.adjacency.data))
    # The first call compiles; the second tells how many proposals there is time for.
    _anneal_compiled(*graph, *_arrays(state), random, typical, 0)
    # The last moves and swaps, and whatever the caller does with the answer, need time too.
    annealing = budget.share(0.93)
    whole_s = annealing.remaining_s()
    _anneal_compiled(*graph, *_arrays(state), random, 0.1 * typical, PROPOSALS_PER_SLICE)
    slices = whole_s / max(whole_s - annealing.remaining_s(), 1e-9)
    # Starting hot moves whole neighbourhoods but needs time to settle (tuned on clusters of 10,000 tasks).
    hot = typical * min(8.0, max(0.8, slices * PROPOSALS_PER_SLICE / problem.tasks / 300.0))
    cold = 0.1 * typical
    while (left_s := annealing.remaining_s()) > 0.0:
        temperature = hot * (cold / hot) ** (1.0 - left_s / whole_s)
        _anneal_compiled(*graph, *_arrays(state), random, temperature, PROPOSALS_PER_SLICE)
    for _ in range(MOST_PASSES):
        if not _descend_compiled(*graph, *_arrays(state)):
            break
    return state.node if problem.objective(state.node) < objective else start


def _graph(problem: PlacementProblem) -> tuple[Ints, Ints, Floats, Floats, Floats, Ints, Floats]:
    rows = problem.adjacency
    return (
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int64),
        rows.data,
        problem.loads,
        problem.limits,
        problem.running,
        problem.move_prices,
    )


def _state(problem: PlacementProblem, assignment: Assignment) -> _State:
    if not problem.fits(assignment):
        raise ValueError("only a placement that fits can be refined")
    count = np.bincount(assignment, minlength=problem.nodes)
    bag = np.full(
        (problem.nodes, _most_tasks_on_a_node(problem, int(count.max(initial=0)))), -1, dtype=np.int64
    )
    where = np.empty(problem.tasks, dtype=np.int64)
    filled = np.zeros(problem.nodes, dtype=np.int64)
    for task, node in enumerate(assignment):
        where[task] = filled[node]
        bag[node, filled[node]] = task
        filled[node] += 1
    return _State(
        node=assignment.copy(),
        load=problem.node_loads(assignment),
        bag=bag,
        count=count.astype(np.int64),
        where=where,
    )


def _arrays(state: _State) -> tuple[Ints, Floats, Ints, Ints, Ints]:
    return state.node, state.load, state.bag, state.count, state.where


def _most_tasks_on_a_node(problem: PlacementProblem, at_least: int) -> int:
    """How many tasks any node could hold at most: the smallest tasks on the largest node."""
    width = problem.tasks
    for r in range(problem.loads.shape[1]):
        sums = np.cumsum(np.sort(problem.loads[:, r]))
        width = min(width, int(np.searchsorted(sums, problem.limits[:, r].max() * (1 + 1e-6), side="right")))
    return max(width, at_least) + 1


@register_jitable
def _fits(extra: Floats, less: Floats, load: Floats, limit: Floats) -> bool:
    for r in range(len(load)):  # noqa: SIM110 - a generator would not compile
        if load[r] + extra[r] - less[r] > limit[r]:
            return False
    return True


@register_jitable
def _relocate(
    task: int, to: int, loads: Floats, node: Ints, load: Floats, bag: Ints, count: Ints, where: Ints
) -> None:
    old = node[task]
    last = bag[old, count[old] - 1]
    bag[old, where[task]] = last
    where[last] = where[task]
    count[old] -= 1
    bag[to, count[to]] = task
    where[task] = count[to]
    count[to] += 1
    node[task] = to
    for r in range(loads.shape[1]):
        load[old, r] -= loads[task, r]
        load[to, r] += loads[task, r]


@register_jitable
def _pull(
    task: int,
    a: int,
    b: int,
    other: int,
    graph_ends: Ints,
    peers: Ints,
    rates: Floats,
    home: Ints,
    price: Floats,
    node: Ints,
) -> float:
    """Gain of moving `task` from node a to node b while `other` stays out of both sums."""
    gain = 0.0
    for e in range(graph_ends[task], graph_ends[task + 1]):
        peer = peers[e]
        if peer != other:
            if node[peer] == b:
                gain += rates[e]
            elif node[peer] == a:
                gain -= rates[e]
    if home[task] == b:
        gain += price[task]
    elif home[task] == a:
        gain -= price[task]
    return gain


def _descend(
    graph_ends: Ints,
    peers: Ints,
    rates: Floats,
    loads: Floats,
    limits: Floats,
    home: Ints,
    price: Floats,
    node: Ints,
    load: Floats,
    bag: Ints,
    count: Ints,
    where: Ints,
) -> int:
    """Number of improving moves and swaps made in one pass over all tasks."""
    tasks, nodes = len(node), len(count)
    nothing = np.zeros(loads.shape[1])
    towards = np.zeros(nodes)
    seen = np.empty(nodes, dtype=np.int64)
    improved = 0
    for v in range(tasks):
        a = node[v]
        touched = 0
        for e in range(graph_ends[v], graph_ends[v + 1]):
            b = node[peers[e]]
            if towards[b] == 0.0:
                seen[touched] = b
                touched += 1
            towards[b] += rates[e]
        if home[v] >= 0 and price[v] > 0.0:
            if towards[home[v]] == 0.0:
                seen[touched] = home[v]
                touched += 1
            towards[home[v]] += price[v]
        best_gain, best_node, best_swap = 1e-9 * (1.0 + towards[a]), -1, -1
        for i in range(touched):
            b = seen[i]
            gain = towards[b] - towards[a]
            if b == a or gain <= best_gain:
                continue
            if _fits(loads[v], nothing, load[b], limits[b]):
                best_gain, best_node, best_swap = gain, b, -1
                continue
            for j in range(count[b]):
                u = bag[b, j]
                if not _fits(loads[v], loads[u], load[b], limits[b]):
                    continue
                if not _fits(loads[u], loads[v], load[a], limits[a]):
                    continue
                # Both ends of a stream between u and v move: it still crosses, so it leaves v's gain too.
                both = gain + _pull(u, b, a, v, graph_ends, peers, rates, home, price, node)
                for e in range(graph_ends[u], graph_ends[u + 1]):
                    if peers[e] == v:
                        both -= rates[e]
                if both > best_gain:
                    best_gain, best_node, best_swap = both, b, u
        for i in range(touched):
            towards[seen[i]] = 0.0
        if best_node >= 0:
            if best_swap >= 0:
                _relocate(best_swap, a, loads, node, load, bag, count, where)
            _relocate(v, best_node, loads, node, load, bag, count, where)
            improved += 1
    return improved


@register_jitable
def _draw(random: npt.NDArray[np.uint64]) -> float:
    """The next number in [0, 1) of a xorshift sequence whose state is `random[0]`."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return float((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) / 9007199254740992.0


def _anneal(
    graph_ends: Ints,
    peers: Ints,
    rates: Floats,
    loads: Floats,
    limits: Floats,
    home: Ints,
    price: Floats,
    node: Ints,
    load: Floats,
    bag: Ints,
    count: Ints,
    where: Ints,
    random: npt.NDArray[np.uint64],
    temperature: float,
    proposals: int,
) -> None:
    """Metropolis steps: a task towards the node of a peer, trading places with a task there if it is full."""
    tasks = len(node)
    nothing = np.zeros(loads.shape[1])
    for _ in range(proposals):
        v = int(_draw(random) * tasks)
        degree = graph_ends[v + 1] - graph_ends[v]
        if degree == 0:
            continue
        a = node[v]
        b = node[peers[graph_ends[v] + int(_draw(random) * degree)]]
        if a == b:
            continue
        gain = _pull(v, a, b, -1, graph_ends, peers, rates, home, price, node)
        u = -1
        if not _fits(loads[v], nothing, load[b], limits[b]):
            u = bag[b, int(_draw(random) * count[b])]
            if not _fits(loads[v], loads[u], load[b], limits[b]):
                continue
            if not _fits(loads[u], loads[v], load[a], limits[a]):
                continue
            gain += _pull(u, b, a, v, graph_ends, peers, rates, home, price, node)
            for e in range(graph_ends[u], graph_ends[u + 1]):
                if peers[e] == v:
                    gain -= rates[e]
        if gain >= 0.0 or _draw(random) < np.exp(gain / temperature):
            if u >= 0:
                _relocate(u, a, loads, node, load, bag, count, where)
            _relocate(v, b, loads, node, load, bag, count, where)


_descend_compiled = njit(cache=True)(_descend)
_anneal_compiled = njit(cache=True)(_anneal)
