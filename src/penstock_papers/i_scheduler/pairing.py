"""Pairs of tasks into bins, heaviest stream first: the rule both phases of OLS share.

Plain loops that Numba compiles for large problems: every pair looks at every bin.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import register_jitable

from penstock.policies.placement.problem import UNPLACED, Assignment, Floats, Ints, PlacementProblem

COMPILE_ABOVE_TASKS = 150


def paired(problem: PlacementProblem, limits: Floats, most: int) -> Assignment:
    """[tasks] bin of each task, UNPLACED where none has room; a bin holds `limits[b]` and at most `most` tasks.

    A pair that is new goes together into the least loaded bin, or apart if none takes both. If one of them is
    placed already, all combinations of their bins and the least loaded one are compared, and the one with the
    least traffic between bins is taken.
    """
    rows = problem.adjacency
    ends = np.repeat(np.arange(problem.tasks), np.diff(rows.indptr))
    once = ends < rows.indices
    order = np.argsort(-rows.data[once], kind="stable")
    pair_up = _pair_up_compiled if problem.tasks > COMPILE_ABOVE_TASKS else _pair_up
    result: Assignment = pair_up(
        ends[once][order],
        rows.indices[once][order].astype(np.int64),
        rows.data[once][order],
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int64),
        rows.data,
        problem.loads,
        limits.copy(),
        most,
    )
    return result


@register_jitable
def _room(load: Floats, free: Floats) -> bool:
    for r in range(len(load)):  # noqa: SIM110 - a generator would not compile
        if load[r] > free[r]:
            return False
    return True


@register_jitable
def _least_loaded(load: Floats, tasks: int, free: Floats, limits: Floats, count: Ints, most: int) -> int:
    best, lowest = UNPLACED, np.inf
    for b in range(len(count)):
        if count[b] + tasks > most or not _room(load, free[b]):
            continue
        used = 0.0
        for r in range(limits.shape[1]):
            if limits[b, r] > 0.0:
                used = max(used, 1.0 - free[b, r] / limits[b, r])
        if used < lowest:
            best, lowest = b, used
    return best


@register_jitable
def _put(
    task: int, bin_: int, sign: int, loads: Floats, result: Assignment, free: Floats, count: Ints
) -> None:
    if bin_ == UNPLACED:
        return
    result[task] = bin_ if sign > 0 else UNPLACED
    count[bin_] += sign
    for r in range(loads.shape[1]):
        free[bin_, r] -= sign * loads[task, r]


@register_jitable
def _kept(task: int, bin_: int, starts: Ints, peers: Ints, rates: Floats, result: Assignment) -> float:
    total = 0.0
    for e in range(starts[task], starts[task + 1]):
        if result[peers[e]] == bin_:
            total += rates[e]
    return total


def _pair_up(
    first: Ints,
    second: Ints,
    between: Floats,
    starts: Ints,
    peers: Ints,
    rates: Floats,
    loads: Floats,
    limits: Floats,
    most: int,
) -> Assignment:
    tasks = len(loads)
    free, count = limits.copy(), np.zeros(len(limits), dtype=np.int64)
    result = np.full(tasks, UNPLACED, dtype=np.int64)
    options = np.empty(3, dtype=np.int64)
    for e in range(len(first)):
        a, b = first[e], second[e]
        at_a, at_b = result[a], result[b]
        if at_a == UNPLACED and at_b == UNPLACED:
            both = _least_loaded(loads[a] + loads[b], 2, free, limits, count, most)
            _put(
                a,
                both if both >= 0 else _least_loaded(loads[a], 1, free, limits, count, most),
                1,
                loads,
                result,
                free,
                count,
            )
            _put(
                b,
                both if both >= 0 else _least_loaded(loads[b], 1, free, limits, count, most),
                1,
                loads,
                result,
                free,
                count,
            )
            continue
        extra = _least_loaded(np.maximum(loads[a], loads[b]), 1, free, limits, count, most)
        known = 0
        for option in (at_a, at_b, extra):
            new = option != UNPLACED
            for i in range(known):
                new = new and options[i] != option
            if new:
                options[known] = option
                known += 1
        _put(a, at_a, -1, loads, result, free, count)
        _put(b, at_b, -1, loads, result, free, count)
        best_a, best_b, best = at_a, at_b, -1.0
        for i in range(known):
            for j in range(known):
                x, y = options[i], options[j]
                if x == y:
                    if count[x] + 2 > most or not _room(loads[a] + loads[b], free[x]):
                        continue
                elif (
                    count[x] >= most
                    or count[y] >= most
                    or not _room(loads[a], free[x])
                    or not _room(loads[b], free[y])
                ):
                    continue
                kept = _kept(a, x, starts, peers, rates, result) + _kept(b, y, starts, peers, rates, result)
                if x == y:
                    kept += between[e]
                if kept > best:
                    best_a, best_b, best = x, y, kept
        _put(a, best_a, 1, loads, result, free, count)
        _put(b, best_b, 1, loads, result, free, count)
    for task in range(tasks):
        if result[task] == UNPLACED:
            _put(
                task, _least_loaded(loads[task], 1, free, limits, count, most), 1, loads, result, free, count
            )
    return result


_pair_up_compiled = njit(cache=True)(_pair_up)
