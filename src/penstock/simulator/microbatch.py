"""Queries that work in micro-batches on simulated executors, behind the same two ports as Spark."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.control.plan import NotReadyError, Outcome, Plan, Status
from penstock.dataflow import Dataflow, Load, applications
from penstock.policies.actions import Acquire, Action, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.reasons import Reason
from penstock.simulator import microbatch_kernel as kernel
from penstock.simulator.cluster import Disturbance
from penstock.simulator.microbatch_latency import NONE_ENDED, Ended, load_points
from penstock.simulator.microbatch_model import Engine, Stage
from penstock.telemetry import (
    Alternates,
    Batches,
    Constraints,
    MachineClass,
    Moments,
    Nodes,
    Operators,
    Queries,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOG_ROWS = 4096
NEVER = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """An executor that dies without a word: the one that has been there longest at that time."""

    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """An executor whose coming and going is known beforehand, as in a run that is played again."""

    ready_s: float = 0.0
    gone_s: float = NEVER


@dataclass(slots=True)
class _Member:
    """One executor over its life."""

    id: str
    asked_s: float
    ready_s: float
    gone_s: float = NEVER
    draining: bool = False

    def present(self, now_s: float) -> bool:
        return self.asked_s <= now_s < self.gone_s


class MicrobatchRuntime:
    """Simulated queries that share executors. Implements `Runtime`; stands still until it is advanced.

    `dataflow` holds one connected part per query, in the order of `engine.queries`. `loads` is what each query's
    sources produce. `first_s` is for queries that are under way: when each begins its next batch. Their state is in
    place then.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        engine: Engine,
        *,
        loads: Sequence[Load],
        machine: MachineClass,
        executors: int | Sequence[Life] = 1,
        seed: int = 0,
        first_s: Sequence[float] = (),
        disturbances: Mapping[int, Disturbance] | None = None,
        kills: Sequence[Kill] = (),
    ) -> None:
        self.dataflow, self.engine, self.machine, self._seed = dataflow, engine, machine, seed
        self._parts = applications(dataflow)
        if not len(self._parts) == len(engine.queries) == len(loads):
            raise ValueError(
                f"{len(self._parts)} connected parts, {len(engine.queries)} queries and {len(loads)} loads"
            )
        self._loads, self._disturbances = tuple(loads), dict(disturbances or {})
        self._kills = deque(sorted(kills, key=lambda k: k.time_s))
        lives = [Life()] * executors if isinstance(executors, int) else executors
        self._members = [
            _Member(f"executor-{i}", max(0.0, life.ready_s), max(0.0, life.ready_s), life.gone_s)
            for i, life in enumerate(lives)
        ]
        # Where it is known beforehand who comes and goes, state is spread anew each time, as the pilot does it.
        self._changes_s = deque(sorted({t for x in lives for t in (x.ready_s, x.gone_s) if 0 < t < NEVER}))
        self._first_s = first_s
        self._last_end_s = np.zeros(len(engine.queries))
        self._now_s = self._seen_s = 0.0
        self._log = np.zeros((LOG_ROWS, kernel.LAST_COLUMN))
        self._ended: list[Floats] = []
        self._recent = NONE_ENDED
        self._window_s = max((c.window_s for c in dataflow.constraints), default=0.0)
        self._cost = self.executor_seconds = 0.0
        self._pending: list[tuple[Action, float]] = []
        self._set_queries()
        self._set_executors()
        self._keep = np.ones(len(dataflow.operators))
        self._alternate = np.zeros(len(dataflow.operators), np.int64)
        self._produced = np.zeros(len(loads))
        self._streams = Streams.blank(len(dataflow.streams), keep=1.0)  # nothing is shed on a stream here
        self._no_alternates = Alternates.blank(0)

    # --- state as arrays -------------------------------------------------------------------------------------------

    def _set_queries(self) -> None:
        queries, count = self.engine.queries, len(self.engine.queries)
        stages: list[Stage] = [stage for query in queries for stage in query.stages]
        self._stages = stages
        first = np.cumsum([0, *(len(q.stages) for q in queries)])
        parts = np.cumsum([0, *(s.partitions for s in stages)])
        model = self.engine.executors
        weights = [
            np.asarray(s.weights) / sum(s.weights) if s.weights else np.full(s.partitions, 1 / s.partitions)
            for s in stages
        ]
        sizes = np.repeat([s.state_bytes for s in stages], [s.partitions for s in stages])
        self._points = points = [load_points(load) for load in self._loads]
        self._q: dict[str, Any] = {
            "due_s": np.array(self._first_s, np.float64) if len(self._first_s) else np.zeros(count),
            "doing": np.zeros(count, np.int64),
            "stage_at": np.zeros(count, np.int64),
            "batch_id": np.zeros(count, np.int64),
            "began_s": np.zeros(count),
            "in_batch": np.zeros(count),
            "flowing": np.zeros(count),
            "busy_s": np.zeros(count),
            "fixed_s": np.zeros(count),
            "read": np.zeros(count),
            **{
                name: np.array([getattr(q, name) for q in queries], np.float64)
                for name in ("plan_s", "stage_s", "commit_s", "trigger_s")
            },
            "limit": np.array([q.read_limit for q in queries], np.float64),
            "keep": np.ones(count),
            "driver_cv": np.array([q.driver_cv for q in queries], np.float64),
            "task_cv": np.array([q.task_cv for q in queries], np.float64),
            "batch_cv": np.array([q.batch_cv for q in queries], np.float64),
            "stage_first": first,
            "load_first": np.cumsum([0, *(len(t) for t, _, _, _ in points)]),
            "load_times": np.concatenate([t for t, _, _, _ in points]),
            "load_rates": np.concatenate([r for _, r, _, _ in points]),
            "load_totals": np.concatenate([n for _, _, n, _ in points]),
            "load_total_first": np.cumsum([0, *(len(n) for _, _, n, _ in points)]),
            "period_s": np.array([p for _, _, _, p in points]),
            "record_s": np.array([s.record_s for s in stages], np.float64),
            "task_s": np.array([s.task_s for s in stages], np.float64),
            "selectivity": np.array([s.selectivity for s in stages], np.float64),
            "stateful": np.array([s.stateful for s in stages], np.bool_),
            "part_first": parts,
            "weights": np.concatenate(weights),
            "place": np.full(parts[-1], -1),
            "wanted": np.full(parts[-1], -1),
            "restoring": np.zeros(parts[-1], np.bool_),
            "restore_s": model.restore_s + sizes / model.restore_bytes_per_s,
            "part_busy": np.zeros(parts[-1]),
            "part_records": np.zeros(parts[-1]),
        }
        if len(self._first_s):
            home = [i for i, m in enumerate(self._members) if m.ready_s <= 0] or [-1]
            self._q["place"][:] = np.resize(home, parts[-1])
        self._part_stage = np.repeat(np.arange(len(stages)), [s.partitions for s in stages])
        self._state_bytes = sizes

    def _set_executors(self) -> None:
        """Executors as arrays, anew after each change; what slots are busy with stays."""
        before = getattr(self, "_e", None)
        count, cores = len(self._members), self.engine.executors.cores
        free = np.zeros(count * cores)
        warm_s, busy = np.zeros(count), np.zeros(count)
        if before is not None:
            kept = len(before["warm_s"])
            free[: kept * cores] = before["slot_free"]
            warm_s[:kept], busy[:kept] = before["warm_s"], before["executor_busy"]
        else:
            warm_s[[m.ready_s <= 0 for m in self._members]] = self.engine.executors.cold_s
        profiles = [self._profile(i) for i in range(count)]
        self._e: dict[str, Any] = {
            "slot_free": free,
            "slot_executor": np.repeat(np.arange(count), cores),
            "from_s": np.array([m.ready_s for m in self._members], np.float64),
            "gone_s": np.array([m.gone_s for m in self._members], np.float64),
            "warm_s": warm_s,
            "executor_busy": busy,
            "speed_first": np.cumsum([0, *(len(t) for t, _ in profiles)]),
            "speed_times": np.concatenate([t for t, _ in profiles]) if profiles else np.zeros(0),
            "speed_values": np.concatenate([v for _, v in profiles]) if profiles else np.zeros(0),
        }

    def _profile(self, executor: int) -> tuple[Floats, Floats]:
        """Speed over time: the class's, times the profile's, less what other processes take of a core's share."""
        disturbance = self._disturbances.get(executor)
        if disturbance is None:
            return np.zeros(1), np.array([self.machine.speed])
        loads = [load for load in (disturbance.speed, disturbance.foreign) if load is not None]
        times = np.unique(np.concatenate([np.zeros(1), *(_long(load)[0] for load in loads)]))
        values = np.full(len(times), self.machine.speed)
        if disturbance.speed is not None:
            values = values * disturbance.speed.rate_at(times)
        if disturbance.foreign is not None:
            cores = self.engine.executors.cores
            foreign = disturbance.foreign.rate_at(times)
            values = values * cores / np.maximum(cores, cores + foreign)  # a fair share of the host's CPU
        return times, values

    # --- time ------------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._now_s

    def advance(self, until_s: float) -> None:
        """Let simulated time pass until `until_s`."""
        while self._now_s < until_s:
            stops = [q[0] for q in (self._changes_s, [k.time_s for k in self._kills]) if q]
            pause_s = min([until_s, *stops])
            self._run(pause_s)
            self._charge(pause_s)
            self._now_s = pause_s
            if self._kills and self._kills[0].time_s <= pause_s:
                self._kills.popleft()
                self._kill()
            if self._changes_s and self._changes_s[0] <= pause_s:
                self._changes_s.popleft()
                self._spread()

    def _run(self, until_s: float) -> None:
        model = self.engine.executors
        while True:
            rows = kernel.advance(  # type: ignore[call-arg]  # the columns, in the order of its parameters
                until_s,
                self._seed,
                *self._q.values(),
                *self._e.values(),
                model.locality_wait_s,
                model.cold_s,
                model.cold_factor,
                self._log,
            )
            self._ended.append(self._log[:rows].copy())
            if rows < len(self._log):
                return

    def taken(self) -> Ended:
        """The batches that ended since the last call, or since the last snapshot."""
        log, self._ended = np.vstack([NONE_ENDED.log, *self._ended]), []
        return Ended.of_log(log, self._points)

    def _charge(self, until_s: float) -> None:
        self.executor_seconds += (seconds := self._present_s(until_s))
        self._cost += seconds / 3600.0 * self.machine.price_per_hour

    def _present_s(self, until_s: float) -> float:
        return sum(max(0.0, min(until_s, m.gone_s) - max(self._now_s, m.asked_s)) for m in self._members)

    def _kill(self) -> None:
        """The oldest executor dies: the task it was at runs again elsewhere once the driver has noticed."""
        there = [m for m in self._members if m.present(self._now_s) and m.ready_s <= self._now_s]
        if not there:
            return
        victim, cores = self._members.index(there[0]), self.engine.executors.cores
        there[0].gone_s = self._now_s
        cut_s = float(self._e["slot_free"][victim * cores : (victim + 1) * cores].max()) - self._now_s
        running = (self._q["doing"] == kernel.STAGE) & (self._q["due_s"] > self._now_s)
        if cut_s > 0:
            self._q["due_s"][running] += self.engine.executors.lost_s + cut_s
        self._q["restoring"] |= self._q["place"] == victim
        self._q["place"][self._q["place"] == victim] = -1
        self._members.append(self._new_member())  # the cluster manager replaces it
        self._set_executors()

    def _new_member(self) -> _Member:
        model, number = self.engine.executors, len(self._members)
        chance = np.random.default_rng((self._seed, number)).uniform(-1.0, 1.0)
        factor = 1.0 + model.startup_cv * math.sqrt(3.0) * chance
        return _Member(f"executor-{number}", self._now_s, self._now_s + model.startup_s * max(factor, 0.1))

    # --- what a policy sees ------------------------------------------------------------------------------------------

    def observe(self) -> Snapshot:
        """The facts since the last call."""
        interval_s = self._now_s - self._seen_s
        if interval_s <= 0:
            raise NotReadyError("no simulated time has passed since the last snapshot")
        self._seen_s = self._now_s
        ended = self.taken()
        rows = ended.log[:, kernel.QUERY].astype(np.int64)
        np.maximum.at(self._last_end_s, rows, ended.log[:, kernel.ENDED])
        recent = self._recent.with_more(ended)
        self._recent = recent.of(recent.log[:, kernel.ENDED] > self._now_s - self._window_s)
        live = [i for i, m in enumerate(self._members) if m.present(self._now_s)]
        flow = self.dataflow
        sources = self._sources(ended, interval_s)
        snapshot = Snapshot(
            time_s=self._now_s,
            interval_s=interval_s,
            dataflow=flow,
            nodes=self._nodes(live, interval_s),
            operators=Operators.blank(
                len(flow.operators), parallelism=self._parallelism(), alternate=self._alternate
            ),
            alternates=self._no_alternates,
            tasks=self._tasks(live, interval_s),
            streams=self._streams,
            sources=sources,
            sinks=self._sinks(ended),
            constraints=self._constraints(sources),
            classes=(self.machine,),
            batches=self._batches(ended),
            queries=self._queries(),
            cost=self._cost,
        )
        self._e["executor_busy"][:] = 0.0
        self._q["part_busy"][:] = 0.0
        self._q["part_records"][:] = 0.0
        return snapshot

    def _nodes(self, live: Sequence[int], interval_s: float) -> Nodes:
        members = [self._members[i] for i in live]
        foreign = [self._foreign(i) for i in live]
        return Nodes.blank(
            len(live),
            ids=tuple(m.id for m in members),
            hosts=tuple(m.id for m in members),
            machines=(self.machine.name,) * len(live),
            cores=float(self.engine.executors.cores),
            speed=[float(self._profile_at(i)) for i in live],
            own_cpu=self._e["executor_busy"][live] / interval_s,
            foreign_cpu=foreign,
            memory_bytes=self.machine.memory_bytes,
            price_per_hour=self.machine.price_per_hour,
            started_s=[m.asked_s for m in members],
            ready=[m.ready_s <= self._now_s for m in members],
            draining=[m.draining for m in members],
            known=True,
        )

    def _profile_at(self, executor: int) -> float:
        times, values = self._profile(executor)
        return float(values[max(0, int(np.searchsorted(times, self._now_s, side="right")) - 1)])

    def _foreign(self, executor: int) -> float:
        disturbance = self._disturbances.get(executor)
        if disturbance is None or disturbance.foreign is None:
            return 0.0
        return float(disturbance.foreign.rate_at(self._now_s))

    def _parallelism(self) -> list[int]:
        partitions = {o: s.partitions for s in self._stages for o in s.operators}
        return [partitions.get(o.id, 1) for o in self.dataflow.operators]

    def _tasks(self, live: Sequence[int], interval_s: float) -> Tasks:
        """A row for each partition of each stage, under the stage's last operator."""
        shown = np.full(len(self._members) + 1, -1)
        shown[list(live)] = np.arange(len(live))
        stage, first = self._part_stage, self._q["part_first"]
        busy, records = (
            self._q["part_busy"].copy(),
            self._q["part_records"].copy(),
        )  # counted anew from here on
        return Tasks.blank(
            len(stage),
            operator=[self.dataflow.row[self._stages[k].operators[-1]] for k in stage],
            index=np.arange(len(stage)) - first[stage],
            node=shown[self._q["place"]],
            arrived=records,
            processed=records,
            emitted=records * self._q["selectivity"][stage],
            busy_s=busy,
            cpu=busy / interval_s,
            state_bytes=self._state_bytes,
            moving=self._q["wanted"] >= 0,
            known=True,
        )

    def _sources(self, ended: Ended, interval_s: float) -> Sources:
        total = np.array([load.records_until(self._now_s) for load in self._loads])
        produced, self._produced = (total - self._produced) / interval_s, total
        read = np.bincount(
            ended.log[:, kernel.QUERY].astype(np.int64), ended.log[:, kernel.RECORDS], len(total)
        )
        backlog = np.maximum(0.0, total - self._q["read"] - self._q["in_batch"])
        oldest = [
            self._now_s - kernel.arrival_s(*points, self._q["read"][i])
            for i, points in enumerate(self._points)
        ]
        rows = [
            (self.dataflow.row[s.id], i, len(p.sources)) for i, p in enumerate(self._parts) for s in p.sources
        ]
        return Sources.blank(
            len(rows),
            operator=[row for row, _, _ in rows],
            produced_rps=[produced[i] / n for _, i, n in rows],
            read_rps=[read[i] / interval_s / n for _, i, n in rows],
            backlog_records=[backlog[i] / n for _, i, n in rows],
            oldest_s=[max(0.0, oldest[i]) if math.isfinite(oldest[i]) else 0.0 for _, i, _ in rows],
            keep=[self._keep[row] for row, _, _ in rows],
            known=True,
        )

    def _sinks(self, ended: Ended) -> Sinks:
        flow = self.dataflow
        query = {o.id: i for i, part in enumerate(self._parts) for o in part.operators}
        mine = [ended.of_query(query[s.id]) for s in flow.sinks]
        found = [(one.moments(), one.sketch()) for one in mine]
        return Sinks.blank(
            len(flow.sinks),
            operator=[flow.row[s.id] for s in flow.sinks],
            priority=[s.priority for s in flow.sinks],
            min_accuracy=[s.min_accuracy for s in flow.sinks],
            records=[float(m.count[0]) for m, _ in found],
            accuracy=[float(self._q["keep"][query[s.id]]) for s in flow.sinks],
            latency_s=Moments(
                *(np.array([getattr(m, n)[0] for m, _ in found]) for n in ("count", "mean", "m2"))
            ),
            sketch=tuple(sketch for _, sketch in found),
            known=[bool(m.count[0]) for m, _ in found],
        )

    def _constraints(self, sources: Sources) -> Constraints:
        """Latency over each window; while a long batch runs, at least the age of what it has not finished."""
        found: list[float | None] = []
        for constraint in self.dataflow.constraints:
            query = next(i for i, p in enumerate(self._parts) if constraint in p.constraints)
            recent = self._recent.of_query(query, self._now_s - constraint.window_s)
            late = recent.statistic_s(constraint.statistic)
            if late is None and self._q["in_batch"][query] > 0:
                middle = self._q["read"][query] + 0.5 * self._q["in_batch"][query]
                late = self._now_s - kernel.arrival_s(*self._points[query], middle)
            found.append(late)
        return Constraints.blank(
            len(found),
            bound_s=[c.bound_ms / 1e3 for c in self.dataflow.constraints],
            latency_s=[0.0 if late is None else late for late in found],
            known=[late is not None for late in found],
        )

    def _batches(self, ended: Ended) -> Batches:
        log = ended.log
        query = log[:, kernel.QUERY].astype(np.int64)
        own = np.array([sum(s.task_s * s.partitions for s in q.stages) for q in self.engine.queries])[query]
        return Batches(
            query=query,
            id=log[:, kernel.BATCH].astype(np.int64),
            records=log[:, kernel.RECORDS],
            duration_s=log[:, kernel.ENDED] - log[:, kernel.BEGAN],
            fixed_s=log[:, kernel.FIXED],
            busy_s=np.maximum(0.0, log[:, kernel.BUSY] - own),
            task_core_s=own,
            interval_s=float(self._q["trigger_s"][0]) if len(self._parts) else 0.0,
        )

    def _queries(self) -> Queries:
        running = self._q["doing"] != kernel.WAITING
        rows = [[self.dataflow.row[o.id] for o in part.operators] for part in self._parts]
        return Queries.blank(
            len(self._parts),
            names=tuple(q.name for q in self.engine.queries),
            first_operator=[min(mine) for mine in rows],
            last_operator=[max(mine) for mine in rows],
            interval_s=self._q["trigger_s"].copy(),
            interval_known=True,
            running_s=np.where(running, self._now_s - self._q["began_s"], 0.0),
            running_records=np.where(running, self._q["in_batch"], 0.0),
            records_known=True,
            last_batch=self._q["batch_id"] - 1,
            last_end_s=self._last_end_s.copy(),
            active=True,
            known=True,
        )

    # --- what a policy may do -----------------------------------------------------------------------------------------

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """One outcome per action, then those of earlier ones that are decided by now."""
        decided = tuple(self._decided())
        return (*(self._act(planned.action) for planned in plan.actions), *decided)

    def _act(self, action: Action) -> Outcome:
        flow = self.dataflow
        match action:
            case Scale(operator=None):
                return self._resize(action, action.target)
            case Acquire():
                return self._resize(action, len(self._staying()) + action.count)
            case Release():
                return self._remove(action, [m for m in self._staying() if m.id == action.node])
            case Move():
                return self._move(action)
            case Pace(stream=None):
                self._q["trigger_s"][:] = action.deadline_s
                return Outcome(action=action, status="applied")
            case Shed(target=None) if action.operator in flow.row:
                query = self._query_of(action.operator)
                self._keep[flow.row[action.operator]] = action.keep
                sources = [self._keep[flow.row[s.id]] for s in self._parts[query].sources]
                self._q["keep"][query] = float(np.mean(sources))
                return Outcome(action=action, status="applied")
            case Switch() if action.operator in flow.row:
                return self._switch(action)
            case _:
                return _outcome(action, "blocked", "unknown-action", kind=action.kind)

    def set_read_limit(self, query: str, records: float) -> None:
        """Let a batch of a query read at most so many records, from its next batch on; infinite: all there are."""
        self._q["limit"][[q.name for q in self.engine.queries].index(query)] = records

    def _query_of(self, operator: str) -> int:
        return next(i for i, p in enumerate(self._parts) if operator in p.row)

    def _staying(self) -> list[_Member]:
        return [m for m in self._members if m.present(self._now_s) and not m.draining]

    def _resize(self, action: Action, target: int) -> Outcome:
        staying = self._staying()
        limit = self.machine.available
        if limit is not None and target > limit:
            return _outcome(action, "blocked", "no-more-nodes", cause=f"at most {limit} executors can be had")
        if target < 1:
            return _outcome(action, "blocked", "last-node")
        if target == len(staying):
            return _outcome(action, "held", "already-so")
        if target < len(staying):
            return self._remove(action, staying[target:])
        self._members += [self._new_member() for _ in range(target - len(staying))]
        for index, member in enumerate(self._members[-(target - len(staying)) :]):
            # Ids and start-up draws go by number.
            member.id = f"executor-{len(self._members) - (target - len(staying)) + index}"
        self._set_executors()
        self._pending.append((action, self._now_s))
        return _outcome(action, "deferred", "node-starting", nodes=target - len(staying))

    def _remove(self, action: Action, leaving: Sequence[_Member]) -> Outcome:
        """State moves away at the next boundary, then the executor goes."""
        if not leaving:
            return _outcome(action, "held", "already-so")
        staying = [m for m in self._staying() if m not in leaving]
        if not staying:
            return _outcome(action, "blocked", "last-node")
        rows = [self._members.index(m) for m in staying]
        gone = {self._members.index(m) for m in leaving}
        place = np.where(self._q["wanted"] >= 0, self._q["wanted"], self._q["place"])
        homeless = np.flatnonzero(np.isin(place, list(gone)))
        for n, p in enumerate(homeless):
            self._q["wanted"][p] = rows[n % len(rows)]
        boundary_s = float(np.max(self._q["due_s"], initial=self._now_s, where=self._q["doing"] > 0))
        for member in leaving:
            member.draining, member.gone_s = True, max(self._now_s, boundary_s) + 1.0
        self._set_executors()
        return Outcome(action=action, status="applied")

    def _move(self, action: Move) -> Outcome:
        stages = [k for k, s in enumerate(self._stages) if s.stateful and action.operator in s.operators]
        target = next((i for i, m in enumerate(self._members) if m.id == action.target), None)
        if not stages or not 0 <= action.index < self._stages[stages[0]].partitions:
            cause = f"{action.subject} holds no state"
            return _outcome(action, "blocked", "no-such-state", cause=cause)
        if target is None or not self._members[target].present(self._now_s):
            return _outcome(action, "blocked", "no-such-node", node=action.target)
        p = int(self._q["part_first"][stages[0]]) + action.index
        if self._q["place"][p] == target:
            return _outcome(action, "held", "already-so")
        self._q["wanted"][p] = target
        return Outcome(action=action, status="applied")

    def _switch(self, action: Switch) -> Outcome:
        """Another alternate: the stage's cost changes by the ratio of the declared costs."""
        flow = self.dataflow
        operator = flow.operators[flow.row[action.operator]]
        row, index = flow.row[action.operator], operator.alternate_index(action.target)
        old, new = operator.alternates[int(self._alternate[row])], operator.alternates[index]
        for k, stage in enumerate(self._stages):
            if action.operator in stage.operators:
                self._q["record_s"][k] = max(0.0, self._q["record_s"][k] + new.cost_s - old.cost_s)
        self._alternate[row] = index
        return Outcome(action=action, status="applied")

    def _decided(self) -> list[Outcome]:
        """Growth is done when all that were asked for work; state then spreads evenly over them."""
        done = []
        for action, asked_s in list(self._pending):
            if all(m.ready_s <= self._now_s for m in self._staying()):
                self._pending.remove((action, asked_s))
                self._spread()
                done.append(Outcome(action=action, status="applied", took_s=self._now_s - asked_s))
        return done

    def _spread(self) -> None:
        rows = [self._members.index(m) for m in self._staying()]
        for k, stage in enumerate(self._stages):
            if not stage.stateful:
                continue
            a, b = self._q["part_first"][k], self._q["part_first"][k + 1]
            place = np.where(self._q["wanted"][a:b] >= 0, self._q["wanted"][a:b], self._q["place"][a:b])
            load = {r: int(np.sum(place == r)) for r in rows}
            for i, at in enumerate(place):
                least = min(load, key=lambda r: load[r])
                if at in load and load[int(at)] - load[least] <= 1:
                    continue
                if at in load:
                    load[int(at)] -= 1
                load[least] += 1
                self._q["wanted"][a + i] = least


def _outcome(action: Action, status: Status, code: str, **facts: str | int) -> Outcome:
    return Outcome(action=action, status=status, reason=Reason(code=code, facts=facts))


def _long(load: Load) -> tuple[Floats, Floats]:
    """A profile as points; one that repeats is written out for a day."""
    if load.period_s is None:
        return np.asarray(load.times_s), np.asarray(load.rates_rps)
    turns = np.arange(0.0, 86_400.0, load.period_s)
    times = (turns[:, None] + np.asarray(load.times_s)[None, :]).ravel()
    return times, load.rate_at(times)
