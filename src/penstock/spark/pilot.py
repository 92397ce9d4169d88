"""The control loop beside a running query, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.control import (
    Cycle,
    Explanation,
    Loop,
    PolicyRun,
    Settings,
    SqliteJournal,
    Subscriber,
    WallClock,
    as_text,
    explain,
)
from penstock.control.notebook import as_frame, as_html
from penstock.spark.application import ApplicationRuntime
from penstock.spark.runtime import SparkRuntime
from penstock.spark.several_queries import SharedRuntime
from penstock.telemetry import Snapshot
from penstock.telemetry.state_report import RECENT, advice, in_a_line, last_known

if TYPE_CHECKING:
    import pandas as pd

STOP_TIMEOUT_S = 30.0


class Pilot:
    """Steers one query, several that share executors, or a whole application, until it is stopped.

    Without a journal file the decisions are kept in memory, so that `explain` works all the same.
    """

    def __init__(
        self,
        runtime: SparkRuntime | SharedRuntime | ApplicationRuntime,
        policies: Sequence[PolicyRun],
        *,
        settings: Settings,
        journal: Path | str | None = None,
        options: Mapping[str, str] | None = None,
        resume: str | None = None,
        subscribers: Sequence[Subscriber] = (),
    ) -> None:
        self.runtime = runtime
        self._stop = threading.Event()
        self.journal = SqliteJournal(journal if journal is not None else ":memory:")
        self.loop = Loop(
            runtime,
            policies,
            clock=WallClock(self._stop),
            journal=self.journal,
            settings=settings,
            name=runtime.dataflow.name,
            options=options,
            resume=resume,
            subscribers=subscribers,
        )
        self._starting, self._started, self._closed = threading.Lock(), False, False
        self._thread = threading.Thread(target=self._steer, name="penstock-autopilot", daemon=True)

    def start(self) -> Self:
        """Begin to steer; does nothing if it has begun."""
        with self._starting:
            if not self._started:
                self._started = True
                self._thread.start()
        return self

    def stop(self) -> None:
        """End after the cycle under way; the query goes on."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)
        with self._starting:
            closed, self._closed = self._closed, True
        if not closed:
            self.runtime.close()

    @property
    def running(self) -> bool:
        """Whether it still steers."""
        return self._thread.is_alive()

    def explain(self) -> Explanation | None:
        """What was decided so far, why, and what came of it; None before the first cycle."""
        return explain(self.journal, self.loop.run_id) if self.loop.run_id is not None else None

    def report(self) -> str:
        """The explanation as text, with the state of the queries as it was last seen."""
        told = self.explain()
        if told is None or self.loop.run_id is None:
            return "nothing has been seen yet"
        recent = self.journal.newest_snapshots(self.loop.run_id, at_most=RECENT)
        return "\n".join([as_text(told), *_state_lines(recent)])

    def to_pandas(self) -> pd.DataFrame:
        """A row per cycle so far: time, executors, load, latency of each goal, what was decided."""
        return as_frame(self._cycles())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return as_html(self._cycles(), title=self.loop.name)

    def _cycles(self) -> tuple[Cycle, ...]:
        return tuple(self.journal.cycles(self.loop.run_id)) if self.loop.run_id is not None else ()

    def _steer(self) -> None:
        # Ends by itself with what it steers: then there is nothing left to do.
        self.loop.run(stop=_Either(self._stop, self.runtime))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _state_lines(recent: Sequence[Snapshot]) -> list[str]:
    known = [o for o in last_known(recent, "").operators if o.total("rows") is not None]
    lines = [line for o in known for line in (f"  {in_a_line(o)}", *(f"    {told}" for told in advice(o)))]
    return ["", "State", *lines] if lines else []


class _Either:
    """Set when somebody stopped us or the query has ended."""

    def __init__(
        self, stop: threading.Event, runtime: SparkRuntime | SharedRuntime | ApplicationRuntime
    ) -> None:
        self._stop, self._runtime = stop, runtime

    def is_set(self) -> bool:
        if self._stop.is_set():
            return True
        try:
            return not self._runtime.query_is_active()
        except Exception:  # Spark is gone, and with it all there was to steer
            return True
