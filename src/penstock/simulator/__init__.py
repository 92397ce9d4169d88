"""Dataflows on simulated clusters: every record an event, or rates in steps; same ports as a live runtime."""

from penstock.simulator.cluster import Cluster, Disturbance, Link
from penstock.simulator.options import SimulationOptions
from penstock.simulator.runtime import SimulatedClock, SimulatedRuntime

__all__ = [
    "Cluster",
    "Disturbance",
    "Link",
    "SimulatedClock",
    "SimulatedRuntime",
    "SimulationOptions",
]
