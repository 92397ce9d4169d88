"""The pace of one run of a query, changed so that it can be put back."""

from __future__ import annotations

from typing import Protocol

from penstock.spark.act.touched import Lever, Touched, Value
from penstock.spark.internals.pacing import LimitKind


class Pacemaker(Protocol):
    """What sets the pace of a run: `internals.pacing.Pacing`."""

    def interval_ms(self) -> int:
        """The trigger interval."""
        ...

    def set_interval_ms(self, interval_ms: int) -> None:
        """Change the trigger interval."""
        ...

    def read_limit(self, *, source: int = 0) -> str:
        """The limit of a source as a text."""
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

    def interval_ms(self) -> int:
        """The trigger interval now."""
        return self._pacing.interval_ms()

    def set_interval_ms(self, interval_ms: int) -> None:
        """Change the trigger interval, from the wait after the next on."""
        self._touched.note(f"interval:{self._run}", self._pacing.interval_ms())
        self._pacing.set_interval_ms(interval_ms)

    def set_read_limit(self, kind: LimitKind, count: int, *, source: int = 0) -> None:
        """Let a batch read at most so much of a source; a limit that could not be put back is not replaced."""
        self._touched.note(f"read-limit:{self._run}:{source}", self._pacing.read_limit(source=source))
        self._pacing.set_read_limit(kind, count, source=source)

    def lift_read_limit(self, *, source: int = 0) -> None:
        """Give a source the limit back that it had before Penstock."""
        name = f"read-limit:{self._run}:{source}"
        before = self._touched.pending().get(name)
        if before is not None:
            self._pacing.restore_read_limit(str(before), source=source)
            self._touched.forget(name)

    def levers(self) -> dict[str, Lever]:
        """What puts back the notes of this run, for `Touched.put_back`."""
        return {
            name: self._lever(name) for name in self._touched.pending() if name.split(":")[1:2] == [self._run]
        }

    def _lever(self, name: str) -> Lever:
        def interval(value: Value) -> None:
            self._pacing.set_interval_ms(int(value or 0))

        def limit(value: Value) -> None:
            self._pacing.restore_read_limit(str(value), source=int(name.rpartition(":")[2]))

        return interval if name.startswith("interval:") else limit
