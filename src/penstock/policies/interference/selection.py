"""Which computations move where, chosen together for a whole imbalance.

One move after another is tried on a picture of the cluster: the hottest node gives the computation whose leaving gains
most, to the node where it disturbs least, and the picture is brought up to date. It ends where no move gains enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.policies.interference.rings import Floats, Ints, RingShape
from penstock.policies.interference.scores import heats, power_of, score

TARGETS = 12
"""Coolest nodes that a computation is tried on; the best one is among them unless its needs are very odd."""
CANDIDATES = 48
"""Computations of a node that are looked at for one move: those with the highest scores."""
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


def choose(
    *,
    rates: Floats,
    needs: Floats,
    state_bytes: Floats,
    pause_s: Floats,
    node: Ints,
    movable: NDArray[np.bool_],
    loads: Floats,
    rooms: Floats,
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
        rates, needs, state_bytes, pause_s, order, starts, loads.copy(), rooms, weights,
        sources.copy(), targets, amplifier, threshold, most, first_s,
    )  # fmt: skip
    return Moves(chosen[:count], to[:count], before[:count], after[:count], barren)


@njit(cache=True, nogil=True)
def _placed(
    t: int, rates: Floats, needs: Floats, state: Floats, load: Floats, room: Floats, weights: Floats, n: int
) -> float:
    """The score of a computation on a node that carries `load` besides it, its memory included."""
    total = score(rates[t], needs[t], load, room, weights, n)
    if state[t] > 0.0:
        m = len(load) - 1
        for p in range(len(weights)):
            before = load[m, p] * room[m]
            total += (power_of(before + state[t] * room[m], n) - power_of(before, n)) * weights[p]
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
    order: Ints,
    starts: Ints,
    loads: Floats,
    rooms: Floats,
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
    heat = heats(loads, rooms, weights, n)
    barren = np.zeros(len(loads), np.bool_)
    gone = np.zeros(len(rates), np.bool_)
    memory = loads.shape[1] - 1
    count = 0
    while count < most:
        hottest = -1
        for k in range(len(loads)):
            if sources[k] and (hottest < 0 or heat[k] > heat[hottest]):
                hottest = k
        if hottest < 0:
            break
        coolest = np.argsort(np.where(targets, heat, np.inf))[:TARGETS]
        here = order[starts[hottest] : starts[hottest + 1]]
        here = here[~gone[here]]
        own = np.empty(len(here))
        for i in range(len(here)):
            t = here[i]
            _shift(t, -1.0, rates, needs, state, loads[hottest])
            own[i] = _placed(t, rates, needs, state, loads[hottest], rooms[hottest], weights, n)
            _shift(t, 1.0, rates, needs, state, loads[hottest])
        best_gain, best, best_to, best_own, best_other = 0.0, -1, -1, 0.0, 0.0
        ranked = np.argsort(-own)[:CANDIDATES]
        for i in ranked:
            t = here[i]
            if own[i] <= best_gain:
                break
            for k in coolest:
                if not targets[k] or k == hottest:
                    continue
                if state[t] > 0.0 and (loads[k, memory, 0] + state[t]) * rooms[k, memory] > 1.0:
                    continue  # its state does not fit there
                other = _placed(t, rates, needs, state, loads[k], rooms[k], weights, n)
                # What is held back during the pause is played at once: load on top, in the first window.
                for r in range(memory):
                    use = loads[k, r, 0] * rooms[k, r]
                    late = rates[t, 0] * needs[t, r] * rooms[k, r] * pause_s[t] / first_s
                    other += (power_of(use + late, n) - power_of(use, n)) * weights[0]
                gain = own[i] - other
                if gain > threshold * own[i] and gain > best_gain:
                    best_gain, best, best_to, best_own, best_other = gain, t, k, own[i], other
        if best < 0:
            sources[hottest] = False
            barren[hottest] = True
            continue
        _shift(best, -1.0, rates, needs, state, loads[hottest])
        _shift(best, 1.0, rates, needs, state, loads[best_to])
        gone[best] = True
        for k in (hottest, best_to):
            heat[k] = heats(loads[k : k + 1], rooms[k : k + 1], weights, n)[0]
        rows[count], to[count] = best, best_to
        gains_before[count], gains_after[count] = best_own, best_other
        count += 1
    return rows, to, gains_before, gains_after, count, barren
