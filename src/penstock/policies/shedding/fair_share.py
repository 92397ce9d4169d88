"""Hand out CPU by priority, evenly within one, until every sink meets a node that is full.

The paper walks machines by slack and splits each one's CPU evenly among its instances. A grant on one machine is then
wasted where another machine holds the same sink lower, and an operator shared by two priorities takes CPU for the
lower one at the rank of the higher. Progressive filling has neither fault: all sinks of a priority rise together, and
each stops at the first node that is full. (Max-min fairness: Bertsekas and Gallager, Data Networks, section 6.5.2.)

The common level μ is CPU beyond the minimum, in cores, of an application's most demanding task: applications share
evenly and small ones are satisfied first. Within an application all sinks of a priority give up the same share of what
they may lose: a_q = lo_q + (1 - lo_q)·μ/F, F being what the most demanding task lacks. These lines never cross: the
accuracy of a shared operator, the highest of its sinks, follows the sink with the highest `lo` until that one stops.
"""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit

from penstock.arrays import Floats, Ints

EPSILON = 1e-12
"""Cores, or cores per μ, that count as nothing."""
CAP, WAKE, FULL = 0, 1, 2  # a sink has all it may have; an operator begins to rise; a node is full


@njit(cache=True)
def upstream_of(sinks: Ints, starts: Ints, above: Ints, count: int) -> tuple[Ints, Ints]:
    """(starts, operators): for each sink, itself and all operators upstream; `above` lists those next to each."""
    seen = np.full(count, -1)
    found_at = np.zeros(len(sinks) + 1, np.int64)
    found = [0 for _ in range(0)]
    for q in range(len(sinks)):
        seen[sinks[q]] = q
        found.append(sinks[q])
        at = found_at[q]
        while at < len(found):
            for e in range(starts[found[at]], starts[found[at] + 1]):
                if seen[above[e]] != q:
                    seen[above[e]] = q
                    found.append(above[e])
            at += 1
        found_at[q + 1] = at
    return found_at, np.array(found, np.int64)


@njit(cache=True)
def _bend(node: int, by: float, now: float, used: Floats, slope: Floats, since: Floats) -> None:
    """Book what a node used since its slope last changed, and change it."""
    used[node] += slope[node] * (now - since[node])
    since[node] = now
    slope[node] += by


@njit(cache=True)
def fill(
    groups: Ints,  # where each priority begins in the sinks, which are sorted by priority and then `lo`, descending
    lo: Floats,
    hi: Floats,
    application: Ints,  # of each sink
    up_at: Ints,  # sink -> operators
    up: Ints,
    down_at: Ints,  # operator -> sinks, ascending, that is by priority and then `lo`, descending
    down: Ints,
    task_at: Ints,  # operator -> tasks on nodes
    task_node: Ints,
    task_slope: Floats,
    node_at: Ints,  # node -> operators with a task there
    node_operator: Ints,
    node_slope: Floats,
    used: Floats,  # CPU of each node with every sink at `lo`; changed in place
    available: Floats,
) -> tuple[Floats, Ints]:
    """Accuracy of every sink, and the node that stopped each (-1: none)."""
    sinks, operators, nodes = len(lo), len(task_at) - 1, len(used)
    got, stopped_by = lo.copy(), np.full(sinks, -1)
    growing = np.zeros(sinks, np.bool_)
    level_of = np.zeros(operators)  # accuracy of an operator while it does not rise
    for q in range(sinks):
        for e in range(up_at[q], up_at[q + 1]):
            level_of[up[e]] = max(level_of[up[e]], lo[q])
    largest = np.zeros(operators)
    for t in range(operators):
        for k in range(task_at[t], task_at[t + 1]):
            largest[t] = max(largest[t], task_slope[k])
    first = down_at[:-1].copy()  # position of an operator's highest growing sink
    rate = np.zeros(operators)  # accuracy per μ
    slope, since = np.zeros(nodes), np.zeros(nodes)
    due = np.empty(nodes)  # when a node is to be looked at: never after it is full
    steeper = np.zeros(nodes, np.bool_)
    lacking = np.zeros(application.max() + 1 if sinks else 0)

    for g in range(len(groups) - 1):
        begin, end = groups[g], groups[g + 1]
        events = [(0.0, 0, 0) for _ in range(0)]
        changed = [0 for _ in range(0)]
        slope[:] = 0.0
        since[:] = 0.0
        due[:] = np.inf
        for q in range(begin, end):
            growing[q] = hi[q] > lo[q]
            lacking[application[q]] = 0.0
        for q in range(begin, end):
            if growing[q]:
                for e in range(up_at[q], up_at[q + 1]):
                    t = up[e]
                    f = first[t]
                    while f < down_at[t + 1] and (down[f] < begin or not growing[down[f]]):
                        f += 1
                    first[t] = f
                    lack = largest[t] * (1.0 - lo[down[f]])
                    lacking[application[q]] = max(lacking[application[q]], lack)
        for q in range(begin, end):
            if lacking[application[q]] <= 0.0:
                lacking[application[q]] = 1.0  # needs nothing: any level will do
        for q in range(begin, end):
            if growing[q]:
                f_q = lacking[application[q]]
                heapq.heappush(events, (f_q * (hi[q] - lo[q]) / (1.0 - lo[q]), CAP, q))
                for e in range(up_at[q], up_at[q + 1]):
                    t = up[e]
                    if down[first[t]] == q:
                        wake = f_q * (level_of[t] - lo[q]) / (1.0 - lo[q])
                        heapq.heappush(events, (wake, WAKE, t))

        while len(events):
            now, kind, item = heapq.heappop(events)
            stopping = [0 for _ in range(0)]
            if kind == CAP:
                if growing[item]:
                    growing[item] = False
                    got[item] = hi[item]
                    stopping.append(item)
            elif kind == WAKE:
                if rate[item] == 0.0 and first[item] < down_at[item + 1]:
                    q = down[first[item]]
                    f_q = lacking[application[q]]
                    if growing[q] and f_q * (level_of[item] - lo[q]) / (1.0 - lo[q]) <= now:
                        rate[item] = (1.0 - lo[q]) / f_q
                        for k in range(task_at[item], task_at[item + 1]):
                            n = task_node[k]
                            _bend(n, rate[item] * task_slope[k], now, used, slope, since)
                            if not steeper[n]:
                                steeper[n] = True
                                changed.append(n)
            elif now == due[item]:
                due[item] = np.inf
                left = available[item] - used[item] - slope[item] * (now - since[item])
                if slope[item] <= EPSILON:
                    continue
                full = now + left / slope[item]
                if left > EPSILON * max(1.0, available[item]) and full > now:
                    due[item] = full  # some that used it have stopped elsewhere
                    heapq.heappush(events, (full, FULL, item))
                    continue
                for k in range(node_at[item], node_at[item + 1]):
                    t = node_operator[k]
                    if rate[t] > 0.0 and node_slope[k] > 0.0:
                        q = down[first[t]]
                        if growing[q]:
                            growing[q] = False
                            got[q] = min(lo[q] + (1.0 - lo[q]) * now / lacking[application[q]], hi[q])
                            stopped_by[q] = item
                            stopping.append(q)
            for q in stopping:
                for e in range(up_at[q], up_at[q + 1]):
                    t = up[e]
                    if first[t] >= down_at[t + 1] or down[first[t]] != q:
                        continue  # another sink decides about this operator
                    if rate[t] > 0.0:
                        for k in range(task_at[t], task_at[t + 1]):
                            _bend(task_node[k], -rate[t] * task_slope[k], now, used, slope, since)
                        level_of[t] = max(level_of[t], got[q])
                        rate[t] = 0.0
                    f = first[t]
                    while f < down_at[t + 1] and down[f] < end and not growing[down[f]]:
                        f += 1
                    first[t] = f
                    if f < down_at[t + 1] and down[f] < end:
                        r = down[f]
                        wake = lacking[application[r]] * (level_of[t] - lo[r]) / (1.0 - lo[r])
                        heapq.heappush(events, (max(wake, now), WAKE, t))
            if len(changed) and (not len(events) or events[0][0] > now or events[0][1] != WAKE):
                for n in changed:
                    steeper[n] = False
                    if slope[n] > EPSILON:
                        full = now + max(available[n] - used[n], 0.0) / slope[n]
                        if full < due[n]:
                            due[n] = full
                            heapq.heappush(events, (full, FULL, n))
                changed.clear()
    return got, stopped_by
