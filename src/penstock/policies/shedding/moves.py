"""Which tasks leave a node whose minima do not fit, and where they go (section 5.1 of the paper)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.telemetry.moments import totals

FITS = 1e-9
"""Cores: sums of many floats that differ by less are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Relocation:
    """Tasks to move (rows), their new nodes, and how many cores of minima still lack room on each node."""

    tasks: Ints
    targets: Ints
    short: Floats


def relocate(
    *,
    node: Ints,
    minimum: Floats,
    priority: Ints,
    movable: Bools,
    available: Floats,
    reserved: Floats,
    sheltered: Bools,
    open_to_tasks: Bools,
    seed: int,
) -> Relocation:
    """Moves after which the minima fit wherever that is possible without moving anything twice.

    `minimum` is what each task needs, its minReqCpu or more; `reserved` the cores that tasks of unknown need may come
    to use; a node that is `sheltered` (one of its tasks is warming up) is left in peace. Whatever finds no node with
    room stays.
    """
    placed = node >= 0
    needed = totals(node[placed], minimum[placed], len(available))
    short = np.clip(needed - available, 0.0, None)
    short[short <= FITS] = 0.0
    crowded = np.flatnonzero((short > 0) & ~sheltered)
    if not len(crowded):
        return Relocation(np.zeros(0, np.int64), np.zeros(0, np.int64), short)
    by_node = np.argsort(node, kind="stable")
    starts = np.searchsorted(node[by_node], np.arange(len(available) + 1))
    leaving = []
    for n in crowded:
        rows = by_node[starts[n] : starts[n + 1]]
        rows = rows[movable[rows] & (minimum[rows] > 0)]
        leaving.append(rows[choose(float(short[n]), priority[rows], minimum[rows])])
    candidates = np.concatenate(leaving)
    # Important and large ones first: they are the hardest to place.
    candidates = candidates[np.lexsort((-minimum[candidates], -priority[candidates]))]
    free = np.where(open_to_tasks & (short <= 0), available - needed - reserved, 0.0)
    tasks, targets = _place(candidates, minimum, free, seed)
    needed -= totals(node[tasks], minimum[tasks], len(available))
    needed += totals(targets, minimum[tasks], len(available))
    short = np.clip(needed - available, 0.0, None)
    short[short <= FITS] = 0.0
    return Relocation(tasks, targets, short)


def choose(release: float, priority: Ints, minimum: Floats) -> Ints:
    """Positions of the tasks that leave to free at least `release` cores: of low priority, and small.

    First from the lowest priority up until enough would be freed; then, from the highest priority and the largest need
    down, those are spared without whom it is still enough. (The paper's listing walks priorities downwards and returns
    a name it never sets; its text and its results are as here.)
    """
    order = np.lexsort((minimum, priority))
    ranked = priority[order]
    last = int(np.searchsorted(np.cumsum(minimum[order]), release - FITS))
    # All of the priority at which it becomes enough.
    candidates = order[ranked <= ranked[min(last, len(ranked) - 1)]] if len(order) else order
    freed = float(minimum[candidates].sum())
    chosen = []
    for i in candidates[::-1].tolist():
        if freed - minimum[i] >= release - FITS:
            freed -= float(minimum[i])
        else:
            chosen.append(i)
    return np.array(chosen, np.int64)


def _place(tasks: Ints, minimum: Floats, free: Floats, seed: int) -> tuple[Ints, Ints]:
    """Each task to the node with the most free cores, ties by seeded chance, if it has room."""
    chance = np.random.default_rng(seed).permutation(len(free))
    heap = [(-float(free[n]), int(chance[n]), int(n)) for n in np.flatnonzero(free > 0)]
    heapq.heapify(heap)
    rows, targets = [], []
    for row in tasks.tolist():
        if heap and -heap[0][0] >= minimum[row] - FITS:
            negative, tie, n = heap[0]
            heapq.heapreplace(heap, (negative + float(minimum[row]), tie, n))
            rows.append(row)
            targets.append(n)
    return np.array(rows, np.int64), np.array(targets, np.int64)
