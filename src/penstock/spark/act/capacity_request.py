"""What to ask of a cluster manager that may give late, in part or never."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.policies.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long capacity may take to come, and how long to wait after it did not."""

    arrival_floor_s: float = 60.0
    """An executor may take at least this long to arrive, however fast earlier ones were."""
    arrival_factor: float = 3.0
    """Executors may take that many times as long as the slowest of the recent ones."""
    first_pause_s: float = 60.0
    """After capacity did not come, wait this long before asking again, twice as long each further time."""
    longest_pause_s: float = 1800.0


@dataclass(slots=True, kw_only=True)
class _Trial:
    """Executors that are on their way."""

    since_s: float
    progressed_s: float
    had: int


class CapacityRequest:
    """How many executors to ask for: what is desired while there is hope, else what is there."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._trial: _Trial | None = None
        self._startups_s: deque[float] = deque(maxlen=10)
        self._asked_s: float | None = None
        self._refusals, self._retry_s = 0, 0.0
        self.refusal: Reason | None = None
        """Why fewer are asked for than desired."""

    @property
    def waiting(self) -> bool:
        """Whether executors are on their way."""
        return self._trial is not None

    def retry_in_s(self, now_s: float) -> float | None:
        """Seconds until what did not come is asked for again; None if nothing is lacking."""
        return max(0.0, self._retry_s - now_s) if self.refusal is not None else None

    def arrived(self, now_s: float) -> None:
        """An executor has come: how long they take is learnt, also from those that come too late."""
        if self._asked_s is not None:
            self._startups_s.append(now_s - self._asked_s)

    def forget(self) -> None:
        """Nothing is desired any more."""
        self._trial = None

    def target(self, now_s: float, desired: int, staying: int) -> tuple[int, Reason | None]:
        """What to ask for with so many there, and the reason to tell if hope was just given up."""
        news: Reason | None = None
        if staying >= desired:
            self._refusals, self._retry_s, self.refusal = 0, 0.0, None
            self._trial = self._asked_s = None
            return desired, None
        if now_s >= self._retry_s:
            trial = self._trial
            if trial is None:
                trial = self._trial = _Trial(since_s=now_s, progressed_s=now_s, had=staying)
                self._asked_s = now_s if self._asked_s is None else self._asked_s
            if staying > trial.had:
                trial.progressed_s = now_s
            trial.had = staying
            if now_s - trial.progressed_s > self._allowed_s():
                news = self._give_up(now_s - trial.since_s, now_s, desired, staying)
        return (desired if self._trial is not None else staying), news

    def _allowed_s(self) -> float:
        patience = self._patience
        slowest_s = max(self._startups_s, default=0.0)
        allowed_s = max(patience.arrival_floor_s, patience.arrival_factor * slowest_s) * 2.0**self._refusals
        return min(allowed_s, patience.longest_pause_s)

    def _give_up(self, waited_s: float, now_s: float, desired: int, staying: int) -> Reason | None:
        pause_s = min(self._patience.first_pause_s * 2.0**self._refusals, self._patience.longest_pause_s)
        told: Mapping[str, Any] = self.refusal.facts if self.refusal is not None else {}
        facts = {"asked": desired, "came": staying, "waited_s": round(waited_s), "retry_s": round(pause_s)}
        self.refusal = Reason(code="executors-not-there", facts=facts)
        self._refusals = min(self._refusals + 1, 10)
        self._retry_s, self._trial = now_s + pause_s, None
        return None if (told.get("asked"), told.get("came")) == (desired, staying) else self.refusal
