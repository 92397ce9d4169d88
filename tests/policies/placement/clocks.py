"""Clocks for tests: time passes only when it is read."""

from __future__ import annotations


class TickingClock:
    """A clock that advances by `step_s` with every look at it."""

    def __init__(self, step_s: float = 1e-6) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s
