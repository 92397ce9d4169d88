"""The executors of one application: one desired number, reconciled with what is really there and usable.

`want` and `release` only say what is desired; the newest replaces what was said before, also what is under way. A
background thread compares the desire with the executors that Spark lists, again and again, and takes the next small
step: ask the cluster manager, take a request back, move state away, remove an executor between two batches. No step
waits, so every one of them can be called off by a newer desire or by `close`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from penstock.policies.reasons import Reason
from penstock.spark.act.background import Background
from penstock.spark.act.capacity_request import CapacityRequest, Patience
from penstock.spark.act.drains import Drains
from penstock.spark.act.executor_view import ExecutorView, chosen_to_go, judged
from penstock.spark.act.locality_wait import LocalityWait
from penstock.spark.act.ports import ExecutorBackend, QueryRun, SettingsStore
from penstock.spark.act.spreading import even_moves
from penstock.spark.act.state_moves import MoveJob, StateMoves
from penstock.spark.act.touched import Touched, Value
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import DEFAULT_PROFILE

LOG = logging.getLogger(__name__)

NOTE = "executors"
POLL_S, LOOK_S, REST_S = 0.02, 0.25, 5.0
"""Pauses between looks: for the end of a batch, for executors that come or go, and when nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How patient the pool is."""

    patience: Patience = field(default_factory=Patience)
    """With the cluster manager."""
    removal_floor_s: float = 60.0
    """A removal may wait at least this long for a moment when no query runs a batch."""
    leaving_s: float = 120.0
    """An executor that was let go and is still there after this long is killed."""
    lasting_s: float = 30.0
    """What is unusable for this long stays so: a zombie is removed, another executor is asked for."""
    move_tries: int = 3
    """How often state is moved away before an executor leaves between two batches with what would not move."""
    spread: bool = True
    """Whether state is spread over executors that have arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """Where the pool stands."""

    desired: int | None = None
    """Executors wanted, None: whatever there is."""
    requested: int | None = None
    """What the cluster manager was last asked for."""
    usable: int = 0
    starting: int = 0
    draining: int = 0
    unusable: int = 0
    doing: str = "nothing"
    since_s: float = 0.0
    """When it began to do that, on the pool's clock."""
    settled: bool = True
    """Whether the executors that count are as many as desired and none is being removed."""
    refusal: Reason | None = None
    """Why the desire cannot be met at present."""
    retry_in_s: float | None = None
    """Seconds until capacity that did not come is asked for again."""


class ExecutorPool:
    """One desired number of executors for a whole application."""

    def __init__(
        self,
        backend: ExecutorBackend,
        store: SettingsStore,
        *,
        touched: Touched | None = None,
        options: PoolOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend, self._options, self._clock = backend, options or PoolOptions(), clock
        self.touched = touched or Touched(store)
        self.wait = LocalityWait(store, self.touched)
        held_by = None if backend.fixed else backend.held_by
        self.unavailable: str | None = backend.fixed or (
            f"{held_by} decides the number of executors" if held_by else None
        )
        """Why the number of executors is not ours to change, None if it is."""
        self._lock = threading.Lock()
        self._desired: int | None = None
        self._released: set[str] = set()
        self._hands_off: str | None = None
        self._queries: dict[str, StateMoves] = {}
        self._events: list[Reason] = []
        self._status, self._view = PoolStatus(), tuple[ExecutorView, ...]()
        # What follows is touched by the background thread alone.
        self._drains = Drains(
            backend, removal_floor_s=self._options.removal_floor_s, move_tries=self._options.move_tries
        )
        self._leaving: dict[str, float] = {}
        self._first_seen_s: dict[str, float] = {}
        self._unusable_since_s: dict[str, float] = {}
        self._capacity = CapacityRequest(self._options.patience)
        self._requested: int | None = None
        self._found = 0
        """The most executors seen before Penstock asked for a number: what to put back where nobody had asked."""
        self._foreign = 0
        self._known: frozenset[str] | None = None
        """The executors over which state was spread or had been found."""
        self._spreads: list[MoveJob] = []
        self._next_look_s = 0.0
        self._background = Background(self.tick, self._finish, name="penstock-executors")

    def start(self) -> Self:
        """Begin to reconcile in the background."""
        self._background.start()
        return self

    # What is desired: from any thread, never waits.

    def want(self, count: int) -> None:
        """Have `count` executors in all; replaces whatever was wanted before."""
        if count < 1:
            raise ValueError(f"an application needs at least one executor, not {count}")
        with self._lock:
            if self._desired is None or count > self._desired:
                self._released.clear()
            self._desired = count
        self._look_soon()

    def release(self, executor_id: str) -> None:
        """Have one executor fewer, and just this one; asking again changes nothing."""
        with self._lock:
            there = {v.id for v in self._view if v.counts or v.state == "draining"}
            if executor_id in self._released or executor_id not in there:
                return
            self._released.add(executor_id)
            self._desired = max(1, (len(there) if self._desired is None else self._desired) - 1)
        self._look_soon()

    def leave_alone(self, reason: str | None) -> None:
        """Only observe from now on, because somebody else is in charge; None: act again."""
        with self._lock:
            self._hands_off, self._foreign = reason, 0
            if reason is not None:
                self._desired = None
                self._released.clear()
        self._look_soon()

    def follow(self, key: str, run: QueryRun) -> StateMoves:
        """Take a run of a query into account: its state is moved, its boundaries are waited for."""
        moves = StateMoves(
            run, hosts=self._hosts, wait=self.wait, clock=self._clock, on_work=self._background.wake
        )
        with self._lock:
            self._queries[key] = moves
        return moves

    def forget(self, key: str) -> None:
        """A run has ended."""
        with self._lock:
            moves = self._queries.pop(key, None)
        if moves is not None:
            moves.close()

    def reconcile(self) -> tuple[Reason, ...]:
        """Have the background look now; returns what is to be told since the last call, each thing once."""
        self._look_soon()
        with self._lock:
            events, self._events = tuple(self._events), []
        return events

    # What there is: from any thread, as of the last look.

    def status(self) -> PoolStatus:
        """Where it stands: the desire of now, the executors of the last look."""
        with self._lock:
            status, ours = self._status, self.unavailable is None and self._hands_off is None
            if not ours or status.desired == self._desired:
                return status
            return replace(status, desired=self._desired, settled=False, refusal=None)

    def view(self) -> tuple[ExecutorView, ...]:
        """Every executor of the default profile with its state."""
        with self._lock:
            return self._view

    @property
    def draining(self) -> frozenset[str]:
        """Executors that are on their way out."""
        return frozenset(v.id for v in self.view() if v.state in ("draining", "leaving"))

    def close(self, timeout_s: float = 10.0) -> bool:
        """Stop: call off what is under way and leave the target at what is there. Whether it ended in time."""
        return self._background.stop(timeout_s)

    def put_back_target(self, value: Value) -> None:
        """Ask for as many executors as before Penstock: the lever of the note that the pool leaves in `touched`."""
        if value is not None:
            self._backend.request_total(int(value))

    # The work: from the background thread, or from a test with its own clock.

    def tick(self) -> float:
        """Take the next steps that need no waiting; seconds until the next look."""
        now_s = self._clock()
        with self._lock:
            queries = dict(self._queries)
        at: dict[str, bool | None] = {}
        moved = False
        for key, moves in queries.items():
            busy = moves.busy
            if busy or self._drains:
                at[key] = moves.tick()
            moved = moved or (busy and not moves.moving)
        try:
            # What is about to be removed is looked at once more: a task may have brought state back.
            removing = (not at or any(at.values())) and self._drains.cleared
            if moved or removing or now_s >= self._next_look_s:
                self._next_look_s = now_s + LOOK_S
                self._look(now_s, queries)
            if len(at) == len(queries) and self._drains.cleared:
                # At the very boundary at which the last move was seen to have succeeded, if it was one.
                removed = self._drains.remove(now_s, queries, at)
                self._leaving.update(dict.fromkeys(removed, now_s))
                if removed:
                    self.wait.shorten(short=True)
        except SparkInternalsError as problem:
            LOG.debug("executors cannot be looked at: %s", problem)
            return 4 * LOOK_S
        if self._drains or any(moves.busy for moves in queries.values()):
            return POLL_S
        return REST_S if self._status.settled else LOOK_S

    def _look_soon(self) -> None:
        self._next_look_s = 0.0
        self._background.wake()

    def _look(self, now_s: float, queries: Mapping[str, StateMoves]) -> None:
        with self._lock:
            desired, released, hands_off = self._desired, frozenset(self._released), self._hands_off
        view = self._seen(now_s)
        if self.unavailable or hands_off or desired is None:
            self._drains.retarget((), now_s)
            self._hold_tasks(queries)
            self._capacity.forget()
            refusal = _not_ours(self.unavailable or hands_off or "")
            self._publish(now_s, view, None, refusal if self.unavailable or hands_off else None)
            return
        candidates = [v for v in view if v.counts or v.state == "draining"]
        broken = {v.id for v in view if v.state == "unusable" and self._lasts(v, now_s)}
        weight = self._state_weights(queries) if len(candidates) > desired else {}
        going = chosen_to_go(
            candidates,
            len(candidates) - desired,
            first=released | self._drains.ids,
            state_weight=weight,
        )
        zombies = {v.id for v in view if v.id in broken and not v.executor.takes_tasks}
        if not self._backend.decommissions:
            going |= zombies
        if len(candidates) > desired:
            going |= broken
        self._drains.retarget(going, now_s)
        staying = [v for v in candidates if v.id not in going]
        count, news = self._capacity.target(now_s, desired, len(staying))
        if news is not None:
            self._tell(news)
        # What is broken and stays takes a place at the cluster manager.
        self._request(count + len(broken - going))
        self._hold_tasks(queries)
        self._drains.move_away(queries, {v.id for v in staying})
        self._spread(queries, staying)
        self._publish(now_s, self._seen(now_s, view), desired, self._capacity.refusal)

    def _seen(self, now_s: float, listed: tuple[ExecutorView, ...] | None = None) -> tuple[ExecutorView, ...]:
        executors = [v.executor for v in listed] if listed is not None else self._backend.all()
        mine = [e for e in executors if e.is_active and e.resource_profile == DEFAULT_PROFILE]
        there = {e.id for e in mine}
        if listed is None:
            self._leaving = {id_: s for id_, s in self._leaving.items() if id_ in there}
            self.wait.shorten(short=bool(self._leaving))
            self._kill_again(now_s)
            self._drains.retarget(self._drains.ids & there, now_s)
            if there - set(self._first_seen_s):
                self._capacity.arrived(now_s)
            if self._requested is None:
                self._found = max(self._found, len(there))
            self._first_seen_s = {id_: self._first_seen_s.get(id_, now_s) for id_ in there}
        views = []
        for executor in mine:
            age_s = now_s - self._first_seen_s[executor.id]
            state, why = judged(executor, age_s=age_s, draining=self._drains.ids, leaving=self._leaving)
            if state == "unusable":
                if executor.id not in self._unusable_since_s:
                    self._unusable_since_s[executor.id] = now_s
                    self._tell(
                        Reason(code="executor-unusable", facts={"executor": executor.id, "cause": why})
                    )
                since_s = self._unusable_since_s[executor.id]
            else:
                self._unusable_since_s.pop(executor.id, None)
                since_s = self._first_seen_s[executor.id]
            views.append(ExecutorView(executor=executor, state=state, reason=why, since_s=since_s))
        return tuple(views)

    def _kill_again(self, now_s: float) -> None:
        """An executor that was let go and is still there after a while takes no tasks and is killed."""
        for id_, since_s in self._leaving.items():
            if now_s - since_s > self._options.leaving_s:
                self._backend.kill([id_])
                self._leaving[id_] = now_s

    def _lasts(self, view: ExecutorView, now_s: float) -> bool:
        return now_s - view.since_s >= self._options.lasting_s

    def _request(self, count: int) -> None:
        known = self._backend.targets().get(DEFAULT_PROFILE)
        if self._requested is not None and known is not None and known != self._requested:
            self._foreign += 1
            if self._foreign >= 3:
                self.leave_alone("something else keeps changing the number of executors")
                self._tell(_not_ours("something else keeps changing the number of executors"))
                return
        if known == count:
            self._requested = count
            return
        there = len(self._first_seen_s) - len(self._leaving)
        if known is None and count == there:
            return  # nobody ever asked for a number, and there are as many as there should be
        self.touched.note(NOTE, known if known is not None else self._found)
        if self._backend.request_total(count):
            self._requested = count

    def _state_weights(self, queries: Mapping[str, StateMoves]) -> dict[str, float]:
        weight: dict[str, float] = {}
        for moves in queries.values():
            for place, executor in _safely(moves.places, {}).items():
                if executor is not None:
                    weight[executor] = weight.get(executor, 0.0) + moves.weights.get(place, 1.0)
        return weight

    def _hold_tasks(self, queries: Mapping[str, StateMoves]) -> None:
        """While something drains, tasks wait for their executors: an idle one that goes would take state back."""
        if self._drains:
            self.wait.hold(self, max((m.wait_s for m in queries.values()), default=0.0))
        else:
            self.wait.drop(self)

    def _spread(self, queries: Mapping[str, StateMoves], staying: list[ExecutorView]) -> None:
        """Give executors that have come their share of the state, once all that was asked for is there."""
        self._spreads = [job for job in self._spreads if not job.done]
        ids = frozenset(v.id for v in staying)
        came = ids - self._known if self._known is not None and self._options.spread else frozenset()
        if came and (self._capacity.waiting or self._drains or not all(map(_is_up, staying))):
            return
        self._known = ids
        if came:
            jobs = [m.move(even_moves(_safely(m.places, {}), ids, m.weights)) for m in queries.values()]
            self._spreads += [job for job in jobs if not job.done]

    def _publish(
        self, now_s: float, view: tuple[ExecutorView, ...], desired: int | None, refusal: Reason | None
    ) -> None:
        count = Counter(v.state for v in view)
        there = count["usable"] + count["starting"]
        counted = {v.id for v in view if v.counts}
        fresh = self._known is not None and self._options.spread and bool(counted - self._known)
        doing = "nothing"
        if self._capacity.waiting:
            doing = f"waiting for {(desired or 0) - there} more executors"
        elif self._drains:
            doing = f"moving state away from {', '.join(sorted(self._drains.ids))}"
        elif self._leaving:
            doing = f"waiting for {', '.join(sorted(self._leaving))} to leave"
        elif self._spreads or fresh:
            doing = "spreading state over new executors"
        status = PoolStatus(
            desired=desired,
            requested=self._requested,
            usable=count["usable"],
            starting=count["starting"],
            draining=count["draining"] + count["leaving"],
            unusable=count["unusable"],
            doing=doing,
            since_s=self._status.since_s if doing == self._status.doing else now_s,
            settled=desired is None or (there == desired and doing == "nothing"),
            refusal=refusal,
            retry_in_s=self._capacity.retry_in_s(now_s),
        )
        with self._lock:
            self._status, self._view = status, view

    def _hosts(self) -> dict[str, str]:
        return {v.id: v.executor.host for v in self.view() if v.counts and v.executor.has_block_manager}

    def _tell(self, reason: Reason) -> None:
        with self._lock:
            self._events.append(reason)

    def _finish(self) -> None:
        """The last act: nothing under way, and a target that replaces what dies but starts nothing new."""
        self._drains.retarget((), self._clock())
        with self._lock:
            queries = list(self._queries.values())
        try:
            self.wait.drop(self)
            for moves in queries:
                moves.close()
            self._leave_target()
            self.wait.shorten(short=False)
        except SparkInternalsError as problem:  # the application has ended before us
            LOG.debug("the executor target was left as it is: %s", problem)

    def _leave_target(self) -> None:
        if self._requested is not None and not self.unavailable and self._hands_off is None:
            view = self._seen(self._clock())
            self._backend.request_total(max(1, sum(v.counts for v in view)))
            self._publish(self._clock(), view, None, None)


def _is_up(view: ExecutorView) -> bool:
    return view.executor.has_block_manager


def _not_ours(cause: str) -> Reason:
    return Reason(code="executors-not-ours", facts={"cause": cause})


def _safely(read: Callable[[], Any], otherwise: Any) -> Any:
    """What a reading of Spark says; one that fails is tried again at the next look."""
    try:
        return read()
    except SparkInternalsError:
        return otherwise
