"""Hold a latency bound with the fewest resources.

`Reactive` is the paper's method on per-operator parallelism; `Elasticity` sizes the nodes of a micro-batch engine.
"""

from penstock.policies.elasticity.nodes import Elasticity, NodeMemory
from penstock.policies.elasticity.options import NodeOptions
from penstock.policies.elasticity.reactive import Reactive, ReactiveMemory, ReactiveOptions
from penstock.policies.elasticity.rebalance import Rebalanced, rebalance
from penstock.policies.elasticity.waits import Waits, fit_waits, kingman_wait_s

__all__ = [
    "Elasticity",
    "NodeMemory",
    "NodeOptions",
    "Reactive",
    "ReactiveMemory",
    "ReactiveOptions",
    "Rebalanced",
    "Waits",
    "fit_waits",
    "kingman_wait_s",
    "rebalance",
]
