"""From snapshots to a placement problem: tasks, the traffic measured between them, and what nodes can hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.policies.placement.options import PlacementOptions
from penstock.policies.placement.problem import Floats, Ints, PlacementProblem, placement_problem
from penstock.telemetry import Snapshot

Bools = NDArray[np.bool_]

INDEX_BITS = 18
"""A task is known by operator and index in 31 bits, a pair of tasks in one 64-bit number."""
GRAIN = 0.5
"""Steps of a task's work beside the mean of its operator."""
FORGOTTEN = 1e-6
"""Pairs whose faded traffic is below this share of the largest are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredTraffic:
    """Bytes (or, where nobody weighs them, records) per second between tasks, faded over snapshots.

    Where the runtime tells the traffic of one micro-batch only, and of some not at all, the mean of several counts.
    """

    pairs: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    rates: Floats = field(default_factory=lambda: np.empty(0))

    def learn(self, snapshot: Snapshot, memory_s: float) -> MeasuredTraffic:
        """With the traffic of one snapshot; one that tells none teaches nothing."""
        traffic = snapshot.traffic
        if not len(traffic):
            return self
        codes = _codes(snapshot)
        new = (codes[traffic.from_task] << 32) | codes[traffic.to_task]
        rates = traffic.bytes_per_s if np.any(traffic.bytes_per_s > 0) else traffic.records_rps
        keep = float(np.exp(-snapshot.interval_s / memory_s)) if len(self.pairs) else 0.0
        pairs, where = np.unique(np.concatenate([self.pairs, new]), return_inverse=True)
        faded = np.bincount(where, np.concatenate([keep * self.rates, (1 - keep) * rates]), len(pairs))
        kept = faded > FORGOTTEN * faded.max(initial=0.0)
        return MeasuredTraffic(pairs=pairs[kept], rates=faded[kept])

    def between(self, snapshot: Snapshot, rows: Ints) -> tuple[Ints, Ints, Floats]:
        """Sources, targets (as positions in `rows`, which are rows of tasks) and rates; other pairs are left out."""
        codes = _codes(snapshot)[rows]
        order = np.argsort(codes)
        sources, targets = (
            _found(codes[order], order, p) for p in (self.pairs >> 32, self.pairs & 0xFFFFFFFF)
        )
        known = (sources >= 0) & (targets >= 0)
        return sources[known], targets[known], self.rates[known]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Running:
    """The problem of a snapshot, and which tasks it is about."""

    problem: PlacementProblem
    rows: Ints
    """Row in `snapshot.tasks` of each task of the problem."""
    movable: Bools
    move_costs: Floats
    """What each move costs: bytes of its state and of the records that wait meanwhile."""


def running(snapshot: Snapshot, traffic: MeasuredTraffic, options: PlacementOptions) -> Running:
    """The problem of placing what runs. What runs always fits: a node may stay as full as it is.

    Nodes that start or leave take no task, and the runtime itself brings the tasks of a leaving one away.

    On a runtime of micro-batches an unmovable task has no place of its own (Spark runs it where it likes), so only
    state partitions are placed. Its stages follow one another, each over all nodes: what must be even is not the sum
    of all tasks but each operator's work, so every operator is a resource of which a node holds its share. State must
    fit the memory of nodes, where both are known.
    Elsewhere tasks run side by side and share a node's cores (and memory, where state has a size).
    """
    tasks, nodes = snapshot.tasks, snapshot.nodes
    batches = snapshot.batches is not None
    stateful = np.array([o.is_stateful for o in snapshot.dataflow.operators], np.bool_)[tasks.operator]
    closed = ~nodes.ready | nodes.draining
    placed = (tasks.node >= 0) & ~closed[tasks.node]
    rows = np.flatnonzero(placed & stateful if batches else placed)
    movable = stateful[rows] if batches or options.moves == "stateful" else np.ones(len(rows), np.bool_)
    node, operators = tasks.node[rows], tasks.operator[rows]
    loads, capacities, resources = (_shares if batches else _cores)(snapshot, rows, options)
    full = np.zeros_like(capacities)
    np.add.at(full, node, loads)
    capacities = np.maximum(np.where(closed[:, None], 0.0, capacities), full)
    sources, targets, rates = traffic.between(snapshot, rows)
    through = np.bincount(sources, rates, len(rows)) + np.bincount(targets, rates, len(rows))
    costs = tasks.state_bytes[rows] + options.pause_s * snapshot.pause_factor * through
    # No saving pays for a task that cannot move.
    costs = np.where(movable, costs, options.horizon_s * (1.0 + 2.0 * rates.sum()))
    problem = placement_problem(
        loads=loads,
        capacities=capacities,
        sources=sources,
        targets=targets,
        rates=rates,
        operators=operators,
        running=node,
        task_ids=[snapshot.task_id(row) for row in rows.tolist()],
        node_ids=nodes.ids,
        resources=resources,
        hosts=np.unique(nodes.hosts, return_inverse=True)[1],
    )
    return Running(problem=problem, rows=rows, movable=movable, move_costs=costs)


def _cores(
    snapshot: Snapshot, rows: Ints, options: PlacementOptions
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Reference cores that tasks use and nodes have; bytes of state and memory where both are known."""
    tasks, nodes = snapshot.tasks, snapshot.nodes
    speed = np.where(nodes.speed > 0, nodes.speed, 1.0)
    # A task without metrics counts as one full core (quality-of-data.txt, section 4).
    cpu = np.where(tasks.known[rows], tasks.cpu[rows] * speed[tasks.node[rows]], 1.0)
    cores = options.utilisation * nodes.available_cpu * speed
    state = tasks.state_bytes[rows]
    if not (np.any(state > 0) and np.all(nodes.memory_bytes > 0)):
        return cpu[:, None], cores[:, None], ("cpu",)
    return np.stack([cpu, state], 1), np.stack([cores, nodes.memory_bytes], 1), ("cpu", "memory")


def _shares(
    snapshot: Snapshot, rows: Ints, options: PlacementOptions
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """One resource per operator: a task has its part of the operator's work, a node its share by cores.

    What is even depends on the grain. Tasks that weigh the same are shared out by number, rounded up; of others a node
    may hold what handing them out one by one to the emptiest node leads to at most: its share and most of the largest.
    """
    tasks, nodes = snapshot.tasks, snapshot.nodes
    kinds, which = np.unique(tasks.operator[rows], return_inverse=True)
    loads = np.zeros((len(rows), max(1, len(kinds))))
    loads[np.arange(len(rows)), which] = _weights(snapshot, rows, which)
    cores = np.where(nodes.ready & ~nodes.draining, nodes.cores, 0.0)
    share = cores / cores.sum() if cores.sum() > 0 else cores
    even = (1 + options.uneven) * share[:, None] * loads.sum(axis=0)[None, :]
    largest = loads.max(axis=0, initial=0.0)
    alike = np.all((loads == 0) | (loads == largest), axis=0)
    grain = np.where(alike & (largest > 0), largest, 1.0)
    rest = 1.0 - 1.0 / max(1, int(np.count_nonzero(cores)))
    limits = np.where(alike, np.ceil(even / grain - 1e-9) * grain, even + rest * largest)
    names = tuple(str(snapshot.dataflow.operators[k].id) for k in kinds.tolist()) or ("cpu",)
    state = np.where(tasks.state_known[rows], tasks.state_bytes[rows], 0.0)
    if not (np.any(state > 0) and np.all(nodes.memory_bytes > 0)):
        return loads, limits, names
    memory = nodes.memory_bytes.astype(np.float64)[:, None]
    return np.concatenate([loads, state[:, None]], 1), np.concatenate([limits, memory], 1), (*names, "memory")


def _weights(snapshot: Snapshot, rows: Ints, which: Ints) -> Floats:
    """What each task works beside the mean of its operator, in steps of `GRAIN`: less is the noise of a batch.

    Work is time on a node of reference speed. One that nobody measured counts as the mean.
    """
    tasks, nodes = snapshot.tasks, snapshot.nodes
    speed = np.where(nodes.speed > 0, nodes.speed, 1.0)
    known = tasks.known[rows] & (tasks.busy_s[rows] > 0)
    work = np.where(known, tasks.busy_s[rows] * speed[tasks.node[rows]], 0.0)
    count = max(1, int(which.max(initial=-1)) + 1)
    mean = np.bincount(which, work, count) / np.maximum(np.bincount(which[known], minlength=count), 1)
    relative = np.where(known, work / np.where(mean > 0, mean, 1.0)[which], 1.0)
    return np.asarray(np.maximum(GRAIN, np.round(relative / GRAIN) * GRAIN))


def _codes(snapshot: Snapshot) -> Ints:
    tasks = snapshot.tasks
    return (tasks.operator.astype(np.int64) << INDEX_BITS) | tasks.index.astype(np.int64)


def _found(known: Ints, order: Ints, wanted: Ints) -> Ints:
    """Position of each wanted code, -1 where it is not among the known ones (sorted, at `order`)."""
    if not len(known):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, order[at], -1)
