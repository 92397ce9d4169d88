"""Moving the state partitions of one query between executors, right after its micro-batches.

A task tells the driver where it opened its state, so a move issued while a batch runs may be overwritten. Moves are
therefore issued right after a batch has ended and looked at after the next one; what did not stick is issued again.
What is wanted is kept per partition: a newer wish for a partition replaces the older one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.spark.act.locality_wait import LocalityWait
from penstock.spark.act.ports import Boundary, QueryRun
from penstock.spark.act.spreading import Place, Weights
from penstock.spark.internals.errors import SparkInternalsError

TRIES = 6
"""A move that did not stick (a cold executor, a late task) is issued this often."""
IDLE_S = 2.0
"""A query that rests for this long may not have a next batch to show a move: what Spark was told counts."""
LEAST_PATIENCE_S, PATIENCE_BATCHES = 120.0, 5.0
"""How long a boundary may take to come: that many times the longest recent batch, and at least so long."""
WAIT_BATCHES, MOST_WAIT_S = 1.5, 120.0
"""How long tasks wait for a busy executor while moves are under way, in batches: tasks are shorter than batches."""

Result = Literal[
    "moved", "told", "replaced", "cancelled", "target-gone", "elsewhere", "no-boundary", "query-ended"
]
"""What became of a move. *told*: Spark knows, and no batch has come that would show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOutcome:
    """What became of one partition."""

    result: Result
    cause: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the partition is where it was wanted."""
        return self.result in ("moved", "told")


class MoveJob:
    """Moves asked for together. `outcomes` fills as they are decided; `done` when all are."""

    def __init__(self, targets: Mapping[Place, str], cancel: Callable[[MoveJob], None]) -> None:
        self.targets = dict(targets)
        self.outcomes: dict[Place, MoveOutcome] = {}
        self.pause_s: float | None = None
        """How much longer than the one before the batch took that restored moved state."""
        self._cancel = cancel
        self._done = threading.Event()
        if not self.targets:
            self._done.set()

    @property
    def done(self) -> bool:
        """Whether every partition has an outcome."""
        return self._done.is_set()

    @property
    def missed(self) -> dict[Place, MoveOutcome]:
        """The partitions that are not where they were wanted."""
        return {place: outcome for place, outcome in self.outcomes.items() if not outcome.succeeded}

    def cancel(self) -> None:
        """Give up what is not decided yet; what Spark was told stays told, and is as good a place as any."""
        self._cancel(self)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end, for tools and tests; the control loop looks at `done` instead."""
        return self._done.wait(timeout_s)

    def _decide(self, place: Place, outcome: MoveOutcome) -> None:
        self.outcomes[place] = outcome
        if len(self.outcomes) == len(self.targets):
            self._done.set()


@dataclass(slots=True, kw_only=True)
class _Wish:
    place: Place
    executor: str
    job: MoveJob
    tries: int = 0
    issued_after: int | None = None
    """The newest batch when Spark was told, None: not told since it last came undone."""
    before_s: float = 0.0
    """How long that batch took."""


class StateMoves:
    """The moves of one run of a query. `tick` does the work and is called from one thread; the rest from any."""

    def __init__(
        self,
        run: QueryRun,
        *,
        hosts: Callable[[], Mapping[str, str]],
        wait: LocalityWait,
        clock: Callable[[], float] = time.monotonic,
        on_work: Callable[[], None] = lambda: None,
    ) -> None:
        self._run, self._hosts, self._wait, self._clock, self._on_work = run, hosts, wait, clock, on_work
        self.weights: Weights = {}
        """How much work each partition is; the caller keeps it up to date."""
        self._lock = threading.Lock()
        self._wishes: dict[Place, _Wish] = {}
        self._durations_s: deque[float] = deque(maxlen=20)
        self._seen: Boundary | None = None
        self._changed_s = self._rested_s = clock()
        self._problem: str | None = None
        self._holding = False
        self.issued = 0
        """How often Spark was told a place: in between, only tasks change where state is."""

    @property
    def moving(self) -> frozenset[Place]:
        """The partitions that are on their way."""
        with self._lock:
            return frozenset(self._wishes)

    def places(self) -> dict[Place, str | None]:
        """Where every state partition is now: one reading per operator."""
        return {
            Place(operator=operator.id, partition=partition): executor
            for operator in self._run.operators()
            for partition, executor in self._run.where(operator.id).items()
        }

    def move(self, targets: Mapping[Place, str]) -> MoveJob:
        """Bring each partition to the given executor, from the next boundary on."""
        job = MoveJob(targets, self._cancelled)
        with self._lock:
            if not self._wishes:
                self._changed_s = self._clock()  # patience starts with the work
            for place, executor in job.targets.items():
                older = self._wishes.get(place)
                if older is not None:
                    older.job._decide(place, MoveOutcome(result="replaced"))
                self._wishes[place] = _Wish(place=place, executor=executor, job=job)
        self._on_work()
        return job

    def close(self) -> None:
        """Give up all moves; the query stays as it is."""
        with self._lock:
            wishes, self._wishes = list(self._wishes.values()), {}
        for wish in wishes:
            wish.job._decide(wish.place, MoveOutcome(result="cancelled"))
        self._wait.drop(self)
        self._holding = False

    @property
    def ended(self) -> bool:
        """Whether the query was seen to have ended."""
        return self._seen is not None and not self._seen.active

    @property
    def patience_s(self) -> float:
        """How long a boundary of this query may take to come."""
        return max(LEAST_PATIENCE_S, PATIENCE_BATCHES * max(self._durations_s, default=0.0))

    @property
    def wait_s(self) -> float:
        """How long tasks have to wait for a busy executor so that state stays where it is wanted."""
        return min(WAIT_BATCHES * self.longest_batch_s, MOST_WAIT_S)

    @property
    def longest_batch_s(self) -> float:
        """The longest recent batch."""
        return max(self._durations_s, default=0.0)

    @property
    def busy(self) -> bool:
        """Whether there are moves to make or to look at, or a wait to put back."""
        with self._lock:
            return bool(self._wishes) or self._holding

    def poll(self) -> bool | None:
        """Look at the query: whether it rests or a batch has ended since the last look; None if the query has ended.

        However late the look is, a move then has the best chance to be in time; one that was not is issued again.
        """
        now_s = self._clock()
        seen, self._seen = self._seen, self._run.boundary()
        if not self._seen.active:
            return None
        ended = seen is not None and self._seen.batch != seen.batch
        if ended:
            self._durations_s.append(self._seen.duration_s)
            self._changed_s = now_s
        if not self._seen.resting or ended:
            self._rested_s = now_s
        return self._seen.resting or ended

    def tick(self) -> bool | None:
        """Do what can be done now without waiting; what `poll` says of the query, False if it cannot be asked."""
        boundary: bool | None = False
        with self._lock:
            wishes = list(self._wishes.values())
        try:
            boundary = self.poll()
            if boundary is None:
                self._decide([(w, MoveOutcome(result="query-ended")) for w in wishes])
            elif boundary and wishes:
                self._at_boundary(wishes)
            self._problem = None
        except SparkInternalsError as problem:
            self._problem = str(problem)
        silent_s = self._clock() - self._changed_s
        if wishes and silent_s > self.patience_s:
            cause = self._problem or f"no micro-batch ended within {silent_s:.0f} s"
            self._decide([(w, MoveOutcome(result="no-boundary", cause=cause)) for w in wishes])
        if self._holding and not self.moving:
            self._wait.drop(self)
            self._holding = False
        return boundary

    def _at_boundary(self, wishes: list[_Wish]) -> None:
        assert self._seen is not None
        batch, idle = self._seen.batch, self._clock() - self._rested_s >= IDLE_S
        due = [
            w for w in wishes if w.issued_after is None or batch > w.issued_after or (idle and w.tries > 0)
        ]
        if not due:
            return
        where = {o: self._run.where(o) for o in {w.place.operator for w in due} & self._operators()}
        hosts = self._hosts()
        decided: list[tuple[_Wish, MoveOutcome]] = []
        again: list[_Wish] = []
        for wish in due:
            at = where.get(wish.place.operator, {})
            if wish.place.partition not in at:
                decided.append((wish, MoveOutcome(result="elsewhere", cause="the query has no such state")))
            elif at[wish.place.partition] == wish.executor:
                shown = wish.issued_after is None or batch > wish.issued_after
                decided.append((wish, MoveOutcome(result="moved" if shown else "told")))
                if wish.issued_after is not None and batch > wish.issued_after and wish.job.pause_s is None:
                    wish.job.pause_s = max(0.0, self._seen.duration_s - wish.before_s)
            elif wish.executor not in hosts:
                cause = f"executor {wish.executor} is gone"
                decided.append((wish, MoveOutcome(result="target-gone", cause=cause)))
            elif wish.tries >= TRIES:
                decided.append((wish, MoveOutcome(result="elsewhere", cause="Spark ran it elsewhere")))
            else:
                again.append(wish)
        self._decide(decided)
        if again:
            self._issue(again, hosts)

    def _issue(self, wishes: list[_Wish], hosts: Mapping[str, str]) -> None:
        assert self._seen is not None
        self._holding = True
        self._wait.hold(self, self.wait_s)
        with self._lock:  # what was cancelled or replaced meanwhile is not issued
            wishes = [w for w in wishes if self._wishes.get(w.place) is w]
        self.issued += 1
        for operator in sorted({w.place.operator for w in wishes}):
            mine = [w for w in wishes if w.place.operator == operator]
            self._run.move(operator, {w.place.partition: (hosts[w.executor], w.executor) for w in mine})
        for wish in wishes:
            wish.tries += 1
            wish.issued_after, wish.before_s = self._seen.batch, self._seen.duration_s

    def _operators(self) -> set[int]:
        return {operator.id for operator in self._run.operators()}

    def _decide(self, decided: list[tuple[_Wish, MoveOutcome]]) -> None:
        with self._lock:
            for wish, outcome in decided:
                if self._wishes.get(wish.place) is wish:
                    del self._wishes[wish.place]
                    wish.job._decide(wish.place, outcome)

    def _cancelled(self, job: MoveJob) -> None:
        with self._lock:
            for wish in [w for w in self._wishes.values() if w.job is job]:
                del self._wishes[wish.place]
                job._decide(wish.place, MoveOutcome(result="cancelled"))
