"""What the two fidelities have in common: how they are steered, and what they measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats, Ints
from penstock.telemetry import MachineClass, Moments


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
    passed: Floats
    """Of these, the ones kept."""
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
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ledger:
    """Where every record since the start has gone. Per operator and per stream the sums must come out even."""

    arrived: Floats
    processed: Floats
    queued: Floats
    in_service: Floats
    dropped: Floats
    emitted: Floats
    offered: Floats
    shed: Floats
    sent: Floats
    batched: Floats
    on_the_way: Floats
    delivered: Floats
    held: float | None = None
    """Records that the simulator holds in memory, counted independently; None where it holds none."""


class Engine(Protocol):
    """A fidelity. Slots, operator, stream and node rows are those of the layout and of the runtime."""

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        ...

    @property
    def covered_s(self) -> float:
        """How much of that has been simulated: whole steps, where there are steps."""
        ...

    def advance(self, until_s: float) -> int | None:
        """Go on until `until_s`, or until a watched task has come to rest: then its slot."""
        ...

    def add_node(
        self, node: int, machine: MachineClass, latency_s: Floats, bandwidth_bytes_per_s: Floats
    ) -> None:
        """Put a machine at a node row; the two matrices (from, to) cover all rows up to it."""
        ...

    def disturb(
        self, node: int, *, foreign: float, speed: float, bandwidth_bytes_per_s: float, latency: float
    ) -> None:
        """Change what a node has to give."""
        ...

    def place(self, slot: int, node: int) -> None:
        """Put a task that is at rest on a node, or (-1) nowhere."""
        ...

    def node_of(self, slot: int) -> int:
        """Where a task is."""
        ...

    def set_tasks(self, operator: int, count: int) -> None:
        """Let the first `count` tasks of an operator take records from now on."""
        ...

    def hand_over(self, operator: int) -> None:
        """Give queued records to the tasks that own them now; all tasks of the operator must be at rest."""
        ...

    def pause(self, slot: int) -> None:
        """Stop a task after the record it is busy with, and watch for that."""
        ...

    def resume(self, slot: int) -> None:
        """Let a paused task go on."""
        ...

    def drain(self, slot: int) -> None:
        """Watch for the moment when a task that gets no more records has none left."""
        ...

    def undrain(self, slot: int) -> None:
        """Forget about draining it."""
        ...

    def is_empty(self, slot: int) -> bool:
        """Whether a task at rest has nothing more to pass on; open batches are sent."""
        ...

    def transfer_s(self, source: int, target: int, size_bytes: float) -> float:
        """Seconds that sending so much from node to node takes, if it begins now."""
        ...

    def set_alternate(self, operator: int, alternate: int) -> None:
        """Let an operator run another alternate, from the next record on."""
        ...

    def set_source_keep(self, operator: int, keep: float) -> None:
        """Let a source keep only a share of what it reads."""
        ...

    def set_stream_keep(self, stream: int, keep: float) -> None:
        """Let a stream carry only a share of the records."""
        ...

    def set_deadline(self, stream: int, deadline_s: float) -> None:
        """Set the longest wait in a stream's output batches."""
        ...

    def measure(self) -> Measurement:
        """What happened since the last call."""
        ...

    def ledger(self) -> Ledger:
        """Where every record is."""
        ...


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
