"""What policies see of simulated micro-batch queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.dataflow import Dataflow, Load, applications
from penstock.simulator import microbatch_kernel as kernel
from penstock.simulator.microbatch_executors import Fleet
from penstock.simulator.microbatch_latency import NONE_ENDED, Ended, LoadPoints
from penstock.simulator.microbatch_model import Engine
from penstock.telemetry import (
    Alternates,
    Batches,
    Constraints,
    Moments,
    Operators,
    Queries,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)


@dataclass(frozen=True, slots=True, eq=False)
class Controls:
    """What operators were last told: a share to keep, an alternate, how much of a source a batch may read (0: all)."""

    keep: Floats
    alternate: Ints
    limit: Floats


def own_limits(dataflow: Dataflow, engine: Engine) -> Floats:
    """By operator, the read limits that the queries have of their own, shared evenly by their sources; 0: none."""
    limits = np.zeros(len(dataflow.operators))
    for query, part in zip(engine.queries, applications(dataflow), strict=True):
        for source in part.sources if math.isfinite(query.read_limit) else ():
            limits[dataflow.row[source.id]] = query.read_limit / len(part.sources)
    return limits


class Observer:
    """Makes snapshots, and remembers what goals with a longer window need."""

    def __init__(
        self, dataflow: Dataflow, engine: Engine, loads: Sequence[Load], points: Sequence[LoadPoints]
    ) -> None:
        self._dataflow, self._engine, self._loads, self._points = dataflow, engine, loads, points
        self._parts = applications(dataflow)
        self._stages = [stage for query in engine.queries for stage in query.stages]
        self._part_stage = np.repeat(np.arange(len(self._stages)), [s.partitions for s in self._stages])
        self._query_of = {o.id: i for i, part in enumerate(self._parts) for o in part.operators}
        self._own_limits = own_limits(dataflow, engine)
        self._seen_s = 0.0
        self._produced = np.zeros(len(loads))
        self._last_end_s = np.zeros(len(engine.queries))
        self._recent = NONE_ENDED
        self._window_s = max((c.window_s for c in dataflow.constraints), default=0.0)
        self._streams = Streams.blank(len(dataflow.streams), keep=1.0)  # nothing is shed on a stream here

    def snapshot(
        self, now_s: float, ended: Ended, t: kernel.Queries, fleet: Fleet, controls: Controls, cost: float
    ) -> Snapshot:
        """The facts since the last call; busy times are counted anew from here on."""
        interval_s, self._seen_s = now_s - self._seen_s, now_s
        rows = ended.log[:, kernel.QUERY].astype(np.int64)
        np.maximum.at(self._last_end_s, rows, ended.log[:, kernel.ENDED])
        recent = self._recent.with_more(ended)
        self._recent = recent.of(recent.log[:, kernel.ENDED] > now_s - self._window_s)
        flow, live = self._dataflow, np.array(fleet.there(now_s), np.int64)
        partitions = {o: s.partitions for s in self._stages for o in s.operators}
        snapshot = Snapshot(
            time_s=now_s,
            interval_s=interval_s,
            dataflow=flow,
            nodes=fleet.nodes(live, now_s, interval_s),
            operators=Operators.blank(
                len(flow.operators),
                parallelism=[partitions.get(o.id, 1) for o in flow.operators],
                alternate=controls.alternate,
            ),
            alternates=Alternates.blank(0),
            tasks=self._tasks(t, live, len(fleet.members), interval_s),
            streams=self._streams,
            sources=self._sources(now_s, ended, t, controls, interval_s),
            sinks=self._sinks(ended, t),
            constraints=self._constraints(now_s, t),
            classes=(fleet.machine,),
            batches=self._batches(ended, t),
            queries=self._queries(now_s, t),
            cost=cost,
        )
        for counted in (fleet.tables.busy_s, t.part_busy, t.part_records):
            counted[:] = 0.0
        return snapshot

    def _tasks(self, t: kernel.Queries, live: Ints, executors: int, interval_s: float) -> Tasks:
        """A row for each partition of each stage, under the stage's last operator."""
        shown = np.full(executors + 1, -1)
        shown[live] = np.arange(len(live))
        stage, busy, records = self._part_stage, t.part_busy.copy(), t.part_records.copy()
        return Tasks.blank(
            len(stage),
            operator=[self._dataflow.row[self._stages[k].operators[-1]] for k in stage],
            index=np.arange(len(stage)) - t.part_first[stage],
            node=shown[t.place],
            arrived=records,
            processed=records,
            emitted=records * t.selectivity[stage],
            busy_s=busy,
            cpu=busy / interval_s,
            state_bytes=[self._stages[k].state_bytes for k in stage],
            moving=t.wanted >= 0,
            known=True,
        )

    def _sources(
        self, now_s: float, ended: Ended, t: kernel.Queries, controls: Controls, interval_s: float
    ) -> Sources:
        total = np.array([load.records_until(now_s) for load in self._loads])
        produced, self._produced = (total - self._produced) / interval_s, total
        read = np.bincount(
            ended.log[:, kernel.QUERY].astype(np.int64), ended.log[:, kernel.RECORDS], len(total)
        )
        backlog = np.maximum(0.0, total - t.read - t.in_batch)
        oldest = [now_s - kernel.arrival_s(*points, t.read[i]) for i, points in enumerate(self._points)]
        row = self._dataflow.row
        rows = [(row[s.id], i, len(p.sources)) for i, p in enumerate(self._parts) for s in p.sources]
        return Sources.blank(
            len(rows),
            operator=[operator for operator, _, _ in rows],
            produced_rps=[produced[i] / n for _, i, n in rows],
            read_rps=[read[i] / interval_s / n for _, i, n in rows],
            backlog_records=[backlog[i] / n for _, i, n in rows],
            oldest_s=[max(0.0, oldest[i]) if math.isfinite(oldest[i]) else 0.0 for _, i, _ in rows],
            keep=[controls.keep[operator] for operator, _, _ in rows],
            read_limit=[controls.limit[operator] for operator, _, _ in rows],
            own_limit=[self._own_limits[operator] for operator, _, _ in rows],
            limitable=True,
            known=True,
        )

    def _sinks(self, ended: Ended, t: kernel.Queries) -> Sinks:
        flow = self._dataflow
        mine = [ended.of_query(self._query_of[s.id]) for s in flow.sinks]
        moments = [one.moments() for one in mine]
        return Sinks.blank(
            len(flow.sinks),
            operator=[flow.row[s.id] for s in flow.sinks],
            priority=[s.priority for s in flow.sinks],
            min_accuracy=[s.min_accuracy for s in flow.sinks],
            records=[float(m.count[0]) for m in moments],
            accuracy=[float(t.keep[self._query_of[s.id]]) for s in flow.sinks],
            latency_s=Moments(
                *(np.array([getattr(m, n)[0] for m in moments]) for n in ("count", "mean", "m2"))
            ),
            sketch=tuple(one.sketch() for one in mine),
            known=[bool(m.count[0]) for m in moments],
        )

    def _constraints(self, now_s: float, t: kernel.Queries) -> Constraints:
        """Latency over each window; while a long batch runs, at least the age of what it has not finished."""
        found: list[float | None] = []
        for constraint in self._dataflow.constraints:
            query = next(i for i, p in enumerate(self._parts) if constraint in p.constraints)
            recent = self._recent.of_query(query, now_s - constraint.window_s)
            late = recent.statistic_s(constraint.statistic)
            if late is None and t.in_batch[query] > 0:
                middle = t.read[query] + 0.5 * t.in_batch[query]
                late = now_s - kernel.arrival_s(*self._points[query], middle)
            found.append(late)
        return Constraints.blank(
            len(found),
            bound_s=[c.bound_ms / 1e3 for c in self._dataflow.constraints],
            latency_s=[0.0 if late is None else late for late in found],
            known=[late is not None for late in found],
        )

    def _batches(self, ended: Ended, t: kernel.Queries) -> Batches:
        log = ended.log
        query = log[:, kernel.QUERY].astype(np.int64)
        own = np.array([sum(s.task_s * s.partitions for s in q.stages) for q in self._engine.queries])[query]
        return Batches(
            query=query,
            id=log[:, kernel.BATCH].astype(np.int64),
            records=log[:, kernel.RECORDS],
            duration_s=log[:, kernel.ENDED] - log[:, kernel.BEGAN],
            fixed_s=log[:, kernel.FIXED],
            busy_s=np.maximum(0.0, log[:, kernel.BUSY] - own),
            task_core_s=own,
            interval_s=float(t.trigger_s[0]) if len(self._parts) else 0.0,
        )

    def _queries(self, now_s: float, t: kernel.Queries) -> Queries:
        running = t.doing != kernel.WAITING
        rows = [[self._dataflow.row[o.id] for o in part.operators] for part in self._parts]
        return Queries.blank(
            len(self._parts),
            names=tuple(q.name for q in self._engine.queries),
            first_operator=[min(mine) for mine in rows],
            last_operator=[max(mine) for mine in rows],
            interval_s=t.trigger_s.copy(),
            interval_known=True,
            own_interval_s=[q.trigger_s for q in self._engine.queries],
            paceable=True,
            running_s=np.where(running, now_s - t.began_s, 0.0),
            running_records=np.where(running, t.in_batch, 0.0),
            records_known=True,
            last_batch=t.batch_id - 1,
            last_end_s=self._last_end_s.copy(),
            active=True,
            known=True,
        )
