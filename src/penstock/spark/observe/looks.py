"""A look at a running query: everything that has to be asked of Spark, in one go and beside the loop.

Looks are taken on a thread that may wait; the observer makes a snapshot of them without asking Spark anything. So a
slow driver makes figures older, never the loop late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.act.query_pace import PaceReading
from penstock.spark.act.spreading import Place
from penstock.spark.internals.gateway import progress_since
from penstock.spark.internals.running import Standing, Standings
from penstock.spark.internals.shuffles import ShuffleMatrix, Shuffles
from penstock.spark.internals.tasks import TaskMetrics, TaskTable
from penstock.spark.observe.progress import STEP_S, BatchProgress, batches_of, in_loop_time

T = TypeVar("T")
TASKS_OF_BATCHES = 4
"""Of how many batches a look reads the tasks: short batches are alike, and reading takes time."""
Offsets = Mapping[str, int]
"""By partition, as `topic-partition`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsets:
    """What the broker said of one source: where its partitions end, and when."""

    time_s: float
    offsets: Offsets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """What one look brought. `time_s` is the loop's clock when it began."""

    time_s: float
    run_id: str
    batches: tuple[BatchProgress, ...] = ()
    """Those that ended since the look before, oldest first."""
    unseen: int = 0
    """Batches that ended since then and that Spark has already forgotten."""
    standing: Standing | None = None
    """Where the query stands; None where this Spark does not tell."""
    running_s: float = 0.0
    """How long the batch under way has run; 0: none runs."""
    ends: Mapping[int, EndOffsets] = field(default_factory=dict)
    """By position of the source: what its broker says, where it could be asked."""
    pace: PaceReading | None = None
    """Its trigger interval and read limits."""
    places: Mapping[Place, str | None] = field(default_factory=dict)
    moving: frozenset[Place] = frozenset()
    tasks: Mapping[int, TaskTable] = field(default_factory=dict)
    """Of the newest batches, by id; without those of which Spark tells nothing."""
    matrices: tuple[int, Sequence[ShuffleMatrix]] | None = None
    """Who sent how much to whom, in the newest batch of which Spark can still tell."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What a look reads of one run of a query; a gauge that this Spark lacks is None."""

    query: StreamingQuery
    standings: Standings | None = None
    places: Callable[[], Mapping[Place, str | None]] | None = None
    moving: Callable[[], frozenset[Place]] = frozenset
    issued: Callable[[], int] = int
    """How often Spark was told to move state."""
    tasks: TaskMetrics | None = None
    shuffles: Shuffles | None = None
    pace: Callable[[], PaceReading] | None = None
    ends: Callable[[Standing], Mapping[int, EndOffsets]] | None = None
    """Asks the brokers of the query's sources."""


class Looks:
    """Takes looks at one run of a query, one after the other on one thread; each goes on where the last ended."""

    def __init__(self, gauges: Gauges, *, clock: Callable[[], float], seen_batch: int = -1) -> None:
        self.gauges, self._clock = gauges, clock
        self._run = str(gauges.query.runId)
        self._seen = seen_batch
        self._after_s = float("-inf")
        """What is told next was triggered after this."""
        self._looked_s: float | None = None
        self._shifts_s: tuple[float, ...] = ()
        """What the loop's clock is ahead of the driver's; after a step, what it was before too: for batches of then."""
        self._running: tuple[int, float] | None = None
        """The batch under way and when it began, in the loop's time."""
        self._said: frozenset[str] = frozenset()
        self._places: Mapping[Place, str | None] = {}
        self._issued = -1
        """The moves that Spark had been told of when it was last asked for the places."""

    def take(self) -> Look:
        """One look."""
        warnings: list[str] = []
        gauges, now_s = self.gauges, self._clock()
        standing = _read(gauges.standings.read, None, warnings) if gauges.standings is not None else None
        # Progress after the standing: a batch that has ended in between is told as ended, not as running.
        reports = batches_of(progress_since(gauges.query, self._seen))
        now_s = max(now_s, self._clock())
        batches = self._timed(reports, standing, now_s)
        unseen = max(0, batches[0].batch_id - 1 - self._seen) if batches and self._seen >= 0 else 0
        if batches:
            self._seen = batches[-1].batch_id
        running_s, tasks = self._running_s(standing, now_s), self._tasks(batches, warnings)
        look = Look(
            time_s=now_s,
            run_id=self._run,
            batches=batches,
            unseen=unseen,
            standing=standing,
            running_s=running_s,
            ends=_asked(gauges.ends, standing, warnings),
            pace=_read(gauges.pace, None, warnings) if gauges.pace is not None else None,
            places=self._where(tasks, warnings),
            moving=gauges.moving(),
            tasks=tasks,
            matrices=self._matrices(batches, warnings),
            warnings=self._news(warnings),
        )
        self._looked_s = now_s
        return look

    def _timed(
        self, batches: tuple[BatchProgress, ...], standing: Standing | None, now_s: float
    ) -> tuple[BatchProgress, ...]:
        if standing is not None:
            shift_s = now_s - standing.wall_s
            # Two readings of one difference are never quite the same: the fewer changes, the better.
            if not self._shifts_s or abs(shift_s - self._shifts_s[0]) > STEP_S:
                self._shifts_s = (shift_s, *self._shifts_s[:1])
        timed: list[BatchProgress] = []
        for batch in batches:
            shifts_s = self._shifts_s or (0.0,)
            found = in_loop_time(batch, now_s=now_s, after_s=self._after_s, shifts_s=shifts_s)
            if timed and timed[-1].lasted_s is not None:
                most_s = max(0.0, found.began_s - timed[-1].began_s)
                timed[-1] = timed[-1].model_copy(update={"lasted_s": min(timed[-1].lasted_s, most_s)})
            if found.shift_s == shifts_s[0] and found.lasted_s is None:
                self._shifts_s = shifts_s[:1]  # later ones began after the step, too
            self._after_s = found.ended_s if found.lasted_s is None else found.began_s
            timed.append(found)
        return tuple(timed)

    def _running_s(self, standing: Standing | None, now_s: float) -> float:
        """How long the batch under way has run: counted by the loop's clock from the first sight of it on."""
        if standing is None or not standing.active or not standing.planned or standing.batch <= self._seen:
            self._running = None
            return 0.0
        if self._running is None or self._running[0] != standing.batch:
            wall_s = standing.triggered_wall_s
            ran_s = standing.wall_s - wall_s if wall_s is not None else 0.0
            # It was not there at the last look, so it cannot be older than that.
            most_s = now_s - self._looked_s if self._looked_s is not None else max(0.0, ran_s)
            self._running = standing.batch, now_s - min(max(0.0, ran_s), most_s)
        return max(1e-3, now_s - self._running[1])

    def _tasks(self, batches: tuple[BatchProgress, ...], warnings: list[str]) -> dict[int, TaskTable]:
        tasks, found = self.gauges.tasks, dict[int, TaskTable]()
        if tasks is None:
            return found
        for batch in batches[-TASKS_OF_BATCHES:]:
            table = _read(partial(tasks.batch, self._run, batch.batch_id), None, warnings)
            if table is not None and len(table):
                found[batch.batch_id] = table
        return found

    def _where(self, tasks: Mapping[int, TaskTable], warnings: list[str]) -> Mapping[Place, str | None]:
        """Where state partitions are. Spark is asked, a message for each partition, only if nobody else can tell.

        A task leaves its state where it ran: unless Spark was told of a move since, the newest batch shows the places,
        and without a new one they are where they were.
        """
        if self.gauges.places is None:
            return {}
        issued = self.gauges.issued()
        known = issued == self._issued and None not in self._places.values() and bool(self._places)
        if known and tasks:
            shown = places_shown(tasks[max(tasks)])
            known = shown.keys() == self._places.keys()
            self._places = shown if known else self._places
        if not known:
            # Counted before it is asked: a move in between is asked for again.
            self._places, self._issued = _read(self.gauges.places, {}, warnings), issued
        return self._places

    def _matrices(
        self, batches: tuple[BatchProgress, ...], warnings: list[str]
    ) -> tuple[int, Sequence[ShuffleMatrix]] | None:
        shuffles = self.gauges.shuffles
        if shuffles is None or not batches:
            return None
        ids = {b.batch_id: b for b in batches}
        return _read(lambda: shuffles.last_batch(self.gauges.query, ids), None, warnings)

    def _news(self, warnings: list[str]) -> tuple[str, ...]:
        """What fails in every look is said once."""
        told, self._said = self._said, frozenset(warnings)
        return tuple(w for w in warnings if w not in told)


def places_shown(table: TaskTable) -> dict[Place, str | None]:
    """Where the tasks of a batch left the state of their partitions."""
    states = table.states
    rows = zip(states.operator.tolist(), states.task.tolist(), strict=True)
    partition, ended = table.partition.tolist(), table.succeeded.tolist()
    return {
        Place(operator=operator, partition=partition[task]): table.executor[task]
        for operator, task in rows
        if ended[task]
    }


def _asked(
    ends: Callable[[Standing], Mapping[int, EndOffsets]] | None,
    standing: Standing | None,
    warnings: list[str],
) -> Mapping[int, EndOffsets]:
    if ends is None or standing is None:
        return {}
    return _read(lambda: ends(standing), {}, warnings)


def _read(gauge: Callable[[], Any], otherwise: T, warnings: list[str]) -> T:
    """What a gauge says; one that fails costs its figures and a warning, not the look."""
    try:
        found: T = gauge()
        return found
    except Exception as problem:  # whatever Spark's internals do, the other figures are still good
        warnings.append(f"{type(problem).__name__}: {problem}")
        return otherwise
