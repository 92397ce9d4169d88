"""Which computations move where, chosen together for a whole imbalance.

One move after another is tried on a picture of the cluster: the hottest node gives the computation whose leaving gains
most, to the node where it disturbs least, and the picture is brought up to date. It ends where no move gains enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.arrays import Floats, Ints
from penstock.policies.interference.rings import RingShape
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


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Rings gathered into few windows."""

    mean: Floats
    """[window, part]: averages over neighbouring windows."""
    weights: Floats
    """[part]"""
    inner: int
    """Parts of the innermost ring."""
    first_s: float
    """How long the first part is."""


@cache
def gathered(shape: RingShape) -> Parts:
    """Each ring in `PARTS` parts, or as many as it has windows."""
    edges, first = [0], 0
    for count in shape.windows:
        edges += [first + round(count * (k + 1) / PARTS) for k in range(PARTS)]
        first += count
    bounds = np.unique(np.array(edges)).tolist()
    mean = np.zeros((shape.count, len(bounds) - 1))
    weights = np.zeros(len(bounds) - 1)
    for k, (a, b) in enumerate(pairwise(bounds)):
        mean[a:b, k] = 1.0 / (b - a)
        weights[k] = shape.weights[a:b].sum()
    return Parts(mean, weights, bounds.index(shape.inner), float(shape.edges_s[bounds[1]]))


class Picture(NamedTuple):
    """What moves are chosen on. Windows are parts (see `gathered`), the first of `first_s` seconds."""

    rates: Floats
    """[computation, window]"""
    needs: Floats
    """[computation, resource]; memory is the last resource, whose needs are `state_bytes` whatever the rate."""
    state_bytes: Floats
    pause_s: Floats
    operator: Ints
    loads: Floats
    """[node, resource, window]"""
    rooms: Floats
    """[node, resource]"""
    full: Floats
    """[resource]"""
    weights: Floats
    """[window]"""
    amplifier: int
    threshold: float
    first_s: float


def choose(
    picture: Picture,
    node: Ints,
    movable: NDArray[np.bool_],
    *,
    sources: NDArray[np.bool_],
    targets: NDArray[np.bool_],
    most: int,
) -> Moves:
    """Moves as long as each lowers the interference of its computation by more than the threshold, pause included."""
    rows = np.flatnonzero(movable & (node >= 0))
    rows = rows[sources[node[rows]]]
    order = rows[np.argsort(node[rows], kind="stable")]
    starts = np.searchsorted(node[order], np.arange(len(picture.loads) + 1))
    chosen, to, before, after, count, barren = _choose(picture, order, starts, sources, targets, most)
    return Moves(chosen[:count], to[:count], before[:count], after[:count], barren)


@cache
def compile_choice() -> None:
    """Have `choose` compiled: the cycle that first needs it has a hot node and no time to lose."""
    ones, yes = np.ones((1, 3, 1)), np.ones(1, np.bool_)
    picture = Picture(
        rates=ones[0, :1].copy(),
        needs=ones[:, :, 0].copy(),
        state_bytes=np.ones(1),
        pause_s=np.ones(1),
        operator=np.zeros(1, np.int64),
        loads=ones,
        rooms=ones[:, :, 0].copy(),
        full=np.ones(3),
        weights=np.ones(1),
        amplifier=1,
        threshold=0.0,
        first_s=1.0,
    )
    choose(picture, np.zeros(1, np.int64), yes, sources=yes, targets=yes, most=1)


@njit(cache=True, nogil=True)
def _placed(t: int, p: Picture, load: Floats, room: Floats) -> float:
    """The score of a computation on a node that carries `load` besides it, its memory included."""
    n, state = p.amplifier, p.state_bytes[t]
    total = score(p.rates[t], p.needs[t], load, room, p.full, p.weights, n)
    if state > 0.0:
        m = len(load) - 1
        for w in range(len(p.weights)):
            before = load[m, w] * room[m]
            after = before + state * room[m]
            total += (cost_of(after, p.full[m], n) - cost_of(before, p.full[m], n)) * p.weights[w]
    return total


@njit(cache=True, nogil=True)
def _late(t: int, p: Picture, load: Floats, room: Floats) -> float:
    """What the pause of a move costs: records held back are played at once, load on top in the first window."""
    total = 0.0
    for r in range(len(load) - 1):
        use = load[r, 0] * room[r]
        late = p.rates[t, 0] * p.needs[t, r] * room[r] * p.pause_s[t] / p.first_s
        more = cost_of(use + late, p.full[r], p.amplifier) - cost_of(use, p.full[r], p.amplifier)
        total += more * p.weights[0]
    return total


@njit(cache=True, nogil=True)
def _shift(t: int, sign: float, p: Picture, load: Floats) -> None:
    for r in range(len(load)):
        for w in range(load.shape[1]):
            load[r, w] = max(0.0, load[r, w] + sign * p.rates[t, w] * p.needs[t, r])
    for w in range(load.shape[1]):
        load[len(load) - 1, w] = max(0.0, load[len(load) - 1, w] + sign * p.state_bytes[t])


@njit(cache=True, nogil=True)
def _choose(
    p: Picture,
    order: Ints,
    starts: Ints,
    allowed: NDArray[np.bool_],
    targets: NDArray[np.bool_],
    most: int,
) -> tuple[Ints, Ints, Floats, Floats, int, NDArray[np.bool_]]:
    loads, rooms, operator, sources = p.loads.copy(), p.rooms, p.operator, allowed.copy()
    rows, to = np.empty(most, np.int64), np.empty(most, np.int64)
    gains_before, gains_after = np.empty(most), np.empty(most)
    heat = heats(loads, rooms, p.full, p.weights, p.amplifier)
    barren = np.zeros(len(loads), np.bool_)
    gone = np.zeros(len(p.rates), np.bool_)
    memory = loads.shape[1] - 1
    kinds = operator.max() + 1 if len(operator) else 0
    there, given = np.zeros((len(loads), kinds)), np.zeros((len(loads), kinds))
    for k in range(len(loads)):
        for t in order[starts[k] : starts[k + 1]]:
            there[k, operator[t]] += 1.0 if p.rates[t].max() > 0.0 else 0.0
    best, to_node = np.empty(kinds, np.int64), np.empty(kinds, np.int64)
    gains, owns, others = np.empty(kinds), np.empty(kinds), np.empty(kinds)
    count, counted, passes = 0, 0, 0
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
            _shift(t, -1.0, p, loads[hottest])
            own[i] = _placed(t, p, loads[hottest], rooms[hottest])
            _shift(t, 1.0, p, loads[hottest])
        best[:], gains[:], to_node[:] = -1, 0.0, -1
        least = NEGLIGIBLE * own.max() if len(own) else 0.0
        for i in range(len(here)):
            t = here[i]
            if own[i] <= least:
                continue
            for k in coolest:
                if not targets[k] or k == hottest:
                    continue
                state = p.state_bytes[t]
                if state > 0.0 and (loads[k, memory, 0] + state) * rooms[k, memory] > 1.0:
                    continue  # its state does not fit there
                other = _placed(t, p, loads[k], rooms[k]) + _late(t, p, loads[k], rooms[k])
                gain = own[i] - other
                kind = operator[t]
                if gain > p.threshold * own[i] and gain > gains[kind]:
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
        _shift(t, -1.0, p, loads[hottest])
        _shift(t, 1.0, p, loads[k])
        gone[t] = True
        given[hottest, which] += 1.0
        rows[count], to[count] = t, k
        gains_before[count], gains_after[count] = owns[which], others[which]
        count += 1
        for k in (hottest, to_node[which]):
            heat[k] = heats(loads[k : k + 1], rooms[k : k + 1], p.full, p.weights, p.amplifier)[0]
    return rows, to, gains_before, gains_after, count, barren
