"""Simulated annealing of a placement: single tasks move, or two trade places, and nodes may be too full on the way.

Excess load costs a penalty that grows while the temperature falls, so the search can pass through placements that do
not fit: where groups of tasks exactly fill unequal nodes, there is no other way from one placement to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.policies.placement.budget import Budget
from penstock.policies.placement.graph import FULL_NODE, Graph
from penstock.policies.placement.problem import Assignment, Floats, Ints

Random = npt.NDArray[np.uint64]
Streams = tuple[Ints, Ints, Floats]
State = tuple[Ints, Floats, Ints, Ints, Ints]

COLD = 0.05
"""Last temperature. Temperatures are multiples of the mean rate."""
STIFF = 100.0
"""Last penalty. Penalties are multiples of the traffic of a mean task, per load of a mean task."""
SLICES = 20
REPAIRS = 8
STRAYS = 0.1
"""How often a move goes to any node, not to one where the task has a peer."""
TRADES = 0.7
"""How often a task that finds a node full proposes to trade places rather than to overfill it."""
HOPELESS = -40.0
"""So many temperatures below nothing is accepted: a chance of one in 10^17."""
CELLS = 200_000
"""Up to so many, traffic of every vertex with every node is kept in a table: above, the cache is too small for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How an annealing goes."""

    hot: float
    """First temperature."""
    soft: float
    """First penalty of excess load."""
    repair: bool = False
    """Raise the penalty further until the placement fits, and end in a local optimum."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Annealed:
    """Where an annealing ended, and the best placement that fits which it passed."""

    last: Assignment
    best: Assignment
    best_cost: float
    """Infinite if none fitted."""


def annealed(
    graph: Graph, start: Assignment, schedule: Schedule, proposals: int, random: Random, budget: Budget
) -> Annealed:
    """The result of so many proposals; when the budget runs out, it cools down with the time instead of the work.

    `random` is the state of the sequence of chances, and is advanced.
    """
    at, best = start, graph.everywhere(start)
    found = np.array([0.0, graph.cost(start) if graph.excess(start) == 0.0 else math.inf])
    rows = graph.adjacency
    streams = (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data)
    rate = float(rows.data.mean()) if rows.nnz else 1.0
    price = float(rows[: graph.vertices].sum() / max(graph.loads.mean(axis=1).sum(), 1e-9)) or 1.0

    def anneal(temperature: float, penalty: float, strays: float, count: int) -> Assignment:
        fresh = graph.renamed(at, penalty)
        found[0], state = graph.cost(fresh), _state(graph, fresh)
        heat = (temperature, penalty, strays)
        _anneal(streams, graph.loads, graph.limits, state, random, heat, count, best, found)
        return state[0][: graph.vertices]

    whole_s = max(budget.remaining_s(), 1e-9)
    done = 1.0 if graph.vertices == 0 or graph.nodes < 2 else 0.0
    while done < 1.0:
        temperature = rate * schedule.hot * (COLD / schedule.hot) ** done
        penalty = price * schedule.soft * (STIFF / schedule.soft) ** done
        at = anneal(temperature, penalty, STRAYS, 1 + proposals // SLICES)
        done = max(done + 1.0 / SLICES, 1.0 - budget.remaining_s() / whole_s)
    if schedule.repair and graph.vertices and graph.nodes > 1:
        penalty, tries = price * STIFF, 0
        while graph.excess(at) > 0.0 and tries < REPAIRS:
            penalty, tries = 4.0 * penalty, tries + 1
            at = anneal(COLD * rate, penalty, 0.3, 20 * graph.vertices)
        at = anneal(1e-9 * rate, penalty, STRAYS, 20 * graph.vertices)
    return Annealed(last=at, best=best[: graph.vertices], best_cost=float(found[1]))


def chances(seed: int) -> Random:
    """The first state of a sequence of chances."""
    return np.array([2 * seed + 0x9E3779B97F4A7C15], dtype=np.uint64)


def _state(graph: Graph, assignment: Assignment) -> State:
    """Node of each vertex; load of each node; its vertices, the first `count` of a row; count; place in the row."""
    count = np.bincount(assignment, minlength=graph.nodes)
    order = np.argsort(assignment, kind="stable")
    place = np.empty(graph.vertices, dtype=np.int64)
    place[order] = np.arange(graph.vertices) - (np.cumsum(count) - count)[assignment[order]]
    width = min(graph.vertices, 4 * int(count.max(initial=0)) + 64) + 1
    held = np.zeros((graph.nodes, width), dtype=np.int64)
    held[assignment, place] = np.arange(graph.vertices)
    return graph.everywhere(assignment), graph.node_loads(assignment), held, count, place


@njit(cache=True)
def _over(n: int, more: int, less: int, loads: Floats, load: Floats, limits: Floats) -> float:
    """Excess of node n if vertex `more` came and `less` left; -1: none does."""
    excess = 0.0
    for r in range(loads.shape[1]):
        over = load[n, r] - limits[n, r]
        if more >= 0:
            over += loads[more, r]
        if less >= 0:
            over -= loads[less, r]
        if over > 1e-12:
            excess += over + FULL_NODE
    return excess


@njit(cache=True)
def _draw(random: Random) -> float:
    """The next number in [0, 1) of a xorshift sequence whose state is `random[0]`."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return float((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True)
def _pulls(streams: Streams, node: Ints, vertices: int, nodes: int) -> Floats:
    """[vertices, nodes]: traffic of each vertex with each node; empty where the table would not stay in the cache."""
    starts, peers, rates = streams
    pulls = np.zeros((vertices if vertices * nodes <= CELLS else 0, nodes))
    for v in range(len(pulls)):
        for e in range(starts[v], starts[v + 1]):
            pulls[v, node[peers[e]]] += rates[e]
    return pulls


@njit(cache=True)
def _scanned(v: int, a: int, b: int, streams: Streams, node: Ints) -> float:
    """How much more traffic `v` has with node b than with node a, from its streams."""
    starts, peers, rates = streams
    gain = 0.0
    for e in range(starts[v], starts[v + 1]):
        if node[peers[e]] == b:
            gain += rates[e]
        elif node[peers[e]] == a:
            gain -= rates[e]
    return gain


@njit(cache=True)
def _between(u: int, v: int, streams: Streams) -> float:
    """Traffic of two vertices."""
    starts, peers, rates = streams
    if starts[u + 1] - starts[u] > starts[v + 1] - starts[v]:
        u, v = v, u
    for e in range(starts[u], starts[u + 1]):
        if peers[e] == v:
            return float(rates[e])
    return 0.0


@njit(cache=True)
def _relocate(v: int, to: int, loads: Floats, streams: Streams, pulls: Floats, state: State) -> None:
    node, load, held, count, place = state
    starts, peers, rates = streams
    old = node[v]
    for e in range(starts[v], starts[v + 1]):
        if peers[e] < len(pulls):
            pulls[peers[e], old] -= rates[e]
            pulls[peers[e], to] += rates[e]
    count[old] -= 1
    last = held[old, count[old]]
    held[old, place[v]] = last
    place[last] = place[v]
    held[to, count[to]] = v
    place[v] = count[to]
    count[to] += 1
    node[v] = to
    for r in range(loads.shape[1]):
        load[old, r] -= loads[v, r]
        load[to, r] += loads[v, r]


@njit(cache=True)
def _anneal(
    streams: Streams,
    loads: Floats,
    limits: Floats,
    state: State,
    random: Random,
    heat: tuple[float, float, float],
    proposals: int,
    best: Ints,
    found: Floats,
) -> None:
    """Metropolis steps. found[0] is the cost, found[1] that of `best`; both are kept up to date."""
    temperature, penalty, strays = heat
    starts, peers, _ = streams
    node, load, held, count, _ = state
    vertices, nodes, most = len(loads), len(count), held.shape[1] - 1
    pulls, over = _pulls(streams, node, vertices, nodes), np.zeros(nodes)
    for n in range(nodes):
        over[n] = _over(n, -1, -1, loads, load, limits)
    tabled, excess = len(pulls) > 0, over.sum()
    pause = max(1, vertices // 8)
    for i in range(proposals + 1):
        if (i % pause == 0 or i == proposals) and excess < 1e-9 and found[0] < found[1] * (1.0 - 1e-12):
            found[1] = found[0]
            best[:] = node
        if i == proposals:
            break
        v = int(_draw(random) * vertices)
        a, degree = node[v], starts[v + 1] - starts[v]
        if degree > 0 and _draw(random) >= strays:
            b = node[peers[starts[v] + int(_draw(random) * degree)]]
        else:
            b = int(_draw(random) * nodes)
        if a == b:
            continue
        gain = pulls[v, b] - pulls[v, a] if tabled else _scanned(v, a, b, streams, node)
        full = _over(b, v, -1, loads, load, limits)
        u = -1
        if full > 0.0 and count[b] > 0 and (count[b] >= most or _draw(random) < TRADES):
            u = held[b, int(_draw(random) * count[b])]
            # A stream between the two still crosses when both have moved.
            gain += pulls[u, a] - pulls[u, b] if tabled else _scanned(u, b, a, streams, node)
            gain -= 2.0 * _between(u, v, streams)
            left = _over(a, u, v, loads, load, limits)
            full = _over(b, v, u, loads, load, limits)
        elif count[b] >= most:
            continue
        else:
            left = _over(a, -1, v, loads, load, limits)
        less = over[a] + over[b] - left - full
        better = gain + penalty * less
        if better >= 0.0 or (
            better > HOPELESS * temperature and _draw(random) < np.exp(better / temperature)
        ):
            if u >= 0:
                _relocate(u, a, loads, streams, pulls, state)
            _relocate(v, b, loads, streams, pulls, state)
            over[a], over[b] = left, full
            found[0] -= gain
            excess -= less
