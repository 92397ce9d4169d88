"""What a simulation measured, whatever its fidelity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats, Ints
from penstock.telemetry import Moments


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement:
    """What happened since the last measurement; a row per task slot, node, stream, alternate, sink, constraint."""

    arrived: Floats
    processed: Floats
    emitted: Floats
    shed: Floats
    dropped: Floats
    """Of `shed`, what sources read and let go."""
    queued: Floats
    bytes_in: Floats
    bytes_out: Floats
    busy_s: Floats
    cpu_s: Floats
    service_s: Moments
    interarrival_s: Moments
    latency_s: Moments
    node_cpu_s: Floats
    node_busy_s: Floats
    """Task-seconds in service, whatever share of a core they had."""
    node_bytes_in: Floats
    node_bytes_out: Floats
    offered: Floats
    """Records that producers had for a stream, before shedding."""
    stream_shed: Floats
    """Of these, the ones that shedding dropped."""
    sent: Floats
    """Copies that went into the stream."""
    stream_bytes: Floats
    remote_bytes: Floats
    stream_latency_s: Moments
    batch_wait_s: Moments
    work_s: Moments
    """Reference core-seconds per record, by alternate."""
    alternate_in: Floats
    alternate_out: Floats
    sink_latency_s: Moments
    sink_bins: Floats
    constraint_bins: Floats
    """[constraint, bin of a sketch]: latency of single records through the sequence."""
    oldest_s: Floats
    """By operator: how long the record that has waited longest has been there."""
    traffic: tuple[Ints, Ints, Floats, Floats]
    """From slot, to slot, records, bytes."""
    warnings: tuple[str, ...]

    @property
    def passed(self) -> Floats:
        """Records that producers had for a stream and that were kept."""
        return self.offered - self.stream_shed


_COUNTED = {
    "arrived": ("tasks", "arrived"),
    "processed": ("tasks", "processed"),
    "emitted": ("tasks", "emitted"),
    "shed": ("tasks", "shed"),
    "dropped": ("tasks", "dropped"),
    "busy_s": ("tasks", "busy_s"),
    "cpu_s": ("tasks", "cpu_s"),
    "node_cpu_s": ("nodes", "cpu_s"),
    "node_busy_s": ("nodes", "busy_s"),
    "node_bytes_in": ("nodes", "bytes_in"),
    "node_bytes_out": ("nodes", "bytes_out"),
    "offered": ("streams", "offered"),
    "stream_shed": ("streams", "shed"),
    "sent": ("streams", "sent"),
    "stream_bytes": ("streams", "bytes"),
    "remote_bytes": ("streams", "remote_bytes"),
    "alternate_in": ("alternates", "records_in"),
    "alternate_out": ("alternates", "records_out"),
}
"""Fields of a measurement that are the growth of a cumulative counter: its table and column."""


class Counters:
    """Cumulative counters as they were last seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], Floats] = {}

    def grown(self, tables: Mapping[str, NDArray[np.void]]) -> dict[str, Floats]:
        """The fields of a measurement that are counted, since the last look."""
        return {name: self.since(*where, tables) for name, where in _COUNTED.items()}

    def since(self, table: str, column: str, tables: Mapping[str, NDArray[np.void]]) -> Floats:
        """What one counter grew by; rows that were not there begin at 0."""
        now = tables[table][column].copy()
        before = self._seen.get((table, column))
        self._seen[table, column] = now
        if before is None:
            return now.copy()
        grown = now.copy()
        grown[: len(before)] -= before
        return grown


def summed_by(group: Ints, column: NDArray[Any], count: int) -> Floats:
    """A column added up by group 0..count-1."""
    return np.bincount(group, column, count).astype(np.float64)


def moments(count: Floats, total: Floats, squares: Floats) -> Moments:
    """Moments from counts, sums and sums of squares."""
    safe = np.where(count > 0, count, 1.0)
    mean = total / safe
    return Moments(count.copy(), mean, np.clip(squares - mean * total, 0.0, None))


def taken(rows: NDArray[np.void], name: str) -> Moments:
    """The moments of an interval's sums in a table, which start again from zero."""
    columns = [rows[f"{name}_{suffix}"] for suffix in ("n", "1", "2")]
    found = moments(*columns)
    for column in columns:
        column[:] = 0.0
    return found
