"""The instances placement is measured on: the paper's 72, and made-up clusters of any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.policies.placement.problem import Ints, PlacementProblem, placement_problem

Shape = Literal["linear", "diamond", "star"]
Cluster = Literal["homogeneous", "heterogeneous"]

SHAPES: tuple[Shape, ...] = ("linear", "diamond", "star")
CLUSTERS: dict[Cluster, tuple[int, ...]] = {
    "homogeneous": (4,) * 10,
    "heterogeneous": (6,) * 3 + (4,) * 3 + (2,) * 4,
}
"""Node capacities, in tasks (I-Scheduler, table 3)."""
BENCHMARK_TASKS = tuple(range(10, 33, 2))
_NO_TASKS: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One named benchmark instance."""

    shape: Shape
    cluster: Cluster
    tasks: int
    problem: PlacementProblem


def operator_sizes(shape: Shape, tasks: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Tasks per operator, and the operator pairs that a stream joins (I-Scheduler, section 5)."""
    if shape == "linear":
        if tasks < 4 or tasks % 2:
            raise ValueError("a linear instance has an even number of tasks, at least 4")
        sizes = [2] * (tasks // 2)
        return sizes, [(i, i + 1) for i in range(len(sizes) - 1)]
    if shape == "diamond":
        if tasks < 10 or tasks % 2:
            raise ValueError("a diamond instance has an even number of tasks, at least 10")
        middle = (tasks - 8) // 2
        sink = middle + 1
        streams = [(0, i) for i in range(1, sink)] + [(i, sink) for i in range(1, sink)]
        return [4] + [2] * middle + [4], streams
    if tasks < 6 or tasks % 2:
        raise ValueError("a star instance has an even number of tasks, at least 6")
    around = (tasks - 4) // 2
    # Added alternately as a source and a sink of the centre, which is operator 0.
    return [4] + [2] * around, [(i, 0) if i % 2 else (0, i) for i in range(1, around + 1)]


def benchmark(shape: Shape, tasks: int, cluster: Cluster) -> PlacementProblem:
    """A micro-benchmark of the paper: load 1 per task, rate 1 between all tasks of joined operators."""
    if cluster not in CLUSTERS:
        raise ValueError(f"no cluster '{cluster}'; there are {' and '.join(CLUSTERS)}")
    sizes, streams = operator_sizes(shape, tasks)
    operators = np.repeat(np.arange(len(sizes)), sizes)
    members = [np.flatnonzero(operators == o) for o in range(len(sizes))]
    sources, targets = _all_to_all([(members[a], members[b]) for a, b in streams])
    return placement_problem(
        loads=np.ones(tasks),
        capacities=CLUSTERS[cluster],
        sources=sources,
        targets=targets,
        operators=operators,
    )


def linear_instance(tasks: int, cluster: Cluster) -> PlacementProblem:
    """A chain of operators."""
    return benchmark("linear", tasks, cluster)


def diamond_instance(tasks: int, cluster: Cluster) -> PlacementProblem:
    """A source, operators side by side, a sink."""
    return benchmark("diamond", tasks, cluster)


def star_instance(tasks: int, cluster: Cluster) -> PlacementProblem:
    """Sources and sinks around one operator."""
    return benchmark("star", tasks, cluster)


def benchmarks() -> Iterator[Instance]:
    """The 72 instances: three shapes, two clusters, 10 to 32 tasks."""
    for shape in SHAPES:
        for cluster in CLUSTERS:
            for tasks in BENCHMARK_TASKS:
                yield Instance(
                    shape=shape, cluster=cluster, tasks=tasks, problem=benchmark(shape, tasks, cluster)
                )


def random_cluster(
    *,
    tasks: int,
    nodes: int,
    seed: int,
    fill: float = 0.8,
    resources: tuple[str, ...] = ("cpu",),
) -> PlacementProblem:
    """A shared cluster: many dataflows whose keys are partly correlated, nodes of five sizes, `fill` of it used.

    Each dataflow is a chain of two to five operators of equal or halving parallelism. A task sends most of its
    output to a few tasks of the next operator (correlated keys) and spreads the rest; rates are heavy-tailed.
    """
    rng = np.random.default_rng(seed)
    operators, sources, targets, rates = _dataflows(tasks, rng)
    loads = rng.uniform(0.5, 1.5, size=(tasks, len(resources)))
    sizes = rng.choice([1.0, 2.0, 4.0, 6.0, 8.0], size=nodes)
    shape_of_node = np.where(rng.random((nodes, len(resources))) < 0.25, 1.25, 1.0)
    weights = sizes[:, None] * (shape_of_node if len(resources) > 1 else 1.0)
    capacities = weights / weights.sum(axis=0) * loads.sum(axis=0) / fill
    return placement_problem(
        loads=loads,
        capacities=capacities,
        sources=sources,
        targets=targets,
        rates=rates,
        operators=operators,
        resources=resources,
    )


def random_instance(seed: int) -> PlacementProblem:
    """A made-up cluster of 30 to 300 tasks on unequal nodes filled to 60 to 97 %; every third has two resources."""
    rng = np.random.default_rng([seed, 2])
    tasks = int(rng.integers(30, 301))
    return random_cluster(
        tasks=tasks,
        nodes=int(rng.integers(3, max(4, tasks // 6) + 1)),
        seed=seed,
        fill=float(rng.uniform(0.6, 0.97)),
        resources=("cpu", "memory") if seed % 3 == 0 else ("cpu",),
    )


def planted_groups(seed: int, *, most_tasks: int = 300) -> tuple[PlacementProblem, Ints]:
    """20 tasks or more in groups that exactly fill unequal nodes, and which group each task is in.

    A group is a random tree and twice as many streams again; a seventh as much traffic runs between groups. Loads are
    all 1, whole numbers up to 5, or anything from 0.5 to 1.5, by turns of the seed.
    """
    rng = np.random.default_rng([seed, 1])
    tasks = int(rng.integers(20, most_tasks + 1))
    nodes = int(rng.integers(3, max(4, tasks // 8 + 1)))
    shares = rng.uniform(1.0, 4.0, nodes)
    ends = np.rint(np.cumsum(shares / shares.sum()) * (tasks - 2 * nodes)).astype(np.int64)
    group = rng.permutation(np.repeat(np.arange(nodes), 2 + np.diff(ends, prepend=0)))
    loads = (np.ones(tasks), rng.integers(1, 6, tasks).astype(np.float64), rng.uniform(0.5, 1.5, tasks))[
        seed % 3
    ]
    inside: list[tuple[int, int]] = []
    for n in range(nodes):
        held = rng.permutation(np.flatnonzero(group == n))
        inside += [(int(held[rng.integers(i)]), int(held[i])) for i in range(1, len(held))]
        inside += [tuple(rng.choice(held, 2, replace=False).tolist()) for _ in range(2 * len(held))]
    between = rng.integers(0, tasks, (2 * tasks, 2))
    between = between[group[between[:, 0]] != group[between[:, 1]]]
    strong, weak = rng.lognormal(2.0, 0.5, len(inside)), rng.lognormal(0.0, 0.5, len(between))
    streams = np.concatenate([np.array(inside), between])
    problem = placement_problem(
        loads=loads,
        capacities=np.bincount(group, weights=loads, minlength=nodes),
        sources=streams[:, 0],
        targets=streams[:, 1],
        rates=np.concatenate([strong, weak * (strong.sum() / 7.0 / weak.sum())]),
    )
    return problem, group


def _dataflows(tasks: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints, np.ndarray]:
    operators = np.empty(tasks, dtype=np.int64)
    sources, targets, rates = [_NO_TASKS], [_NO_TASKS], [np.empty(0)]
    placed, operator = 0, 0
    while placed < tasks:
        parallelism = int(rng.integers(4, 33))
        previous: Ints | None = None
        rate = rng.pareto(1.5) + 1.0
        for _ in range(int(rng.integers(2, 6))):
            members = np.arange(placed, min(placed + parallelism, tasks))
            if not len(members):
                break
            operators[members] = operator
            if previous is not None:
                share = rng.dirichlet(np.full(len(members), 0.15), size=len(previous))
                share[share < 0.01] = 0.0
                a, b = np.nonzero(share)
                sources.append(previous[a])
                targets.append(members[b])
                rates.append(rate * share[a, b])
            previous, placed, operator = members, placed + len(members), operator + 1
            if rng.random() < 0.4:
                parallelism = max(1, parallelism // 2)
    return operators, np.concatenate(sources), np.concatenate(targets), np.concatenate(rates)


def _all_to_all(joins: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    sources = np.concatenate([np.repeat(a, len(b)) for a, b in joins])
    targets = np.concatenate([np.tile(b, len(a)) for a, b in joins])
    return sources, targets
