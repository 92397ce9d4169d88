"""Micro-batches of several queries on shared executors, compiled: batches form, stages run, commits end them.

Time goes from one event of a query to the next: a trigger, the start of a stage, the end of a batch. Tasks of a stage
take the slot that is free first; tasks with state wait for the executor that holds it, as long as the locality wait
says. Nothing is preempted, and what starts first gets the slot first, as Spark's FIFO scheduling does it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from penstock.simulator.compiled import compiled
from penstock.simulator.draws import GOLDEN, mix, uniform

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WAITING, STAGE, COMMIT = range(3)
"""What a query does next."""
POLL_S = 0.01
"""A query without data looks again after this long."""

# Columns of the log of batches.
QUERY, BATCH, BEGAN, ENDED, RECORDS, FIRST, BUSY, FIXED, LAST_COLUMN = range(9)


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
def _speed(first: Ints, times: Floats, values: Floats, executor: int, time_s: float) -> float:
    """Speed of an executor at a time, from its profile."""
    begin, end = first[executor], first[executor + 1]
    i = np.searchsorted(times[begin:end], time_s, side="right") - 1
    return float(values[begin + max(i, 0)])


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
def _slot_heap(
    slot_free: Floats, slot_executor: Ints, from_s: Floats, gone_s: Floats, now_s: float, keys: Floats
) -> tuple[Ints, Ints]:
    """Slots by when they can start a task, which goes into `keys`: the heap, and where each slot is in it."""
    for slot in range(len(slot_free)):
        executor = slot_executor[slot]
        start_s = max(slot_free[slot], from_s[executor], now_s)
        keys[slot] = start_s if start_s < gone_s[executor] else np.inf
    heap, where = np.arange(len(slot_free)), np.arange(len(slot_free))
    for at in range(len(heap) // 2 - 1, -1, -1):
        _sink(heap, where, keys, at)
    return heap, where


@compiled
def run_stage(
    now_s: float,
    q: int,
    k: int,
    batch: int,
    records: float,
    seed: int,
    task_cv: float,
    batch_factor: float,
    record_s: float,
    task_s: float,
    stateful: bool,
    part_first: int,
    weights: Floats,
    place: Ints,
    restoring: NDArray[np.bool_],
    restore_s: Floats,
    part_busy: Floats,
    part_records: Floats,
    slot_free: Floats,
    slot_executor: Ints,
    from_s: Floats,
    gone_s: Floats,
    warm_s: Floats,
    executor_busy: Floats,
    speed_first: Ints,
    speed_times: Floats,
    speed_values: Floats,
    wait_s: float,
    cold_s: float,
    cold_factor: float,
) -> tuple[float, float]:
    """(end, core-seconds) of a stage that starts now; infinite end: there is no executor to run it on."""
    end_s, busy = now_s, 0.0
    keys = np.empty(len(slot_free))
    heap, where = _slot_heap(slot_free, slot_executor, from_s, gone_s, now_s, keys)
    cores = len(slot_free) // max(1, len(from_s))
    for i in range(len(weights)):
        p = part_first + i
        while True:
            if not len(heap) or keys[heap[0]] == np.inf:
                return np.inf, busy
            slot = heap[0]
            start_s = keys[slot]
            if stateful and place[p] >= 0 and slot_executor[slot] != place[p]:
                home = place[p] * cores
                for other in range(home + 1, home + cores):
                    if keys[other] < keys[home]:
                        home = other
                if keys[home] < np.inf:
                    start_s = max(start_s, now_s + wait_s)
                    if keys[home] <= start_s:
                        slot, start_s = home, keys[home]
            executor = slot_executor[slot]
            work = task_s + record_s * records * weights[i]
            # The part of the work that falls into the executor's cold time takes longer.
            work += (cold_factor - 1.0) * min(work, max(0.0, cold_s - warm_s[executor]) / cold_factor)
            seconds = work * batch_factor * _noise(task_cv, seed, q, batch, k, i)
            seconds /= max(_speed(speed_first, speed_times, speed_values, executor, start_s), 1e-6)
            if stateful and (restoring[p] or place[p] != executor):
                seconds += restore_s[p]
            if start_s + seconds <= gone_s[executor]:
                break
            # The executor leaves before the task could end: it takes no more tasks.
            slot_free[slot] = keys[slot] = np.inf
            _sink(heap, where, keys, where[slot])
        slot_free[slot] = keys[slot] = start_s + seconds
        if keys[slot] >= gone_s[executor]:
            keys[slot] = np.inf
        _sink(heap, where, keys, where[slot])
        warm_s[executor] += seconds
        executor_busy[executor] += seconds
        part_busy[p] += seconds
        part_records[p] += records * weights[i]
        if stateful:
            place[p] = executor
            restoring[p] = False
        busy += seconds
        end_s = max(end_s, start_s + seconds)
    return end_s, busy


@compiled
def advance(
    until_s: float,
    seed: int,
    # queries
    due_s: Floats,
    doing: Ints,
    stage_at: Ints,
    batch_id: Ints,
    began_s: Floats,
    in_batch: Floats,
    flowing: Floats,
    busy_s: Floats,
    fixed_s: Floats,
    read: Floats,
    plan_s: Floats,
    stage_s: Floats,
    commit_s: Floats,
    trigger_s: Floats,
    limit: Floats,
    keep: Floats,
    driver_cv: Floats,
    task_cv: Floats,
    batch_cv: Floats,
    stage_first: Ints,
    # loads of the queries
    load_first: Ints,
    load_times: Floats,
    load_rates: Floats,
    load_totals: Floats,
    load_total_first: Ints,
    period_s: Floats,
    # stages
    record_s: Floats,
    task_s: Floats,
    selectivity: Floats,
    stateful: NDArray[np.bool_],
    part_first: Ints,
    # partitions
    weights: Floats,
    place: Ints,
    wanted: Ints,
    restoring: NDArray[np.bool_],
    restore_s: Floats,
    part_busy: Floats,
    part_records: Floats,
    # executors
    slot_free: Floats,
    slot_executor: Ints,
    from_s: Floats,
    gone_s: Floats,
    warm_s: Floats,
    executor_busy: Floats,
    speed_first: Ints,
    speed_times: Floats,
    speed_values: Floats,
    wait_s: float,
    cold_s: float,
    cold_factor: float,
    log: Floats,
) -> int:
    """Let time pass until `until_s`, or until the log of ended batches is full; rows written."""
    rows = 0
    while rows < len(log):
        q = int(np.argmin(due_s)) if len(due_s) else 0
        if not len(due_s) or due_s[q] > until_s:
            break
        now_s = due_s[q]
        a, b = load_first[q], load_first[q + 1]
        times, rates = load_times[a:b], load_rates[a:b]
        totals = load_totals[load_total_first[q] : load_total_first[q + 1]]
        if doing[q] == WAITING:
            for p in range(part_first[stage_first[q]], part_first[stage_first[q + 1]]):
                if wanted[p] >= 0:  # moves take effect between two batches
                    restoring[p] = restoring[p] or wanted[p] != place[p]
                    place[p] = wanted[p]
                    wanted[p] = -1
            there = math.floor(produced(times, rates, totals, period_s[q], now_s) - read[q] + 1e-6)
            if there < 1:
                came = arrival_s(times, rates, totals, period_s[q], read[q] + 1.0)
                due_s[q] = max(now_s + POLL_S, came)
                if trigger_s[q] > 0 and due_s[q] < np.inf:
                    due_s[q] = math.ceil(due_s[q] / trigger_s[q] - 1e-9) * trigger_s[q]
                continue
            in_batch[q] = min(there, limit[q])
            flowing[q] = in_batch[q] * keep[q]
            began_s[q], busy_s[q] = now_s, 0.0
            fixed_s[q] = plan_s[q] * _noise(driver_cv[q], seed, q, batch_id[q], -1, 0)
            stage_at[q], doing[q] = stage_first[q], STAGE
            due_s[q] = now_s + fixed_s[q]
        elif doing[q] == STAGE:
            k = stage_at[q]
            overhead = stage_s[q] * _noise(driver_cv[q], seed, q, batch_id[q], -2, k)
            first, last = part_first[k], part_first[k + 1]
            factor = _noise(batch_cv[q], seed, q, batch_id[q], -4, 0)
            end_s, busy = run_stage(
                now_s + overhead, q, k, batch_id[q], flowing[q], seed, task_cv[q], factor, record_s[k], task_s[k],
                stateful[k], first, weights[first:last], place, restoring, restore_s, part_busy, part_records,
                slot_free, slot_executor, from_s, gone_s, warm_s, executor_busy, speed_first, speed_times,
                speed_values, wait_s, cold_s, cold_factor,
            )  # fmt: skip
            if end_s == np.inf:  # no executor: look again when one may have come
                due_s[q] = now_s + 0.5
                continue
            fixed_s[q] += overhead
            busy_s[q] += busy
            flowing[q] *= selectivity[k]
            stage_at[q] += 1
            due_s[q] = end_s
            if stage_at[q] == stage_first[q + 1]:
                commit = commit_s[q] * _noise(driver_cv[q], seed, q, batch_id[q], -3, 0)
                fixed_s[q] += commit
                doing[q], due_s[q] = COMMIT, end_s + commit
        else:
            log[rows, QUERY], log[rows, BATCH] = q, batch_id[q]
            log[rows, BEGAN], log[rows, ENDED] = began_s[q], now_s
            log[rows, RECORDS], log[rows, FIRST] = in_batch[q], read[q]
            log[rows, BUSY], log[rows, FIXED] = busy_s[q], fixed_s[q]
            rows += 1
            read[q] += in_batch[q]
            in_batch[q] = 0.0
            batch_id[q] += 1
            doing[q] = WAITING
            if trigger_s[q] > 0:
                following = (math.floor(began_s[q] / trigger_s[q] + 1e-9) + 1) * trigger_s[q]
                due_s[q] = max(now_s, following)
            else:
                due_s[q] = now_s
    return rows
