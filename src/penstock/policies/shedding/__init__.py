"""Share machines without reservations: shed by priority, never below a sink's minimum, move tasks as a last resort.

`Shedding` is the policy; `count`, `total`, `mean` and `ratio` estimate what the whole input would have given, with
error bars.
"""

from penstock.policies.shedding.accuracy import Accuracy
from penstock.policies.shedding.cpu import obtained_accuracy, required_cpu
from penstock.policies.shedding.estimates import Estimate, count, mean, ratio, total
from penstock.policies.shedding.graph import Graph
from penstock.policies.shedding.keeps import Keeps
from penstock.policies.shedding.options import SheddingOptions
from penstock.policies.shedding.policy import Shedding, SheddingMemory
from penstock.policies.shedding.requirements import Restrictions

__all__ = [
    "Accuracy",
    "Estimate",
    "Graph",
    "Keeps",
    "Restrictions",
    "Shedding",
    "SheddingMemory",
    "SheddingOptions",
    "count",
    "mean",
    "obtained_accuracy",
    "ratio",
    "required_cpu",
    "total",
]
