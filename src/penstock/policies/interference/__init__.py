"""Computations move away from interference: our policy, and the paper's for comparison."""

from penstock.policies.interference.expectations import Learned
from penstock.policies.interference.options import InterferenceOptions
from penstock.policies.interference.policy import Interference, InterferenceMemory
from penstock.policies.interference.rings import Rings, RingShape

__all__ = [
    "Interference",
    "InterferenceMemory",
    "InterferenceOptions",
    "Learned",
    "RingShape",
    "Rings",
]
