"""The traffic graph that the search works on, and coarser graphs in which groups of tasks are one vertex.

Every node is a vertex too, fixed where it is: what a task pays for leaving the node it runs on is a stream to that
vertex. So saved traffic and moves weigh alike, at every level.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sparse
from numba import njit
from scipy.optimize import linear_sum_assignment

from penstock.policies.placement.problem import UNPLACED, Assignment, Floats, Ints, PlacementProblem

FULL_NODE = 0.25
"""What any excess of a node costs at least, as a share of a mean task: without it, many would stay a hair too full."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """Vertices 0 … vertices - 1 are to be placed; the nodes follow as fixed ones."""

    adjacency: sparse.csr_array
    """[vertices + nodes, vertices + nodes], symmetric."""
    loads: Floats
    """[vertices, resources], as multiples of a mean task"""
    limits: Floats
    """[nodes, resources]"""
    pairs: sparse.coo_array = field(init=False)
    """Each pair once, the smaller vertex first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", sparse.triu(self.adjacency, format="coo"))

    @property
    def vertices(self) -> int:
        """How many are to be placed."""
        return len(self.loads)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.limits)

    def everywhere(self, assignment: Assignment) -> Ints:
        """[vertices + nodes]: where each is."""
        return np.concatenate([assignment, np.arange(self.nodes)])

    def cost(self, assignment: Assignment) -> float:
        """Traffic that crosses nodes, and price of the moves."""
        at = self.everywhere(assignment)
        return float(self.pairs.data[at[self.pairs.row] != at[self.pairs.col]].sum())

    def node_loads(self, assignment: Assignment) -> Floats:
        """[nodes, resources] loads."""
        loads = np.zeros_like(self.limits)
        np.add.at(loads, assignment, self.loads)
        return loads

    def excess(self, assignment: Assignment) -> float:
        """How much too full nodes are, as multiples of a mean task."""
        over = self.node_loads(assignment) - self.limits
        return float(np.where(over > 0, over + FULL_NODE, 0.0).sum())

    def coarse(self, labels: Ints) -> Graph:
        """The graph in which the vertices with one label are a single one; labels are 0 … k-1."""
        count = int(labels.max(initial=-1)) + 1
        whole = np.concatenate([labels, count + np.arange(self.nodes)])
        row, col = whole[self.pairs.row], whole[self.pairs.col]
        apart = row != col
        loads = np.zeros((count, self.loads.shape[1]))
        np.add.at(loads, labels, self.loads)
        return Graph(
            adjacency=_symmetric(row[apart], col[apart], self.pairs.data[apart], count + self.nodes),
            loads=loads,
            limits=self.limits,
        )

    def clusters(self, share: float, random: np.random.Generator) -> Ints:
        """[vertices] labels: vertices that talk much are joined, up to `share` of a node of middling size.

        Heavy streams between small vertices come first; chance varies the order, so that no two starts are alike.
        """
        inner = self.pairs.col < self.vertices
        a, b = self.pairs.row[inner].astype(np.int64), self.pairs.col[inner].astype(np.int64)
        size = np.maximum(self.loads.max(axis=1), 1e-9)
        worth = self.pairs.data[inner] / np.sqrt(size[a] * size[b]) * random.lognormal(0.0, 0.5, len(a))
        middling = np.median(self.limits, axis=0)
        joined = _joined(a, b, np.argsort(-worth, kind="stable"), self.loads, share * middling)
        _, labels = np.unique(joined, return_inverse=True)
        return np.asarray(labels, dtype=np.int64)

    def renamed(self, assignment: Assignment, penalty: float) -> Assignment:
        """`assignment` with whole contents of nodes exchanged, so that they fit and stay as well as possible."""
        if self.nodes > 1000:
            return assignment
        over = self.node_loads(assignment)[:, None, :] - self.limits[None, :, :]
        cost = penalty * np.where(over > 0, over + FULL_NODE, 0.0).sum(axis=2)
        homes = self.pairs.col >= self.vertices
        if not np.any(homes) and not np.any(np.diagonal(cost)):
            return assignment
        rows, cols = self.pairs.row[homes], self.pairs.col[homes] - self.vertices
        np.add.at(cost, (assignment[rows], cols), -self.pairs.data[homes])
        here = np.arange(self.nodes)
        cost[here, here] -= 1e-9 * penalty
        _, target = linear_sum_assignment(cost)
        return np.asarray(target[assignment], dtype=np.int64)


def graph_of(problem: PlacementProblem) -> Graph:
    """The graph of a problem; its cost is the problem's objective."""
    mean = problem.loads.sum(axis=0) / max(1, problem.tasks)
    mean = np.where(mean > 0, mean, 1.0)
    pays = np.flatnonzero((problem.running != UNPLACED) & (problem.move_prices > 0))
    pairs = sparse.triu(problem.adjacency, format="coo")
    return Graph(
        adjacency=_symmetric(
            np.concatenate([pairs.row, pays]),
            np.concatenate([pairs.col, problem.tasks + problem.running[pays]]),
            np.concatenate([pairs.data, problem.move_prices[pays]]),
            problem.tasks + problem.nodes,
        ),
        loads=problem.loads / mean,
        limits=problem.limits / mean,
    )


def _symmetric(row: Ints, col: Ints, rates: Floats, size: int) -> sparse.csr_array:
    ends, others = np.concatenate([row, col]), np.concatenate([col, row])
    return sparse.csr_array((np.concatenate([rates, rates]), (ends, others)), shape=(size, size))


@njit(cache=True)
def _joined(a: Ints, b: Ints, order: Ints, loads: Floats, limit: Floats) -> Ints:
    """[vertices] representative of each vertex after joining pairs in order where both fit into `limit`."""
    root, size = np.arange(len(loads)), loads.copy()
    for i in order:
        x, y = a[i], b[i]
        while root[x] != x:
            root[x] = root[root[x]]
            x = root[x]
        while root[y] != y:
            root[y] = root[root[y]]
            y = root[y]
        if x != y and np.all(size[x] + size[y] <= limit):
            root[y] = x
            size[x] += size[y]
    for v in range(len(root)):
        while root[root[v]] != root[v]:
            root[v] = root[root[v]]
    return root
