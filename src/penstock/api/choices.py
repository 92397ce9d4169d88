"""From names to things: policies with their options, the loop's settings, dataflows."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from penstock import extensions
from penstock.control import PolicyRun, Settings
from penstock.dataflow import Dataflow, FlowBuilder, together
from penstock.dataflow.flow_loader import load_flow
from penstock.errors import InputError, did_you_mean
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
LOOP = "loop"
"""Owner of the options that are the loop's own: `loop.interval_s`."""

AnyFlow = Dataflow | FlowBuilder | str | Path
"""A dataflow, one in the making, or where to find one: a file, or the name of a workload."""
Options = Mapping[str, object]
"""`policy.option` (or `loop.option`) to its value."""
T = TypeVar("T")


def choose_policies(
    policies: Sequence[str | PolicyRun], options: Options | None = None
) -> tuple[PolicyRun, ...]:
    """The policies by their names (also comma-separated), with their options; ready-made ones stay as they are."""
    wanted: list[str | PolicyRun] = []
    for given in policies:
        wanted += _words(given) if isinstance(given, str) else [given]
    names = [each if isinstance(each, str) else each.policy.name for each in wanted]
    known = [NO_POLICY, *OWN, *extensions.installed().policies]
    for each in wanted:
        if isinstance(each, str) and each not in known:
            raise InputError(f"no policy '{each}'{did_you_mean(each, known)}")
    if len(set(names)) < len(names):
        raise InputError(f"a policy is named twice: {', '.join(names)}")
    mine = _by_owner(options or {}, [*names, LOOP])
    return tuple(
        each if isinstance(each, PolicyRun) else _policy_run(each, mine.get(each, {}))
        for each in wanted
        if each != NO_POLICY
    )


def loop_settings(options: Options | None = None, **given: Any) -> Settings:
    """The loop's settings: what is `given`, and what `loop.…` options say."""
    own = {k: v for k, v in (options or {}).items() if k.partition(".")[0] == LOOP}
    return _made(LOOP, Settings, {**given, **_by_owner(own, [LOOP]).get(LOOP, {})})


def find_flow(given: AnyFlow) -> Dataflow:
    """The dataflow itself, of a YAML file, a `.py` file with a `flow`, or the name of a workload."""
    if isinstance(given, Dataflow):
        return given
    if isinstance(given, FlowBuilder):
        return given.build()
    workloads = extensions.installed().workloads
    if given in workloads:
        made: Dataflow = extensions.load(workloads[str(given)])()
        return made
    path = Path(given)
    if path.suffix in {".yaml", ".yml", ".py"} or path.exists():
        # As for a script: modules beside the flow can be imported, so `words:split` means words.py next to it.
        folder = str(path.resolve().parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        return load_flow(given)
    raise InputError(
        f"'{given}' is neither a file nor a workload{did_you_mean(str(given), sorted(workloads))}; "
        "give a .yaml file, a .py file with a 'flow', or a workload's name"
    )


def find_flows(given: AnyFlow | Sequence[AnyFlow]) -> tuple[Dataflow, bool]:
    """The dataflow of one or several that share executors, and whether they are several."""
    if isinstance(given, str | Path | Dataflow | FlowBuilder):
        return find_flow(given), False
    flows = [find_flow(each) for each in given]
    return (flows[0], False) if len(flows) == 1 else (together(*flows), True)


def _words(names: str) -> list[str]:
    return [word.strip() for word in names.split(",") if word.strip()]


def _policy_run(name: str, options: Mapping[str, Any]) -> PolicyRun:
    made = OWN[name] if name in OWN else extensions.load(extensions.installed().policies[name])
    policy: OfferedPolicy = made()
    return PolicyRun(policy=policy, options=_made(name, policy.options_type, options))


def _by_owner(options: Options, owners: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`owner.a.b: value` as {owner: {a: {b: value}}}."""
    found: dict[str, dict[str, Any]] = {}
    for where, value in options.items():
        owner, *path = where.split(".")
        if not owner or not path or not all(path):
            raise InputError(f"an option is written POLICY.OPTION, not '{where}'")
        if owner not in owners:
            chosen = [o for o in owners if o != LOOP]
            raise InputError(
                f"option {where}: policy '{owner}' is not among those chosen ({', '.join(chosen)})"
            )
        inner = found.setdefault(owner, {})
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = value
    return found


def _made(owner: str, kind: type[T], values: Mapping[str, Any]) -> T:
    """The options of that type; a value may be the text that a command line gives."""
    fields = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]  # options are dataclasses
    what = "the loop" if owner == LOOP else f"policy '{owner}'"
    for option in values:
        if option not in fields:
            raise InputError(f"{what} has no option '{option}'{did_you_mean(option, sorted(fields))}")
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join([owner, *(str(part) for part in first["loc"])])
        raise InputError(f"option {where}: {first['msg'].lower()} (got {first['input']!r})") from None
