"""The loop: observe, decide, apply, compare, write down; and go on whatever happens."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from penstock.control.brief import Brief
from penstock.control.changes import Bounds, Change, Mode, Modes
from penstock.control.codec import CodecError, pack, to_json, unpack
from penstock.control.decision import Decision, PolicyRun, Settings, Standing, carried_out, decide
from penstock.control.effects import Effect, judge
from penstock.control.journal import SqliteJournal
from penstock.control.plan import Clock, NotReadyError, Outcome, Plan, Runtime
from penstock.control.record import Cycle, Evidence, Fault, Latest, Stage
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot

log = logging.getLogger(__name__)

T = TypeVar("T")
Subscriber = Callable[[Cycle, Snapshot | None], None]

RECOVERY_CYCLES = 5
"""How long a restarted loop waits for an engine that does not yet tell where everything is; then policies act."""


class Stop(Protocol):
    """What tells the loop to end, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether to end now."""
        ...


class Loop:
    """Holds a runtime to its goals. A fault in here never reaches the caller, nor the user's query.

    `resume` names an earlier run of the same journal to go on with: memories, rests and promises are taken from its
    last cycle, and the controls and placement it had asked for are asserted again.
    """

    def __init__(
        self,
        runtime: Runtime,
        policies: Sequence[PolicyRun],
        *,
        clock: Clock,
        journal: SqliteJournal | None = None,
        settings: Settings = Settings(),  # noqa: B008  # a frozen value
        name: str = "dataflow",
        options: Mapping[str, str] | None = None,
        resume: str | None = None,
        subscribers: Sequence[Subscriber] = (),
    ) -> None:
        names = [run.policy.name for run in policies]
        if len(set(names)) < len(names):
            raise ValueError(f"each policy runs once; given: {', '.join(names)}")
        self.runtime, self.policies, self.clock, self.journal = runtime, tuple(policies), clock, journal
        self.settings, self.name, self.options = settings, name, dict(options or {})
        self.subscribers = list(subscribers)
        self.bounds = Bounds()
        """Bounds of goals that were set by hand since the start."""
        self.modes = Modes("recommend" if settings.dry_run else "act")
        """Whether the loop acts, recommends or only observes, which may change while it runs."""
        self.run_id: str | None = resume
        self.faults: Counter[str] = Counter()
        """How often each kind of fault was survived."""
        self._cycle_faults: list[Fault] = []
        self._logged: set[tuple[str, str | None, str]] = set()
        self._number = 0
        self._mode: Mode = self.modes.now
        self._skipped = 0
        self._operators: tuple[str, ...] | None = None
        self._memories: dict[str, Any] = {run.policy.name: run.policy.start(run.options) for run in policies}
        self._memory_types = {name: type(memory) for name, memory in self._memories.items()}
        self._standing = Standing()
        self._recovered: Latest | None = None
        self._recovery_cycles = 0
        if resume is not None:
            self._recover(resume)
        self._packed_memories = self._pack_memories({})
        self._packed_standing = pack(Standing, self._standing)
        self._unready = ""

    def run(self, *, for_s: float | None = None, stop: Stop | None = None) -> None:
        """Turn the loop every interval, until the time is over or `stop` is set.

        A cycle that takes longer than an interval makes the next one wait for the next multiple of it: late cycles
        are skipped and counted, they never pile up.
        """
        start_s = self.clock.now()
        end_s = float("inf") if for_s is None else start_s + for_s
        interval_s = self.settings.interval_s
        turn = 1
        while (due_s := start_s + turn * interval_s) <= end_s + 1e-9:
            self.clock.sleep_until(due_s)
            if stop is not None and stop.is_set():
                return
            self.step()
            following = max(turn + 1, int((self.clock.now() - start_s) / interval_s + 1e-9) + 1)
            self._skipped = following - turn - 1
            turn = following

    def step(self) -> Cycle:
        """One cycle. Never raises: what goes wrong is in the cycle's faults."""
        began = time.perf_counter()
        self._number += 1
        self._mode, changes = self.modes.taken()
        self._unready = ""
        snapshot, bounds = self._observe()
        changes += bounds
        recovering = self._recovery_cycles > 0 and snapshot is not None
        if self._recovered is not None and snapshot is not None:
            if snapshot.time_s < self._recovered.time_s:
                self._start_time_anew()
            self._recovered = None
        if snapshot is not None:
            self._follow(snapshot)
        effects = self._compare(snapshot)
        evidence = self._evidence(snapshot)
        decision = self._decide(snapshot, recovering)
        outcomes = self._apply(decision.plan, snapshot)
        self._remember(decision, outcomes, snapshot)
        brief = None if snapshot is None else self._guard("observe", lambda: Brief.of(snapshot))
        cycle = Cycle(
            number=self._number,
            time_s=decision.plan.time_s,
            plan=decision.plan,
            brief=brief,
            unready=self._unready,
            proposals=decision.proposals,
            outcomes=outcomes,
            effects=effects,
            faults=tuple(self._cycle_faults),
            changes=changes,
            mode=self._mode,
            dry_run=self._mode != "act",
            recovering=recovering,
            skipped=self._skipped,
            took_s=time.perf_counter() - began,
        )
        self._cycle_faults = []  # those that follow are told with the next cycle
        self._write(cycle, evidence)
        for subscriber in self.subscribers:
            self._guard("subscriber", partial(subscriber, cycle, snapshot))
        log.info("%s", _line(cycle))
        return cycle

    def _observe(self) -> tuple[Snapshot | None, tuple[Change, ...]]:
        """What there is to see, under the bounds in force, and what was changed of them."""
        try:
            seen = replace(self.runtime.observe(), every_s=self.settings.interval_s)
            return self.bounds.applied(seen)
        except NotReadyError as reason:
            self._unready = str(reason)
        except Exception as problem:  # the next cycle tries again
            self._fault(Fault.of("observe", problem))
        return None, ()

    def _compare(self, snapshot: Snapshot | None) -> tuple[Effect, ...]:
        if snapshot is None:
            return ()
        judged = self._guard("effects", lambda: judge(self._standing.pending, snapshot))
        if judged is None:
            return ()
        effects, still = judged
        self._standing = replace(self._standing, pending=still)
        return effects

    def _decide(self, snapshot: Snapshot | None, recovering: bool) -> Decision:
        if snapshot is not None and self._mode != "observe":
            decided = self._guard(
                "arbitrate",
                lambda: decide(
                    snapshot,
                    self.policies,
                    self._memories,
                    self._standing,
                    self.settings,
                    recovering=recovering,
                ),
            )
            if decided is not None:
                for fault in decided.faults:
                    self._fault(fault)
                if recovering:
                    done = self._standing.desired.is_answerable(snapshot)
                    self._recovery_cycles = 0 if done else self._recovery_cycles - 1
                return decided
        now_s = self.clock.now() if snapshot is None else snapshot.time_s
        return Decision(plan=Plan(time_s=now_s), memories=self._memories, standing=self._standing)

    def _apply(self, plan: Plan, snapshot: Snapshot | None) -> tuple[Outcome, ...]:
        if self._mode != "act":
            reason = Reason(code="dry-run")
            return tuple(Outcome(action=p.action, status="blocked", reason=reason) for p in plan.actions)
        # An empty plan too, and after a failed observation: the runtime asserts what was asked for earlier, and
        # tells what has become of deferred actions.
        try:
            return tuple(self.runtime.apply(plan))
        except Exception as problem:
            fault = Fault.of("apply", problem)
            self._fault(fault)
            reason = Reason(code=fault.code, facts={"cause": fault.cause})
            return tuple(Outcome(action=p.action, status="failed", reason=reason) for p in plan.actions)

    def _remember(self, decision: Decision, outcomes: Sequence[Outcome], snapshot: Snapshot | None) -> None:
        self._memories, self._standing = dict(decision.memories), decision.standing
        if snapshot is not None:
            after = self._guard(
                "apply",
                lambda: carried_out(self._standing, decision.plan, outcomes, snapshot, self.settings),
            )
            self._standing = after or self._standing

    def _evidence(self, snapshot: Snapshot | None) -> Evidence | None:
        """What the coming decision is made from."""
        if snapshot is None or self.journal is None:
            return None
        return Evidence(
            number=self._number,
            snapshot=snapshot,
            memories=self._packed_memories,
            standing=self._packed_standing,
        )

    def _write(self, cycle: Cycle, evidence: Evidence | None) -> None:
        journal = self.journal
        if journal is None:
            return

        def write() -> None:
            if self.run_id is None:
                name = self.name if evidence is None else evidence.snapshot.dataflow.name
                settings = to_json(Settings, self.settings)
                self.run_id = journal.begin(dataflow=name, settings=settings, options=self.options).id
            self._packed_memories = self._pack_memories(self._packed_memories)
            self._packed_standing = pack(Standing, replace(self._standing, bounds_ms=self.bounds.set_ms))
            latest = Latest(
                number=cycle.number,
                time_s=cycle.time_s,
                memories=self._packed_memories,
                standing=self._packed_standing,
            )
            journal.append(self.run_id, cycle, latest, evidence)

        self._guard("journal", write)

    def _pack_memories(self, last: Mapping[str, bytes]) -> dict[str, bytes]:
        """Each policy's memory in bytes; one that cannot be stored keeps its last storable form."""
        packed = {}
        for name, memory in self._memories.items():
            try:
                packed[name] = pack(self._memory_types[name], memory)
            except CodecError as problem:
                self._fault(Fault.of("journal", problem, policy=name))
                if name in last:
                    packed[name] = last[name]
        return packed

    def _recover(self, run: str) -> None:
        latest = None if self.journal is None else self._guard("recover", lambda: self._latest(run))
        if latest is None:
            return
        self._number, self._recovered, self._recovery_cycles = latest.number, latest, RECOVERY_CYCLES
        standing = self._guard("recover", lambda: unpack(Standing, latest.standing))
        self._standing = standing or self._standing
        self.bounds = Bounds(self._standing.bounds_ms)
        for name, kind in self._memory_types.items():
            if name not in latest.memories:
                continue
            try:
                self._memories[name] = unpack(kind, latest.memories[name])
            except CodecError as problem:  # another version of the policy: it starts afresh
                self._fault(Fault.of("recover", problem, policy=name))

    def _latest(self, run: str) -> Latest | None:
        assert self.journal is not None
        if run not in {known.id for known in self.journal.runs()}:
            raise KeyError(f"the journal has no run '{run}'")
        return self.journal.latest(run)

    def _follow(self, snapshot: Snapshot) -> None:
        """Memories are about one dataflow: when queries come or go, policies that cannot follow start anew."""
        operators = tuple(o.id for o in snapshot.dataflow.operators)
        if self._operators is not None and operators != self._operators:
            for run in self.policies:
                if not getattr(run.policy, "follows_queries", False):
                    self._memories[run.policy.name] = run.policy.start(run.options)
        self._operators = operators

    def _start_time_anew(self) -> None:
        """The clock is another one: memories with old times in them mean nothing, the desired state still does."""
        self._memories = {run.policy.name: run.policy.start(run.options) for run in self.policies}
        self._standing = Standing(desired=self._standing.desired)
        self._packed_memories = self._pack_memories({})
        self._packed_standing = pack(Standing, self._standing)

    def _guard(self, stage: Stage, work: Callable[[], T]) -> T | None:
        """What `work` returns, or None after a fault."""
        try:
            return work()
        except Exception as problem:  # the contract of this class
            self._fault(Fault.of(stage, problem))
            return None

    def _fault(self, fault: Fault) -> None:
        """Count it, tell it with the cycle, and log it the first time only."""
        self.faults[fault.code] += 1
        self._cycle_faults.append(fault)
        key = (fault.code, fault.policy, fault.cause.partition(":")[0])
        if key not in self._logged:
            self._logged.add(key)
            who = f" of policy {fault.policy}" if fault.policy else ""
            log.warning(
                "%s%s: %s; going on (further ones are counted, not logged)", fault.code, who, fault.cause
            )


def _line(cycle: Cycle) -> str:
    """The cycle in one line for the log."""
    parts = [f"cycle {cycle.number} t={cycle.time_s:.1f}s"]
    if cycle.brief is None:
        parts.append("nothing observed")
    else:
        goals = cycle.brief.constraints
        parts += [f"goals {sum(c.held is True for c in goals)}/{len(goals)} held"] if goals else []
        parts.append(f"{cycle.brief.tasks} tasks on {cycle.brief.nodes} nodes")
    kinds = Counter(p.action.kind for p in cycle.plan.actions)
    parts.append(", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "no action")
    statuses = Counter(o.status for o in cycle.outcomes if o.status not in ("applied", "held"))
    parts += [f"{n} {status}" for status, n in statuses.items()]
    parts += [f"{len(cycle.plan.withheld)} withheld"] if cycle.plan.withheld else []
    parts += [f"{len(cycle.faults)} faults"] if cycle.faults else []
    parts += [f"{cycle.skipped} late"] if cycle.skipped else []
    return f"{' | '.join(parts)} | {cycle.took_s * 1e3:.1f} ms"
