"""Computations move away from interference: our policy, and the paper's for comparison."""

from penstock.policies.interference.filling import Learned
from penstock.policies.interference.neptune import Neptune, NeptuneMemory
from penstock.policies.interference.options import InterferenceOptions, NeptuneOptions
from penstock.policies.interference.policy import Interference, InterferenceMemory
from penstock.policies.interference.rings import Rings, RingShape

__all__ = [
    "Interference",
    "InterferenceMemory",
    "InterferenceOptions",
    "Learned",
    "Neptune",
    "NeptuneMemory",
    "NeptuneOptions",
    "RingShape",
    "Rings",
]
