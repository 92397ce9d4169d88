"""The commands and their options. Each imports what it needs when it is called, so that `--help` answers at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from penstock.cli.output import BAD_INPUT, InputError, complaints, print_json, results

app = typer.Typer(
    name="penstock",
    help="The autopilot for Spark Structured Streaming: hold latency, accuracy and cost goals while load and "
    "machines change.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
cluster_app = typer.Typer(
    help="A real standalone Spark cluster on this machine's loopback addresses.", no_args_is_help=True
)
app.add_typer(cluster_app, name="cluster")

Flow = Annotated[
    str, typer.Argument(metavar="FLOW", help="A YAML file, a .py file with a 'flow', or a workload's name.")
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output, nothing else there.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", metavar="NAME", help="Policy to run; several: repeat or separate by commas."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="POLICY.OPTION=VALUE", help="Change an option of a chosen policy."),
]
Interval = Annotated[float, typer.Option(help="Seconds between two decisions.", min=0.1)]
Seed = Annotated[int, typer.Option(help="Seed of every random draw.", min=0)]
Classes = Annotated[
    str, typer.Option(metavar="FILE|SET", help="Machine classes: a YAML file, or current, m1 or spot.")
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="DIR", help="Write plots into this folder.")]


@app.command()
def simulate(
    flow: Flow,
    rate_trace: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Rate of the sources (timestamp,value).")
    ] = None,
    time_scale: Annotated[
        float, typer.Option(help="Stretch the trace's or load's time by this factor.")
    ] = 1.0,
    rate_scale: Annotated[
        float, typer.Option(help="Multiply the trace's or load's rates by this factor.")
    ] = 1.0,
    policy: Policies = None,
    set_: Settings = None,
    seed: Seed = 0,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="How long, e.g. 20m; default: the load's length."),
    ] = None,
    interval: Interval = 5.0,
    nodes: Annotated[int, typer.Option(help="Machines at the start.", min=1)] = 4,
    max_nodes: Annotated[int | None, typer.Option(help="Most machines; default: no limit.", min=1)] = None,
    cores: Annotated[int, typer.Option(help="Cores of a machine.", min=1)] = 4,
    price: Annotated[float, typer.Option(help="Price of a machine per hour.", min=0)] = 0.0,
    fidelity: Annotated[
        str, typer.Option(help="discrete (every record) or fluid (rates in time steps).")
    ] = "discrete",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and explain, do nothing.")] = False,
    journal: Annotated[Path | None, typer.Option(help="Keep the journal in this file.")] = None,
    json: Json = False,
) -> None:
    """Run a dataflow in simulation, with the same policies as on Spark."""
    from penstock.cli.simulate import SimulateRequest
    from penstock.cli.simulate import simulate as run_simulation

    request = SimulateRequest(
        flow=flow,
        rate_trace=rate_trace,
        time_scale=time_scale,
        rate_scale=rate_scale,
        policies=tuple(policy or ()),
        settings=tuple(set_ or ()),
        seed=seed,
        duration=duration,
        interval_s=interval,
        nodes=nodes,
        max_nodes=max_nodes,
        cores=cores,
        price_per_hour=price,
        fidelity=fidelity,
        dry_run=dry_run,
        journal=journal,
    )
    run_simulation(request, as_json=json)


@app.command()
def run(
    flows: Annotated[
        list[str],
        typer.Argument(
            metavar="FLOW...",
            help="A YAML file, a .py file with a 'flow', or a workload's name; several share the executors.",
        ),
    ],
    master: Annotated[
        str | None, typer.Option(help="Spark master; passed through as it is. Default: local[2].")
    ] = None,
    cluster: Annotated[
        int | None,
        typer.Option(metavar="N", help="Start a loopback cluster of N workers for the run.", min=1),
    ] = None,
    executors: Annotated[int, typer.Option(help="Executors at the start, on a cluster.", min=1)] = 1,
    max_executors: Annotated[
        int | None, typer.Option(help="Most executors; default: the workers of --cluster.", min=1)
    ] = None,
    policy: Policies = None,
    set_: Settings = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long, e.g. 2m; default: until Ctrl-C.")
    ] = None,
    interval: Interval = 5.0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint folder; default: a temporary one.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Journal file; default: .penstock/runs.sqlite.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="HTML report; default: beside the journal.")] = None,
    machine: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Machine class that executors run on: the run gets a bill."),
    ] = None,
    classes: Classes = "current",
    audit: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of records that also go through the best alternate while another runs: measures values.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and explain, do nothing.")] = False,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark's; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Run dataflows on Spark under control, with a live view and a report at the end."""
    from penstock.cli.run import RunRequest, spark_settings
    from penstock.cli.run import run as run_live

    request = RunRequest(
        flow=flows[0],
        beside=tuple(flows[1:]),
        master=master,
        cluster=cluster,
        executors=executors,
        max_executors=max_executors,
        policies=tuple(policy or ()),
        settings=tuple(set_ or ()),
        duration=duration,
        interval_s=interval,
        checkpoint=checkpoint,
        journal=journal,
        report=report,
        machine=machine,
        classes=classes,
        audit=audit,
        dry_run=dry_run,
        conf=spark_settings(conf or ()),
    )
    run_live(request, as_json=json)


@app.command()
def explain(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run's id, or 'last'.")] = "last",
    journal: Annotated[
        Path | None, typer.Option(help="Journal file; default: .penstock/runs.sqlite.")
    ] = None,
    json: Json = False,
) -> None:
    """Tell what was decided in a run, why, and what came of it."""
    from penstock.cli.explain import explain_run

    explain_run(run, journal, as_json=json)


@app.command()
def place(
    problem: Annotated[
        Path | None,
        typer.Argument(metavar="[PROBLEM]", help="A problem as JSON; see docs/policies/placement.md."),
    ] = None,
    policy: Annotated[str, typer.Option("--policy", "-p", help="How to place; 'all' compares.")] = "default",
    seconds: Annotated[float, typer.Option(help="Time the solver may take.", min=0)] = 1.0,
    benchmark: Annotated[
        str | None, typer.Option(help="A built-in instance: linear, diamond or star.")
    ] = None,
    tasks: Annotated[int, typer.Option(help="Tasks of the built-in instance.", min=1)] = 30,
    cluster: Annotated[str, typer.Option(help="Its nodes: homogeneous or heterogeneous.")] = "heterogeneous",
    json: Json = False,
) -> None:
    """Place a task graph on nodes so that little crosses the network."""
    from penstock.cli.place import place as place_tasks

    place_tasks(
        problem,
        policy=policy,
        seconds=seconds,
        benchmark=benchmark,
        tasks=tasks,
        cluster=cluster,
        as_json=json,
    )


@app.command()
def plan(
    flow: Flow,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="N|SOURCE=N",
            help="Records/s of every source, or of one (repeat); default: the peak of declared loads.",
        ),
    ] = None,
    classes: Classes = "current",
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="best, ce, sh, ga or br; 'all' compares.")
    ] = "best",
    throughput: Annotated[
        float | None, typer.Option(help="Share of the input that must get through; default: the goal's.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Most that machines may cost per hour.")] = None,
    break_even: Annotated[
        float | None, typer.Option(help="Cost per hour that full value is worth; default: a little above it.")
    ] = None,
    least_break_even: Annotated[
        float | None, typer.Option(help="Cost per hour that the least value is worth; default: half.")
    ] = None,
    hours: Annotated[float, typer.Option(help="How long it will run.", min=0.01)] = 1.0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Deployment plan only: alternates, cores, machines, cost, and why."""
    from penstock.cli.plan import PlanRequest
    from penstock.cli.plan import plan as plan_deployment

    request = PlanRequest(
        flow=flow,
        rates=tuple(rate or ()),
        classes=classes,
        policy=policy,
        throughput=throughput,
        break_even=break_even,
        least_break_even=least_break_even,
        budget=budget,
        hours=hours,
        seed=seed,
    )
    plan_deployment(request, as_json=json)


@app.command()
def reproduce(
    paper: Annotated[
        str, typer.Argument(help="nephele, neptune, dynamic-dataflows, i-scheduler or quality-of-data.")
    ],
    plot: Plot = None,
    json: Json = False,
) -> None:
    """A paper's figures beside ours."""
    from penstock.cli.reproduce import reproduce_paper

    raise typer.Exit(reproduce_paper(paper, plot, as_json=json))


@app.command()
def bench(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Which one; without a name: the list.")
    ] = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Measure side by side with peers, in one run."""
    from penstock.cli.bench import bench as run_bench

    run_bench(name, plot=plot, as_json=json)


@cluster_app.command("start")
def cluster_start(
    workers: Annotated[int, typer.Option(help="Workers, each its own host.", min=1, max=250)] = 3,
    cores: Annotated[int, typer.Option(help="Cores of a worker.", min=1)] = 1,
    memory: Annotated[str, typer.Option(help="Memory a worker offers to executors.")] = "1g",
    pin: Annotated[bool, typer.Option("--pin", help="Give each worker CPUs of its own.")] = False,
    json: Json = False,
) -> None:
    """Start a cluster that stays until `penstock cluster stop`."""
    from penstock.spark.cluster.loopback import DEFAULT_RUN_DIR, LoopbackCluster

    cluster = LoopbackCluster(
        workers=workers, cores=cores, memory=memory, pin=pin, run_dir=DEFAULT_RUN_DIR, detached=True
    )
    with complaints.status(f"starting a master and {workers} workers …"):
        cluster.start()
    _show_cluster(json)


@cluster_app.command("status")
def cluster_status(json: Json = False) -> None:
    """What runs."""
    _show_cluster(json)


@cluster_app.command("stop")
def cluster_stop(json: Json = False) -> None:
    """End the cluster and everything it started."""
    from penstock.spark.cluster.loopback import stop_cluster

    stopped = stop_cluster()
    if json:
        print_json({"stopped": stopped})
    else:
        results.print("stopped" if stopped else "no cluster was running")


def _show_cluster(as_json: bool) -> None:
    from penstock.spark.cluster.loopback import cluster_status as look

    status = look()
    if as_json:
        print_json(status.model_dump())
    elif not status.running:
        results.print("no cluster is running; 'penstock cluster start' starts one")
    else:
        results.print(
            f"{status.master_url}: {status.workers} workers, {status.cores_used} of {status.cores} cores in use"
        )
        for name in status.applications:
            results.print(f"  {name}")


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    try:
        app()
    except BrokenPipeError:
        # Somebody's `| head` has seen enough; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except known_errors() as problem:
        complaints.print(f"[bold red]penstock:[/] {_escaped(str(problem))}", soft_wrap=True)
        sys.exit(BAD_INPUT)
    sys.exit(0)


def known_errors() -> tuple[type[Exception], ...]:
    """What the user can mend: told in words, without a stack trace."""
    from penstock.dataflow import DataflowError, FunctionNotFoundError, LoadError

    known: list[type[Exception]] = [InputError, DataflowError, LoadError, FunctionNotFoundError]
    if "penstock.spark.cluster.loopback" in sys.modules:
        from penstock.spark.cluster.loopback import ClusterError

        known.append(ClusterError)
    return tuple(known)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
