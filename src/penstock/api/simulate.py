"""`penstock.simulate`: a dataflow on a simulated cluster, under the same policies as a live one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast, get_args

from penstock.api.choices import AnyFlow, Options, choose_policies, find_flow, loop_settings
from penstock.api.durations import shown_duration
from penstock.api.journals import open_journal
from penstock.api.result import RunResult, missed_goals
from penstock.control import Loop, PolicyRun, Subscriber
from penstock.control.summary import Summary
from penstock.dataflow import Dataflow, Load, OperatorId, read_trace
from penstock.dataflow.connectors import expected_load
from penstock.errors import InputError
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime
from penstock.simulator.options import Fidelity
from penstock.telemetry import MachineClass

ENDLESS_S = 600.0
"""How long a load without an end (a constant rate) is simulated."""


def simulate(
    flow: AnyFlow,
    *,
    policies: Sequence[str | PolicyRun] = (),
    options: Options | None = None,
    for_s: float | None = None,
    load: Load | str | Path | None = None,
    time_scale: float = 1.0,
    rate_scale: float = 1.0,
    nodes: int = 4,
    max_nodes: int | None = None,
    cores: int = 4,
    price_per_hour: float = 0.0,
    fidelity: str = "discrete",
    interval_s: float = 5.0,
    seed: int = 0,
    dry_run: bool = False,
    journal: Path | str | None = None,
    subscribers: Sequence[Subscriber] = (),
    tell: Callable[[str, float], None] = lambda what, seconds: None,
) -> RunResult:
    """Simulate a dataflow under the named policies and return what it came to.

    `flow` is a dataflow, a YAML or Python file, or a workload's name. `options` are those of policies and of the loop,
    as `{"elasticity.patience": 3}`. `load` (or a CSV file of it) replaces the declared loads and is shared evenly by
    the sources; without `for_s` the run is as long as the load. With `max_nodes` elasticity rents machines up to that
    many and gives them back; without, it stays on those there are. `tell` is called once before it starts, with the
    load in words and the seconds that will be simulated.
    """
    dataflow = find_flow(flow)
    if max_nodes is not None and any(p == "elasticity" for p in _names(policies)):
        options = {"elasticity.min_nodes": 1, "elasticity.max_nodes": max_nodes, **(options or {})}
    runs = choose_policies(policies, options)
    if fidelity not in get_args(Fidelity):
        raise InputError(f"--fidelity is {' or '.join(get_args(Fidelity))}, not '{fidelity}'")
    if max_nodes is not None and max_nodes < nodes:
        raise InputError(f"--max-nodes {max_nodes} is less than --nodes {nodes}")
    loads = source_loads(dataflow, load, time_scale=time_scale, rate_scale=rate_scale)
    machine = MachineClass(name="machine", cores=cores, price_per_hour=price_per_hour, available=max_nodes)
    runtime = SimulatedRuntime(
        dataflow,
        Cluster.of(machine, nodes),
        seed=seed,
        fidelity=cast(Fidelity, fidelity),
        loads=loads,
    )
    seconds = duration_of(loads) if for_s is None else for_s
    tell(load_in_words(loads), seconds)
    summary = Summary()
    with ExitStack() as stack:
        loop = Loop(
            runtime,
            runs,
            clock=SimulatedClock(runtime),
            journal=None if journal is None else stack.enter_context(open_journal(Path(journal))),
            settings=loop_settings(options, interval_s=interval_s, dry_run=dry_run),
            name=dataflow.name,
            options={"command": "simulate", "policies": ",".join(run.policy.name for run in runs)},
            subscribers=[summary, *subscribers],
        )
        began_s = time.perf_counter()
        loop.run(for_s=seconds)
        wall_s = time.perf_counter() - began_s
    figures = {
        **summary.result().figures(),
        "flow": dataflow.name,
        "seed": seed,
        "run": loop.run_id,
        "journal": None if journal is None else str(journal),
        "wall_s": wall_s,
    }
    return RunResult(figures=figures, missed=missed_goals(dataflow, figures))


def _names(policies: Sequence[str | PolicyRun]) -> list[str]:
    return [word.strip() for given in policies if isinstance(given, str) for word in given.split(",")]


def source_loads(
    dataflow: Dataflow, load: Load | str | Path | None, *, time_scale: float = 1.0, rate_scale: float = 1.0
) -> dict[OperatorId, Load]:
    """What each source produces: the given load, shared evenly among the sources, or their own declared one."""
    given = read_trace(load) if isinstance(load, str | Path) else load
    loads: dict[OperatorId, Load] = {}
    for source in dataflow.sources:
        own = expected_load(source.connector) if source.connector is not None else None
        mine = own if given is None else given.scaled(rate=1 / len(dataflow.sources))
        if mine is None:
            raise InputError(
                f"source '{source.id}' declares no load, so a simulation does not know its rate; give --rate-trace"
            )
        loads[source.id] = mine.scaled(time=time_scale, rate=rate_scale)
    return loads


def load_in_words(loads: Mapping[OperatorId, Load]) -> str:
    """How long the sources' loads are and what they produce together."""
    ends = [load.duration_s for load in loads.values()]
    mean = sum(
        load.records_until(end) / end if (end := load.duration_s) else load.peak_rps
        for load in loads.values()
    )
    peak = sum(load.peak_rps for load in loads.values())
    length = shown_duration(max(ends)) if max(ends) else "without end"
    return f"load {length}, {mean:,.0f} records/s on average, at most {peak:,.0f}"


def duration_of(loads: Mapping[OperatorId, Load]) -> float:
    """Seconds of the longest load; its last step counts as long as the one before."""
    lengths = []
    for load in loads.values():
        last = load.times_s[-1] - load.times_s[-2] if len(load.times_s) > 1 and load.period_s is None else 0.0
        lengths.append(load.duration_s + last)
    return max(lengths) or ENDLESS_S
