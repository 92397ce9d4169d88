"""What a person changes while the loop runs: the bound of a latency goal, and whether the loop acts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from penstock.dataflow import Dataflow
from penstock.errors import InputError, did_you_mean
from penstock.telemetry import Snapshot

Mode = Literal["observe", "recommend", "act"]
"""Observe: look and write down. Recommend: decide and explain as well. Act: do it."""
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that was changed by hand, and from where."""

    what: Literal["latency_ms", "mode"]
    subject: str
    """The constraint; of a mode, nothing."""
    before: str
    after: str
    by: str


class Modes:
    """The mode in force, and the one that was asked for meanwhile. Safe to ask from other threads."""

    def __init__(self, mode: Mode) -> None:
        self.now: Mode = mode
        self._lock = threading.Lock()
        self._asked: list[tuple[Mode, str]] = []

    def ask(self, mode: str, *, by: str) -> None:
        """Let the loop run in another mode, from the next cycle on."""
        known = next((m for m in MODES if m == mode), None)
        if known is None:
            raise InputError(f"there is no mode '{mode}'{did_you_mean(mode, MODES)}")
        with self._lock:
            self._asked.append((known, by))

    def taken(self) -> tuple[Mode, tuple[Change, ...]]:
        """The mode of this cycle, and what was changed since the last one."""
        with self._lock:
            asked, self._asked = self._asked, []
        changes = []
        for mode, by in asked:
            changes.append(Change(what="mode", subject="", before=self.now, after=mode, by=by))
            self.now = mode
        return self.now, tuple(changes)


class Bounds:
    """Bounds of latency goals that were set by hand; they replace the declared ones in every snapshot.

    Safe to ask from other threads. What is asked for holds from the next snapshot on.
    """

    def __init__(self, bounds_ms: Mapping[str, float] | None = None) -> None:
        self._lock = threading.Lock()
        self._asked: list[tuple[str, float, str]] = []
        self.set_ms: dict[str, float] = dict(bounds_ms or {})
        """Constraint to its bound."""
        self._known: tuple[str, ...] = ()
        self._flow: tuple[Dataflow, Dataflow] | None = None

    def ask(self, constraint: str, bound_ms: float, *, by: str) -> None:
        """Let the bound of a constraint be so many milliseconds."""
        if not 0 < bound_ms < float("inf"):
            raise InputError(f"a latency bound must be longer than 0 ms, not {bound_ms}")
        with self._lock:
            if constraint not in self._known:
                raise InputError(f"there is no goal '{constraint}'{did_you_mean(constraint, self._known)}")
            self._asked.append((constraint, bound_ms, by))

    def applied(self, snapshot: Snapshot) -> tuple[Snapshot, tuple[Change, ...]]:
        """The snapshot with the bounds in force, and what was changed since the last one."""
        before_ms = {c.name: c.bound_ms for c in snapshot.dataflow.constraints} | self.set_ms
        changes = []
        with self._lock:
            self._known = tuple(c.name for c in snapshot.dataflow.constraints)
            asked, self._asked = self._asked, []
        for constraint, bound_ms, by in asked:
            before = f"{before_ms[constraint]:g}" if constraint in before_ms else ""
            changes.append(
                Change(what="latency_ms", subject=constraint, before=before, after=f"{bound_ms:g}", by=by)
            )
            self.set_ms[constraint] = before_ms[constraint] = bound_ms
            self._flow = None
        if not self.set_ms:
            return snapshot, ()
        flow = self._changed(snapshot.dataflow)
        bounds_s = np.array([c.bound_ms / 1e3 for c in flow.constraints])
        table = snapshot.constraints.with_columns(bound_s=bounds_s)
        return replace(snapshot, dataflow=flow, constraints=table), tuple(changes)

    def _changed(self, dataflow: Dataflow) -> Dataflow:
        # Made once: snapshots share their dataflow, which is stored and compared by identity.
        if self._flow is None or self._flow[0] is not dataflow:
            constraints = tuple(
                replace(c, bound_ms=self.set_ms.get(c.name, c.bound_ms)) for c in dataflow.constraints
            )
            self._flow = (dataflow, replace(dataflow, constraints=constraints))
        return self._flow[1]
