"""What a micro-batch engine is like: stages and what they cost, executors and how they come, the driver's own time.

Every figure here can be measured on a real run (`penstock.simulator.calibration`); the defaults are those of a small
query on a local standalone cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.dataflow import OperatorId


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Tasks that run side by side between two shuffles."""

    operators: tuple[OperatorId, ...]
    """The operators that run in it, in the order of the data; the last one holds the state, if any does."""
    partitions: int = 1
    record_s: float = 0.0
    """Core-seconds per record that enters the stage, on an executor of speed 1."""
    task_s: float = 0.005
    """Seconds of a core that a task takes however few records it has."""
    selectivity: float = 1.0
    """Records that leave the stage for each that enters it."""
    weights: tuple[float, ...] = ()
    """Share of the records of each partition; empty: all alike. One that is larger is a straggler in every batch."""
    stateful: bool = False
    state_bytes: float = 0.0
    """Of a partition."""

    def __post_init__(self) -> None:
        if self.partitions < 1 or (self.weights and len(self.weights) != self.partitions):
            raise ValueError(f"a stage of {self.partitions} partitions with {len(self.weights)} weights")
        if not self.operators:
            raise ValueError("a stage runs at least one operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One streaming query: where its batches spend their time."""

    name: str
    stages: tuple[Stage, ...]
    plan_s: float = 0.05
    """Before the first task: latest offsets, planning, write-ahead log."""
    stage_s: float = 0.02
    """The driver's time per stage: submitting, collecting."""
    commit_s: float = 0.05
    """After the last task: commit log, state bookkeeping."""
    trigger_s: float = 0.0
    """Shortest time between the starts of two batches; 0: one right after the other."""
    read_limit: float = math.inf
    """Most records of a batch."""
    driver_cv: float = 0.15
    """Coefficient of variation of the driver's times."""
    task_cv: float = 0.1
    """Coefficient of variation of a task's time, each for itself."""
    batch_cv: float = 0.0
    """Coefficient of variation that all tasks of a batch share: a pause of the host, a slow disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """How executors come, how they are when they are new, and what a move of state costs."""

    cores: int = 1
    startup_s: float = 8.0
    startup_cv: float = 0.3
    cold_s: float = 4.0
    """Seconds of work for which a new executor is slow: code is loaded and compiled."""
    cold_factor: float = 2.0
    restore_s: float = 0.2
    """Fixed part of restoring one state partition on another executor."""
    restore_bytes_per_s: float = 50e6
    locality_wait_s: float = 3.0
    """How long a task waits for the executor that holds its state before it runs elsewhere."""
    lost_s: float = 2.0
    """Until the driver notices that an executor has died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The queries of one application on the executors they share."""

    queries: tuple[Query, ...]
    executors: Executors = Executors()
