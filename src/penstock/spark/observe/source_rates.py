"""How fast sources produce and how much of it waits, for each kind of source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.dataflow import Load
from penstock.spark.observe.progress import BatchProgress, SourceProgress, kafka_total
from penstock.telemetry import CounterRates

WINDOW_S = 10.0
CHANGE_SIGMAS = 5.0
READING_S = 0.15
"""How far the moment at which offsets are read may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """One source in one interval."""

    produced_rps: float = 0.0
    read_rps: float = 0.0
    backlog_records: float = 0.0
    oldest_s: float = 0.0
    known: bool = False


class SourceReader(Protocol):
    """Reads one source's facts from the batches of an interval."""

    def read(self, batches: tuple[BatchProgress, ...], now_s: float, interval_s: float) -> SourceFacts:
        """The facts of the interval that ends now."""
        ...


class ReplaySource:
    """The replay source knows its own backlog: what is due by its schedule less what was read.

    Its offsets hold the number of the next record and the moment its clock began.
    """

    def __init__(self, index: int, load: Load) -> None:
        self._index, self._load = index, load
        self._next: int = 0
        self._started_s: float | None = None

    def read(self, batches: tuple[BatchProgress, ...], now_s: float, interval_s: float) -> SourceFacts:
        """Due by the schedule, less read."""
        records = 0
        for batch in batches:
            source = source_of(batch, self._index)
            if source is not None and isinstance(source.end, dict):
                self._next = int(source.end["next"])
                self._started_s = int(source.end["started_us"]) / 1e6
                records += source.records
        if self._started_s is None:
            return SourceFacts()
        due = self._load.records_until(max(0.0, now_s - self._started_s))
        before = self._load.records_until(max(0.0, now_s - interval_s - self._started_s))
        backlog = max(0.0, due - self._next)
        rate = (due - before) / interval_s
        return SourceFacts(
            produced_rps=rate,
            read_rps=records / interval_s,
            backlog_records=backlog,
            oldest_s=backlog / rate if rate else 0.0,
            known=True,
        )


class KafkaSource:
    """Production from the growth of the end offsets, backlog from end offsets less what was read.

    The rate is that of the last `WINDOW_S` seconds, or since it last changed by more than chance explains.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._rates = CounterRates.start(1, window_s=WINDOW_S)
        self._latest = SourceFacts()
        self._committed: int | None = None

    def read(self, batches: tuple[BatchProgress, ...], now_s: float, interval_s: float) -> SourceFacts:
        """From the offsets that each batch reports: no client of our own asks the broker."""
        records = 0
        for batch in batches:
            source = source_of(batch, self._index)
            if source is None or not isinstance(source.latest, dict) or not isinstance(source.end, dict):
                continue
            records += source.records
            if not self._rates.times_s.size or batch.asked_s > self._rates.times_s[-1]:
                total = float(kafka_total(source.latest))
                if _has_changed(self._rates, batch.asked_s, total):
                    self._rates = self._rates.since_last()
                self._rates = self._rates.add(batch.asked_s, [total])
            self._committed = kafka_total(source.end)
        rates = self._rates.rates_rps
        if self._committed is None or not self._rates.times_s.size:
            return SourceFacts(read_rps=records / interval_s)
        produced = float(rates[0]) if rates is not None else 0.0
        # What was produced since the last batch was planned waits too: nobody has counted it yet.
        since_s = max(0.0, now_s - float(self._rates.times_s[-1]))
        backlog = max(0.0, float(self._rates.counters[-1, 0]) - self._committed) + produced * since_s
        return SourceFacts(
            produced_rps=produced,
            read_rps=records / interval_s,
            backlog_records=backlog,
            oldest_s=backlog / produced if produced else 0.0,
            known=rates is not None,
        )


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
    """A source that says only what it read: what is produced is then taken to be what is read."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._rates = CounterRates.start(1, window_s=WINDOW_S)
        self._total = 0

    def read(self, batches: tuple[BatchProgress, ...], now_s: float, interval_s: float) -> SourceFacts:
        """Records read, over a window: an interval may hold the end of two batches or of none."""
        found = [source_of(batch, self._index) for batch in batches]
        records = sum(s.records for s in found if s is not None)
        self._total += records
        self._rates = self._rates.add(now_s, [float(self._total)])
        rates = self._rates.rates_rps
        read_rps = float(rates[0]) if rates is not None else records / interval_s
        return SourceFacts(produced_rps=read_rps, read_rps=read_rps, known=self._total > 0)


def source_of(batch: BatchProgress, index: int) -> SourceProgress | None:
    """The source at a position of the query, None if the batch does not tell of it."""
    return batch.sources[index] if index < len(batch.sources) else None
