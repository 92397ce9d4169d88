"""The clock of a live run. Simulated runs bring their own, tests use `penstock.testing.FakeClock`."""

from __future__ import annotations

import threading
import time


class WallClock:
    """Seconds since 1970, read once and then counted by the monotonic clock, so they never go back.

    A restarted controller goes on in the same time, which is what lets it recover cool-downs from the journal.
    Setting `stop` ends a sleep at once.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop if stop is not None else threading.Event()
        self._offset_s = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since 1970."""
        return self._offset_s + time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        """Return at `time_s`, or earlier when stopped."""
        while not self._stop.is_set() and (left_s := time_s - self.now()) > 0:
            self._stop.wait(left_s)
