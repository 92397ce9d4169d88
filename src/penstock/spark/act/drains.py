"""Executors on their way out: their state is moved away, then they are removed between two batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.spark.act.ports import ExecutorBackend
from penstock.spark.act.spreading import moves_away
from penstock.spark.act.state_moves import MoveJob, StateMoves
from penstock.spark.internals.errors import SparkInternalsError

PATIENCE_BATCHES = 5.0
"""How long a removal may wait for a moment when no query runs a batch, in batches of the slowest query."""

Queries = Mapping[str, StateMoves]


@dataclass(slots=True, kw_only=True)
class _Drain:
    since_s: float
    jobs: dict[str, MoveJob] = field(default_factory=dict)
    tries: Counter[str] = field(default_factory=Counter)
    cleared: bool = False
    """Whether its state is away, or would not move and was tried often enough."""
    unmoved: set[str] = field(default_factory=set)
    """Queries of which state would not move: only removed between two of their batches."""


class Drains:
    """The executors that are to go. Nothing here waits, so any of it can be called off."""

    def __init__(self, backend: ExecutorBackend, *, removal_floor_s: float, move_tries: int) -> None:
        self._backend, self._removal_floor_s, self._move_tries = backend, removal_floor_s, move_tries
        self._drains: dict[str, _Drain] = {}

    def __len__(self) -> int:
        return len(self._drains)

    @property
    def ids(self) -> frozenset[str]:
        """The executors that are to go and have not been removed."""
        return frozenset(self._drains)

    @property
    def cleared(self) -> bool:
        """Whether one of them waits for nothing but its removal."""
        return any(drain.cleared for drain in self._drains.values())

    def retarget(self, going: Collection[str], now_s: float) -> None:
        """Have just these go; what is under way for others is called off."""
        for id_ in self.ids - set(going):
            for job in self._drains.pop(id_).jobs.values():
                job.cancel()
        for id_ in going:
            if id_ not in self._drains:
                self._drains[id_] = _Drain(since_s=now_s)

    def move_away(self, queries: Queries, staying: Collection[str]) -> None:
        """Keep state moving away from what goes, until none is left or it was tried often enough."""
        unknown = False
        for key, moves in queries.items() if self._drains else ():
            if any(not d.jobs[key].done for d in self._drains.values() if key in d.jobs):
                continue
            try:
                places = {} if moves.ended else moves.places()
            except SparkInternalsError:  # where state is unknown, nothing is removed
                unknown = True
                continue
            held = self.ids & {e for e in places.values() if e is not None}
            stuck = {id_ for id_ in held if self._drains[id_].tries[key] >= self._move_tries}
            for id_, drain in self._drains.items():
                drain.jobs.pop(key, None)
                drain.tries[key] += id_ in held - stuck
                (drain.unmoved.add if id_ in stuck else drain.unmoved.discard)(key)
            targets = {
                place: executor
                for place, executor in moves_away(places, self.ids, staying, moves.weights).items()
                if places[place] not in stuck
            }
            if targets:
                job = moves.move(targets)
                for id_ in held - stuck:
                    self._drains[id_].jobs[key] = job
        for drain in self._drains.values():
            drain.cleared = not drain.jobs and not unknown

    def remove(self, now_s: float, queries: Queries, at: Mapping[str, bool | None]) -> frozenset[str]:
        """Remove the executors whose state is away, at a moment when no query runs a batch; which ones.

        `at` says for each query whether it is between two batches. Where queries never are so at the same time,
        after a while between two batches of any of them. An executor that runs a task is only killed after that
        while, and never while a query that has state there runs a batch.
        """
        running = {key for key, between in at.items() if between is False}
        slowest_s = max((moves.longest_batch_s for moves in queries.values()), default=0.0)
        patience_s = max(self._removal_floor_s, PATIENCE_BATCHES * slowest_s)
        removed = set()
        for id_, drain in self._drains.items():
            overdue = now_s - drain.since_s > patience_s
            moment = not running or (overdue and True in at.values())
            if not (drain.cleared and moment) or running & drain.unmoved:
                continue
            if self._backend.decommissions:
                gone = self._backend.decommission(id_)
            else:
                gone = bool(self._backend.kill([id_], only_idle=not overdue or bool(drain.unmoved)))
            if gone:
                removed.add(id_)
        for id_ in removed:
            del self._drains[id_]
        return frozenset(removed)
