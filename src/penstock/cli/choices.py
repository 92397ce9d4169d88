"""From words on the command line to policies with their options, and to dataflows."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from penstock import extensions
from penstock.cli.output import InputError
from penstock.control import PolicyRun
from penstock.dataflow import Dataflow
from penstock.dataflow.errors import did_you_mean
from penstock.dataflow.flow_loader import load_flow
from penstock.policies.elasticity import Elasticity
from penstock.policies.interference import Interference
from penstock.policies.placement import TaskPlacement
from penstock.policies.policy import OfferedPolicy
from penstock.policies.provisioning import Provisioning
from penstock.policies.shedding import Shedding

OWN: dict[str, Callable[[], OfferedPolicy]] = {
    "elasticity": Elasticity,
    "placement": lambda: TaskPlacement(time.monotonic),
    "shedding": Shedding,
    "interference": Interference,
    "provisioning": Provisioning,
}
NO_POLICY = "none"


def policy_named(name: str) -> OfferedPolicy:
    """A policy of ours, or one that an extension adds."""
    made = OWN[name] if name in OWN else extensions.load(extensions.installed().policies[name])
    policy: OfferedPolicy = made()
    return policy


def choose_policies(names: Sequence[str], settings: Sequence[str] = ()) -> tuple[PolicyRun, ...]:
    """The named policies (also comma-separated), with `policy.option=value` settings applied."""
    wanted = [word.strip() for name in names for word in name.split(",") if word.strip()]
    known = [NO_POLICY, *OWN, *extensions.installed().policies]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InputError(f"no policy '{unknown[0]}'{did_you_mean(unknown[0], known)}")
    if len(set(wanted)) < len(wanted):
        raise InputError(f"a policy is named twice: {', '.join(wanted)}")
    given = _settings(settings, wanted)
    policies = {name: policy_named(name) for name in wanted if name != NO_POLICY}
    return tuple(
        PolicyRun(policy=policy, options=_options(name, policy.options_type, given.get(name, {})))
        for name, policy in policies.items()
    )


def _settings(settings: Sequence[str], wanted: Sequence[str]) -> dict[str, dict[str, str]]:
    given: dict[str, dict[str, str]] = {}
    for setting in settings:
        where, equals, value = setting.partition("=")
        policy, dot, option = where.partition(".")
        if not (equals and dot and policy and option):
            raise InputError(f"--set takes POLICY.OPTION=VALUE, not '{setting}'")
        if policy not in wanted:
            raise InputError(
                f"--set {setting}: policy '{policy}' is not among those chosen ({', '.join(wanted)})"
            )
        given.setdefault(policy, {})[option] = value
    return given


def _options(name: str, kind: type[Any], values: dict[str, str]) -> Any:
    fields = {f.name for f in dataclasses.fields(kind)}
    for option in values:
        if option not in fields:
            raise InputError(
                f"policy '{name}' has no option '{option}'{did_you_mean(option, sorted(fields))}"
            )
    try:
        return TypeAdapter(kind).validate_strings(values)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join([name, *(str(part) for part in first["loc"])])
        raise InputError(f"--set {where}: {first['msg'].lower()} (got '{first['input']}')") from None


def find_flow(reference: str) -> Dataflow:
    """The dataflow of a YAML file, a `.py` file with a `flow`, or the name of a workload."""
    workloads = extensions.installed().workloads
    if reference in workloads:
        made: Dataflow = extensions.load(workloads[reference])()
        return made
    path = Path(reference)
    if path.suffix in {".yaml", ".yml", ".py"} or path.exists():
        # As for a script: modules beside the flow can be imported, so `words:split` means words.py next to it.
        folder = str(path.resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        return load_flow(reference)
    raise InputError(
        f"'{reference}' is neither a file nor a workload{did_you_mean(reference, sorted(workloads))}; "
        "give a .yaml file, a .py file with a 'flow', or a workload's name"
    )
