"""The micro-batch model that fits a history: load over time, cost of stages, overheads, how executors come.

A batch of n records on S slots lasts `plan + o + t·⌈P/S⌉ + c·n·f(S) + commit`: P tasks a stage, t seconds a task, c
core-seconds a record, f the longest share of a slot with the weights of the partitions. Where the history has tasks,
t and c are fitted to them stage by stage; where batches tell what their tasks took, to that; otherwise to the length
of the batches. What the history cannot tell is assumed, within a range that the predictions carry.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import Dataflow, Load, Operator, OperatorId, State, Stream, together
from penstock.simulator.calibration.history import (
    ExecutorLife,
    History,
    QueryHistory,
    StageHistory,
    load_of,
)
from penstock.simulator.calibration.regression import robust_fit, variation
from penstock.simulator.microbatch_model import Engine, Executors, Query, Stage

Floats = NDArray[np.float64]

SAME = 0.1
"""Batches whose sizes (the middle 80 %) differ by less than this share do not tell fixed from per-record cost."""
EVEN_TASKS = 24
"""Tasks of a stage where nobody tells: a number that many sizes divide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """Something that the history cannot tell: what is taken instead, and the range that predictions carry."""

    what: str
    value: float
    low: float
    high: float
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A model of a run's engine, with what came in and what executors there were. Its time begins at 0."""

    engine: Engine
    dataflow: Dataflow
    loads: tuple[Load, ...]
    first_s: tuple[float, ...]
    """When each query begins its first batch."""
    lives: tuple[ExecutorLife, ...]
    duration_s: float
    assumed: tuple[Assumption, ...]
    unknown: tuple[str, ...]


class _Taken:
    """Assumed values: the middle of their ranges, or a draw from them."""

    def __init__(self, rng: np.random.Generator | None) -> None:
        self.rng, self.list = rng, list[Assumption]()

    def __call__(self, what: str, value: float, low: float, high: float, unit: str = "") -> float:
        if all(known.what != what for known in self.list):
            self.list.append(Assumption(what=what, value=value, low=low, high=high, unit=unit))
        if self.rng is None or high <= low:
            return value
        if low > 0:
            return float(np.exp(self.rng.uniform(math.log(low), math.log(high))))
        return float(self.rng.uniform(low, high))


def calibrate(
    history: History, *, seed: int | None = None, was: tuple[int, int] | None = None
) -> Calibration:
    """The model of a settled history. `was`: executors and their cores, where the history does not tell.

    With a `seed` it is fitted to batches drawn anew from the history (in blocks, as neighbours are alike), and
    assumptions are drawn from their ranges: the spread of such models is what the history leaves open.
    """
    rng = None if seed is None else np.random.default_rng(seed)
    take = _Taken(rng)
    lives = history.executors
    if not lives or was is not None:
        count, cores = was or (1, 1)
        if was is None:
            take("executors that there were (give --was)", 1, 1, 1, "executor with 1 core")
        lives = tuple(ExecutorLife(id=f"executor-{i}", cores=cores) for i in range(count))
    known = replace(history, executors=lives)
    queries, loads = [], []
    flow = history.dataflow or flow_of(history.queries)
    for query in history.queries:
        rows = np.arange(len(query)) if rng is None else _blocks(len(query), rng)
        drawn = query.of(rows)
        queries.append(_query(drawn, known.slots_at(drawn.began_s + drawn.plan_s), take))
        loads.append(load_of(query, history.began_s))
    return Calibration(
        engine=Engine(queries=tuple(queries), executors=_executors(history, lives, take)),
        dataflow=flow,
        loads=tuple(loads),
        first_s=tuple(float(q.began_s[0]) - history.began_s for q in history.queries),
        lives=tuple(
            replace(one, ready_s=one.ready_s - history.began_s, gone_s=one.gone_s - history.began_s)
            for one in lives
            if one.gone_s > history.began_s
        ),
        duration_s=history.ended_s - history.began_s,
        assumed=tuple(take.list),
        unknown=history.unknown,
    )


def flow_of(queries: Sequence[QueryHistory]) -> Dataflow:
    """Queries that nobody declared as a dataflow: a source, state where there is some, a sink."""
    flows = []
    for query in queries:
        ids = ["source", *(["state"] if query.stateful else []), "sink"]
        operators = tuple(
            Operator(
                id=OperatorId(id_),
                kind="source" if id_ == "source" else "sink" if id_ == "sink" else "transform",
                state=State(schema="") if id_ == "state" else None,
            )
            for id_ in ids
        )
        streams = tuple(
            Stream(source=OperatorId(a), target=OperatorId(b), wiring="key" if b == "state" else "forward")
            for a, b in itertools.pairwise(ids)
        )
        flows.append(Dataflow(query.name, operators=operators, streams=streams))
    return together(*flows, name="application")


def longest_share(weights: Floats, slots: int) -> float:
    """The largest part of the work that one slot gets when tasks are taken in order by the slot that is free first."""
    if slots <= 1:
        return float(weights.sum())
    free = [0.0] * min(slots, len(weights))
    for weight in weights.tolist():
        heapq.heapreplace(free, free[0] + weight)
    return max(free)


def _usual_longest_share(weights: Floats, slots: int, task_cv: float) -> float:
    """Mean of the longest share where tasks vary: a batch waits for its stragglers."""
    if slots <= 1 or task_cv <= 0:
        return longest_share(weights, slots)
    rng = np.random.default_rng(0)
    spread = math.sqrt(math.log1p(task_cv**2))
    tries = max(4, min(64, 20_000 // len(weights)))
    factors = np.exp(spread * rng.standard_normal((tries, len(weights))) - spread**2 / 2)
    return float(np.mean([longest_share(weights * row, slots) for row in factors]))


def _query(query: QueryHistory, slots: Floats, take: _Taken) -> Query:
    found = _from_tasks(query, slots, take) if query.stages else None
    stages, stage_s, task_cv, batch_cv = found or _from_batches(query, slots, take)
    driver = query.plan_s + query.commit_s
    usual = max(float(np.mean(driver)), 1e-4)
    return Query(
        name=query.name,
        stages=stages,
        plan_s=max(float(np.mean(query.plan_s)), 1e-4),
        stage_s=stage_s,
        commit_s=float(np.mean(query.commit_s)),
        trigger_s=query.trigger_s or 0.0,
        read_limit=query.read_limit or math.inf,
        driver_cv=variation(np.maximum(driver, 1e-4) / usual),
        task_cv=task_cv,
        batch_cv=batch_cv,
    )


def _operators(query: QueryHistory, stage: int, stages: int) -> tuple[OperatorId, ...]:
    """The operators that a stage stands for: the source in the first, the rest in the last."""
    ids = query.operators
    if not ids:
        kinds = ["source", "sink", *(["state"] if query.stateful else [])]
        ids = tuple(OperatorId(f"{query.name}.{kind}") for kind in kinds)
    if stages == 1:
        return ids
    return ids[:1] if stage < stages - 1 else ids[1:]


def _from_tasks(
    query: QueryHistory, slots: Floats, take: _Taken
) -> tuple[tuple[Stage, ...], float, float, float] | None:
    """Stages fitted to their tasks; None if too few batches have them."""
    count = len(query)
    stages, ratios, spans = list[Stage](), [], np.zeros(count)
    covered = np.ones(count, np.bool_)
    for k, tasks in enumerate(query.stages):
        ran = np.bincount(tasks.batch, minlength=count)
        covered &= ran > 0
        if covered.sum() < 3:
            return None
        partitions = int(np.median(ran[ran > 0]))
        record_s, task_s = _stage_cost(query, tasks, ran, take)
        weights = _weights(tasks, partitions)
        share = (
            np.array(weights)[np.minimum(tasks.partition, partitions - 1)] if weights else 1.0 / partitions
        )
        expected = task_s + record_s * query.records[tasks.batch] * share
        ratios.append((tasks.batch, tasks.seconds / np.maximum(expected, 1e-4), tasks.seconds))
        first = np.concatenate([[0], np.cumsum(ran)])
        for row in np.flatnonzero(ran):
            spans[row] += longest_share(tasks.seconds[first[row] : first[row + 1]], int(slots[row]))
        stages.append(
            Stage(
                operators=_operators(query, k, len(query.stages)),
                partitions=partitions,
                record_s=record_s,
                task_s=task_s,
                weights=weights,
                stateful=query.stateful and k == len(query.stages) - 1,
                state_bytes=query.state_bytes,
            )
        )
    rest = np.maximum(0.0, query.work_s - spans)[covered]
    batch, ratio, seconds = (np.concatenate(part) for part in zip(*ratios, strict=True))
    logs = np.log(np.clip(ratio, 0.05, 20.0))
    weight = np.bincount(batch, seconds, count)
    mean = np.bincount(batch, seconds * logs, count) / np.maximum(weight, 1e-12)
    own = np.exp(logs - mean[batch])
    return (
        tuple(stages),
        float(np.median(rest)) / len(stages),
        variation(own),
        variation(np.exp(mean[covered])),
    )


def _stage_cost(
    query: QueryHistory, tasks: StageHistory, ran: NDArray[np.int64], take: _Taken
) -> tuple[float, float]:
    """Core-seconds per record of the batch, and per task."""
    rows = np.flatnonzero(ran)
    total: Floats = np.bincount(tasks.batch, tasks.seconds, len(query))[rows].astype(np.float64)
    records, counts = query.records[rows], ran[rows].astype(np.float64)
    if _same(records):
        share = _share_of_records(query, take)
        return share * float(total.sum() / max(records.sum(), 1.0)), (1 - share) * float(
            total.sum() / counts.sum()
        )
    record_s, task_s = robust_fit(np.column_stack([records, counts]), total)
    return float(record_s), float(task_s)


def _share_of_records(query: QueryHistory, take: _Taken) -> float:
    what = f"{query.name}: all batches are alike; share of their work that grows with the records"
    return take(what, 0.7, 0.2, 1.0)


def _same(values: Floats) -> bool:
    if len(values) < 3:
        return True
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
    return bool(high - low < SAME * max(middle, 1e-12))


def _weights(tasks: StageHistory, partitions: int) -> tuple[float, ...]:
    """Share of each partition, from the records of its tasks or else their time; empty where they come and go."""
    if partitions < 2 or tasks.partition.max(initial=0) != partitions - 1:
        return ()
    by = tasks.records if tasks.records.sum() > 0 else tasks.seconds
    total = np.bincount(tasks.partition, by, partitions)
    return tuple((total / total.sum()).tolist()) if total.sum() > 0 else ()


def _from_batches(
    query: QueryHistory, slots: Floats, take: _Taken
) -> tuple[tuple[Stage, ...], float, float, float]:
    """One stage fitted to the batches as a whole."""
    have = np.maximum(1, np.nan_to_num(slots, nan=1.0)).astype(np.int64)
    partitions = query.partitions
    if partitions is None:
        partitions = max(EVEN_TASKS, 4 * int(have.max()))
        take(f"{query.name}: tasks of a stage, all of one size", partitions, partitions, partitions, "tasks")
    weights = np.array(query.weights or np.ones(partitions))
    weights = weights / weights.sum()
    task_cv = take(f"{query.name}: how much tasks of a batch vary (no task was seen)", 0.12, 0.03, 0.3)
    shares = {int(s): _usual_longest_share(weights, int(s), task_cv) for s in np.unique(have)}
    share = np.array([shares[int(s)] for s in have])
    waves = np.ceil(partitions / have)
    work, records = np.maximum(query.work_s, 1e-4), query.records
    size = records * share
    if query.busy_s is not None and query.task_core_s is not None:
        seen = np.isfinite(query.busy_s) & (records > 0)
        task_s = float(np.median(query.task_core_s[seen])) / partitions
        record_s = float(robust_fit(records[seen, None], np.maximum(query.busy_s[seen], 1e-9))[0])
        fixed_s = max(0.0, float(np.median(work - (task_s * partitions + record_s * records) * share)))
    elif len(shares) > 1 and not _same(records):
        fixed_s, task_s, record_s = robust_fit(
            np.column_stack([np.ones(len(work)), waves, size]), work
        ).tolist()
    else:
        if _same(size):
            grows = _share_of_records(query, take)
            fixed_s, record_s = (
                (1 - grows) * float(work.mean()),
                grows * float(work.sum() / max(size.sum(), 1e-9)),
            )
        else:
            fixed_s, record_s = robust_fit(np.column_stack([np.ones(len(work)), size]), work).tolist()
        what = f"{query.name}: seconds of a task without records (the history has one size only)"
        wave = float(waves.mean())
        task_s = min(take(what, 0.006, 0.002, 0.02, "s"), 0.7 * fixed_s / wave)
        fixed_s -= task_s * wave
    expected = fixed_s + task_s * waves + record_s * size
    stage = Stage(
        operators=_operators(query, 0, 1),
        partitions=partitions,
        record_s=record_s,
        task_s=task_s,
        weights=query.weights,
        stateful=query.stateful,
        state_bytes=query.state_bytes,
    )
    return (stage,), fixed_s, task_cv, variation(work / np.maximum(expected, 1e-4))


def _executors(history: History, lives: Sequence[ExecutorLife], take: _Taken) -> Executors:
    cores = round(float(np.median([one.cores for one in lives])))
    came = np.array(history.startup_s)
    if len(came):
        startup_s, startup_cv = float(came.mean()), variation(came / came.mean())
        if take.rng is not None:
            startup_s = float(take.rng.choice(came, len(came)).mean())
    else:
        startup_s, startup_cv = take("time until a new executor takes tasks", 8.0, 4.0, 15.0, "s"), 0.3
    factor = take("how much slower a new executor is at first", 2.0, 1.2, 3.0, "times")
    return Executors(cores=max(1, cores), startup_s=startup_s, startup_cv=startup_cv, cold_factor=factor)


def _blocks(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows drawn with replacement, in blocks."""
    length = max(1, round(count ** (1 / 3)))
    starts = rng.integers(0, max(1, count - length + 1), size=-(-count // length))
    return np.asarray((starts[:, None] + np.arange(length)[None, :]).ravel()[:count])
