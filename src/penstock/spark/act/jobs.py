"""What takes longer than a moment on a running query: moving state, growing, and draining executors before they go.

Moves are only honoured when they are issued between two micro-batches, and have to be looked at afterwards
(`internals.state`), so each job here waits for a boundary, acts, waits for the next one and verifies. Jobs run one
after the other on a thread of their own: the control loop never waits for Spark, and two jobs never contradict.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executor, Executors
from penstock.spark.internals.state import StatePartitions

POLL_S = 0.02
IDLE_S = 2.0
"""A query without data for this long has no batch to wait for: any moment is between two."""
LEAST_WAIT_S, MOST_WAIT_S = 0.5, 10.0
"""How long a task waits for the executor of its state: longer than a task, or moves come undone; a lost executor costs
about twice this."""
TRIES = 6
"""A move that did not stick (a cold executor, a late task) is issued again this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A state partition."""

    operator: int
    partition: int

    def __str__(self) -> str:
        return f"{self.operator}[{self.partition}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a job achieved: `missed` names what it did not, with the reason."""

    took_s: float = 0.0
    missed: Mapping[str, str]
    pause_s: float | None = None
    """How much longer than the one before it the batch took that restored moved state."""
    unmoved: int = 0
    """State partitions that stayed where they were although they were to follow: slower, never wrong."""


class Steering:
    """Moves, growth and drains of one query's executors, one at a time in the background."""

    def __init__(
        self,
        query: Callable[[], StreamingQuery],
        partitions: Callable[[], StatePartitions | None],
        executors: Executors,
        *,
        timeout_s: float = 60.0,
    ) -> None:
        self._query, self._partitions, self._executors = query, partitions, executors
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-steering")
        self._closed = threading.Event()
        self.draining: frozenset[str] = frozenset()
        """Executors that are on their way out."""
        self.moving: frozenset[Place] = frozenset()

    def close(self) -> None:
        """Give up what is still to be done; the query stays as it is."""
        self._closed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def move(self, targets: Mapping[Place, str]) -> Future[Done]:
        """Bring each partition to the given executor."""
        return self._submit(lambda: self._timed(lambda: self._move(dict(targets))))

    def grow(self, count: int) -> Future[Done]:
        """Have `count` executors in all, then spread the state over them."""
        return self._submit(lambda: self._timed(lambda: self._grow(count)))

    def drain(self, victims: frozenset[str]) -> Future[Done]:
        """Move the state of some executors to the others, then let them go between two batches."""
        self.draining |= victims
        return self._submit(lambda: self._timed(lambda: self._drain(victims)))

    def _submit(self, job: Callable[[], Done]) -> Future[Done]:
        return self._pool.submit(job)

    def _timed(self, job: Callable[[], Done]) -> Done:
        began_s = time.monotonic()
        return replace(job(), took_s=time.monotonic() - began_s)

    def _move(self, targets: dict[Place, str]) -> Done:
        partitions = self._partitions()
        if partitions is None or not targets:
            return Done(missed={str(p): "the query has no state to move" for p in targets})
        self.moving = frozenset(targets)
        left, pause_s = dict(targets), None
        deadline_s = time.monotonic() + self._timeout_s
        reason = "no micro-batch ended in time"
        try:
            for _ in range(TRIES):
                alive = {e.id: e for e in self._executors.list()}
                gone = [p for p, e in left.items() if e not in alive]
                if gone:
                    return Done(missed={str(p): f"executor {left[p]} is gone" for p in gone}, pause_s=pause_s)
                before = self._boundary(deadline_s)
                if before is None:
                    break
                partitions.wait_for_places(min(max(2 * before, LEAST_WAIT_S), MOST_WAIT_S))
                for place, executor in left.items():
                    partitions.move(
                        place.operator, place.partition, host=alive[executor].host, executor=executor
                    )
                after = self._boundary(deadline_s)
                if after is None:
                    break
                if pause_s is None:
                    pause_s = max(0.0, after - before)
                left = {p: e for p, e in left.items() if partitions.where(p.operator).get(p.partition) != e}
                reason = "Spark ran it elsewhere"
                if not left:
                    break
        finally:
            self.moving = frozenset()
        return Done(missed={str(p): reason for p in left}, pause_s=pause_s)

    def _grow(self, count: int) -> Done:
        if not self._executors.request_total(count):
            return Done(missed={"executors": "the cluster manager did not take the request"})
        deadline_s = time.monotonic() + self._timeout_s
        while len(self._staying()) < count:
            if self._closed.is_set() or time.monotonic() > deadline_s:
                have = len(self._staying())
                return Done(missed={"executors": f"{have} of {count} came within {self._timeout_s:g} s"})
            time.sleep(0.1)
        # The executors are there, which is what was asked for; state that does not follow at once may later.
        moved = self._move(self.even_moves())
        return Done(missed={}, pause_s=moved.pause_s, unmoved=len(moved.missed))

    def _drain(self, victims: frozenset[str]) -> Done:
        missed: dict[str, str] = {}
        try:
            moved = self._move(self._moves_away(victims))
            # State that would not move is restored from the checkpoint elsewhere: slower, never lost.
            self._boundary(time.monotonic() + self._timeout_s)
            for executor in sorted(victims):
                if not self._executors.decommission(executor):
                    missed[executor] = "Spark does not know it any more"
            deadline_s = time.monotonic() + self._timeout_s
            while not self._closed.is_set() and time.monotonic() < deadline_s:
                if not victims & {e.id for e in self._executors.list()}:
                    break
                time.sleep(0.1)
            else:
                missed.update(dict.fromkeys(victims & {e.id for e in self._executors.list()}, "still there"))
        finally:
            self.draining -= victims
        return Done(missed=missed, pause_s=moved.pause_s, unmoved=len(moved.missed))

    def _moves_away(self, victims: frozenset[str]) -> dict[Place, str]:
        staying = [e for e in self._staying() if e.id not in victims]
        if not staying:
            raise SparkInternalsError("executors", "the last executor cannot be drained")
        load = Counter({e.id: 0 for e in staying})
        homeless = []
        for place, executor in self.places().items():
            if executor in victims:
                homeless.append(place)
            elif executor is not None and executor in load:
                load[executor] += 1
        return {place: _least(load) for place in homeless}

    def even_moves(self) -> dict[Place, str]:
        """The fewest moves after which each operator's partitions are spread evenly over the executors."""
        staying, places = self._staying(), self.places()
        moves: dict[Place, str] = {}
        for operator in {p.operator for p in places}:
            load = Counter({e.id: 0 for e in staying})
            mine = {p: e if e in load else None for p, e in places.items() if p.operator == operator}
            load.update(e for e in mine.values() if e is not None)
            for place, executor in mine.items():
                least = min(load, key=lambda e: (load[e], e))
                if executor is not None and load[executor] - load[least] <= 1:
                    continue
                if executor is not None:
                    load[executor] -= 1
                load[least] += 1
                moves[place] = least
        return moves

    def places(self) -> dict[Place, str | None]:
        """Where every state partition is now."""
        partitions = self._partitions()
        if partitions is None:
            return {}
        return {
            Place(operator=operator.id, partition=partition): executor
            for operator in partitions.operators()
            for partition, executor in partitions.where(operator.id).items()
        }

    def _staying(self) -> list[Executor]:
        return [e for e in self._executors.list() if e.id not in self.draining and e.is_active]

    def _boundary(self, deadline_s: float) -> float | None:
        """Wait for a micro-batch to end; its duration in seconds (0: the query is idle), None: not in time."""
        query = self._query()
        known = _batch(query)
        busy_s = time.monotonic()
        while not self._closed.is_set() and (now_s := time.monotonic()) < deadline_s and query.isActive:
            now = _batch(query)
            if now is not None and now != known:
                return now[1]
            status = query.status
            if status["isTriggerActive"] or status["isDataAvailable"]:
                busy_s = now_s
            elif now_s - busy_s > IDLE_S:
                return 0.0
            time.sleep(POLL_S)
        return None


def _batch(query: StreamingQuery) -> tuple[int, float] | None:
    progress = query.lastProgress
    if progress is None:
        return None
    return int(progress["batchId"]), progress["durationMs"].get("triggerExecution", 0) / 1e3


def _least(load: Counter[str]) -> str:
    """The executor with the fewest partitions, which then has one more."""
    executor = min(load, key=lambda e: (load[e], e))
    load[executor] += 1
    return executor
