"""Penstock: the autopilot for Spark Structured Streaming.

Declare what a stream must deliver and run it under control (`flow`), or hold a goal for a query that is already
running (`attach`).
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from penstock.dataflow import (
    Dataflow,
    DataflowError,
    Load,
    alternate,
    bursts,
    constant,
    flow,
    random_walk,
    read_trace,
    sine,
    staircase,
)

if TYPE_CHECKING:
    from penstock.spark.attach import attach

__version__ = version("penstock")

__all__ = [
    "Dataflow",
    "DataflowError",
    "Load",
    "alternate",
    "attach",
    "bursts",
    "constant",
    "flow",
    "random_walk",
    "read_trace",
    "sine",
    "staircase",
]


def __getattr__(name: str) -> Any:
    # Spark is imported when it is first asked for: declaring and simulating need no Java.
    if name == "attach":
        from penstock.spark.attach import attach

        return attach
    raise AttributeError(f"module 'penstock' has no attribute '{name}'")
