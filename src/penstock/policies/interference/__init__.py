"""Computations move away from interference: the policy, its options and memory."""

from penstock.policies.interference.options import InterferenceOptions
from penstock.policies.interference.policy import Interference, InterferenceMemory
from penstock.policies.interference.rings import RingShape

__all__ = [
    "Interference",
    "InterferenceMemory",
    "InterferenceOptions",
    "RingShape",
]
