"""What moves of state paused, beside what was expected of them."""

from __future__ import annotations

from weakref import WeakSet

from penstock.spark.act.state_moves import MoveJob

WEIGHT = 0.5
"""How much of the way to a new measurement the factor goes, in logs."""
MOST = 4.0
"""A single measurement counts as at most so many times more, or less, than was expected."""
LEAST_FACTOR, MOST_FACTOR = 0.25, 20.0


class MovePauses:
    """Learns from each job of moves once: how much longer its batch took than the expectation that was acted on."""

    def __init__(self) -> None:
        self.factor = 1.0
        """By what estimates of pauses are to be multiplied."""
        self._seen: WeakSet[MoveJob] = WeakSet()

    def learn(self, job: MoveJob, expected_s: float) -> None:
        """Take what a job paused its query, if it is known by now; *expected_s* had the factor of its time in it.

        The partitions of a job are restored side by side, so the batch is late by the longest of them.
        """
        if job.pause_s is None or expected_s <= 0 or job in self._seen:
            return
        self._seen.add(job)
        ratio = min(MOST, max(1.0 / MOST, job.pause_s / expected_s))
        self.factor = min(MOST_FACTOR, max(LEAST_FACTOR, self.factor * ratio**WEIGHT))
