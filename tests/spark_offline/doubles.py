"""Twins of what Spark offers to act on: a cluster that gives executors, queries with state, settings of the driver.

They follow a `FakeClock`: `FakeCluster.advance` lets time pass for all of them. A `FakeCluster` has the habits that
were seen on real ones: a lower target kills nobody, a killed executor is replaced while the target asks for it, what
was launched arrives also when it is no longer wanted, and decommissioning that is switched off leaves a zombie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.spark.act.ports import Boundary
from penstock.spark.internals.executors import DEFAULT_PROFILE, Executor
from penstock.spark.internals.state import StateOperator
from penstock.testing.twins import FakeClock

STEP_S = 0.02


class FakeSettings:
    """Settings of a driver, whose uptime is the clock's time."""

    def __init__(self, clock: FakeClock, values: Mapping[str, str] | None = None) -> None:
        self.clock, self.values = clock, dict(values or {})

    def get(self, key: str) -> str | None:
        """The value, None if not set."""
        return self.values.get(key)

    def put(self, key: str, value: str | None) -> None:
        """Set, or remove with None."""
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def swap(self, key: str, before: str | None, after: str | None) -> bool:
        """Set `after` if the value is `before`."""
        if self.values.get(key) != before:
            return False
        self.put(key, after)
        return True

    def uptime_s(self) -> float:
        """The clock's time."""
        return self.clock.now()


@dataclass(slots=True, kw_only=True)
class _Machine:
    """An executor of the fake cluster."""

    id: str
    arrives_s: float
    completed_tasks: int = 0
    takes_tasks: bool = True
    is_excluded: bool = False
    heartbeat_age_s: float | None = 0.0
    resource_profile: int = DEFAULT_PROFILE
    leaves_s: float | None = None


@dataclass(slots=True, kw_only=True)
class FakeQuery:
    """A query with state: batches of `batch_s` with `gap_s` between them, one after the other.

    A partition runs where the coordinator has it if that executor takes tasks, else on another one. `sticky` False:
    every move comes undone in the next batch, as on a cluster that is too busy. `strays`: after every third batch one
    partition is back on some executor that had none, as when tasks do not wait long enough.
    """

    cluster: FakeCluster
    partitions: int = 6
    batch_s: float = 1.0
    gap_s: float = 0.1
    operator_count: int = 1
    sticky: bool = True
    strays: bool = False
    idle: bool = False
    active: bool = True
    batch: int = 0
    """The newest batch that has ended."""
    running: bool = False
    changes_s: float = 0.0
    at: dict[tuple[int, int], str | None] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for operator in range(self.operator_count):
            for partition in range(self.partitions):
                self.at[operator, partition] = None
        self.changes_s = self.cluster.clock.now() + self.gap_s
        self._place()

    def boundary(self) -> Boundary:
        """Where it stands."""
        self.calls["boundary"] += 1
        resting = not self.running and (self.gap_s > STEP_S or self.idle)
        return Boundary(batch=self.batch, duration_s=self.batch_s, resting=resting, active=self.active)

    def operators(self) -> tuple[StateOperator, ...]:
        """Its stateful operators."""
        return tuple(
            StateOperator(
                id=o, node_name="fake", partitions=self.partitions, stores=("default",), checkpoint=""
            )
            for o in range(self.operator_count)
        )

    def where(self, operator_id: int) -> dict[int, str | None]:
        """The executor of each partition."""
        self.calls["where"] += 1
        return {p: e for (o, p), e in self.at.items() if o == operator_id}

    def move(self, operator_id: int, targets: Mapping[int, tuple[str, str]]) -> None:
        """Have the coordinator remember another executor."""
        self.calls["move"] += 1
        for partition, (_, executor) in targets.items():
            if not self.running and self.sticky:
                self.at[operator_id, partition] = executor

    def has_task_on(self, executor: str) -> bool:
        """Whether a task of it runs there: everywhere in the first half of a batch, then where its state is."""
        if not self.running:
            return False
        maps = self.changes_s - self.cluster.clock.now() > self.batch_s / 2
        return maps or executor in self.at.values()

    def step(self, now_s: float) -> None:
        """Begin or end a batch if it is time."""
        if not self.active or now_s < self.changes_s or (self.idle and not self.running):
            return
        if self.running:
            self.running = False
            self.batch += 1
            self.changes_s = now_s + self.gap_s
            for executor in set(self.at.values()) - {None}:
                machine = self.cluster.machines.get(str(executor))
                if machine is not None:
                    machine.completed_tasks += 1
        else:
            self.running = True
            self.changes_s = now_s + self.batch_s
            self._place()

    def _place(self) -> None:
        working = [m.id for m in self.cluster.present() if m.takes_tasks and not m.is_excluded]
        for turn, (place, executor) in enumerate(self.at.items()):
            if executor not in working and working:
                self.at[place] = working[turn % len(working)]
        empty = [id_ for id_ in working if id_ not in self.at.values()]
        if self.strays and empty and self.batch % 3 == 0:
            self.at[next(iter(self.at))] = empty[0]


class FakeCluster:
    """A cluster manager and the executors of one application."""

    def __init__(
        self,
        clock: FakeClock,
        *,
        executors: int = 3,
        capacity: int = 10,
        startup_s: float = 4.0,
        removal_s: float = 5.0,
        decommissions: bool = False,
        held_by: str | None = None,
        fixed: str | None = None,
        target: int | None = None,
    ) -> None:
        self.clock, self.capacity, self.startup_s, self.removal_s = clock, capacity, startup_s, removal_s
        self.decommissions, self.fixed, self._held_by = decommissions, fixed, held_by
        self.totals: dict[int, int] = {} if target is None else {DEFAULT_PROFILE: target}
        self._initial = executors
        self.machines: dict[str, _Machine] = {}
        self.queries: list[FakeQuery] = []
        self.requests: list[int] = []
        self.killed: list[str] = []
        self.harm: list[str] = []
        """What must never happen: state lost in the middle of a batch, the last executor killed."""
        self.rough: list[str] = []
        """What only costs time: an executor killed while it ran a task without state."""
        self.launched = 0
        """How many executors it ever started."""
        for _ in range(executors):
            self._launch(clock.now()).completed_tasks = 1

    @property
    def held_by(self) -> str | None:
        """Who else decides."""
        return self._held_by

    def present(self) -> list[_Machine]:
        """The executors that have arrived and not left."""
        now_s = self.clock.now()
        return [m for m in self.machines.values() if m.arrives_s <= now_s]

    def all(self) -> tuple[Executor, ...]:
        """As the driver lists them."""
        return tuple(
            Executor(
                id=m.id,
                hostPort=f"10.0.0.{m.id}:7000",
                isExcluded=m.is_excluded,
                completedTasks=m.completed_tasks,
                resourceProfileId=m.resource_profile,
                takes_tasks=m.takes_tasks,
                heartbeat_age_s=m.heartbeat_age_s,
            )
            for m in self.present()
        )

    def targets(self) -> dict[int, int]:
        """What was requested, by profile."""
        return dict(self.totals)

    @property
    def target(self) -> int | None:
        """What was requested for the default profile."""
        return self.totals.get(DEFAULT_PROFILE)

    def request_total(self, count: int) -> bool:
        """Take the request; kills nobody."""
        self.requests.append(count)
        self.totals[DEFAULT_PROFILE] = count
        return True

    def kill(self, ids: Iterable[str], *, only_idle: bool = False) -> frozenset[str]:
        """Kill, and note the harm it does."""
        return frozenset(id_ for id_ in ids if self._kill(id_, only_idle))

    def decommission(self, executor_id: str) -> bool:
        """Stop giving it tasks; it leaves only where decommissioning is switched on."""
        machine = self.machines.get(executor_id)
        if machine is None or not machine.takes_tasks:
            return False
        self._note_harm(machine)
        machine.takes_tasks = False
        if self.decommissions:
            machine.leaves_s = self.clock.now() + self.removal_s
        return True

    def lose(self, executor_id: str) -> None:
        """An executor dies by itself."""
        self.machines.pop(executor_id, None)

    def advance(self, seconds: float) -> None:
        """Let time pass for the cluster and its queries."""
        for _ in range(max(1, round(seconds / STEP_S))):
            self.clock.advance(STEP_S)
            now_s = self.clock.now()
            for machine in list(self.machines.values()):
                if machine.leaves_s is not None and machine.leaves_s <= now_s:
                    del self.machines[machine.id]
            wanted = self.totals.get(DEFAULT_PROFILE, self._initial)
            mine = [
                m
                for m in self.machines.values()
                if m.leaves_s is None and m.resource_profile == DEFAULT_PROFILE
            ]
            for _ in range(min(wanted, self.capacity) - len(mine)):
                self._launch(now_s + self.startup_s)
            for query in self.queries:
                query.step(now_s)

    def query(self, **options: object) -> FakeQuery:
        """A query on this cluster."""
        query = FakeQuery(cluster=self, **options)  # type: ignore[arg-type]
        self.queries.append(query)
        return query

    def _launch(self, arrives_s: float) -> _Machine:
        self.launched += 1
        machine = _Machine(id=str(self.launched), arrives_s=arrives_s)
        self.machines[machine.id] = machine
        return machine

    def _kill(self, id_: str, only_idle: bool) -> bool:
        machine = self.machines.get(id_)
        if machine is None or id_ in self.killed or machine.arrives_s > self.clock.now():
            return False
        if only_idle and any(q.has_task_on(id_) for q in self.queries):
            return False
        self._note_harm(machine)
        machine.takes_tasks, machine.leaves_s = False, self.clock.now() + self.removal_s
        self.killed.append(id_)
        return True

    def _note_harm(self, machine: _Machine) -> None:
        if any(q.running and machine.id in q.at.values() for q in self.queries):
            self.harm.append(f"executor {machine.id} removed in the middle of a batch with state on it")
        elif any(q.has_task_on(machine.id) for q in self.queries):
            self.rough.append(f"executor {machine.id} removed while it ran a task")
        if not any(m.takes_tasks and not m.is_excluded for m in self.present() if m is not machine):
            self.harm.append(f"executor {machine.id} was the last one that worked")
