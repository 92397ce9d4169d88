"""`penstock simulate`: a dataflow on a simulated cluster, under the same policies as a live one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.cli.choices import choose_policies, find_flow
from penstock.cli.durations import parse_duration, shown_duration
from penstock.cli.journals import open_journal
from penstock.cli.output import InputError, complaints, print_json, print_table, results
from penstock.cli.totals import Totals
from penstock.control import Cycle, Loop
from penstock.control import Settings as LoopSettings
from penstock.dataflow import Dataflow, Load, OperatorId, read_trace
from penstock.dataflow.connectors import expected_load
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime
from penstock.simulator.options import Fidelity
from penstock.telemetry import MachineClass, Snapshot

FIDELITIES = ("discrete", "fluid")
DEFAULT_SECONDS = 600.0
"""How long a load without an end (a constant rate) is simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateRequest:
    """What the command line asked for."""

    flow: str
    rate_trace: Path | None = None
    time_scale: float = 1.0
    rate_scale: float = 1.0
    policies: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    seed: int = 0
    duration: str | None = None
    interval_s: float = 5.0
    nodes: int = 4
    max_nodes: int | None = None
    cores: int = 4
    price_per_hour: float = 0.0
    fidelity: str = "discrete"
    dry_run: bool = False
    journal: Path | None = None


def simulate(request: SimulateRequest, *, as_json: bool) -> None:
    """Run the simulation and print what came of it."""
    dataflow = find_flow(request.flow)
    choices = choose_policies(request.policies, request.settings)
    if request.fidelity not in FIDELITIES:
        raise InputError(f"--fidelity is {' or '.join(FIDELITIES)}, not '{request.fidelity}'")
    loads = scaled_loads(dataflow, request)
    seconds = parse_duration(request.duration) if request.duration else default_seconds(loads)
    machine = MachineClass(
        name="machine",
        cores=request.cores,
        price_per_hour=request.price_per_hour,
        available=request.max_nodes,
    )
    if request.max_nodes is not None and request.max_nodes < request.nodes:
        raise InputError(f"--max-nodes {request.max_nodes} is less than --nodes {request.nodes}")
    runtime = SimulatedRuntime(
        dataflow,
        Cluster.of(machine, request.nodes),
        seed=request.seed,
        fidelity=cast(Fidelity, request.fidelity),
        loads=loads,
    )
    totals = Totals(dataflow)
    journal = open_journal(request.journal) if request.journal is not None else None
    try:
        with Progress(
            TextColumn("[dim]simulating"),
            BarColumn(),
            TextColumn("{task.fields[at]} of " + shown_duration(seconds)),
            TimeElapsedColumn(),
            console=complaints,
            transient=True,
            disable=not complaints.is_terminal,
        ) as progress:
            bar = progress.add_task("", total=seconds, at="0s")

            def show(cycle: Cycle, _: Snapshot | None) -> None:
                progress.update(bar, completed=cycle.time_s, at=shown_duration(max(1.0, cycle.time_s)))

            loop = Loop(
                runtime,
                choices,
                clock=SimulatedClock(runtime),
                journal=journal,
                settings=LoopSettings(interval_s=request.interval_s, dry_run=request.dry_run),
                name=dataflow.name,
                options={"command": "simulate", "policies": ",".join(c.policy.name for c in choices)},
                subscribers=[totals, show],
            )
            began_s = time.perf_counter()
            loop.run(for_s=seconds)
            wall_s = time.perf_counter() - began_s
    finally:
        if journal is not None:
            journal.close()
    document = {
        "flow": dataflow.name,
        "simulated_s": totals.seconds,
        "seed": request.seed,
        "constraints": totals.constraints(),
        "throughput": totals.throughput_rps,
        "accuracy": totals.accuracy(),
        "dropped": totals.dropped(),
        "latency_ms": totals.latency_ms(),
        "utilisation": totals.utilisation,
        "task_hours": totals.task_seconds / 3600,
        "node_hours": totals.node_seconds / 3600,
        "cost": totals.cost,
        "actions": totals.begun(),
        "faults": dict(loop.faults),
        "run": loop.run_id,
        "journal": str(request.journal) if request.journal is not None else None,
        "seconds": wall_s,
    }
    if as_json:
        print_json(document)
    else:
        _print(document)


def scaled_loads(dataflow: Dataflow, request: SimulateRequest) -> dict[OperatorId, Load]:
    """What each source produces: the trace, shared evenly among the sources, or their own declared load."""
    trace = read_trace(request.rate_trace) if request.rate_trace is not None else None
    loads: dict[OperatorId, Load] = {}
    for source in dataflow.sources:
        own = expected_load(source.connector) if source.connector is not None else None
        load = trace.scaled(rate=1 / len(dataflow.sources)) if trace is not None else own
        if load is None:
            raise InputError(
                f"source '{source.id}' declares no load, so a simulation does not know its rate; give --rate-trace"
            )
        loads[source.id] = load.scaled(time=request.time_scale, rate=request.rate_scale)
    return loads


def default_seconds(loads: dict[OperatorId, Load]) -> float:
    """As long as the longest load has something to say, with its last step as long as the one before."""
    lengths = []
    for load in loads.values():
        last = load.times_s[-1] - load.times_s[-2] if len(load.times_s) > 1 and load.period_s is None else 0.0
        lengths.append(load.duration_s + last)
    return max(lengths) or DEFAULT_SECONDS


def _print(document: dict[str, Any]) -> None:
    results.print(
        f"[bold]{document['flow']}[/], {shown_duration(document['simulated_s'])} simulated "
        f"in {shown_duration(document['seconds'])} (seed {document['seed']})\n"
    )
    if document["constraints"]:
        print_table(
            "Constraints",
            ["name", "bound ms", "held in % of intervals", "mean ms", "p95 ms"],
            [
                [
                    c["name"],
                    c["bound_ms"],
                    None if c["held"] is None else 100 * c["held"],
                    c["mean_ms"],
                    c["p95_ms"],
                ]
                for c in document["constraints"]
            ],
        )
    figures = [
        ["records per second at the sinks", document["throughput"]],
        *(
            [f"accuracy at {sink}, %", None if a is None else 100 * a]
            for sink, a in document["accuracy"].items()
        ),
        [
            "busy share of the cores, %",
            None if document["utilisation"] is None else 100 * document["utilisation"],
        ],
        ["task-hours", document["task_hours"]],
        ["node-hours", document["node_hours"]],
        ["cost", document["cost"]],
        *([f"{kind} actions", n] for kind, n in document["actions"].items()),
    ]
    print_table("", ["", ""], figures)
    if document["faults"]:
        results.print(f"[red]faults survived:[/] {document['faults']}")
    if document["journal"]:
        results.print(f"[dim]penstock explain {document['run']} --journal {document['journal']}[/]")
