"""A running Structured Streaming query as a `Runtime`: observe it, steer it, never stop it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.control.plan import NotReadyError, Outcome, Plan
from penstock.dataflow import Dataflow, OperatorId
from penstock.policies.actions import Acquire, Action, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.reasons import Reason
from penstock.spark.act.jobs import Done, Place, Steering
from penstock.spark.internals.capabilities import Capability, probe
from penstock.spark.internals.controls import get_controls, set_controls
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import Pacing
from penstock.spark.internals.shuffles import Shuffles
from penstock.spark.internals.state import StatePartitions
from penstock.spark.internals.tasks import TaskMetrics
from penstock.spark.observe.machine_load import HostWatch
from penstock.spark.observe.observer import Gauges, Observer, place_of
from penstock.spark.observe.source_rates import SourceReader
from penstock.spark.observe.task_measures import Measures
from penstock.spark.query.sampling import keep_control
from penstock.spark.query.stage_runner import alternate_control
from penstock.telemetry import MachineClass, Snapshot

EXECUTOR = MachineClass(name="executor", billing_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """Limits of what the runtime does by itself."""

    machine: MachineClass = EXECUTOR
    """What an executor is and costs; `available` is the most there can be."""
    confirm_s: float = 60.0
    """Seconds within which Spark must show that an action took effect."""


DEFAULTS = RuntimeOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A run added up."""

    batches: int
    records_in: int
    executor_seconds: float
    """Time that executors were there, added up over all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """An action under way: `check` gives its outcome when there is one."""

    action: Action
    asked_s: float
    check: Callable[[], Outcome | None]


class SparkRuntime:
    """One query under control. What was asked for is kept, and asserted again until Spark shows that it is so.

    `restart(partitions)` stops the query between two batches, changes the number of its state partitions and starts
    it again; without it (attached queries) what needs a restart is blocked.
    """

    def __init__(
        self,
        spark: SparkSession,
        dataflow: Dataflow,
        query: StreamingQuery,
        *,
        sources: Mapping[OperatorId, SourceReader],
        state_operators: Mapping[int, OperatorId],
        measures: Measures | None = None,
        restart: Callable[[StreamingQuery, int], StreamingQuery] | None = None,
        options: RuntimeOptions = DEFAULTS,
        clock: Callable[[], float] = time.time,
        hosts: HostWatch | None = None,
    ) -> None:
        self.spark, self.dataflow, self.query, self._options = spark, dataflow, query, options
        self._clock, self._restart = clock, restart
        self._state_operators = dict(state_operators)
        self.capabilities = probe(spark)
        self._executors = Executors(spark)
        self._partitions: StatePartitions | None = None
        self._pacing: Pacing | None = None
        self.steering = Steering(
            lambda: self.query, self._state_partitions, self._executors, timeout_s=options.confirm_s
        )
        can = self.capabilities
        self.observer = Observer(
            dataflow,
            Gauges(
                query=lambda: self.query,
                executors=self._executors,
                steering=self.steering,
                measures=measures,
                tasks=TaskMetrics(spark) if can.task_metrics.available else None,
                shuffles=Shuffles(spark) if can.shuffle_matrix.available else None,
                interval_ms=self._interval_ms if can.pacing_interval.available else None,
            ),
            machine=options.machine,
            state_operators=self._state_operators,
            sources=sources,
            now_s=clock(),
            hosts=hosts,
        )
        self._has_hosts = measures is not None
        self._controls: dict[str, Any] = {}
        self._pending: list[_Pending] = []
        self._restarting = False

    def observe(self) -> Snapshot:
        """The facts since the last call, or `NotReadyError` before the first batch has ended."""
        if not self.has_begun():
            raise NotReadyError("no micro-batch has ended yet")
        return self.observer.observe(self._clock())

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Ask Spark for what the plan says; what takes longer than a moment is deferred and reported when done."""
        self._assert_controls()
        decided = self._decided()
        changes = self._control_changes(plan)
        moves = self._start_moves([p.action for p in plan.actions if isinstance(p.action, Move)])
        outcomes = []
        for planned in plan.actions:
            try:
                outcome = moves.get(id(planned.action)) or self._ask(planned.action, changes)
            except SparkInternalsError as problem:
                outcome = _outcome(planned.action, "failed", "spark-refused", cause=str(problem))
            outcomes.append(outcome)
        return (*outcomes, *decided)

    def query_is_active(self) -> bool:
        """Whether there is something left to steer; true while the query is being restarted."""
        return self._restarting or self.query.isActive

    def has_begun(self) -> bool:
        """Whether a micro-batch has ended, so that there is something to observe."""
        return self.observer.seen_batch >= 0 or self.query.lastProgress is not None

    def failure(self) -> BaseException | None:
        """What ended the query, if it did not end by itself."""
        return self.query.exception()

    def stop(self) -> None:
        """Stop the query."""
        if self.query.isActive:
            self.query.stop()

    def close(self) -> None:
        """Stop steering; the query is left as it is."""
        self.steering.close()

    @property
    def usage(self) -> Usage:
        """What was done since the start."""
        seen = self.observer
        return Usage(batches=seen.batches, records_in=seen.records_in, executor_seconds=seen.executor_seconds)

    @property
    def controls(self) -> Mapping[str, Any]:
        """The values that were asked for: shares to keep and alternates, by control name."""
        return dict(self._controls)

    def adopt_controls(self, values: Mapping[str, Any]) -> None:
        """Take values with which the query was started as asked for, so that they are asserted again if lost."""
        self._controls.update(values)

    def _ask(self, action: Action, changes: Mapping[str, Any]) -> Outcome:
        match action:
            case Shed() | Switch():
                return self._control(action, changes)
            case Scale(operator=None):
                return self._resize(action, action.target)
            case Acquire():
                return self._resize(action, len(self._executors.list()) + action.count)
            case Release():
                return self._release(action)
            case Pace(stream=None):
                return self._pace(action)
            case Scale():
                return self._repartition(action)
            case _:
                return _outcome(
                    action, "blocked", "not-on-spark", cause="Spark batches per query, not per stream"
                )

    def _control_changes(self, plan: Plan) -> dict[str, Any]:
        """Send all changed controls of a plan at once, so that one micro-batch sees all or none of them."""
        wanted = {name: value for p in plan.actions for name, value in _control_values(p.action).items()}
        changed = {name: value for name, value in wanted.items() if self._controls.get(name) != value}
        if not changed or not self._can_control():
            return {}
        try:
            document = set_controls(self.query, changed)
        except SparkInternalsError:
            return {}  # each action asks again by itself and reports the cause
        self._controls.update(changed)
        return dict.fromkeys(changed, document.effective_batch)

    def _control(self, action: Shed | Switch, changes: Mapping[str, Any]) -> Outcome:
        if not self._has_hosts:
            return _outcome(action, "blocked", "not-declared", cause="needs a dataflow that Penstock built")
        if not self.capabilities.controls.available:
            return _unavailable(action, self.capabilities.controls)
        ((name, value),) = _control_values(action).items()
        if name not in changes and self._controls.get(name) == value:
            return _outcome(action, "held", "already-so")
        batch = changes.get(name)
        if batch is None:
            batch = set_controls(self.query, {name: value}).effective_batch
            self._controls[name] = value
        began_s = self._clock()

        def check() -> Outcome | None:
            if self.observer.seen_batch < batch:
                return None
            return Outcome(
                action=action,
                status="applied",
                reason=Reason(code="from-batch", facts={"batch": batch}),
                took_s=self._clock() - began_s,
            )

        return self._defer(action, check, Reason(code="from-batch", facts={"batch": batch}))

    def _can_control(self) -> bool:
        return self._has_hosts and self.capabilities.controls.available and self.query.isActive

    def _assert_controls(self) -> None:
        """Send the controls again to a query that lost them: a restart begins without any."""
        if not self._controls or not self._can_control():
            return
        try:
            held = get_controls(self.query).current
            lost = {name: value for name, value in self._controls.items() if held.get(name) != value}
            if lost:
                set_controls(self.query, lost)
        except SparkInternalsError:
            return  # the next cycle tries again

    def _start_moves(self, actions: list[Move]) -> dict[int, Outcome]:
        """The outcome of each move, by identity; all that are possible are one job, carried out at one boundary."""
        if not actions:
            return {}
        if not self.capabilities.state_moves.available:
            return {id(a): _unavailable(a, self.capabilities.state_moves) for a in actions}
        try:
            known, executors = self.steering.places(), {e.id for e in self._executors.list()}
        except SparkInternalsError as problem:
            return {id(a): _outcome(a, "failed", "spark-refused", cause=str(problem)) for a in actions}
        targets: dict[Place, str] = {}
        outcomes: dict[int, Outcome] = {}
        for action in actions:
            place = place_of(action.operator, action.index, self._state_operators)
            if place is None or place not in known:
                cause = f"{action.subject} holds no state on Spark"
                outcomes[id(action)] = _outcome(action, "blocked", "no-such-state", cause=cause)
            elif action.target not in executors - self.steering.draining:
                cause = f"executor {action.target} is not there"
                outcomes[id(action)] = _outcome(action, "blocked", "no-such-node", cause=cause)
            elif known[place] == action.target:
                outcomes[id(action)] = _outcome(action, "held", "already-so")
            else:
                targets[place] = action.target
        if targets:
            job = self.steering.move(targets)
            for action in actions:
                if id(action) not in outcomes:
                    place = place_of(action.operator, action.index, self._state_operators)
                    outcomes[id(action)] = self._when_done(action, job, about=str(place))
        return outcomes

    def _resize(self, action: Action, target: int) -> Outcome:
        if not self.capabilities.executors.available:
            return _unavailable(action, self.capabilities.executors)
        limit = self._options.machine.available
        if limit is not None and target > limit:
            return _outcome(action, "blocked", "no-more-nodes", cause=f"at most {limit} executors can be had")
        if target < 1:
            return _outcome(action, "blocked", "last-node", cause="a query needs an executor")
        staying = sorted({e.id for e in self._executors.list()} - self.steering.draining, key=_age)
        if len(staying) == target:
            return _outcome(action, "held", "already-so")
        if target > len(staying):
            return self._when_done(action, self.steering.grow(target))
        # The youngest go first: they hold the least, and the oldest are the warmest.
        return self._when_done(action, self.steering.drain(frozenset(staying[target:])))

    def _release(self, action: Release) -> Outcome:
        if not self.capabilities.executors.available:
            return _unavailable(action, self.capabilities.executors)
        staying = {e.id for e in self._executors.list()} - self.steering.draining
        if action.node not in staying:
            return _outcome(action, "held", "already-so")
        if len(staying) == 1:
            return _outcome(action, "blocked", "last-node", cause="a query needs an executor")
        return self._when_done(action, self.steering.drain(frozenset({action.node})))

    def _repartition(self, action: Scale) -> Outcome:
        """Change the number of state partitions: a restart from the checkpoint, the only way there is."""
        assert action.operator is not None
        if not self.capabilities.state_repartition.available:
            return _unavailable(action, self.capabilities.state_repartition)
        if self._restart is None:
            return _outcome(
                action, "blocked", "not-declared", cause="a restart needs a dataflow that Penstock built"
            )
        if action.operator not in self._state_operators.values():
            return _outcome(
                action, "blocked", "no-such-state", cause=f"'{action.operator}' holds no state on Spark"
            )
        began_s = time.monotonic()
        self._restarting = True
        try:
            self.query = self._restart(self.query, action.target)
        finally:
            self._restarting = False
        self._partitions = self._pacing = None
        self._assert_controls()
        return Outcome(
            action=action,
            status="applied",
            reason=Reason(code="restarted"),
            took_s=time.monotonic() - began_s,
        )

    def _pace(self, action: Pace) -> Outcome:
        if not self.capabilities.pacing_interval.available:
            return _unavailable(action, self.capabilities.pacing_interval)
        pacing, wanted_ms = self._pace_of_run(), round(1e3 * action.deadline_s)
        if pacing.interval_ms() == wanted_ms:
            return _outcome(action, "held", "already-so")
        pacing.set_interval_ms(wanted_ms)
        shown_ms = pacing.interval_ms()
        status = "applied" if shown_ms == wanted_ms else "failed"
        return _outcome(action, status, "interval", interval_ms=shown_ms)

    def _interval_ms(self) -> int:
        try:
            return self._pace_of_run().interval_ms()
        except SparkInternalsError:
            return 0  # a trigger without an interval

    def _pace_of_run(self) -> Pacing:
        if self._pacing is None:
            self._pacing = Pacing(self.spark, self.query)
        return self._pacing

    def _state_partitions(self) -> StatePartitions | None:
        if not self.capabilities.state_moves.available:
            return None
        if self._partitions is None:
            self._partitions = StatePartitions(self.spark, self.query)
        return self._partitions if self._partitions.operators() else None

    def _when_done(self, action: Action, job: Future[Done], *, about: str | None = None) -> Outcome:
        """Deferred until the job ends; `about` names the part of it that this action asked for."""

        def check() -> Outcome | None:
            if not job.done():
                return None
            problem = job.exception()
            if problem is not None:
                return _outcome(action, "failed", "spark-refused", cause=str(problem))
            done = job.result()
            missed = {n: why for n, why in done.missed.items() if about is None or n == about}
            if missed:
                what = "; ".join(f"{name}: {why}" for name, why in sorted(missed.items()))
                return replace(_outcome(action, "failed", "not-confirmed", cause=what), took_s=done.took_s)
            confirmed = Reason(code="confirmed", facts={"pause_s": done.pause_s, "unmoved": done.unmoved})
            return Outcome(action=action, status="applied", reason=confirmed, took_s=done.took_s)

        return self._defer(action, check, Reason(code="under-way"))

    def _defer(self, action: Action, check: Callable[[], Outcome | None], reason: Reason) -> Outcome:
        # A newer wish for the same thing replaces the older one's report.
        self._pending = [
            p for p in self._pending if (p.action.kind, p.action.subject) != (action.kind, action.subject)
        ]
        self._pending.append(_Pending(action=action, asked_s=self._clock(), check=check))
        return Outcome(action=action, status="deferred", reason=reason)

    def _decided(self) -> list[Outcome]:
        decided, still = [], []
        for pending in self._pending:
            outcome = pending.check()
            if outcome is None and self._clock() - pending.asked_s > 2 * self._options.confirm_s:
                outcome = _outcome(
                    pending.action, "failed", "not-confirmed", cause="Spark did not show it in time"
                )
            if outcome is None:
                still.append(pending)
            else:
                decided.append(outcome)
        self._pending = still
        return decided


def _control_values(action: Action) -> dict[str, Any]:
    match action:
        case Shed():
            return {keep_control(action.subject): action.keep}
        case Switch():
            return {alternate_control(action.operator): action.target}
        case _:
            return {}


def _outcome(action: Action, status: Any, code: str, **facts: Any) -> Outcome:
    return Outcome(action=action, status=status, reason=Reason(code=code, facts=facts))


def _unavailable(action: Action, lever: Capability) -> Outcome:
    return _outcome(action, "blocked", "lever-unavailable", lever=lever.name, cause=lever.unavailable)


def _age(executor: str) -> tuple[int, str]:
    """Executors are numbered as they come; names that are no numbers come last."""
    return (int(executor) if executor.isdigit() else 1 << 30, executor)
