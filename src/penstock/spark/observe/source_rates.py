"""How fast sources produce, how much of it waits and for how long, for each kind of source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import Load
from penstock.spark.internals.kafka_ends import SOURCE as KAFKA
from penstock.spark.internals.running import Standing
from penstock.spark.observe.looks import Look, Offsets
from penstock.spark.observe.progress import BatchProgress, SourceProgress
from penstock.telemetry import CounterRates

Floats = NDArray[np.float64]

WINDOW_S = 10.0
CHANGE_SIGMAS = 5.0
READING_S = 0.15
"""How far the moment at which offsets are read may be off."""
LEAST_S = 0.5
"""Two readings closer than this say more about their own moments than about a rate."""
CURVE_POINTS = 2000
"""Readings of the past that are kept, to tell when a record that is read now has come."""
AGES = (np.arange(20) + 0.5) / 20
"""Where in a batch, from its oldest to its newest record, ages are taken."""
FADE = 0.9
"""Weight of the batches before, in the share of offsets that are records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """One source in one interval."""

    produced_rps: float = 0.0
    read_rps: float = 0.0
    known: bool = False
    """Whether the rates are known."""
    backlog_records: float = 0.0
    oldest_s: float = 0.0
    """Age of the oldest record that is not processed yet."""
    backlog_known: bool = False


class SourceReader(Protocol):
    """Learns one source's facts from looks at its query."""

    tells_backlog: ClassVar[bool]
    """Whether it knows what waits in the source."""

    def note(self, look: Look) -> None:
        """Take in one look."""
        ...

    def facts(self, now_s: float, *, fresh_s: float) -> SourceFacts:
        """The facts now; what was last read longer than `fresh_s` ago is unknown."""
        ...

    def arrivals_s(self, batch: BatchProgress) -> Floats | None:
        """When records of a batch came, from the oldest to the newest (`AGES`); None: not known."""
        ...

    def running_arrivals_s(self) -> Floats | None:
        """The same of the batch under way; None: none runs, or not known."""
        ...

    def running_records(self) -> float | None:
        """Records of the batch under way; None: none runs, or not known."""
        ...


class ReadRate:
    """Records per second that batches read, known at the ends of batches.

    While a batch runs nothing new is known, and the last rate stands; a query that rests reads nothing.
    """

    def __init__(self) -> None:
        self._rates = CounterRates.start(1, window_s=WINDOW_S)
        self.total = 0
        self._resting_since_s: float | None = None

    def note(self, look: Look, index: int) -> None:
        """Take in one look."""
        for batch in look.batches:
            source = source_of(batch, index)
            self.total += source.records if source is not None else 0
            if not self._rates.times_s.size:  # its records came while it waited to be the first
                self._rates = self._rates.add(batch.began_s, [0.0])
            if batch.ended_s > self._rates.times_s[-1]:
                self._rates = self._rates.add(batch.ended_s, [float(self.total)])
        if look.running_s or look.batches:
            self._resting_since_s = None
        elif self._resting_since_s is None:
            self._resting_since_s = look.time_s

    def rps(self, now_s: float) -> float | None:
        """The rate; None before the first batch has ended."""
        rates = self._rates.rates_rps
        if rates is None:
            return None
        rests_s = now_s - self._resting_since_s if self._resting_since_s is not None else 0.0
        if rests_s <= WINDOW_S:
            return float(rates[0])
        since_s = now_s - float(self._rates.times_s[0])
        came = self.total - float(self._rates.counters[0, 0])
        return 0.0 if rests_s > 2 * WINDOW_S else came / max(since_s, 1e-3)


class ReplaySource:
    """The replay source knows its own backlog: what is due by its schedule less what was read.

    Its offsets hold the number of the next record and the moment its clock began.
    """

    tells_backlog: ClassVar[bool] = True

    def __init__(self, index: int, load: Load) -> None:
        self._index, self._load = index, load
        self._read = ReadRate()
        self._next: int = 0
        self._started_s: float | None = None
        self._running: tuple[int, int] | None = None

    def note(self, look: Look) -> None:
        """Where the batches and the one under way end."""
        self._read.note(look, self._index)
        for batch in look.batches:
            source = source_of(batch, self._index)
            if source is not None and isinstance(source.end, dict):
                self._next = int(source.end["next"])
                self._started_s = int(source.end["started_us"]) / 1e6 + batch.shift_s
        self._running = None
        end = _standing_offset(look, self._index, "end")
        if look.running_s and isinstance(end, dict) and "next" in end:
            self._running = self._next, int(end["next"])
            if self._started_s is None and look.standing is not None:
                self._started_s = int(end["started_us"]) / 1e6 + look.time_s - look.standing.wall_s

    def facts(self, now_s: float, *, fresh_s: float) -> SourceFacts:
        """Due by the schedule, less read."""
        if self._started_s is None:
            return SourceFacts()
        due = self._due(now_s)
        backlog = max(0.0, due - self._next)
        rate = (due - self._due(now_s - LEAST_S)) / LEAST_S
        return SourceFacts(
            produced_rps=rate,
            read_rps=self._read.rps(now_s) or 0.0,
            known=True,
            backlog_records=backlog,
            oldest_s=backlog / rate if rate else 0.0,
            backlog_known=True,
        )

    def arrivals_s(self, batch: BatchProgress) -> Floats | None:
        """Records carry their own times."""
        return None

    def running_arrivals_s(self) -> Floats | None:
        """When those of the batch under way were due."""
        if self._running is None or self._started_s is None or self._running[1] <= self._running[0]:
            return None
        oldest_s, newest_s = (self._due_s(number) for number in self._running)
        return np.asarray(oldest_s + AGES * (newest_s - oldest_s))

    def running_records(self) -> float | None:
        """By its numbers."""
        return float(self._running[1] - self._running[0]) if self._running is not None else None

    def _due(self, now_s: float) -> float:
        assert self._started_s is not None
        return self._load.records_until(max(0.0, now_s - self._started_s))

    def _due_s(self, number: int) -> float:
        """When the record of that number was due, to a hundredth of a second."""
        assert self._started_s is not None
        early, late = 0.0, 1.0
        while self._load.records_until(late) < number and late < 1e8:
            early, late = late, 2 * late
        while late - early > 0.01:
            middle = (early + late) / 2
            early, late = (middle, late) if self._load.records_until(middle) < number else (early, middle)
        return self._started_s + late


@dataclass(slots=True)
class _Arrivals:
    """How many offsets had come by which time, over all partitions: a curve that only rises.

    A partition is counted from the first reading that names it. One whose offsets fall (a topic that was made anew)
    goes on from its new value.
    """

    times_s: list[float] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    """The newest reading, by partition."""

    def add(self, time_s: float, ends: Offsets) -> None:
        """One reading more; one that is not newer than the last is left out."""
        if self.times_s and time_s <= self.times_s[-1]:
            return
        grown = 0.0
        for partition, offset in ends.items():
            before = self.ends.get(partition, offset)
            grown += offset - before if offset >= before else offset
        self.times_s.append(time_s)
        self.totals.append((self.totals[-1] if self.totals else 0.0) + grown)
        self.ends.update(ends)
        if len(self.times_s) > CURVE_POINTS:  # every second point of the older half says as much
            half = CURVE_POINTS // 2
            self.times_s[:half] = self.times_s[:half:2]
            self.totals[:half] = self.totals[:half:2]

    def behind(self, offsets: Offsets) -> float:
        """How many offsets lie between these and the newest reading."""
        return float(sum(max(0, end - offsets.get(p, end)) for p, end in self.ends.items()))

    def when(self, behind: Floats) -> Floats:
        """When what lies so far behind the newest reading came: not before the first reading, if it did."""
        return np.asarray(np.interp(self.totals[-1] - behind, self.totals, self.times_s))


class KafkaSource:
    """Production from the growth of the end offsets, backlog from end offsets less what was processed.

    The rate is that of the last `WINDOW_S` seconds, or since it last changed by more than chance explains. End
    offsets come from the broker itself; where it cannot be asked, from what each trigger of the query saw. Offsets
    are not all records (transactions leave markers, compaction leaves holes): the share that are is learnt from
    batches.
    """

    tells_backlog: ClassVar[bool] = True

    def __init__(self, index: int) -> None:
        self._index = index
        self._arrivals = _Arrivals()
        self._rates = CounterRates.start(1, window_s=WINDOW_S)
        self._read = ReadRate()
        self._processed: Offsets | None = None
        self._running: tuple[Offsets, Offsets] | None = None
        self._records, self._offsets = 0.0, 0.0
        self._asks_broker = False
        """Whether the broker answers: then the query's own readings only tell of the time before."""
        self._read_s = float("-inf")

    def note(self, look: Look) -> None:
        """Offsets of batches, of the batch under way, and of the broker, in the order of their times."""
        self._read.note(look, self._index)
        ends, past = look.ends.get(self._index), not self._asks_broker
        self._asks_broker = self._asks_broker or ends is not None
        for batch in look.batches:
            source = source_of(batch, self._index)
            if source is None:
                continue
            start, end, latest = (_offsets(o) for o in (source.start, source.end, source.latest))
            if latest and past:
                self._reading(batch.asked_s, latest, off_s=batch.asking_s / 2, told=not self._asks_broker)
            if end:
                self._processed = end
                self._learn_share(source.records, start, end)
        start, end, latest = (
            _offsets(_standing_offset(look, self._index, which)) for which in ("start", "end", "latest")
        )
        if self._processed is None and start:
            self._processed = start
        self._running = (self._processed or start, end) if look.running_s and end else None
        if ends is not None:
            self._reading(ends.time_s, ends.offsets, told=True)
        elif latest and not self._asks_broker and not look.running_s:
            self._reading(_asked_s(look), latest, told=True)

    def facts(self, now_s: float, *, fresh_s: float) -> SourceFacts:
        """What is known now."""
        rates, fresh = self._rates.rates_rps, now_s - self._read_s <= fresh_s
        share = self.record_share
        produced = share * float(rates[0]) if rates is not None else 0.0
        read_rps = self._read.rps(now_s)
        if self._processed is None or not self._arrivals.times_s:
            return SourceFacts(
                produced_rps=produced, read_rps=read_rps or 0.0, known=fresh and rates is not None
            )
        behind = self._arrivals.behind(self._processed)
        # What came since the last reading waits too: nobody has counted it yet.
        since_s = max(0.0, now_s - self._arrivals.times_s[-1])
        oldest_s = now_s - float(self._arrivals.when(np.array([behind]))[0]) if behind else 0.0
        return SourceFacts(
            produced_rps=produced,
            read_rps=read_rps or 0.0,
            known=fresh and rates is not None,
            backlog_records=share * behind + produced * since_s,
            oldest_s=oldest_s,
            backlog_known=fresh,
        )

    def arrivals_s(self, batch: BatchProgress) -> Floats | None:
        """By the curve of what had come when."""
        source = source_of(batch, self._index)
        if source is None:
            return None
        return self._when(_offsets(source.start), _offsets(source.end))

    def running_arrivals_s(self) -> Floats | None:
        """By the same curve."""
        return self._when(*self._running) if self._running is not None else None

    def running_records(self) -> float | None:
        """By its offsets, of which some may be no records."""
        if self._running is None:
            return None
        start, end = self._running
        return self.record_share * sum(max(0, offset - start.get(p, offset)) for p, offset in end.items())

    @property
    def record_share(self) -> float:
        """The share of offsets that are records."""
        return min(1.0, self._records / self._offsets) if self._offsets else 1.0

    def _when(self, start: Offsets, end: Offsets) -> Floats | None:
        if len(self._arrivals.times_s) < 2 or not end:
            return None
        oldest, newest = self._arrivals.behind(start), self._arrivals.behind(end)
        return self._arrivals.when(oldest + AGES * (newest - oldest)) if oldest > newest else None

    def _reading(self, time_s: float, ends: Offsets, *, off_s: float = 0.0, told: bool) -> None:
        """One reading of the end offsets; `told`: rates are made of such readings."""
        self._arrivals.add(time_s, ends)
        if not told or off_s > LEAST_S:  # the moment of a reading that took long is not known
            return
        self._read_s = max(self._read_s, time_s)
        total, last_s = (
            self._arrivals.totals[-1],
            self._rates.times_s[-1] if self._rates.times_s.size else None,
        )
        if last_s is not None and time_s < last_s + LEAST_S:
            return
        if _has_changed(self._rates, time_s, total):
            self._rates = self._rates.since_last()
        self._rates = self._rates.add(time_s, [total])

    def _learn_share(self, records: int, start: Offsets, end: Offsets) -> None:
        offsets = sum(max(0, offset - start.get(p, offset)) for p, offset in end.items())
        if offsets:
            self._records = FADE * self._records + records
            self._offsets = FADE * self._offsets + offsets


def _has_changed(rates: CounterRates, time_s: float, total: float) -> bool:
    """Whether what came since the last reading is too much or too little for the rate so far.

    Beyond five standard deviations of a Poisson count and what an uncertain moment of reading explains.
    """
    if rates.rates_rps is None:
        return False
    seconds = time_s - float(rates.times_s[-1])
    came, expected = total - float(rates.counters[-1, 0]), float(rates.rates_rps[0]) * seconds
    uncertain = READING_S * max(came, expected) / seconds
    return bool(abs(came - expected) > CHANGE_SIGMAS * max(came, expected, 1.0) ** 0.5 + uncertain)


class PlainSource:
    """A source that says only what it read: what is produced is taken to be what is read, what waits is unknown."""

    tells_backlog: ClassVar[bool] = False

    def __init__(self, index: int) -> None:
        self._index = index
        self._read = ReadRate()

    def note(self, look: Look) -> None:
        """Records of batches."""
        self._read.note(look, self._index)

    def facts(self, now_s: float, *, fresh_s: float) -> SourceFacts:
        """The rate of reading."""
        rate = self._read.rps(now_s)
        return SourceFacts(produced_rps=rate or 0.0, read_rps=rate or 0.0, known=rate is not None)

    def arrivals_s(self, batch: BatchProgress) -> Floats | None:
        """Nobody knows."""
        return None

    def running_arrivals_s(self) -> Floats | None:
        """Nobody knows."""
        return None

    def running_records(self) -> float | None:
        """Nobody knows."""
        return None


def source_of(batch: BatchProgress, index: int) -> SourceProgress | None:
    """The source at a position of the query, None if the batch does not tell of it."""
    return batch.sources[index] if index < len(batch.sources) else None


def _asked_s(look: Look) -> float:
    """When the last trigger of a query that rests asked its sources: right after it began."""
    standing = look.standing
    if standing is None or standing.triggered_wall_s is None:
        return look.time_s
    return look.time_s - max(0.0, standing.wall_s - standing.triggered_wall_s)


def _standing_offset(look: Look, index: int, which: str) -> Any:
    standing = look.standing
    if standing is None or index >= len(standing.sources):
        return None
    return getattr(standing.sources[index], which)


def _offsets(told: Any) -> dict[str, int]:
    """Kafka's offsets of an offset document, by partition; empty if it is not one."""
    if not isinstance(told, Mapping):
        return {}
    return {
        f"{topic}-{partition}": int(offset)
        for topic, partitions in told.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
    }


def kafka_partitions(standing: Standing) -> dict[int, list[str]]:
    """The partitions of each Kafka source of a query, by position, as `topic-partition`."""
    named = {i: sorted(_offsets(s.latest) or _offsets(s.end)) for i, s in enumerate(standing.sources)}
    return {i: named[i] for i, source in enumerate(standing.sources) if source.kind == KAFKA and named[i]}
