"""Which computations move where, chosen together for a whole imbalance.

One move after another is tried on a picture of the cluster: the hottest node gives the computation whose leaving gains
most, to the node where it disturbs least, and the picture is brought up to date. It ends where no move gains enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.policies.interference.rings import Floats, Ints, RingShape
from penstock.policies.interference.scores import cost_of, heats, score

TARGETS = 12
"""Coolest nodes that a computation is tried on; the best one is among them unless its needs are very odd."""
NEGLIGIBLE = 0.05
"""Share of the highest score on a node below which moving a computation is not worth anybody's while."""
PASSES = 4
"""How often nodes that had nothing worth moving are looked at again."""
PARTS = 3
"""Windows into which each ring is gathered for choosing: whole rings are for scoring."""


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Rows of computations to move, their new nodes, and what it brings."""

    rows: Ints
    targets: Ints
    before: Floats
    """Score where it is."""
    after: Floats
    """Score where it goes, the pause included."""
    barren: NDArray[np.bool_]
    """[node]: sources from which no move gained enough."""


def gathered(shape: RingShape) -> tuple[Floats, Floats]:
    """([window, part], [part]): averages over neighbouring windows, and the weights of what they make."""
    edges, first = [0], 0
    for count in shape.windows:
        edges += [first + round(count * (k + 1) / PARTS) for k in range(PARTS)]
        first += count
    bounds = np.unique(np.array(edges))
    mean = np.zeros((shape.count, len(bounds) - 1))
    weights = np.zeros(len(bounds) - 1)
    for k, (a, b) in enumerate(pairwise(bounds.tolist())):
        mean[a:b, k] = 1.0 / (b - a)
        weights[k] = shape.weights[a:b].sum()
    return mean, weights


@cache
def compile_choice() -> None:
    """Have `choose` compiled: the cycle that first needs it has a hot node and no time to lose."""
    one, all_ = np.ones(1), np.ones(1, np.bool_)
    choose(
        rates=np.ones((1, 1)),
        needs=np.ones((1, 3)),
        state_bytes=one,
        pause_s=one,
        node=np.zeros(1, np.int64),
        operator=np.zeros(1, np.int64),
        movable=all_,
        loads=np.ones((1, 3, 1)),
        rooms=np.ones((1, 3)),
        full=np.ones(3),
        weights=one,
        sources=all_,
        targets=all_,
        amplifier=1,
        threshold=0.0,
        most=1,
        first_s=1.0,
    )


def choose(
    *,
    rates: Floats,
    needs: Floats,
    state_bytes: Floats,
    pause_s: Floats,
    node: Ints,
    operator: Ints,
    movable: NDArray[np.bool_],
    loads: Floats,
    rooms: Floats,
    full: Floats,
    weights: Floats,
    sources: NDArray[np.bool_],
    targets: NDArray[np.bool_],
    amplifier: int,
    threshold: float,
    most: int,
    first_s: float,
) -> Moves:
    """Moves as long as each lowers the interference of its computation by more than `threshold`, pause included.

    Windows here are parts (see `gathered`), the first of `first_s` seconds; memory is the last resource, whose needs
    are `state_bytes` whatever the rate.
    """
    rows = np.flatnonzero(movable & (node >= 0))
    rows = rows[sources[node[rows]]]
    order = rows[np.argsort(node[rows], kind="stable")]
    starts = np.searchsorted(node[order], np.arange(len(loads) + 1))
    chosen, to, before, after, count, barren = _choose(
        rates, needs, state_bytes, pause_s, operator, order, starts, loads.copy(), rooms, full, weights,
        sources.copy(), targets, amplifier, threshold, most, first_s,
    )  # fmt: skip
    return Moves(chosen[:count], to[:count], before[:count], after[:count], barren)


@njit(cache=True, nogil=True)
def _placed(
    t: int,
    rates: Floats,
    needs: Floats,
    state: Floats,
    load: Floats,
    room: Floats,
    full: Floats,
    weights: Floats,
    n: int,
) -> float:
    """The score of a computation on a node that carries `load` besides it, its memory included."""
    total = score(rates[t], needs[t], load, room, full, weights, n)
    if state[t] > 0.0:
        m = len(load) - 1
        for p in range(len(weights)):
            before = load[m, p] * room[m]
            after = before + state[t] * room[m]
            total += (cost_of(after, full[m], n) - cost_of(before, full[m], n)) * weights[p]
    return total


@njit(cache=True, nogil=True)
def _shift(t: int, sign: float, rates: Floats, needs: Floats, state: Floats, load: Floats) -> None:
    for r in range(len(load)):
        for p in range(load.shape[1]):
            load[r, p] = max(0.0, load[r, p] + sign * rates[t, p] * needs[t, r])
    for p in range(load.shape[1]):
        load[len(load) - 1, p] = max(0.0, load[len(load) - 1, p] + sign * state[t])


@njit(cache=True, nogil=True)
def _choose(
    rates: Floats,
    needs: Floats,
    state: Floats,
    pause_s: Floats,
    operator: Ints,
    order: Ints,
    starts: Ints,
    loads: Floats,
    rooms: Floats,
    full: Floats,
    weights: Floats,
    sources: NDArray[np.bool_],
    targets: NDArray[np.bool_],
    n: int,
    threshold: float,
    most: int,
    first_s: float,
) -> tuple[Ints, Ints, Floats, Floats, int, NDArray[np.bool_]]:
    rows, to = np.empty(most, np.int64), np.empty(most, np.int64)
    gains_before, gains_after = np.empty(most), np.empty(most)
    heat = heats(loads, rooms, full, weights, n)
    barren = np.zeros(len(loads), np.bool_)
    gone = np.zeros(len(rates), np.bool_)
    memory = loads.shape[1] - 1
    kinds = operator.max() + 1 if len(operator) else 0
    there, given = np.zeros((len(loads), kinds)), np.zeros((len(loads), kinds))
    for k in range(len(loads)):
        for t in order[starts[k] : starts[k + 1]]:
            there[k, operator[t]] += 1.0 if rates[t].max() > 0.0 else 0.0
    best, to_node = np.empty(kinds, np.int64), np.empty(kinds, np.int64)
    gains, owns, others = np.empty(kinds), np.empty(kinds), np.empty(kinds)
    count, counted, passes, allowed = 0, 0, 0, sources.copy()
    while count < most:
        hottest = -1
        for k in range(len(loads)):
            if sources[k] and (hottest < 0 or heat[k] > heat[hottest]):
                hottest = k
        if hottest < 0:
            # What gained nothing at first may do so now that others have moved.
            passes += 1
            if count == counted or passes == PASSES:
                break
            counted = count
            sources[:] = allowed
            continue
        coolest = np.argsort(np.where(targets, heat, np.inf))[:TARGETS]
        here = order[starts[hottest] : starts[hottest + 1]]
        here = here[~gone[here]]
        own = np.empty(len(here))
        for i in range(len(here)):
            t = here[i]
            _shift(t, -1.0, rates, needs, state, loads[hottest])
            own[i] = _placed(t, rates, needs, state, loads[hottest], rooms[hottest], full, weights, n)
            _shift(t, 1.0, rates, needs, state, loads[hottest])
        best[:], gains[:], to_node[:] = -1, 0.0, -1
        least = NEGLIGIBLE * own.max() if len(own) else 0.0
        for i in range(len(here)):
            t = here[i]
            if own[i] <= least:
                continue
            for k in coolest:
                if not targets[k] or k == hottest:
                    continue
                if state[t] > 0.0 and (loads[k, memory, 0] + state[t]) * rooms[k, memory] > 1.0:
                    continue  # its state does not fit there
                other = _placed(t, rates, needs, state, loads[k], rooms[k], full, weights, n)
                # What is held back during the pause is played at once: load on top, in the first window.
                for r in range(memory):
                    use = loads[k, r, 0] * rooms[k, r]
                    late = rates[t, 0] * needs[t, r] * rooms[k, r] * pause_s[t] / first_s
                    other += (cost_of(use + late, full[r], n) - cost_of(use, full[r], n)) * weights[0]
                gain = own[i] - other
                kind = operator[t]
                if gain > threshold * own[i] and gain > gains[kind]:
                    gains[kind], best[kind], to_node[kind] = gain, t, k
                    owns[kind], others[kind] = own[i], other
        which = -1
        for kind in range(kinds):
            # Of the operators in turn, in proportion to what each has here. If the largest left first, what stays would
            # use resources in other proportions than what the other nodes have left.
            if best[kind] >= 0 and (
                which < 0
                or given[hottest, kind] * there[hottest, which] < given[hottest, which] * there[hottest, kind]
            ):
                which = kind
        if which < 0:
            sources[hottest] = False
            barren[hottest] = True
            continue
        barren[hottest] = False
        t, k = best[which], to_node[which]
        _shift(t, -1.0, rates, needs, state, loads[hottest])
        _shift(t, 1.0, rates, needs, state, loads[k])
        gone[t] = True
        given[hottest, which] += 1.0
        rows[count], to[count] = t, k
        gains_before[count], gains_after[count] = owns[which], others[which]
        count += 1
        for k in (hottest, to_node[which]):
            heat[k] = heats(loads[k : k + 1], rooms[k : k + 1], full, weights, n)[0]
    return rows, to, gains_before, gains_after, count, barren
