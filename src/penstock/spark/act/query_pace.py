"""The pace of one run of a query, changed so that it can be put back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.spark.act.touched import Lever, Touched, Value
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.pacing import LimitKind, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLimit:
    """How much a batch may read of one source, in records: now, and by its owner's wish. 0: all there is."""

    now: float
    own: float
    settable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceReading:
    """The pace of a query as it is, and as its owner set it."""

    interval_s: float = 0.0
    own_interval_s: float = 0.0
    paceable: bool = False
    """Whether its trigger has an interval to change."""
    limits: tuple[SourceLimit, ...] = ()
    """In the order in which the query's progress lists its sources; empty where that is not known."""


class Pacemaker(Protocol):
    """What sets the pace of a run: `internals.pacing.Pacing`."""

    def interval_ms(self) -> int:
        """The trigger interval."""
        ...

    def set_interval_ms(self, interval_ms: int) -> None:
        """Change the trigger interval."""
        ...

    def sources(self) -> Sequence[Source]:
        """The inputs, in the order of the progress."""
        ...

    def set_read_limit(self, kind: LimitKind, count: int, *, source: int = 0) -> None:
        """Change what a batch may read."""
        ...

    def restore_read_limit(self, text: str, *, source: int = 0) -> None:
        """Set a limit that was described."""
        ...


class QueryPace:
    """Trigger interval and read limits of one run; the user's values are noted before the first change."""

    def __init__(self, pacing: Pacemaker, run: str, touched: Touched) -> None:
        self._pacing, self._run, self._touched = pacing, run, touched
        self._limits: list[SourceLimit] = []
        """Nobody else changes them, so they are read once."""

    def reading(self) -> PaceReading:
        """The pace now."""
        limits = self.limits
        try:
            interval_ms = self._pacing.interval_ms()
        except SparkInternalsError:
            return PaceReading(limits=limits)  # a trigger without an interval
        own_ms = self._touched.pending().get(f"interval:{self._run}", interval_ms)
        return PaceReading(
            interval_s=interval_ms / 1e3,
            own_interval_s=float(own_ms or 0) / 1e3,
            paceable=True,
            limits=limits,
        )

    @property
    def limits(self) -> tuple[SourceLimit, ...]:
        """Of the sources, as `PaceReading.limits`."""
        return tuple(self._read_limits())

    def set_interval_ms(self, interval_ms: int) -> int:
        """Change the trigger interval, from the wait after the next on; returns what the query then shows."""
        self._touched.note(f"interval:{self._run}", self._pacing.interval_ms())
        self._pacing.set_interval_ms(interval_ms)
        return self._pacing.interval_ms()

    def set_read_limit(self, source: int, records: int) -> bool:
        """Let a batch read at most so many records of a source, 0: all there is; False where that cannot be set.

        A limit of the owner's that could not be put back is not replaced.
        """
        limits = self._read_limits()
        if not 0 <= source < len(limits) or not limits[source].settable:
            return False
        name, own = f"read-limit:{self._run}:{source}", limits[source].own
        if float(records) == own:
            before = self._touched.pending().get(name)
            if before is not None:
                self._pacing.restore_read_limit(str(before), source=source)
                self._touched.forget(name)
        else:
            self._touched.note(name, self._pacing.sources()[source].limit)
            if records:
                self._pacing.set_read_limit("rows", records, source=source)
            else:
                self._pacing.restore_read_limit("all", source=source)
        limits[source] = SourceLimit(now=float(records), own=own, settable=True)
        return True

    def levers(self) -> dict[str, Lever]:
        """What puts back the notes of this run, for `Touched.put_back`."""
        return {
            name: self._lever(name) for name in self._touched.pending() if name.split(":")[1:2] == [self._run]
        }

    def _read_limits(self) -> list[SourceLimit]:
        if not self._limits:
            notes = self._touched.pending()
            for index, source in enumerate(self._pacing.sources()):
                now = rows_of(source.limit)
                own = rows_of(str(notes.get(f"read-limit:{self._run}:{index}", source.limit)))
                settable = "rows" in source.accepts and now is not None and own is not None
                self._limits.append(SourceLimit(now=now or 0.0, own=own or 0.0, settable=settable))
        return self._limits

    def _lever(self, name: str) -> Lever:
        def interval(value: Value) -> None:
            self._pacing.set_interval_ms(int(value or 0))

        def limit(value: Value) -> None:
            self._pacing.restore_read_limit(str(value), source=int(name.rpartition(":")[2]))

        return interval if name.startswith("interval:") else limit


def rows_of(limit: str) -> float | None:
    """The records of a limit as `Pacing.sources` describes it; 0: all there is, None: it is of another kind.

    >>> rows_of("all"), rows_of("maxRows:7"), rows_of("minRows:5:1000")
    (0.0, 7.0, None)
    """
    kind, _, rest = limit.partition(":")
    if kind == "all":
        return 0.0
    if kind == "maxRows":
        return float(rest)
    if kind != "python":
        return None
    told = json.loads(rest)
    return {"ReadMaxRows": float(told.get("max_rows", 0)), "ReadAllAvailable": 0.0}.get(told.get("_type"))
