"""Whether micro-batches can be as quick as a query's goal; where they cannot, what real-time mode would need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.observe.progress import BatchProgress
from penstock.spark.realtime import Preflight

FEWEST_BATCHES = 10
"""As many batches with records must have been seen: the first ones load code."""
AFTER_RESULTS = ("commitOffsets", "commitBatch")
"""Phases after a batch has written its results."""


class LatencyFloor:
    """The quickest batch of one query, and what there is to say once if its goal lies below."""

    def __init__(self, bound_ms: float | None, check: Callable[[], Preflight]) -> None:
        self._bound_ms, self._check = bound_ms, check
        self._quickest_ms, self._seen = math.inf, 0

    def note(self, batches: Iterable[BatchProgress]) -> str | None:
        """Take batches that ended; return what the owner should know, once. Spark is asked for the plan only then."""
        if self._bound_ms is None:
            return None
        for batch in batches:
            if batch.records:
                after_ms = sum(batch.phases_ms.get(phase, 0) for phase in AFTER_RESULTS)
                # A record that comes as the batch is planned is there when its results are written, no sooner.
                self._quickest_ms = min(self._quickest_ms, 1e3 * batch.duration_s - after_ms)
                self._seen += 1
        if self._seen < FEWEST_BATCHES:
            return None
        bound_ms, self._bound_ms = self._bound_ms, None
        if bound_ms >= self._quickest_ms:
            return None
        try:
            found: Preflight | None = self._check()
        except SparkInternalsError:
            found = None  # a Spark without it
        return advice(bound_ms, self._quickest_ms, self._seen, found)


def advice(bound_ms: float, quickest_ms: float, batches: int, found: Preflight | None) -> str:
    """What to say of a bound that no batch was quick enough for."""
    text = f"the quickest of {batches} micro-batches took {quickest_ms:.0f} ms"
    if found is None:
        return f"{text}: {bound_ms:g} ms needs a Spark with real-time mode"
    text = f"{text}: {bound_ms:g} ms needs real-time mode"
    if found.runs:
        slots = f" and {found.slots_needed} slots" if found.slots_needed is not None else ""
        return f'{text}, and nothing stands in its way: start it with trigger(realTime="60 seconds"){slots}'
    count, kinds = len(found.standing), {obstacle.kind for obstacle in found.standing}
    what = "operator" if kinds == {"operator"} else "thing"
    listed = "; ".join(f"{obstacle.what} ({obstacle.instead})" for obstacle in found.standing)
    these = f"this {what} stands" if count == 1 else f"these {count} {what}s stand"
    return f"{text}, and {these} in the way: {listed}"
