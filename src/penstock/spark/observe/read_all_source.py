"""A source of which every batch takes all there is: then what came in between two batches is what it produces."""

from __future__ import annotations

from typing import ClassVar

from penstock.spark.observe.looks import Look
from penstock.spark.observe.source_rates import PlainSource, SourceFacts, source_of


class ReadAllSource(PlainSource):
    """Tells production and backlog of sources without a read limit, such as Spark's rate source.

    A batch has what came since the batch before was planned. What came since the last one that ended was planned
    waits, or is in the batch under way. Sources with a limit of their own are taken for the same: of them it tells less
    than there is.
    """

    tells_backlog: ClassVar[bool] = True

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._began_s: float | None = None
        self._produced_rps: float | None = None
        self._rests, self._interval_s = False, 0.0

    def note(self, look: Look) -> None:
        """Records of batches, and when these began."""
        super().note(look)
        for batch in look.batches:
            source = source_of(batch, self._index)
            gap_s = batch.began_s - self._began_s if self._began_s is not None else 0.0
            if source is not None and gap_s > 0:
                self._produced_rps = source.records / gap_s
            self._began_s = batch.began_s
        self._rests = not look.running_s and not look.batches
        self._interval_s = look.pace.interval_s if look.pace is not None else 0.0

    def facts(self, now_s: float, *, fresh_s: float) -> SourceFacts:
        """What came per second between the last two batches, and what came since."""
        read_rps = self._read.rps(now_s)
        if read_rps is None or self._produced_rps is None or self._began_s is None:
            return super().facts(now_s, fresh_s=fresh_s)
        if self._rests:  # a query without anything to read plans no batch: nothing waits
            return SourceFacts(
                produced_rps=min(read_rps, self._produced_rps),
                read_rps=read_rps,
                known=True,
                backlog_known=True,
            )
        # What comes between two triggers waits by the user's own will.
        waits_s = max(0.0, now_s - self._began_s - self._interval_s)
        return SourceFacts(
            produced_rps=self._produced_rps,
            read_rps=read_rps,
            known=True,
            backlog_records=self._produced_rps * waits_s,
            oldest_s=waits_s,
            backlog_known=True,
        )
