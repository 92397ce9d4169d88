"""A running Structured Streaming query as a `Runtime`: observe it, steer it, never stop it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.control.plan import NotReadyError, Outcome, Plan
from penstock.dataflow import Dataflow, OperatorId
from penstock.policies.actions import Acquire, Action, Limit, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.reasons import Reason
from penstock.spark.act.executor_pool import ExecutorPool
from penstock.spark.act.move_pauses import MovePauses
from penstock.spark.act.query_pace import QueryPace
from penstock.spark.act.query_run import SparkQueryRun
from penstock.spark.act.spreading import Place
from penstock.spark.act.state_moves import MoveJob, StateMoves
from penstock.spark.frame_controls import FrameControls, shares_of
from penstock.spark.internals.capabilities import Capability, probe
from penstock.spark.internals.controls import get_controls, set_controls
from penstock.spark.internals.driver_settings import DriverSettings
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.kafka_ends import Brokers
from penstock.spark.internals.pacing import Pacing
from penstock.spark.internals.running import Standing, Standings
from penstock.spark.internals.shuffles import Shuffles
from penstock.spark.internals.tasks import TaskMetrics
from penstock.spark.observe.executor_nodes import ExecutorNodes
from penstock.spark.observe.looks import EndOffsets, Gauges, Look, Looks
from penstock.spark.observe.machine_load import HostWatch
from penstock.spark.observe.observer import Observer, place_of
from penstock.spark.observe.source_rates import SourceReader, kafka_partitions
from penstock.spark.observe.task_measures import Measures, TaskRecord
from penstock.spark.observe.utility_counts import Cutoffs
from penstock.spark.query.sampling import cutoff_control, keep_control
from penstock.spark.query.stage_runner import alternate_control
from penstock.telemetry import MachineClass, Snapshot

CUTOFF_STEP = 0.02
"""Relative change of a utility's cutoff that is worth a new control."""

EXECUTOR = MachineClass(name="executor", billing_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """Limits of what the runtime does by itself."""

    machine: MachineClass = EXECUTOR
    """What an executor is and costs; `available` is the most there can be."""
    confirm_s: float = 60.0
    """Seconds within which Spark must show that an action took effect."""
    task_figures: bool = False
    """Whether snapshots tell what tasks of native operators did and how fast executors are: for who decides by it."""
    traffic: bool = True
    """Whether snapshots tell who sent how much to whom: reading it grows with the partitions."""


DEFAULTS = RuntimeOptions()

Restarted = tuple[StreamingQuery, SparkInternalsError | None]
"""A query that was started again, and why the number of its state partitions is as before, if it is."""


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

    `restart(query, partitions)` stops the query between two batches, changes the number of its state partitions and
    starts it again; without it (attached queries) what needs a restart is blocked.
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
        restart: Callable[[StreamingQuery, int], Restarted] | None = None,
        options: RuntimeOptions = DEFAULTS,
        clock: Callable[[], float] = time.time,
        hosts: HostWatch | None = None,
        pool: ExecutorPool | None = None,
        frames: FrameControls | None = None,
        pauses: MovePauses | None = None,
    ) -> None:
        """`pool`, `hosts` and `pauses` are given where several queries of one application share the executors.

        `frames` has the points of a query that Penstock did not build.
        """
        self.spark, self.dataflow, self.query, self._options = spark, dataflow, query, options
        self._clock, self._restart = clock, restart
        self._state_operators, self._sources = dict(state_operators), tuple(sources)
        self.capabilities = probe(spark)
        self._executors = Executors(spark)
        self._pace_of_run: QueryPace | None = None
        self._run_key = ""
        self._owns_pool = pool is None
        self.pool = pool or ExecutorPool(self._executors, DriverSettings(spark)).start()
        self._brokers: Brokers | None = None
        self.moves = self._follow()
        can = self.capabilities
        self._tasks = TaskMetrics(spark, str(query.runId)) if can.task_metrics.available else None
        reads = options.traffic and can.shuffle_matrix.available and bool(state_operators)
        self._shuffles = Shuffles(spark) if reads else None
        self.looks = self._looks()
        self.observer = Observer(
            dataflow,
            machine=options.machine,
            state_operators=self._state_operators,
            sources=sources,
            now_s=clock(),
            measured=measures is not None,
            task_figures=options.task_figures,
        )
        self._hosts, self._nodes, self._looked_s = (
            hosts or HostWatch(),
            ExecutorNodes(options.machine),
            clock(),
        )
        self._measures, self._frames = measures, frames
        self._has_hosts = measures is not None or frames is not None
        self._controls: dict[str, Any] = {}
        self._cutoffs = Cutoffs.empty()
        self._pending: list[_Pending] = []
        self.pauses = pauses or MovePauses()
        self._restarting, self._not_restarted = False, cast("Exception | None", None)

    def observe(self) -> Snapshot:
        """The facts since the last call, or `NotReadyError` before the first batch has ended."""
        if not self.has_begun():
            raise NotReadyError("no micro-batch has ended yet")
        now_s = self._clock()
        looks, records = self.looked()
        self._hosts.note(records, now_s)
        nodes = self._nodes.table(
            self._executors.list(),
            self._hosts.loads(now_s),
            draining=self.pool.draining,
            now_s=now_s,
            interval_s=now_s - self._looked_s,
        )
        self._looked_s = now_s
        seen = self.observer.observe(looks, records, nodes, now_s)
        return replace(seen, cost=self._nodes.cost, pause_factor=self.pauses.factor)

    def looked(self) -> tuple[list[Look], tuple[TaskRecord, ...]]:
        """Ask Spark, which may take a while: a look at the query, and what its Python tasks measured since."""
        look = self.looks.take()
        ids = [b.batch_id for b in look.batches]
        records = self._measures.take(ids, run_id=look.run_id) if self._measures is not None else ()
        if self._frames is not None:
            records = self._frames.records(look)
        self._cutoffs.learn(found for record in records for found in record.utilities)
        return [look], records

    def _looks(self) -> Looks:
        can = self.capabilities
        return Looks(
            Gauges(
                query=self.query,
                standings=Standings(self.spark, self.query) if can.running_batch.available else None,
                places=self.moves.places,
                moving=lambda: self.moves.moving,
                issued=lambda: self.moves.issued,
                tasks=self._tasks,
                shuffles=self._shuffles,
                pace=(lambda: self.pace.reading()) if can.pacing_interval.available else None,
                ends=self._ends,
            ),
            clock=self._clock,
        )

    def _ends(self, standing: Standing) -> Mapping[int, EndOffsets]:
        """What the brokers of the Kafka sources say; those of another kind of source have none."""
        if self._brokers is None:
            self._brokers = Brokers(self.query, clock=self._clock)
        found: dict[int, EndOffsets] = {}
        for index, partitions in kafka_partitions(standing).items():
            answer = self._brokers.read(index, partitions)
            if answer is not None:
                found[index] = EndOffsets(time_s=answer[0], offsets=answer[1])
        return found

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Ask Spark for what the plan says; what takes longer than a moment is deferred and reported when done."""
        self.pool.reconcile()
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
        """What ended the query, if it did not end by itself; a restart that failed too."""
        return self._not_restarted or self.query.exception()

    def stop(self) -> None:
        """Stop the query."""
        if self.query.isActive:
            self.query.stop()

    def close(self) -> None:
        """Stop steering; the query is left as it is, and what was touched is put back."""
        self.pool.forget(self._run_key)
        if self._frames is not None and self._controls and self.query.isActive:
            with suppress(SparkInternalsError):
                set_controls(self.query, self._frames.untouched)
        for gauge in (self._brokers, self._tasks):
            if gauge is not None:
                with suppress(SparkInternalsError):
                    gauge.close()
        if not self._owns_pool:
            return
        self.pool.close()
        levers = self.pace.levers() if self.query.isActive else {}
        levers |= {"executors": self.pool.put_back_target, **self.pool.wait.levers}
        self.pool.touched.put_back(levers)

    @property
    def usage(self) -> Usage:
        """What was done since the start."""
        seen = self.observer
        return Usage(
            batches=seen.batches,
            records_in=seen.records_in,
            executor_seconds=self._nodes.executor_seconds,
        )

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
                return self._resize(action, self._staying() + action.count)
            case Release():
                return self._release(action)
            case Pace(stream=None):
                return self._pace(action)
            case Limit():
                return self._limit(action)
            case Scale():
                return self._repartition(action)
            case _:
                return _outcome(
                    action, "blocked", "not-on-spark", cause="Spark batches per query, not per stream"
                )

    def _control_changes(self, plan: Plan) -> dict[str, Any]:
        """Send all changed controls of a plan at once, so that one micro-batch sees all or none of them."""
        wanted = {name: value for p in plan.actions for name, value in self._values(p.action).items()}
        if self._frames is not None:
            wanted |= self._frames.standing
        wanted |= self._changed_cutoffs({**self._controls, **wanted})
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
        values = self._values(action) if self._has_hosts else {}
        if not values:
            cause = "needs penstock.shed or penstock.alternates, or a dataflow that Penstock built"
            return _outcome(action, "blocked", "not-declared", cause=cause)
        if not self.capabilities.controls.available:
            return _unavailable(action, self.capabilities.controls)
        batches = [changes[name] for name in values if name in changes]
        if not batches and all(self._controls.get(name) == value for name, value in values.items()):
            return _outcome(action, "held", "already-so")
        if batches:
            batch = max(batches)
        else:
            batch = set_controls(self.query, values).effective_batch
            self._controls.update(values)
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

    def _values(self, action: Action) -> dict[str, Any]:
        return self._frames.controls(action) if self._frames is not None else _control_values(action)

    def _changed_cutoffs(self, controls: Mapping[str, Any]) -> dict[str, float]:
        """Cutoffs with which utility shedding keeps the shares asked for, where they have moved."""
        found = self._cutoffs.of(shares_of(controls))
        named = {cutoff_control(subject): cutoff for subject, cutoff in found.items()}
        return {name: c for name, c in named.items() if abs(controls.get(name, 0.0) / c - 1) > CUTOFF_STEP}

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
            known, executors = self.moves.places(), {e.id for e in self._executors.list()}
        except SparkInternalsError as problem:
            return {id(a): _outcome(a, "failed", "spark-refused", cause=str(problem)) for a in actions}
        targets: dict[Place, str] = {}
        outcomes: dict[int, Outcome] = {}
        for action in actions:
            place = place_of(action.operator, action.index, self._state_operators)
            if place is None or place not in known:
                cause = f"{action.subject} holds no state on Spark"
                outcomes[id(action)] = _outcome(action, "blocked", "no-such-state", cause=cause)
            elif action.target not in executors - self.pool.draining:
                outcomes[id(action)] = _outcome(action, "blocked", "no-such-node", node=action.target)
            elif known[place] == action.target:
                outcomes[id(action)] = _outcome(action, "held", "already-so")
            else:
                targets[place] = action.target
        if targets:
            job = self.moves.move(targets)
            expected_s = max(a.cost.pause_s for a in actions if id(a) not in outcomes)
            for action in actions:
                if id(action) not in outcomes:
                    place = place_of(action.operator, action.index, self._state_operators)
                    assert place is not None
                    outcomes[id(action)] = self._when_moved(action, job, place, expected_s)
        return outcomes

    def _staying(self) -> int:
        """Executors that are there to stay, or on their way."""
        status = self.pool.status()
        if status.desired is not None:
            return status.desired
        return len({e.id for e in self._executors.list()} - self.pool.draining)

    def _resize(self, action: Action, target: int) -> Outcome:
        if not self.capabilities.executors.available:
            return _unavailable(action, self.capabilities.executors)
        limit = self._options.machine.available
        if limit is not None and target > limit:
            return _outcome(action, "blocked", "no-more-nodes", cause=f"at most {limit} executors can be had")
        if target < 1:
            return _outcome(action, "blocked", "last-node")
        if self._staying() == target:
            return _outcome(action, "held", "already-so")
        self.pool.want(target)
        return self._when_settled(action, target)

    def _release(self, action: Release) -> Outcome:
        if not self.capabilities.executors.available:
            return _unavailable(action, self.capabilities.executors)
        staying = {e.id for e in self._executors.list()} - self.pool.draining
        if action.node not in staying:
            return _outcome(action, "held", "already-so")
        if len(staying) == 1:
            return _outcome(action, "blocked", "last-node")
        self.pool.release(action.node)
        return self._when_settled(action, self.pool.status().desired)

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
            self.query, problem = self._restart(self.query, action.target)
        except Exception as cause:
            if not self.query.isActive:  # one that could not be stopped in time goes on
                self._not_restarted = cause
            return _outcome(action, "failed", "spark-refused", cause=str(cause))
        finally:
            self._restarting = False
        self._pace_of_run = None
        self.moves = self._follow()
        self.looks = self._looks()
        self._assert_controls()
        if problem is not None:
            return _outcome(action, "failed", "spark-refused", cause=str(problem))
        return Outcome(
            action=action,
            status="applied",
            reason=Reason(code="restarted"),
            took_s=time.monotonic() - began_s,
        )

    def _pace(self, action: Pace) -> Outcome:
        if not self.capabilities.pacing_interval.available:
            return _unavailable(action, self.capabilities.pacing_interval)
        reading, wanted_ms = self.pace.reading(), round(1e3 * action.deadline_s)
        if not reading.paceable:
            return _outcome(action, "blocked", "not-paced", cause="its trigger has no interval")
        if wanted_ms < 1e3 * reading.own_interval_s:
            return _outcome(action, "blocked", "not-paced", cause="its owner's interval is longer")
        if round(1e3 * reading.interval_s) == wanted_ms:
            return _outcome(action, "held", "already-so")
        shown_ms = self.pace.set_interval_ms(wanted_ms)
        status = "applied" if shown_ms == wanted_ms else "failed"
        return _outcome(action, status, "interval", interval_ms=shown_ms)

    def _limit(self, action: Limit) -> Outcome:
        if not self.capabilities.read_limits.available:
            return _unavailable(action, self.capabilities.read_limits)
        sources = list(self._sources)
        index = sources.index(action.operator) if action.operator in sources else -1
        limits = self.pace.reading().limits
        if not 0 <= index < len(limits):
            return _outcome(action, "blocked", "no-such-source", operator=action.operator)
        if limits[index].own and not 0 < action.records <= limits[index].own:
            return _outcome(action, "blocked", "not-paced", cause="its owner's read limit is lower")
        if limits[index].now == action.records:
            return _outcome(action, "held", "already-so")
        if not self.pace.set_read_limit(index, action.records):
            return _outcome(action, "blocked", "not-paced", cause="its source takes no limit in records")
        return _outcome(action, "applied", "read-limit", records=action.records)

    @property
    def pace(self) -> QueryPace:
        """Of the present run."""
        if self._pace_of_run is None:
            self._pace_of_run = QueryPace(Pacing(self.spark, self.query), self._run_key, self.pool.touched)
        return self._pace_of_run

    def _follow(self) -> StateMoves:
        """Take the present run of the query into account, instead of the one before."""
        self.pool.forget(self._run_key)
        self._run_key = str(self.query.runId)
        can_move = self.capabilities.state_moves.available
        return self.pool.follow(self._run_key, SparkQueryRun(self.spark, self.query, moves=can_move))

    def _when_settled(self, action: Action, desired: int | None) -> Outcome:
        """Deferred until the executors are as many as desired, or the cluster manager does not give them."""
        began_s = time.monotonic()

        def check() -> Outcome | None:
            status, took_s = self.pool.status(), time.monotonic() - began_s
            if status.desired != desired and desired is not None:
                return None if status.desired is None else replace(_replaced(action), took_s=took_s)
            if status.refusal is not None:
                return Outcome(action=action, status="failed", reason=status.refusal, took_s=took_s)
            if not status.settled:
                return None
            return Outcome(action=action, status="applied", reason=Reason(code="confirmed"), took_s=took_s)

        return self._defer(action, check, Reason(code="under-way"))

    def _when_moved(self, action: Action, job: MoveJob, place: Place, expected_s: float) -> Outcome:
        """Deferred until it is known what became of the partition; what the job paused is learnt then."""
        began_s = time.monotonic()

        def check() -> Outcome | None:
            outcome = job.outcomes.get(place)
            if outcome is None:
                return None
            took_s = time.monotonic() - began_s
            if outcome.succeeded:
                self.pauses.learn(job, expected_s)
                confirmed = Reason(code="confirmed", facts={"pause_s": job.pause_s})
                return Outcome(action=action, status="applied", reason=confirmed, took_s=took_s)
            cause = f"{place}: {outcome.cause or outcome.result}"
            return replace(_outcome(action, "failed", "not-confirmed", cause=cause), took_s=took_s)

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


def _replaced(action: Action) -> Outcome:
    return _outcome(action, "failed", "superseded")
