"""Everything about a simulation that neither the dataflow nor the cluster says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Fidelity = Literal["discrete", "fluid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How queues, batches, moves and arrivals behave."""

    arrival_cv: float = 1.0
    """Coefficient of variation of the time between arrivals: 1 = Poisson, 0 = evenly spaced."""
    spread: Literal["round-robin", "random", "batches"] = "round-robin"
    """How `spread` streams, and sources with several tasks, choose a task. `batches`: a round robin that goes on
    to the next task when the batch for this one has left, so that batches fill quickly."""
    windows_s: Mapping[str, float] = field(default_factory=dict)
    """By operator with read-write latency: it writes with the first record read so long after its last write,
    instead of by its selectivity."""
    queue_records: int = 10_000
    """Records a task may have waiting or on their way before its senders must stop; sources have no bound."""
    deadline_s: float = 0.0
    """Longest wait in an output batch at the start (0: every record leaves at once; inf: only full batches)."""
    batch_bytes: float = 16_384.0
    """A batch of this size leaves before its deadline."""
    send_s: float = 0.0
    """Reference core-seconds a sender spends on a message (a batch that leaves its node)."""
    receive_s: float = 0.0
    """Reference core-seconds a receiver spends on a message."""
    task_startup_s: float = 0.0
    """From scaling up until a new task takes records."""
    move_s: float = 0.05
    """Fixed part of the pause of a task that moves; its state's transfer comes on top."""
    keys: int = 0
    """Number of different keys; 0: every record has its own."""
    key_skew: float = 0.0
    """Zipf exponent of the keys' popularity; 0: all alike."""
    step_s: float = 1.0
    """Length of a step of the fluid fidelity."""
    traffic: bool = True
    """Whether snapshots tell the traffic between pairs of tasks."""

    def __post_init__(self) -> None:
        not_negative = {
            "arrival_cv": self.arrival_cv,
            "send_s": self.send_s,
            "receive_s": self.receive_s,
            "task_startup_s": self.task_startup_s,
            "move_s": self.move_s,
            "keys": self.keys,
            "key_skew": self.key_skew,
        }
        for name, value in not_negative.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be finite and not negative: {value}")
        if not (self.queue_records >= 1 and self.batch_bytes > 0 and 0 < self.step_s < math.inf):
            raise ValueError("queue_records, batch_bytes and step_s must be positive")
        if not self.deadline_s >= 0:
            raise ValueError("a batching deadline cannot be negative")
        if any(not 0 < value < math.inf for value in self.windows_s.values()):
            raise ValueError("a window must be longer than 0 s, and end")
        if self.key_skew > 0 and not self.keys:
            raise ValueError("skewed keys need a number of keys: set `keys`")
