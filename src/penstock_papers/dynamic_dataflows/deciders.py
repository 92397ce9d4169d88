"""The paper's deciders by name, and ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.policies.provisioning.deployment import Provision
from penstock.policies.provisioning.optimum import deploy_best
from penstock.policies.provisioning.problem import Demand
from penstock_papers.dynamic_dataflows.brute import deploy_brute
from penstock_papers.dynamic_dataflows.genetic import deploy_genetic
from penstock_papers.dynamic_dataflows.greedy import deploy_greedy


def ce(demand: Demand) -> Provision:
    """Centralised greedy deployment."""
    return deploy_greedy(demand, centralised=True)


def sh(demand: Demand) -> Provision:
    """Sharded greedy deployment."""
    return deploy_greedy(demand, centralised=False)


DECIDERS: Mapping[str, Callable[[Demand], Provision]] = {
    "best": deploy_best,
    "ce": ce,
    "sh": sh,
    "ga": deploy_genetic,
    "br": deploy_brute,
}
"""Name to what plans a deployment."""
