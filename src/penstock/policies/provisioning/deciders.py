"""The deciders by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.policies.provisioning.brute import deploy_brute
from penstock.policies.provisioning.deployment import Provision
from penstock.policies.provisioning.genetic import deploy_genetic
from penstock.policies.provisioning.greedy import deploy_greedy
from penstock.policies.provisioning.optimum import deploy_best
from penstock.policies.provisioning.problem import Demand


def _ce(demand: Demand) -> Provision:
    return deploy_greedy(demand, centralised=True)


def _sh(demand: Demand) -> Provision:
    return deploy_greedy(demand, centralised=False)


DECIDERS: Mapping[str, Callable[[Demand], Provision]] = {
    "best": deploy_best,
    "ce": _ce,
    "sh": _sh,
    "ga": deploy_genetic,
    "br": deploy_brute,
}
"""Name to what plans a deployment."""
