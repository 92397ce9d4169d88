"""How long a task waits for the executor that holds its state, raised while moves are under way."""

from __future__ import annotations

import re
import threading

from penstock.spark.act.ports import SettingsStore
from penstock.spark.act.touched import Touched, Value

KEY = "spark.locality.wait.process"
"""Only the wait for one executor: state has no other preference, and other waits are none of our business."""
GENERAL_KEY = "spark.locality.wait"
SPARK_DEFAULT_S = 3.0
NOTE = "locality-wait"

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1e-3}


class LocalityWait:
    """The wait of one application, shared by all that move state in it.

    A wait shorter than a task sends it elsewhere whenever its executor is busy, and undoes a move. It is never below
    the user's own value, and the user's setting is back as soon as nobody holds it.
    """

    def __init__(self, store: SettingsStore, touched: Touched) -> None:
        self._store, self._touched = store, touched
        self._lock = threading.Lock()
        self._held: dict[object, float] = {}
        self._before: str | None = None

    def hold(self, holder: object, wait_s: float) -> None:
        """Have tasks wait at least that long, from the next stage on, until `drop`."""
        with self._lock:
            if not self._held:
                self._before = self._store.get(KEY)
            own_s = seconds(self._before) or seconds(self._store.get(GENERAL_KEY))
            own_s = SPARK_DEFAULT_S if own_s is None else own_s
            self._held[holder] = wait_s
            longest_s = max(self._held.values())
            if longest_s > own_s:
                self._touched.note(NOTE, self._before)
                self._store.put(KEY, f"{round(1e3 * longest_s)}ms")

    def drop(self, holder: object) -> None:
        """Hold it no longer; the last one puts the user's value back."""
        with self._lock:
            if self._held.pop(holder, None) is not None and not self._held:
                self.put_back(self._before)
                self._touched.forget(NOTE)

    def put_back(self, value: Value) -> None:
        """Set the user's value again; None: it was not set."""
        self._store.put(KEY, None if value is None else str(value))


def seconds(text: str | None) -> float | None:
    """Spark's way to write a time, in seconds; None if there is none or it cannot be read.

    >>> seconds("500ms"), seconds("3s"), seconds("2m")
    (0.5, 3.0, 120.0)
    """
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", (text or "").strip().lower())
    unit_s = _UNITS_S.get(found[2]) if found else None
    return int(found[1]) * unit_s if found and unit_s is not None else None
