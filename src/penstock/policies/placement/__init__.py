"""Placement of tasks on nodes so that little traffic crosses the network and no node is over its capacity.

`problem` says what is to be placed; `placement.place` runs any policy by name; `replacement` decides whether a
running placement is worth leaving. Solvers read time only from a clock the caller hands in.
"""

from penstock.policies.placement.options import PlacementOptions
from penstock.policies.placement.placement import DEFAULT_POLICY, SOLVERS, Placement, place
from penstock.policies.placement.policy import PlacementMemory, TaskPlacement
from penstock.policies.placement.problem import (
    UNPLACED,
    DoesNotFitError,
    Missing,
    PlacementProblem,
    placement_problem,
)
from penstock.policies.placement.replacement import (
    Keep,
    Replace,
    ReplacementMemory,
    replacement,
)
from penstock.policies.placement.search import compile_kernels

__all__ = [
    "DEFAULT_POLICY",
    "SOLVERS",
    "UNPLACED",
    "DoesNotFitError",
    "Keep",
    "Missing",
    "Placement",
    "PlacementMemory",
    "PlacementOptions",
    "PlacementProblem",
    "Replace",
    "ReplacementMemory",
    "TaskPlacement",
    "compile_kernels",
    "place",
    "placement_problem",
    "replacement",
]
