"""From words on the command line to policies with their options, and to dataflows."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from penstock.cli.output import InputError
from penstock.dataflow import Dataflow
from penstock.dataflow.errors import did_you_mean
from penstock.dataflow.programs import load_flow
from penstock.policies.elasticity import (
    Ds2,
    Ds2Options,
    Elasticity,
    ElasticityOptions,
    Fixed,
    FixedOptions,
    Reactive,
    ReactiveOptions,
    Threshold,
    ThresholdOptions,
)
from penstock.policies.interference import Interference, InterferenceOptions, Neptune, NeptuneOptions
from penstock.policies.placement import PlacementOptions, TaskPlacement
from penstock.policies.proposal import AnyPolicy
from penstock.policies.provisioning import Provisioning, ProvisioningOptions
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.workloads import WORKLOADS


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A policy with the options to run it with."""

    policy: AnyPolicy
    options: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A policy that can be named on the command line."""

    policy: AnyPolicy
    options: type[Any]
    summary: str


POLICIES: dict[str, Offer] = {
    "elasticity": Offer(
        policy=Elasticity(),
        options=ElasticityOptions,
        summary="hold latency bounds with the fewest nodes (micro-batches) or tasks per operator, proactive",
    ),
    "placement": Offer(
        policy=TaskPlacement(time.monotonic),
        options=PlacementOptions,
        summary="move tasks that talk a lot onto the same node, where the saving is worth the moves",
    ),
    "shedding": Offer(
        policy=Shedding(),
        options=SheddingOptions,
        summary="share CPU by priority: the least important sinks lose accuracy first, none below its minimum",
    ),
    "nephele": Offer(
        policy=Reactive(),
        options=ReactiveOptions,
        summary="the paper's method: fewest tasks per operator, reactive",
    ),
    "ds2": Offer(
        policy=Ds2(), options=Ds2Options, summary="tasks for the true processing rate, as Flink's autoscaler"
    ),
    "threshold": Offer(policy=Threshold(), options=ThresholdOptions, summary="tasks by a CPU threshold"),
    "interference": Offer(
        policy=Interference(),
        options=InterferenceOptions,
        summary="move stateful tasks away from crowded nodes and foreign load, a whole imbalance at once",
    ),
    "neptune": Offer(
        policy=Neptune(),
        options=NeptuneOptions,
        summary="the paper's method: one move per hot node at a time",
    ),
    "provisioning": Offer(
        policy=Provisioning(),
        options=ProvisioningOptions,
        summary="cheaper alternates while the load is too high, better ones when it has fallen",
    ),
    "fixed": Offer(policy=Fixed(), options=FixedOptions, summary="the same number of tasks, always"),
}
NO_POLICY = "none"


def policy_names() -> str:
    """All names, for help texts."""
    return ", ".join([NO_POLICY, *POLICIES])


def choose_policies(names: Sequence[str], settings: Sequence[str] = ()) -> tuple[Choice, ...]:
    """The named policies (also comma-separated), with `policy.option=value` settings applied."""
    wanted = [word.strip() for name in names for word in name.split(",") if word.strip()]
    unknown = [name for name in wanted if name not in POLICIES and name != NO_POLICY]
    if unknown:
        raise InputError(f"no policy '{unknown[0]}'{did_you_mean(unknown[0], [NO_POLICY, *POLICIES])}")
    if len(set(wanted)) < len(wanted):
        raise InputError(f"a policy is named twice: {', '.join(wanted)}")
    given = _settings(settings, wanted)
    return tuple(
        Choice(policy=POLICIES[name].policy, options=_options(name, given.get(name, {})))
        for name in wanted
        if name != NO_POLICY
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


def _options(name: str, values: dict[str, str]) -> Any:
    kind = POLICIES[name].options
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
    if reference in WORKLOADS:
        return WORKLOADS[reference]()
    path = Path(reference)
    if path.suffix in {".yaml", ".yml", ".py"} or path.exists():
        # As for a script: modules beside the flow can be imported, so `words:split` means words.py next to it.
        folder = str(path.resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        return load_flow(reference)
    raise InputError(
        f"'{reference}' is neither a file nor a workload{did_you_mean(reference, sorted(WORKLOADS))}; "
        "give a .yaml file, a .py file with a 'flow', or a workload's name"
    )
