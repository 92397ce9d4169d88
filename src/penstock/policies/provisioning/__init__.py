"""Choose among alternates, machines and cost: enough of the input gets through, value minus cost is large.

`DECIDERS` plan deployments: `best` is ours, `ce`, `sh`, `ga` and `br` are the paper's. `Provisioning` is the policy for
the loop.
"""

from penstock.policies.provisioning.catalogue import CATALOGUE, CURRENT, M1, SPOT
from penstock.policies.provisioning.deciders import DECIDERS
from penstock.policies.provisioning.deployment import Assessment, Deployment, Provision, assess
from penstock.policies.provisioning.options import ProvisioningOptions
from penstock.policies.provisioning.policy import Provisioning
from penstock.policies.provisioning.problem import (
    Demand,
    DemandError,
    Graph,
    Measured,
    Worth,
    demand_of,
    graph_of,
)
from penstock.policies.provisioning.situation import ProvisioningMemory

__all__ = [
    "CATALOGUE",
    "CURRENT",
    "DECIDERS",
    "M1",
    "SPOT",
    "Assessment",
    "Demand",
    "DemandError",
    "Deployment",
    "Graph",
    "Measured",
    "Provision",
    "Provisioning",
    "ProvisioningMemory",
    "ProvisioningOptions",
    "Worth",
    "assess",
    "demand_of",
    "graph_of",
]
