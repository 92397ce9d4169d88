"""Choose among alternates, machines and cost: enough of the input gets through, value minus cost is large.

`deploy_best` plans deployments before anything runs; `Provisioning` is the policy for the loop.
"""

from penstock.policies.provisioning.catalogue import CATALOGUE, CURRENT, M1, SPOT
from penstock.policies.provisioning.deployment import Assessment, Deployment, Provision, assess
from penstock.policies.provisioning.optimum import deploy_best
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
    "deploy_best",
    "graph_of",
]
