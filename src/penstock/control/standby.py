"""Several controllers for one dataflow: the one with the lease acts, the others wait to take over."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.control.journal import SqliteJournal
from penstock.control.leases import Lease
from penstock.control.loop import Loop, Stop
from penstock.control.plan import Clock, NotReadyError

log = logging.getLogger(__name__)

LASTS_INTERVALS = 1.5
"""How long a lease lasts without renewal: a silent leader is replaced before two intervals are over."""
ASKS = 8
"""How often in an interval a standby asks for the lease."""


class Standby:
    """A controller that leads while it holds the lease, and otherwise asks for it several times an interval.

    The journal is that of one dataflow: its last run is the one to go on with.

    `make_loop` is given the run to go on with (None: none yet) and called at each take-over, so that placement,
    forecasts and cool-downs come from the journal and never from what this process once believed. Making a loop must
    not act on anything: one is also made for a rehearsal, before the lease is first asked for.
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
        self.ready = False
        """Whether it has rehearsed: taking over then costs no more than any other cycle."""
        self.takeovers = 0

    @property
    def leads(self) -> bool:
        """Whether it acted when it last could."""
        return self._loop is not None

    def run(self, stop: Stop) -> None:
        """Lead or wait until `stop` is set; then let others have the lease at once."""
        while not stop.is_set():
            wait_s = self._interval_s if self.step() else self._interval_s / ASKS
            self._clock.sleep_until(self._clock.now() + wait_s)
        if self._lease is not None:
            self._journal.leases.release(self._lease)

    def step(self) -> bool:
        """One cycle if the lease is held, or can be had; whether it was."""
        if not self.ready:
            self.ready = self._rehearse()
        if self._lease is not None and not self._still_leads():
            self._loop = None  # somebody else leads: what this loop remembers is out of date
        if self._lease is None:
            self._lease = self._journal.leases.acquire(self._name, self._owner, for_s=self._lasts_s)
        if self._lease is None:
            return False
        if self._loop is None:
            self._loop = self._make_loop(self._last_run())
            self._loop.may_act = self._still_leads
            self.takeovers += 1
        self._loop.step()
        return True

    @property
    def _lasts_s(self) -> float:
        return LASTS_INTERVALS * self._interval_s

    def _still_leads(self) -> bool:
        """Whether the lease could be renewed."""
        if self._lease is not None:
            self._lease = self._journal.leases.renew(self._lease, for_s=self._lasts_s)
        return self._lease is not None

    def _last_run(self) -> str | None:
        runs = self._journal.runs()
        return runs[-1].id if runs else None

    def _rehearse(self) -> bool:
        """Whether a loop could decide on what was seen last, by the leader or here. Nothing is done or remembered."""
        run = self._last_run()
        try:
            loop = self._make_loop(run)
            seen = None if run is None else self._journal.last_snapshot(run)
            loop.rehearse(loop.runtime.observe() if seen is None else seen)
        except NotReadyError:
            return False
        except Exception as problem:  # whatever it is, the loop says it when it leads, and goes on
            log.debug("no rehearsal: %s", problem)
            return False
        return True
