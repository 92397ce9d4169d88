"""One writer: the lease that a pilot holds on an application."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from penstock.policies.reasons import Reason
from penstock.spark.act.ports import SettingsStore

KEY = "spark.penstock.pilot"
STALE_INTERVALS = 4
LEAST_STALE_S = 15.0
"""A pilot that has not renewed for this long, or for that many of its intervals, is taken for dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the lease."""

    owner: str
    age_s: float
    """Since it was renewed."""
    stale: bool

    @property
    def reason(self) -> Reason:
        """Why this pilot only observes."""
        return Reason(code="another-pilot", facts={"owner": self.owner, "age_s": round(self.age_s, 1)})


class Lease:
    """The right to change an application. A setting of its driver, so it ends with the driver.

    Call `hold` every cycle: it takes the lease if nobody has it or its holder is dead, and renews it. Times are the
    driver's own uptime, which no clock step changes. Whoever finds the lease with somebody else only observes.
    """

    def __init__(self, store: SettingsStore, *, interval_s: float, owner: str | None = None) -> None:
        self._store, self._interval_s = store, interval_s
        self.owner = owner or secrets.token_hex(4)

    def hold(self) -> Holder | None:
        """Take or renew the lease: None if it is ours now, else who has it."""
        found = self._store.get(KEY)
        now_s = self._store.uptime_s()
        holder = _holder(found, now_s)
        if holder is not None and holder.owner != self.owner and not holder.stale:
            return holder
        mine = json.dumps({"owner": self.owner, "renewed_s": round(now_s, 3), "interval_s": self._interval_s})
        if self._store.swap(KEY, found, mine):
            return None
        # Somebody else was faster.
        return _holder(self._store.get(KEY), now_s)

    def holder(self) -> Holder | None:
        """Who has it, None if nobody."""
        return _holder(self._store.get(KEY), self._store.uptime_s())

    def release(self) -> None:
        """Give it up if it is ours."""
        found = self._store.get(KEY)
        holder = _holder(found, 0.0)
        if holder is not None and holder.owner == self.owner:
            self._store.swap(KEY, found, None)


def _holder(text: str | None, now_s: float) -> Holder | None:
    if text is None:
        return None
    try:
        told = json.loads(text)
        owner, age_s, interval_s = (
            str(told["owner"]),
            now_s - float(told["renewed_s"]),
            float(told["interval_s"]),
        )
    except (ValueError, KeyError, TypeError):  # not written by a lease: nobody's
        return None
    return Holder(owner=owner, age_s=age_s, stale=age_s > max(LEAST_STALE_S, STALE_INTERVALS * interval_s))
