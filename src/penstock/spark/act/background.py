"""A daemon thread that does small pieces of work, soon after one another while there is some."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LOG = logging.getLogger(__name__)

AFTER_FAULT_S = 1.0


class Background:
    """Calls `work`, which returns after how many seconds to call it again; `wake` calls it at once.

    It is a daemon and nobody joins it at exit, so it never holds up the
    end of the interpreter.
    """

    def __init__(self, work: Callable[[], float], finish: Callable[[], None], *, name: str) -> None:
        self._work, self._finish = work, finish
        self._wake, self._stop = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = False

    def start(self) -> None:
        """Begin; once is enough."""
        with self._lock:
            if not self._started and not self._stop.is_set():
                self._started = True
                self._thread.start()

    def wake(self) -> None:
        """Have the work looked at now."""
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """End after the piece of work under way and `finish`; whether it did within the time."""
        with self._lock:
            self._stop.set()
            started = self._started
        self._wake.set()
        if not started:
            self._finish()
            return True
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            pause_s = AFTER_FAULT_S
            try:
                pause_s = self._work()
            except Exception:  # a fault of ours never ends the work: the next look starts from what is true
                LOG.exception("background work failed; it goes on")
            self._wake.wait(pause_s)
        try:
            self._finish()
        except Exception:
            LOG.exception("background work could not be ended in order")
