"""Hold a latency bound with the fewest resources.

`Elasticity` is the default: nodes where the runtime works in micro-batches, tasks per operator elsewhere. `Proactive`
is its part for tasks, `NodeElasticity` that for nodes. `Reactive` is the paper's method; `Fixed`, `Threshold` and
`Ds2` are what others do.
"""

from penstock.policies.elasticity.options import ElasticityOptions, NodeOptions
from penstock.policies.elasticity.policy import Elasticity, ElasticityMemory
from penstock.policies.elasticity.rebalance import rebalance
from penstock.policies.elasticity.tasks import Proactive
from penstock.policies.elasticity.waits import Waits, kingman_wait_s

__all__ = [
    "Elasticity",
    "ElasticityMemory",
    "ElasticityOptions",
    "NodeOptions",
    "Proactive",
    "Waits",
    "kingman_wait_s",
    "rebalance",
]
