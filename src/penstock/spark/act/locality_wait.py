"""How long a task waits for the executor it would rather run on: longer while state moves, shorter while one leaves.

A driver lists a killed executor for some five seconds more. Tasks that prefer it, those that read a Kafka partition
for example, wait for it and then for its host: six seconds by Spark's defaults, in which the batch stands still.
"""

from __future__ import annotations

import re
import threading
from functools import partial

from penstock.spark.act.ports import SettingsStore
from penstock.spark.act.touched import Lever, Touched, Value

PROCESS, NODE = "spark.locality.wait.process", "spark.locality.wait.node"
"""The wait for one executor, which is what state prefers, and the wait for its host after that."""
NOTES = {PROCESS: "locality-wait", NODE: "locality-wait-node"}
GENERAL_KEY = "spark.locality.wait"
SPARK_DEFAULT_S = 3.0
SHORT_S = 0.2
"""The wait for an executor that may be one that leaves; a task that goes elsewhere takes its state with it."""

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1e-3}


class LocalityWait:
    """The wait of one application, shared by all that move state in it.

    A wait shorter than a task sends it elsewhere whenever its executor is busy, and undoes a move: while somebody
    holds it, it is never below the user's own value. The user's settings are back as soon as nobody needs others.
    """

    def __init__(self, store: SettingsStore, touched: Touched) -> None:
        self._store, self._touched = store, touched
        self._lock = threading.Lock()
        self._held: dict[object, float] = {}
        self._short = False
        self._before: dict[str, str | None] = {}

    def hold(self, holder: object, wait_s: float) -> None:
        """Have tasks wait at least that long, from the next stage on, until `drop`."""
        with self._lock:
            self._held[holder] = wait_s
            self._set()

    def drop(self, holder: object) -> None:
        """Hold it no longer; the last one puts the user's value back."""
        with self._lock:
            if self._held.pop(holder, None) is not None:
                self._set()

    def shorten(self, *, short: bool) -> None:
        """Have tasks wait for hardly anything, because what they wait for may be on its way out; or no longer so."""
        with self._lock:
            if short != self._short:
                self._short = short
                self._set()

    @property
    def levers(self) -> dict[str, Lever]:
        """What puts the user's settings back, by note."""
        return {note: partial(self._put_back, key) for key, note in NOTES.items()}

    def _put_back(self, key: str, value: Value) -> None:
        self._store.put(key, None if value is None else str(value))

    def _set(self) -> None:
        for key, note in NOTES.items():
            touched = key in self._before
            before = self._before[key] if touched else self._store.get(key)
            own_s = self._seconds(before)
            wanted_s = max(own_s, *self._held.values()) if self._held and key == PROCESS else own_s
            wanted_s = min(own_s, SHORT_S) if self._short else wanted_s
            if wanted_s != own_s:
                self._before[key] = before
                self._touched.note(note, before)
                self._store.put(key, f"{round(1e3 * wanted_s)}ms")
            elif touched:
                self._put_back(key, self._before.pop(key))
                self._touched.forget(note)

    def _seconds(self, own: str | None) -> float:
        found = [s for s in map(seconds, (own, self._store.get(GENERAL_KEY))) if s is not None]
        return found[0] if found else SPARK_DEFAULT_S


def seconds(text: str | None) -> float | None:
    """Spark's way to write a time, in seconds; None if there is none or it cannot be read.

    >>> seconds("500ms"), seconds("3s"), seconds("2m")
    (0.5, 3.0, 120.0)
    """
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", (text or "").strip().lower())
    unit_s = _UNITS_S.get(found[2]) if found else None
    return int(found[1]) * unit_s if found and unit_s is not None else None
