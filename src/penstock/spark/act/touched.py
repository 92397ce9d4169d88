"""What a pilot has changed in an application, remembered on its driver until it is put back.

The notes are a setting of the driver, so they live exactly as long as what they describe: a pilot that was killed
leaves them to the next one, and a new driver starts without any.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping

from penstock.spark.act.ports import SettingsStore

KEY = "spark.penstock.touched"
RUN_LEVERS = ("interval", "read-limit")
"""What belongs to one run of a query and ends with it."""

Value = str | int | float | None
Lever = Callable[[Value], None]
"""Puts one value back; raises if it cannot."""


class Touched:
    """The values that were there before Penstock changed them, by name of what was changed.

    Names in use: ``executors`` (target), ``locality-wait``, ``locality-wait-node``, ``interval:<run>`` (ms),
    ``read-limit:<run>:<source>``.
    """

    def __init__(self, store: SettingsStore) -> None:
        self._store = store
        self._lock = threading.Lock()

    def note(self, name: str, before: Value) -> None:
        """Remember the value before the first change; a later one is our own and is not noted."""
        with self._lock:
            notes = self._read()
            if name not in notes:
                self._write({**notes, name: before})

    def forget(self, name: str) -> None:
        """Drop a note: the value is as before, or what it belonged to is gone."""
        with self._lock:
            notes = self._read()
            if name in notes:
                del notes[name]
                self._write(notes)

    def forget_other_runs(self, runs: Collection[str]) -> None:
        """Drop the notes of runs that are not in `runs`: a query that starts again has its own pace again."""
        for name in self.pending():
            lever, _, rest = name.partition(":")
            if lever in RUN_LEVERS and rest.partition(":")[0] not in runs:
                self.forget(name)

    def pending(self) -> dict[str, Value]:
        """What is to be put back."""
        with self._lock:
            return self._read()

    def put_back(self, levers: Mapping[str, Lever]) -> dict[str, str]:
        """Put back what a lever is known for, by name or by the part before a colon; returns what failed, and why.

        A note with no lever stays for the next pilot; a lever that fails keeps its note too.
        """
        failed: dict[str, str] = {}
        for name, value in self.pending().items():
            lever = levers.get(name) or levers.get(name.partition(":")[0])
            if lever is None:
                continue
            try:
                lever(value)
            except Exception as problem:  # the other values still go back
                failed[name] = str(problem)
            else:
                self.forget(name)
        return failed

    def _read(self) -> dict[str, Value]:
        text = self._store.get(KEY)
        if text is None:
            return {}
        try:
            notes = json.loads(text)
        except ValueError:  # written by something that is not Penstock
            return {}
        return dict(notes) if isinstance(notes, dict) else {}

    def _write(self, notes: Mapping[str, Value]) -> None:
        self._store.put(KEY, json.dumps(notes, sort_keys=True) if notes else None)
