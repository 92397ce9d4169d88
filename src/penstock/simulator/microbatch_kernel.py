"""Micro-batches of several queries on shared executors, compiled: batches form, stages run, commits end them.

Time goes from one event of a query to the next: a trigger, the start of a stage, the end of a batch. Tasks of a stage
take the slot that is free first; tasks with state wait for the executor that holds it, as long as the locality wait
says. Nothing is preempted, and what starts first gets the slot first, as Spark's FIFO scheduling does it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.simulator.compiled import compiled
from penstock.simulator.draws import GOLDEN, mix, uniform

WAITING, STAGE, COMMIT = range(3)
"""What a query does next."""
POLL_S = 0.01
"""A query without data looks again after this long."""

# Columns of the log of batches.
QUERY, BATCH, BEGAN, ENDED, RECORDS, FIRST, BUSY, FIXED, LAST_COLUMN = range(9)


class Queries(NamedTuple):
    """The queries as they stand, an entry each."""

    due_s: Floats
    """When it does something next."""
    doing: Ints
    stage_at: Ints
    batch_id: Ints
    began_s: Floats
    in_batch: Floats
    """Records of the batch."""
    flowing: Floats
    """Of these, what has reached the stage."""
    busy_s: Floats
    fixed_s: Floats
    read: Floats
    """Records of all batches that ended."""
    plan_s: Floats
    stage_s: Floats
    commit_s: Floats
    trigger_s: Floats
    limit: Floats
    """Most records of a batch."""
    keep: Floats
    driver_cv: Floats
    task_cv: Floats
    batch_cv: Floats
    stage_first: Ints
    load_first: Ints
    """Of its load's points; `load_total_first` likewise, with one total more."""
    load_times: Floats
    load_rates: Floats
    load_totals: Floats
    load_total_first: Ints
    period_s: Floats
    record_s: Floats
    """From here on an entry for each stage."""
    task_s: Floats
    selectivity: Floats
    stateful: Bools
    part_first: Ints
    weights: Floats
    """From here on an entry for each partition."""
    place: Ints
    """The executor that holds its state, or -1."""
    wanted: Ints
    """Where it is to move, or -1."""
    restoring: Bools
    restore_s: Floats
    part_busy: Floats
    part_records: Floats


class Executors(NamedTuple):
    """The executors as they stand: an entry each, or for each of their slots."""

    slot_free: Floats
    slot_executor: Ints
    from_s: Floats
    gone_s: Floats
    warm_s: Floats
    busy_s: Floats
    speed: float
    """Of all of them."""
    wait_s: float
    cold_s: float
    cold_factor: float


@compiled
def produced(times: Floats, rates: Floats, totals: Floats, period_s: float, time_s: float) -> float:
    """Records that a load has produced by `time_s`; `totals[i]` are those before `times[i]`, the last of a period."""
    whole = 0.0
    if period_s < np.inf:
        turns = math.floor(time_s / period_s)
        whole = turns * totals[-1]
        time_s -= turns * period_s
    i = np.searchsorted(times, time_s, side="right") - 1
    return float(whole + totals[i] + rates[i] * (time_s - times[i]))


@compiled
def arrival_s(times: Floats, rates: Floats, totals: Floats, period_s: float, number: float) -> float:
    """When the record with this number came into being; infinite if it never does."""
    whole = 0.0
    if period_s < np.inf:
        if totals[-1] <= 0:
            return np.inf
        turns = math.floor(number / totals[-1])
        whole = turns * period_s
        number -= turns * totals[-1]
    i = np.searchsorted(totals[: len(times)], number, side="right") - 1
    while i < len(times) and rates[i] <= 0:
        i += 1
    if i >= len(times):
        return np.inf
    return float(whole + times[i] + max(0.0, number - totals[i]) / rates[i])


@compiled
def arrivals_s(
    times: Floats, rates: Floats, totals: Floats, period_s: float, numbers: Floats, into: Floats
) -> None:
    """`arrival_s` of many records."""
    for i in range(len(numbers)):
        into[i] = arrival_s(times, rates, totals, period_s, numbers[i])


@compiled
def _noise(cv: float, seed: int, a: int, b: int, c: int, d: int) -> float:
    """A factor of mean 1 (lognormal), the same for the same numbers however time is cut into pieces."""
    if cv <= 0:
        return 1.0
    bits = mix(np.uint64(seed) + GOLDEN)
    for part in (a, b, c, d):
        bits = mix(bits ^ (np.uint64(part) + GOLDEN))
    first, second = uniform(bits), uniform(mix(bits + GOLDEN))
    normal = math.sqrt(-2.0 * math.log(1.0 - first)) * math.cos(2.0 * math.pi * second)
    variance = math.log(1.0 + cv * cv)
    return math.exp(math.sqrt(variance) * normal - 0.5 * variance)


@compiled
def _before(keys: Floats, a: int, b: int) -> bool:
    """Whether slot `a` is taken before slot `b`: free earlier, or the first of equals."""
    return bool(keys[a] < keys[b] or (keys[a] == keys[b] and a < b))


@compiled
def _sink(heap: Ints, where: Ints, keys: Floats, at: int) -> None:
    """Restore the heap below a slot whose key has grown; `where[slot]` is its place in the heap."""
    slot = heap[at]
    while True:
        child = 2 * at + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and _before(keys, heap[child + 1], heap[child]):
            child += 1
        if not _before(keys, heap[child], slot):
            break
        heap[at] = heap[child]
        where[heap[at]] = at
        at = child
    heap[at] = slot
    where[slot] = at


@compiled
def _slot_heap(e: Executors, now_s: float, keys: Floats) -> tuple[Ints, Ints]:
    """Slots by when they can start a task, which goes into `keys`: the heap, and where each slot is in it."""
    for slot in range(len(keys)):
        executor = e.slot_executor[slot]
        start_s = max(e.slot_free[slot], e.from_s[executor], now_s)
        keys[slot] = start_s if start_s < e.gone_s[executor] else np.inf
    heap, where = np.arange(len(keys)), np.arange(len(keys))
    for at in range(len(heap) // 2 - 1, -1, -1):
        _sink(heap, where, keys, at)
    return heap, where


@compiled
def run_stage(
    now_s: float, q: int, k: int, records: float, batch_factor: float, seed: int, t: Queries, e: Executors
) -> tuple[float, float]:
    """(end, core-seconds) of a stage that starts now; infinite end: there is no executor to run it on."""
    end_s, busy = now_s, 0.0
    keys = np.empty(len(e.slot_free))
    heap, where = _slot_heap(e, now_s, keys)
    cores = len(e.slot_free) // max(1, len(e.from_s))
    stateful = t.stateful[k]
    for p in range(t.part_first[k], t.part_first[k + 1]):
        while True:
            if not len(heap) or keys[heap[0]] == np.inf:
                return np.inf, busy
            slot = heap[0]
            start_s = keys[slot]
            if stateful and t.place[p] >= 0 and e.slot_executor[slot] != t.place[p]:
                home = t.place[p] * cores
                for other in range(home + 1, home + cores):
                    if keys[other] < keys[home]:
                        home = other
                if keys[home] < np.inf:
                    start_s = max(start_s, now_s + e.wait_s)
                    if keys[home] <= start_s:
                        slot, start_s = home, keys[home]
            executor = e.slot_executor[slot]
            work = t.task_s[k] + t.record_s[k] * records * t.weights[p]
            # The part of the work that falls into the executor's cold time takes longer.
            cold = max(0.0, e.cold_s - e.warm_s[executor]) / e.cold_factor
            work += (e.cold_factor - 1.0) * min(work, cold)
            noise = _noise(t.task_cv[q], seed, q, t.batch_id[q], k, p - t.part_first[k])
            seconds = work * batch_factor * noise / max(e.speed, 1e-6)
            if stateful and (t.restoring[p] or t.place[p] != executor):
                seconds += t.restore_s[p]
            if start_s + seconds <= e.gone_s[executor]:
                break
            # The executor leaves before the task could end: it takes no more tasks.
            e.slot_free[slot] = keys[slot] = np.inf
            _sink(heap, where, keys, where[slot])
        e.slot_free[slot] = keys[slot] = start_s + seconds
        if keys[slot] >= e.gone_s[executor]:
            keys[slot] = np.inf
        _sink(heap, where, keys, where[slot])
        e.warm_s[executor] += seconds
        e.busy_s[executor] += seconds
        t.part_busy[p] += seconds
        t.part_records[p] += records * t.weights[p]
        if stateful:
            t.place[p] = executor
            t.restoring[p] = False
        busy += seconds
        end_s = max(end_s, start_s + seconds)
    return end_s, busy


@compiled
def _begin(q: int, now_s: float, seed: int, t: Queries) -> None:
    """Make moves that wait, and form a batch of what there is; without data, look again later."""
    for p in range(t.part_first[t.stage_first[q]], t.part_first[t.stage_first[q + 1]]):
        if t.wanted[p] >= 0:  # moves take effect between two batches
            t.restoring[p] = t.restoring[p] or t.wanted[p] != t.place[p]
            t.place[p] = t.wanted[p]
            t.wanted[p] = -1
    a, b = t.load_first[q], t.load_first[q + 1]
    times, rates = t.load_times[a:b], t.load_rates[a:b]
    totals = t.load_totals[t.load_total_first[q] : t.load_total_first[q + 1]]
    there = math.floor(produced(times, rates, totals, t.period_s[q], now_s) - t.read[q] + 1e-6)
    if there < 1:
        came = arrival_s(times, rates, totals, t.period_s[q], t.read[q] + 1.0)
        t.due_s[q] = max(now_s + POLL_S, came)
        if t.trigger_s[q] > 0 and t.due_s[q] < np.inf:
            t.due_s[q] = math.ceil(t.due_s[q] / t.trigger_s[q] - 1e-9) * t.trigger_s[q]
        return
    t.in_batch[q] = min(there, t.limit[q])
    t.flowing[q] = t.in_batch[q] * t.keep[q]
    t.began_s[q], t.busy_s[q] = now_s, 0.0
    t.fixed_s[q] = t.plan_s[q] * _noise(t.driver_cv[q], seed, q, t.batch_id[q], -1, 0)
    t.stage_at[q], t.doing[q] = t.stage_first[q], STAGE
    t.due_s[q] = now_s + t.fixed_s[q]


@compiled
def advance(until_s: float, seed: int, t: Queries, e: Executors, log: Floats) -> int:
    """Let time pass until `until_s`, or until the log of ended batches is full; rows written."""
    rows = 0
    while rows < len(log):
        q = int(np.argmin(t.due_s)) if len(t.due_s) else 0
        if not len(t.due_s) or t.due_s[q] > until_s:
            break
        now_s = t.due_s[q]
        if t.doing[q] == WAITING:
            _begin(q, now_s, seed, t)
        elif t.doing[q] == STAGE:
            k = t.stage_at[q]
            overhead = t.stage_s[q] * _noise(t.driver_cv[q], seed, q, t.batch_id[q], -2, k)
            factor = _noise(t.batch_cv[q], seed, q, t.batch_id[q], -4, 0)
            end_s, busy = run_stage(now_s + overhead, q, k, t.flowing[q], factor, seed, t, e)
            if end_s == np.inf:  # no executor: look again when one may have come
                t.due_s[q] = now_s + 0.5
                continue
            t.fixed_s[q] += overhead
            t.busy_s[q] += busy
            t.flowing[q] *= t.selectivity[k]
            t.stage_at[q] += 1
            t.due_s[q] = end_s
            if t.stage_at[q] == t.stage_first[q + 1]:
                commit = t.commit_s[q] * _noise(t.driver_cv[q], seed, q, t.batch_id[q], -3, 0)
                t.fixed_s[q] += commit
                t.doing[q], t.due_s[q] = COMMIT, end_s + commit
        else:
            log[rows, QUERY], log[rows, BATCH] = q, t.batch_id[q]
            log[rows, BEGAN], log[rows, ENDED] = t.began_s[q], now_s
            log[rows, RECORDS], log[rows, FIRST] = t.in_batch[q], t.read[q]
            log[rows, BUSY], log[rows, FIXED] = t.busy_s[q], t.fixed_s[q]
            rows += 1
            t.read[q] += t.in_batch[q]
            t.in_batch[q] = 0.0
            t.batch_id[q] += 1
            t.doing[q] = WAITING
            t.due_s[q] = now_s
            if t.trigger_s[q] > 0:
                following = (math.floor(t.began_s[q] / t.trigger_s[q] + 1e-9) + 1) * t.trigger_s[q]
                t.due_s[q] = max(now_s, following)
    return rows
