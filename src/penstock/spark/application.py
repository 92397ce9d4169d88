"""A Spark application with all its queries as one `Runtime`: those that run, come later, end, or start again.

Each query is looked at by itself; executors belong to all of them. What has to be asked of Spark is asked on a thread
of its own: a cycle takes what is there in time, and what is late comes with a later one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from pyspark.sql import SparkSession

from penstock.control.plan import NotReadyError, Outcome, Plan
from penstock.dataflow import Dataflow
from penstock.policies.actions import Action, Limit, Move, Pace, Scale, Shed, Switch
from penstock.policies.reasons import Reason
from penstock.policies.wording import sentence
from penstock.spark.act.executor_pool import ExecutorPool
from penstock.spark.act.lease import Lease
from penstock.spark.act.move_pauses import MovePauses
from penstock.spark.attached_query import dataflow_of, prefix_of, readers_of, sources_of, state_id
from penstock.spark.frame_controls import FrameControls
from penstock.spark.goals import Goals
from penstock.spark.internals.active_queries import ActiveQueries, ActiveQuery
from penstock.spark.internals.capabilities import probe
from penstock.spark.internals.driver_settings import DriverSettings
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.state import StatePartitions
from penstock.spark.latency_floor import LatencyFloor
from penstock.spark.observe.executor_nodes import ExecutorNodes
from penstock.spark.observe.looks import Look
from penstock.spark.observe.machine_load import HostWatch
from penstock.spark.observe.task_measures import TaskRecord
from penstock.spark.realtime import preflight_of
from penstock.spark.runtime import RuntimeOptions, SparkRuntime, Usage
from penstock.spark.worker import Worker
from penstock.telemetry import MachineClass, Nodes, Snapshot, joined
from penstock.telemetry.executor_speed import ExecutorSpeeds

LOG = logging.getLogger(__name__)

UNSTEERED = {
    "available-now": "it ends by itself when what is there has been read",
    "once": "it ends by itself after one batch",
    "continuous": "continuous processing has no micro-batches; use a processing-time trigger",
    "real-time": "its batches last as long as its trigger; executors must fit all its stages at once",
}
"""Triggers under which a query is left alone, and what to know about it."""

MOST_CAUSE = 300
"""Characters of a failed query's own words that are told."""

ANSWER_S = 0.2
"""How long the loop waits to be told that the application is still there."""

CLOSE_S = 10.0
"""How long a close waits for a look that is under way."""

Looked = tuple[list[Look], tuple[TaskRecord, ...]]


@dataclass(slots=True)
class _Part:
    """One query under control."""

    query: ActiveQuery
    runtime: SparkRuntime
    floor: LatencyFloor
    asked: Future[Looked] | None = None
    early: FrameControls | None = None
    """What may be steered as far as it was known in the first batch; None: all of it is known."""


class ApplicationRuntime:
    """All queries of one application. Implements `Runtime`; it is not ready while none has begun a batch."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        goals: Callable[[str], Goals],
        options: RuntimeOptions,
        interval_s: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        clock = clock or steady_clock()
        self.spark, self._goals, self._options, self._clock = spark, goals, options, clock
        self.acts: Callable[[], bool] = lambda: True
        """Whether this pilot may change anything; one that only looks leaves the lease to others."""
        self._interval_s, self._budget_s, self._patience_s = interval_s, interval_s / 2, 0.8 * interval_s
        self._front, self._asked = Worker("penstock-spark"), cast("Future[Snapshot] | None", None)
        self._applying: Future[tuple[Outcome, ...]] | None = None
        self._alive: Future[bool] | None = None
        self.capabilities = probe(spark)
        self._executors = Executors(spark)
        settings = DriverSettings(spark)
        self._lease = Lease(settings, interval_s=interval_s)
        self.pool = ExecutorPool(self._executors, settings)
        self._queries = ActiveQueries(spark)
        self._parts: dict[str, _Part] = {}
        self._told, self._untold = set[str](), list[str]()
        self._gone = ""
        """What became of the query that ended last."""
        self._hosts, self._nodes = HostWatch(), ExecutorNodes(options.machine)
        self._speeds, self._pauses = ExecutorSpeeds.nothing(), MovePauses()
        self._observed_s = clock()
        self._worker = Worker("penstock-looks")
        self.only_observes: str | None = None
        """Why nothing is changed, None where this pilot is in charge."""
        self._began, self._most_seen = False, 1

    @property
    def dataflow(self) -> Dataflow:
        """The queries that are under control now."""
        flows = [part.runtime.dataflow for part in list(self._parts.values())]
        return Dataflow(
            "application",
            operators=tuple(o for flow in flows for o in flow.operators),
            streams=tuple(s for flow in flows for s in flow.streams),
            constraints=tuple(c for flow in flows for c in flow.constraints),
        )

    def observe(self) -> Snapshot:
        """The facts of all queries since the last call; not ready while Spark does not answer.

        An answer that is late is taken by the next call.
        """
        self._asked = self._asked or self._front.submit(self._observed)
        try:
            found = self._asked.result(self._patience_s)
        except LateError:
            raise NotReadyError(f"Spark did not answer within {self._patience_s:g} s") from None
        except CancelledError:
            raise NotReadyError("the pilot has been stopped") from None
        except BaseException:
            self._asked = None
            raise
        self._asked = None
        return found

    def _observed(self) -> Snapshot:
        self._begin_cycle()
        if not self._parts:
            gone = f"no query is left: {self._gone}" if self._gone else ""
            raise NotReadyError(gone or "no query of the application has begun a batch yet")
        warnings, self._untold = self._untold, []
        looked = self._looks(warnings)
        now_s = self._clock()
        for _, records in looked.values():
            self._hosts.note(records, now_s)
        for key, (looks, _) in looked.items():
            if self._options.task_figures:
                self._speeds = self._parts[key].runtime.observer.compared(looks, self._speeds)
            if note := self._parts[key].floor.note(b for look in looks for b in look.batches):
                self._say(f"{key}: {note}")
        nodes = self._nodes_table(now_s)
        seen = [
            part.runtime.observer.observe(*looked.get(key, ([], ())), nodes, now_s)
            for key, part in self._parts.items()
        ]
        flow = self.dataflow  # its name stays, whichever queries there are
        whole = joined(flow, seen, nodes) if len(seen) > 1 else replace(seen[0], dataflow=flow)
        return replace(
            whole,
            classes=(self._executor_class(len(nodes)),),
            cost=self._nodes.cost,
            pause_factor=self._pauses.factor,
            warnings=(*warnings, *whole.warnings),
        )

    def _executor_class(self, there: int) -> MachineClass:
        """What can be had: as many executors as was said, or as there have been."""
        self._most_seen, machine = max(self._most_seen, there), self._options.machine
        return machine if machine.available else replace(machine, available=self._most_seen)

    def _begin_cycle(self) -> None:
        """Who is in charge, and which queries there are."""
        acts = self.acts()
        holder = self._lease.hold() if acts else None
        if not self._began:
            self._began = True
            if (
                acts and holder is None
            ):  # what a pilot that was killed had changed goes back before anything else
                self._put_back()
            self.pool.start()
            if self.pool.unavailable:
                self._say(f"the number of executors is left as it is: {self.pool.unavailable}")
        reason = None
        if holder is not None:
            reason = f"pilot {holder.owner} is in charge of this application"
        if reason != self.only_observes:
            self.only_observes = reason
            self.pool.leave_alone(reason)
            self._say(f"{reason}: this one only observes" if reason else "in charge of the application again")
        try:
            active = _by_name(self._queries.list())
        except SparkInternalsError as problem:
            raise NotReadyError(f"Spark does not tell its queries: {problem}") from problem
        gone = [
            key
            for key, part in self._parts.items()
            if _ended(part, active.get(key)) or not self._is_complete(key, part)
        ]
        for key in gone:
            part = self._parts.pop(key)
            if _ended(part, active.get(key)):
                self._gone = _end_of(key, part, again=key in active)
                self._untold.append(self._gone)
            part.runtime.close()
        for key, query in active.items():
            cause = self._taken_up(key, query) if key not in self._parts else None
            if cause is not None and cause not in self._told:
                self._told.add(cause)
                self._say(cause)
        self.pool.touched.forget_other_runs({query.run_id for query in active.values()})
        self._untold += [sentence(reason) for reason in self.pool.reconcile()]

    def tell(self, reason: Reason) -> None:
        """Have the next snapshot say it, and so the report; where it was said before, nothing happens."""
        text = sentence(reason)
        if text not in self._told:
            self._told.add(text)
            self._untold.append(text)

    def _say(self, text: str) -> None:
        """What the owner should know at once; it is also in the next snapshot, and so in the report."""
        LOG.warning("penstock: %s", text)
        self._untold.append(text)

    def _taken_up(self, key: str, query: ActiveQuery) -> str | None:
        """Take a query under control once its first batch runs; else why it is not, if that will stay so."""
        if query.trigger in UNSTEERED:
            return f"{key} has the trigger {query.trigger} and is not steered: {UNSTEERED[query.trigger]}"
        opened = self._queries.open(query)
        if opened is None:
            return None
        session, running = opened
        try:
            early = running.lastProgress is None
            sources = sources_of(session, running, running=self.capabilities.running_batch.available)
            states = StatePartitions(session, running).operators()
        except SparkInternalsError:
            return None  # planned anew at this moment: the next cycle sees it
        if sources is None:
            return None
        frames = FrameControls.of(session, running, prefix_of(key), interval_s=self._interval_s)
        if self._options.task_figures and (frames.sheds or frames.alternates):
            self.tell(Reason(code="no-task-figures", facts={"query": key}))
        goals = self._goals(key)
        flow = dataflow_of(key, sources, states, goals, frames)
        frames.sources = tuple(s.id for s in flow.sources)
        self._parts[key] = _Part(
            query,
            SparkRuntime(
                session,
                flow,
                running,
                sources=readers_of(flow, sources, frames),
                state_operators={s.id: state_id(key, s) for s in states},
                options=self._options,
                clock=self._clock,
                hosts=self._hosts,
                pool=self.pool,
                frames=frames,
                pauses=self._pauses,
            ),
            LatencyFloor(goals.latency_ms, partial(preflight_of, session, running)),
            early=frames if early else None,
        )
        return None

    def _is_complete(self, key: str, part: _Part) -> bool:
        """Whether nothing has shown up in the first batch of a query that is not in its dataflow yet.

        Points inside `foreachBatch` are known when their tasks have run.
        """
        if part.early is None or part.runtime.query.lastProgress is None:
            return True
        before, part.early = part.early, None
        found = FrameControls.of(
            part.runtime.spark, part.runtime.query, prefix_of(key), interval_s=self._interval_s
        )
        return (found.sheds, found.alternates) == (before.sheds, before.alternates)

    def _looks(self, warnings: list[str]) -> dict[str, Looked]:
        """What Spark answers within the budget; a query that does not answer in time is unknown in this cycle."""
        for part in self._parts.values():
            if part.asked is None:
                part.asked = self._worker.submit(part.runtime.looked)
        deadline_s, found = time.monotonic() + self._budget_s, dict[str, Looked]()
        for key, part in self._parts.items():
            assert part.asked is not None
            try:
                found[key] = part.asked.result(max(0.0, deadline_s - time.monotonic()))
            except LateError:
                warnings.append(
                    f"{key}: Spark did not answer within {self._budget_s:g} s; nothing new is known"
                )
                continue
            except Exception as problem:  # the other queries are still seen
                warnings.append(f"{key}: {type(problem).__name__}: {problem}")
            part.asked = None
        return found

    def _nodes_table(self, now_s: float) -> Nodes:
        interval_s, self._observed_s = now_s - self._observed_s, now_s
        view = self.pool.view()
        unusable = {v.id for v in view if v.state == "unusable"}
        listed = [e for e in self._executors.list() if e.id not in unusable]
        return self._nodes.table(
            listed,
            self._hosts.loads(now_s),
            starting={v.id for v in view if v.state == "starting"},
            draining=self.pool.draining,
            speeds=self._speeds,
            now_s=now_s,
            interval_s=max(0.0, interval_s),
        )

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Hand each query its actions; what is about executors goes to the pool that all share.

        What Spark does not take in time is deferred, and its outcomes come with a later plan's.
        """
        if self._asked is not None or (self._applying is not None and not self._applying.done()):
            return ()  # the queries are still being looked at, or changed, on the other thread
        before, self._applying = self._applying, None
        late = before.result() if before is not None else ()
        if self.only_observes is not None:
            reason = Reason(code="executors-not-ours", facts={"cause": self.only_observes})
            blocked = (Outcome(action=p.action, status="blocked", reason=reason) for p in plan.actions)
            return (*blocked, *late)
        call = self._front.submit(partial(self._applied, plan))
        try:
            return (*call.result(self._interval_s - self._patience_s), *late)
        except LateError:
            self._applying, reason = call, Reason(code="under-way")
            deferred = (Outcome(action=p.action, status="deferred", reason=reason) for p in plan.actions)
            return (*deferred, *late)
        except CancelledError:
            return late  # it was stopped meanwhile: nothing is changed any more

    def _applied(self, plan: Plan) -> tuple[Outcome, ...]:
        parts = list(self._parts.values())
        if not parts:
            return ()
        mine = [self._owner(planned.action) for planned in plan.actions]
        outcomes: dict[int, Outcome] = {}
        decided: list[Outcome] = []
        for part in parts:
            rows = [i for i, owner in enumerate(mine) if owner is part]
            told = part.runtime.apply(replace(plan, actions=tuple(plan.actions[i] for i in rows)))
            outcomes.update(zip(rows, told, strict=False))
            decided.extend(told[len(rows) :])
        return (*(outcomes[i] for i in range(len(mine))), *decided)

    def _owner(self, action: Action) -> _Part:
        parts = list(self._parts.values())
        match action:
            case Shed() | Switch() | Move() | Limit() | Scale(operator=str()):
                operator = str(action.operator)
            case Pace(query=str(name)):
                return next((p for p in parts if p.runtime.dataflow.name == name), parts[0])
            case _:
                return parts[0]
        return next((p for p in parts if operator in p.runtime.dataflow.row), parts[0])

    @property
    def usage(self) -> Usage:
        """What was done since the start, by all queries on the same executors."""
        each = [part.runtime.usage for part in list(self._parts.values())]
        return Usage(
            batches=sum(u.batches for u in each),
            records_in=sum(u.records_in for u in each),
            executor_seconds=self._nodes.executor_seconds,
        )

    def query_is_active(self) -> bool:
        """Whether the application is still there: queries may come and go, and one that does not answer is busy."""
        self._alive = self._alive or self._front.submit(self._is_there)
        try:
            there = self._alive.result(ANSWER_S)
        except LateError:
            return True
        except CancelledError:
            return False
        self._alive = None
        return there

    def _is_there(self) -> bool:
        try:
            return not self._queries.is_stopped()
        except SparkInternalsError:
            return False

    def close(self) -> None:
        """Stop steering; the queries go on, and what was touched is put back."""
        self._front.close()
        for call in (self._asked, self._applying):
            if call is not None:
                with suppress(Exception):
                    call.result(CLOSE_S)  # it may be opening a query at this moment, or changing one
        self._worker.close()
        for part in self._parts.values():
            part.runtime.close()
        if not self._began:
            return
        try:
            self.pool.close()
            if self.only_observes is None:
                self._put_back()
                self._lease.release()
        except SparkInternalsError:
            if self.query_is_active():
                raise  # what belongs to a driver that has ended is gone with it

    def _put_back(self) -> None:
        levers: dict[str, Callable[[Any], None]] = {
            "executors": self.pool.put_back_target,
            **self.pool.wait.levers,
        }
        for part in self._parts.values():
            with suppress(SparkInternalsError):  # a query that ended has its pace no more
                levers |= part.runtime.pace.levers()
        self.pool.touched.put_back(levers)


def steady_clock() -> Callable[[], float]:
    """Seconds since 1970 as of now, and from then on by a clock that nobody sets."""
    wall_s, began_s = time.time(), time.monotonic()
    return lambda: wall_s + time.monotonic() - began_s


def _by_name(queries: Sequence[ActiveQuery]) -> dict[str, ActiveQuery]:
    """Each query by its name; of several with one name (in several sessions) all but the first with their id."""
    found: dict[str, ActiveQuery] = {}
    for query in sorted(queries, key=lambda q: q.id):
        found[query.key if query.key not in found else f"{query.key}-{query.id[:8]}"] = query
    return found


def _ended(part: _Part, now: ActiveQuery | None) -> bool:
    return now is None or now.run_id != part.query.run_id


def _end_of(key: str, part: _Part, *, again: bool) -> str:
    """How a query ended, and whether it was started again."""
    try:
        cause = part.runtime.query.exception()
    except Exception:  # Spark is going away
        cause = None
    lines = str(cause).strip().splitlines() if cause is not None else []
    ended = f"{key} failed: {lines[0][:MOST_CAUSE]}" if lines else f"{key} was stopped"
    return f"{ended}, and was started again" if again else ended
