"""`penstock cluster start`, `status` and `stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.output import complaints, print_json, results

app = typer.Typer(
    help="A real standalone Spark cluster on this machine's loopback addresses.", no_args_is_help=True
)


@app.command()
def start(
    workers: Annotated[int, typer.Option(help="Workers, each its own host.", min=1, max=250)] = 3,
    cores: Annotated[int, typer.Option(help="Cores of a worker.", min=1)] = 1,
    memory: Annotated[str, typer.Option(help="Memory a worker offers to executors.")] = "1g",
    pin: Annotated[bool, typer.Option("--pin", help="Give each worker CPUs of its own.")] = False,
    cpus: Annotated[
        float | None, typer.Option(help="CPUs that a worker can use at most, e.g. 0.6; needs control groups.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Start a cluster that stays until `penstock cluster stop`."""
    from penstock.spark.cluster.loopback import DEFAULT_RUN_DIR, LoopbackCluster

    cluster = LoopbackCluster(
        workers=workers,
        cores=cores,
        memory=memory,
        pin=pin,
        cpus=cpus,
        run_dir=DEFAULT_RUN_DIR,
        detached=True,
    )
    with complaints.status(f"starting a master and {workers} workers …"):
        cluster.start()
    status(json)


@app.command()
def status(json: options.Json = False) -> None:
    """What runs."""
    from penstock.spark.cluster.loopback import cluster_status

    found = cluster_status()
    if json:
        print_json(found.model_dump())
    elif not found.running:
        results.print("no cluster is running; 'penstock cluster start' starts one")
    else:
        results.print(
            f"{found.master_url}: {found.workers} workers, {found.cores_used} of {found.cores} cores in use"
        )
        for name in found.applications:
            results.print(f"  {name}")


@app.command()
def stop(json: options.Json = False) -> None:
    """End the cluster and everything it started."""
    from penstock.spark.cluster.loopback import stop_cluster

    stopped = stop_cluster()
    if json:
        print_json({"stopped": stopped})
    else:
        results.print("stopped" if stopped else "no cluster was running")
