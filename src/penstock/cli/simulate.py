"""`penstock simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.api.durations import parse_duration, shown_duration
from penstock.cli import options
from penstock.cli.output import complaints, print_constraints, print_json, print_table, results

if TYPE_CHECKING:
    from penstock.api.result import RunResult
    from penstock.control import Cycle
    from penstock.telemetry import Snapshot


def simulate(
    flow: options.Flow,
    rate_trace: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Rate of the sources (timestamp,value).")
    ] = None,
    time_scale: Annotated[
        float, typer.Option(help="Stretch the trace's or load's time by this factor.")
    ] = 1.0,
    rate_scale: Annotated[
        float, typer.Option(help="Multiply the trace's or load's rates by this factor.")
    ] = 1.0,
    policy: options.Policies = None,
    set_: options.Set = None,
    seed: options.Seed = 0,
    duration: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="TIME",
            parser=parse_duration,
            help="How long, e.g. 20m; default: the load's length.",
        ),
    ] = None,
    interval: options.Interval = 5.0,
    nodes: Annotated[int, typer.Option(help="Machines at the start.", min=1)] = 4,
    max_nodes: Annotated[
        int | None, typer.Option(help="Elasticity rents machines, up to this many.", min=1)
    ] = None,
    cores: Annotated[int, typer.Option(help="Cores of a machine.", min=1)] = 4,
    price: Annotated[float, typer.Option(help="Price of a machine per hour.", min=0)] = 0.0,
    fidelity: Annotated[
        str, typer.Option(help="discrete (every record) or fluid (rates in time steps).")
    ] = "discrete",
    dry_run: options.DryRun = False,
    journal: Annotated[Path | None, typer.Option(help="Keep the journal in this file.")] = None,
    json: options.Json = False,
) -> None:
    """Run a dataflow in simulation, with the same policies as on Spark."""
    from penstock.api.simulate import simulate as run_simulation

    with complaints.status("simulating …") as status:
        length = "?"

        def tell(load: str, seconds: float) -> None:
            nonlocal length
            length = shown_duration(seconds)
            complaints.print(f"[dim]{load}; simulating {length}[/]")

        def show(cycle: Cycle, _: Snapshot | None) -> None:
            status.update(f"simulating, {shown_duration(max(1.0, cycle.time_s))} of {length} …")

        found = run_simulation(
            flow,
            load=rate_trace,
            time_scale=time_scale,
            rate_scale=rate_scale,
            policies=policy or (),
            options=options.settings(set_),
            seed=seed,
            for_s=duration,
            interval_s=interval,
            nodes=nodes,
            max_nodes=max_nodes,
            cores=cores,
            price_per_hour=price,
            fidelity=fidelity,
            dry_run=dry_run,
            journal=journal,
            subscribers=[show] if complaints.is_terminal else [],
            tell=tell,
        )
    if json:
        print_json(found.to_dict())
    else:
        _print(found)


def _print(found: RunResult) -> None:
    results.print(
        f"[bold]{found['flow']}[/], {shown_duration(found['seconds'])} simulated "
        f"in {shown_duration(found['wall_s'])} (seed {found['seed']})\n"
    )
    print_constraints(found["constraints"])
    used = found["utilisation"]
    figures = [
        ["records per second at the sinks", found["throughput"]],
        *([f"accuracy at {s}, %", None if a is None else 100 * a] for s, a in found["accuracy"].items()),
        ["busy share of the cores, %", None if used is None else 100 * used],
        ["task-hours", found["task_seconds"] / 3600],
        ["node-hours", found["node_seconds"] / 3600],
        ["cost", found["cost"]],
        *([f"{kind} actions", n] for kind, n in found["begun"].items()),
    ]
    print_table("", ["", ""], figures)
    if found["faults"]:
        results.print(f"[red]faults survived:[/] {found['faults']}")
    if found["journal"]:
        results.print(f"[dim]penstock explain {found['run']} --journal {found['journal']}[/]")
