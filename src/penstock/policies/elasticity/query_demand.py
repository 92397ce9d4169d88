"""What each query of an application has to carry, and the cores that it can have for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats
from penstock.dataflow import Constraint
from penstock.policies.elasticity.microbatch import BatchCost
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals

LEAST_SHARE = 0.05
"""Share of the cores that a query is taken to have however busy the others are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """What each query has to carry, in the order of `names`."""

    names: tuple[str, ...]
    rate_rps: Floats
    """NaN where it is not known."""
    backlog: Floats
    keep: Floats
    interval_s: Floats
    least_interval_s: Floats
    """The shortest interval that may be set; the present one where none may."""
    running_s: Floats
    """How long the batch under way has run."""
    fresh: NDArray[np.bool_]
    """Whether the figures of the query may be used at all."""
    partitions: Floats
    """Tasks of the widest stage; infinite where that is not known."""
    constraints: tuple[tuple[int, Constraint], ...]
    """With the query that each is about."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Demand:
        """From the sources of each query; a runtime without queries is one."""
        queries, sources = snapshot.queries, snapshot.sources
        count = max(1, len(queries))
        mine = queries.of_operators(sources.operator) if len(queries) else np.zeros(len(sources), np.int64)
        known = sources.known & np.isfinite(sources.produced_rps)
        rate = totals(mine, np.where(known, sources.produced_rps, 0.0), count)
        read = totals(mine, np.where(known, np.maximum(sources.read_rps, 0.0), 0.0), count)
        passed = totals(mine, np.where(known, np.maximum(sources.read_rps, 0.0) * sources.keep, 0.0), count)
        lowest = np.array(
            [sources.keep[mine == q].mean() if (mine == q).any() else 1.0 for q in range(count)]
        )
        seen = totals(mine, known.astype(np.float64), count) > 0
        of = snapshot.constraint_queries if len(queries) else np.zeros(len(snapshot.constraints), np.int64)
        interval = 0.0 if snapshot.batches is None else snapshot.batches.interval_s
        intervals = queries.interval_s if len(queries) else np.full(1, interval)
        paceable = queries.paceable & queries.interval_known if len(queries) else np.zeros(1, np.bool_)
        return cls(
            names=queries.names if len(queries) else ("",),
            rate_rps=np.where(seen, rate, np.nan),
            backlog=totals(mine, np.where(known, sources.backlog_records, 0.0), count),
            keep=np.where(read > 0, passed / np.where(read > 0, read, 1.0), lowest),
            interval_s=intervals,
            least_interval_s=np.where(paceable, np.minimum(queries.own_interval_s, intervals), intervals)
            if len(queries)
            else intervals,
            running_s=queries.running_s if len(queries) else np.zeros(1),
            fresh=(queries.known & queries.active) if len(queries) else np.ones(1, np.bool_),
            partitions=_partitions(snapshot, count),
            constraints=tuple(zip(of.tolist(), snapshot.dataflow.constraints, strict=True)),
        )

    @property
    def total_rps(self) -> float:
        """Of all queries whose rate is known."""
        return float(np.nansum(self.rate_rps))


def usable_cores(cores: Floats, partitions: float) -> Floats:
    """Cores that a stage of so many tasks can use at once: tasks run in waves, and the last wave may be half empty."""
    if not np.isfinite(partitions):
        return cores
    return np.asarray(partitions / np.ceil(partitions / np.maximum(cores, 1e-9) - 1e-9))


def _partitions(snapshot: Snapshot, count: int) -> Floats:
    widest = np.ones(count)
    rows = np.arange(len(snapshot.operators))
    mine = snapshot.queries.of_operators(rows) if len(snapshot.queries) else np.zeros(len(rows), np.int64)
    np.maximum.at(widest, np.minimum(mine, count - 1), snapshot.operators.parallelism)
    return np.where(widest > 1, widest, np.inf)  # a runtime that does not tell has 1 everywhere


def work_cores(
    demand: Demand, costs: Mapping[str, BatchCost], rates_rps: Floats, interval_s: Floats
) -> Floats:
    """Cores that each query keeps busy: with its records, and with the tasks of its batches where these come at a pace.

    A query whose batches follow one another fills what is free with tasks, and yields it.
    """
    known = [costs.get(name, BatchCost()) for name in demand.names]
    fixed_s = np.array([c.overhead_s for c in known])
    tasks = np.array([c.task_core_s for c in known]) / np.maximum(interval_s, fixed_s + 1e-9)
    paced = interval_s > 0
    return np.array([c.record_s for c in known]) * rates_rps + np.where(paced, tasks, 0.0)


def free_cores(demand: Demand, query: int, cores: Floats, work: Floats) -> Floats:
    """Of so many cores those that a query can use: the others' work is done by some, and its tasks run in waves."""
    left = np.maximum(cores - (work.sum() - work[query]), LEAST_SHARE * cores)
    return np.asarray(np.minimum(left, usable_cores(cores, float(demand.partitions[query]))))


def cores_per_node(snapshot: Snapshot) -> float:
    """Of nodes that are known, on average."""
    nodes = snapshot.nodes
    known = nodes.known & (nodes.cores > 0)
    return float(nodes.cores[known].mean()) if known.any() else float(nodes.cores.mean())
