"""Several controllers for one dataflow: the one with the lease acts, the others wait to take over."""

from __future__ import annotations

from collections.abc import Callable

from penstock.control.journal import SqliteJournal
from penstock.control.leases import Lease
from penstock.control.loop import Loop, Stop
from penstock.control.plan import Clock

LASTS_INTERVALS = 1.5
"""How long a lease lasts without renewal: a silent leader is replaced before two intervals are over."""


class Standby:
    """A controller that leads while it holds the lease, and otherwise asks for it every quarter of an interval.

    `make_loop` is given the run to go on with (None: none yet) and called at each take-over, so that placement,
    forecasts and cool-downs come from the journal and never from what this process once believed.
    """

    def __init__(
        self,
        journal: SqliteJournal,
        make_loop: Callable[[str | None], Loop],
        *,
        name: str,
        owner: str,
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._journal, self._make_loop, self._clock = journal, make_loop, clock
        self._name, self._owner, self._interval_s = name, owner, interval_s
        self._lease: Lease | None = None
        self._loop: Loop | None = None
        self.takeovers = 0

    @property
    def leads(self) -> bool:
        """Whether it acted when it last could."""
        return self._loop is not None

    def run(self, stop: Stop) -> None:
        """Lead or wait until `stop` is set; then let others have the lease at once."""
        while not stop.is_set():
            wait_s = self._interval_s if self.step() else self._interval_s / 4
            self._clock.sleep_until(self._clock.now() + wait_s)
        if self._lease is not None:
            self._journal.leases.release(self._lease)

    def step(self) -> bool:
        """One cycle if the lease is held, or can be had; whether it was."""
        leases, lasts_s = self._journal.leases, LASTS_INTERVALS * self._interval_s
        if self._lease is not None:
            self._lease = leases.renew(self._lease, for_s=lasts_s)
            if self._lease is None:
                self._loop = None  # somebody else leads: what this loop remembers is out of date
        if self._lease is None:
            self._lease = leases.acquire(self._name, self._owner, for_s=lasts_s)
        if self._lease is None:
            return False
        if self._loop is None:
            runs = [run.id for run in self._journal.runs()]
            self._loop = self._make_loop(runs[-1] if runs else None)
            self.takeovers += 1
        self._loop.step()
        return True
