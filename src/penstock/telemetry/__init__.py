"""What is measured: snapshots, summaries that merge, rates.

`Snapshot` is the whole world as a policy sees it. `Moments`, `Sketch` and `CounterRates` are what it is made of.
"""

from penstock.telemetry.joined import joined
from penstock.telemetry.machine_class import MachineClass
from penstock.telemetry.moments import Moments
from penstock.telemetry.rates import CounterRates
from penstock.telemetry.sketch import Sketch
from penstock.telemetry.snapshot import (
    Alternates,
    Batches,
    Constraints,
    Nodes,
    Operators,
    Queries,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
    Traffic,
)

__all__ = [
    "Alternates",
    "Batches",
    "Constraints",
    "CounterRates",
    "MachineClass",
    "Moments",
    "Nodes",
    "Operators",
    "Queries",
    "Sinks",
    "Sketch",
    "Snapshot",
    "Sources",
    "Streams",
    "Tasks",
    "Traffic",
    "joined",
]
