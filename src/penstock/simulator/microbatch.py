"""Queries that work in micro-batches on simulated executors, behind the same two ports as Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import Floats
from penstock.control.plan import NotReadyError, Outcome, Plan, Status
from penstock.dataflow import Dataflow, Load, applications
from penstock.policies.actions import Acquire, Action, Limit, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.reasons import Reason
from penstock.simulator import microbatch_kernel as kernel
from penstock.simulator.microbatch_executors import NEVER, Fleet, Life
from penstock.simulator.microbatch_latency import NONE_ENDED, Ended, LoadPoints, load_points
from penstock.simulator.microbatch_model import Engine
from penstock.simulator.microbatch_observation import Controls, Observer, own_limits
from penstock.telemetry import MachineClass, Snapshot

LOG_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """An executor that dies without a word: the one that has been there longest at that time."""

    time_s: float


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
        kills: Sequence[Kill] = (),
    ) -> None:
        self.dataflow, self.engine, self.machine, self._seed = dataflow, engine, machine, seed
        self._parts = applications(dataflow)
        if not len(self._parts) == len(engine.queries) == len(loads):
            raise ValueError(
                f"{len(self._parts)} connected parts, {len(engine.queries)} queries and {len(loads)} loads"
            )
        self._kills = deque(sorted(k.time_s for k in kills))
        lives = [Life()] * executors if isinstance(executors, int) else executors
        # Where it is known beforehand who comes and goes, state is spread anew each time, as the pilot does it.
        self._changes_s = deque(sorted({t for x in lives for t in (x.ready_s, x.gone_s) if 0 < t < NEVER}))
        self._fleet = Fleet(engine.executors, machine, lives, seed)
        self._points = [load_points(load) for load in loads]
        self._stages = [stage for query in engine.queries for stage in query.stages]
        self._t = _tables(engine, self._points, first_s)
        if len(first_s):
            home = [i for i, m in enumerate(self._fleet.members) if m.ready_s <= 0] or [-1]
            self._t.place[:] = np.resize(home, len(self._t.place))
        count = len(dataflow.operators)
        self._controls = Controls(
            keep=np.ones(count), alternate=np.zeros(count, np.int64), limit=own_limits(dataflow, engine)
        )
        self._observer = Observer(dataflow, engine, loads, self._points)
        self._now_s = self._seen_s = 0.0
        self._log = np.zeros((LOG_ROWS, kernel.LAST_COLUMN))
        self._ended: list[Floats] = []
        self._cost = self.executor_seconds = 0.0
        self._pending: list[tuple[Action, float]] = []

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._now_s

    def advance(self, until_s: float) -> None:
        """Let simulated time pass until `until_s`."""
        while self._now_s < until_s:
            pause_s = min([until_s, *(times[0] for times in (self._changes_s, self._kills) if times)])
            self._run(pause_s)
            seconds = self._fleet.seconds(self._now_s, pause_s)
            self.executor_seconds += seconds
            self._cost += seconds / 3600.0 * self.machine.price_per_hour
            self._now_s = pause_s
            if self._kills and self._kills[0] <= pause_s:
                self._kills.popleft()
                self._kill()
            if self._changes_s and self._changes_s[0] <= pause_s:
                self._changes_s.popleft()
                self._spread()

    def _run(self, until_s: float) -> None:
        rows = len(self._log)
        while rows == len(self._log):
            rows = kernel.advance(until_s, self._seed, self._t, self._fleet.tables, self._log)
            self._ended.append(self._log[:rows].copy())

    def _kill(self) -> None:
        """The oldest executor dies: the task it was at runs again elsewhere once the driver has noticed."""
        killed = self._fleet.kill_oldest(self._now_s)
        if killed is None:
            return
        (victim, cut_s), t = killed, self._t
        if cut_s > 0:
            running = (t.doing == kernel.STAGE) & (t.due_s > self._now_s)
            t.due_s[running] += self.engine.executors.lost_s + cut_s
        lost = t.place == victim
        t.restoring[lost] = True
        t.place[lost] = -1

    def taken(self) -> Ended:
        """The batches that ended since the last call, or since the last snapshot."""
        log, self._ended = np.vstack([NONE_ENDED.log, *self._ended]), []
        return Ended.of_log(log, self._points)

    def observe(self) -> Snapshot:
        """The facts since the last call."""
        if self._now_s <= self._seen_s:
            raise NotReadyError("no simulated time has passed since the last snapshot")
        self._seen_s = self._now_s
        return self._observer.snapshot(
            self._now_s, self.taken(), self._t, self._fleet, self._controls, self._cost
        )

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """One outcome per action, then those of earlier ones that are decided by now."""
        decided = tuple(self._decided())
        return (*(self._act(planned.action) for planned in plan.actions), *decided)

    def _act(self, action: Action) -> Outcome:
        flow, fleet = self.dataflow, self._fleet
        staying = fleet.staying(self._now_s)
        match action:
            case Scale(operator=None):
                return self._resize(action, action.target)
            case Acquire():
                return self._resize(action, len(staying) + action.count)
            case Release():
                return self._remove(action, [i for i in staying if fleet.members[i].id == action.node])
            case Move():
                return self._move(action)
            case Pace(query=str(name)) if name in (names := [q.name for q in self.engine.queries]):
                self._t.trigger_s[names.index(name)] = action.deadline_s
                return Outcome(action=action, status="applied")
            case Limit() if action.operator in flow.row:
                query = next(i for i, p in enumerate(self._parts) if action.operator in p.row)
                self._controls.limit[flow.row[action.operator]] = action.records
                mine = [self._controls.limit[flow.row[s.id]] for s in self._parts[query].sources]
                self._t.limit[query] = sum(mine) if all(mine) else np.inf
                return Outcome(action=action, status="applied")
            case Shed(target=None) if action.operator in flow.row:
                query = next(i for i, p in enumerate(self._parts) if action.operator in p.row)
                self._controls.keep[flow.row[action.operator]] = action.keep
                sources = [self._controls.keep[flow.row[s.id]] for s in self._parts[query].sources]
                self._t.keep[query] = float(np.mean(sources))
                return Outcome(action=action, status="applied")
            case Switch() if action.operator in flow.row:
                return self._switch(action)
            case _:
                return _outcome(action, "blocked", "unknown-action", kind=action.kind)

    def _resize(self, action: Action, target: int) -> Outcome:
        staying = self._fleet.staying(self._now_s)
        limit = self.machine.available
        if limit is not None and target > limit:
            return _outcome(action, "blocked", "no-more-nodes", cause=f"at most {limit} executors can be had")
        if target < 1:
            return _outcome(action, "blocked", "last-node")
        if target == len(staying):
            return _outcome(action, "held", "already-so")
        if target < len(staying):
            return self._remove(action, staying[target:])
        self._fleet.grow(target - len(staying), self._now_s)
        self._pending.append((action, self._now_s))
        return _outcome(action, "deferred", "node-starting", nodes=target - len(staying))

    def _remove(self, action: Action, leaving: Sequence[int]) -> Outcome:
        """State moves away at the next boundary, then the executor goes."""
        if not leaving:
            return _outcome(action, "held", "already-so")
        staying = [i for i in self._fleet.staying(self._now_s) if i not in leaving]
        if not staying:
            return _outcome(action, "blocked", "last-node")
        t = self._t
        for n, p in enumerate(np.flatnonzero(np.isin(self._places(), leaving))):
            t.wanted[p] = staying[n % len(staying)]
        boundary_s = float(np.max(t.due_s, initial=self._now_s, where=t.doing > 0))
        for i in leaving:
            member = self._fleet.members[i]
            member.draining, member.gone_s = True, max(self._now_s, boundary_s) + 1.0
        self._fleet.refresh()
        return Outcome(action=action, status="applied")

    def _move(self, action: Move) -> Outcome:
        stages = [k for k, s in enumerate(self._stages) if s.stateful and action.operator in s.operators]
        target = [i for i in self._fleet.there(self._now_s) if self._fleet.members[i].id == action.target]
        if not stages or not 0 <= action.index < self._stages[stages[0]].partitions:
            cause = f"{action.subject} holds no state"
            return _outcome(action, "blocked", "no-such-state", cause=cause)
        if not target:
            return _outcome(action, "blocked", "no-such-node", node=action.target)
        p = int(self._t.part_first[stages[0]]) + action.index
        if self._t.place[p] == target[0]:
            return _outcome(action, "held", "already-so")
        self._t.wanted[p] = target[0]
        return Outcome(action=action, status="applied")

    def _switch(self, action: Switch) -> Outcome:
        """Another alternate: the stage's cost changes by the ratio of the declared costs."""
        row = self.dataflow.row[action.operator]
        operator, active = self.dataflow.operators[row], self._controls.alternate
        index = operator.alternate_index(action.target)
        old, new = operator.alternates[int(active[row])], operator.alternates[index]
        for k, stage in enumerate(self._stages):
            if action.operator in stage.operators:
                self._t.record_s[k] = max(0.0, self._t.record_s[k] + new.cost_s - old.cost_s)
        active[row] = index
        return Outcome(action=action, status="applied")

    def _decided(self) -> list[Outcome]:
        """Growth is done when all that were asked for work; state then spreads evenly over them."""
        members = [self._fleet.members[i] for i in self._fleet.staying(self._now_s)]
        if not self._pending or not all(m.ready_s <= self._now_s for m in members):
            return []
        done, self._pending = self._pending, []
        self._spread()
        return [Outcome(action=a, status="applied", took_s=self._now_s - asked_s) for a, asked_s in done]

    def _spread(self) -> None:
        """Move as few state partitions as make their numbers even."""
        places = self._places()
        for k, stage in enumerate(self._stages):
            if not stage.stateful:
                continue
            first, last = self._t.part_first[k], self._t.part_first[k + 1]
            load = {i: int(np.sum(places[first:last] == i)) for i in self._fleet.staying(self._now_s)}
            for p in range(first, last):
                at, least = int(places[p]), min(load, key=lambda i: load[i])
                if at in load and load[at] - load[least] <= 1:
                    continue
                if at in load:
                    load[at] -= 1
                load[least] += 1
                self._t.wanted[p] = least

    def _places(self) -> Floats:
        """Where each partition is or is to go."""
        return np.where(self._t.wanted >= 0, self._t.wanted, self._t.place)


def _tables(engine: Engine, points: Sequence[LoadPoints], first_s: Sequence[float]) -> kernel.Queries:
    """The queries before their first batch."""
    queries, count = engine.queries, len(engine.queries)
    stages = [stage for query in queries for stage in query.stages]
    each = [s.partitions for s in stages]
    total, model = sum(each), engine.executors

    def of_queries(name: str) -> Floats:
        return np.array([getattr(q, name) for q in queries], np.float64)

    def of_stages(name: str) -> Floats:
        return np.array([getattr(s, name) for s in stages], np.float64)

    weights = [
        np.asarray(s.weights) / sum(s.weights) if s.weights else np.full(s.partitions, 1 / s.partitions)
        for s in stages
    ]
    return kernel.Queries(
        due_s=np.array(first_s, np.float64) if len(first_s) else np.zeros(count),
        **dict[str, Any](
            {n: np.zeros(count, np.int64) for n in ("doing", "stage_at", "batch_id")}
            | {n: np.zeros(count) for n in ("began_s", "in_batch", "flowing", "busy_s", "fixed_s", "read")}
            | {n: of_queries(n) for n in ("plan_s", "stage_s", "commit_s", "trigger_s")}
            | {n: of_queries(n) for n in ("driver_cv", "task_cv", "batch_cv")}
            | {n: of_stages(n) for n in ("record_s", "task_s", "selectivity")}
        ),
        limit=of_queries("read_limit"),
        keep=np.ones(count),
        stage_first=np.cumsum([0, *(len(q.stages) for q in queries)]),
        load_first=np.cumsum([0, *(len(times) for times, _, _, _ in points)]),
        load_times=np.concatenate([times for times, _, _, _ in points]),
        load_rates=np.concatenate([rates for _, rates, _, _ in points]),
        load_totals=np.concatenate([totals for _, _, totals, _ in points]),
        load_total_first=np.cumsum([0, *(len(totals) for _, _, totals, _ in points)]),
        period_s=np.array([period_s for _, _, _, period_s in points]),
        stateful=np.array([s.stateful for s in stages], np.bool_),
        part_first=np.cumsum([0, *each]),
        weights=np.concatenate(weights),
        place=np.full(total, -1),
        wanted=np.full(total, -1),
        restoring=np.zeros(total, np.bool_),
        restore_s=model.restore_s + np.repeat(of_stages("state_bytes"), each) / model.restore_bytes_per_s,
        part_busy=np.zeros(total),
        part_records=np.zeros(total),
    )


def _outcome(action: Action, status: Status, code: str, **facts: str | int) -> Outcome:
    return Outcome(action=action, status=status, reason=Reason(code=code, facts=facts))
