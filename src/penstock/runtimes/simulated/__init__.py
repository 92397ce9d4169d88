"""Dataflows on simulated clusters: every record an event, or rates in steps; same ports as a live runtime."""

from penstock.runtimes.simulated.cluster import Cluster, Disturbance, Link
from penstock.runtimes.simulated.options import SimulationOptions
from penstock.runtimes.simulated.runtime import SimulatedClock, SimulatedRuntime
from penstock.runtimes.simulated.summary import ConstraintSummary, RunRecorder, RunSummary, SinkSummary

__all__ = [
    "Cluster",
    "ConstraintSummary",
    "Disturbance",
    "Link",
    "RunRecorder",
    "RunSummary",
    "SimulatedClock",
    "SimulatedRuntime",
    "SimulationOptions",
    "SinkSummary",
]
