"""What executors and their hosts do, put together from what the tasks of all queries on them bring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from penstock.spark.observe.machine_load import HostLoad, HostLoads
from penstock.spark.observe.task_measures import TaskRecord

BESIDE_S = 30.0
"""Time over which CPU beside operators is averaged: a batch's work is told at its end, its CPU was used before."""


class HostWatch:
    """Loads of hosts by the samples that tasks take; queries that share executors share it."""

    def __init__(self) -> None:
        self._loads = HostLoads.none()
        self._held_s: defaultdict[str, float] = defaultdict(float)
        """Core-seconds of operators so far, per executor."""
        self._seen: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
        """(time, CPU-seconds of the executor, `_held_s` by then), oldest first."""

    def note(self, records: Iterable[TaskRecord]) -> None:
        """Take in what tasks did and saw."""
        samples = []
        for record in records:
            self._held_s[record.executor] += sum(o.busy_s - o.stalled_s for o in record.operators)
            if record.sample is not None:
                samples.append(record.sample)
        self._loads = self._loads.add(samples)
        for executor, sample in self._loads.now.items():
            seen = self._seen[executor]
            if not seen or sample.time_s > seen[-1][0]:
                seen.append((sample.time_s, sample.own_s, self._held_s[executor]))
                while len(seen) > 2 and seen[1][0] <= sample.time_s - BESIDE_S:
                    del seen[0]

    def loads(self) -> dict[str, HostLoad]:
        """What every executor with two samples did between them."""
        return self._loads.loads()

    def beside(self, executor: str) -> float:
        """Cores that an executor used beside its operators, in the last half minute: Spark's own work."""
        seen = self._seen[executor]
        seconds = seen[-1][0] - seen[0][0] if seen else 0.0
        # A restarted executor's totals begin again: that step says nothing.
        own_s = sum(max(0.0, later[1] - earlier[1]) for earlier, later in pairwise(seen))
        return max(0.0, own_s - (seen[-1][2] - seen[0][2])) / seconds if seconds > 0 else 0.0
