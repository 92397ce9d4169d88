"""`penstock run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from penstock.api.durations import parse_duration, shown_duration
from penstock.cli import options
from penstock.cli.output import (
    GOAL_MISSED,
    complaints,
    print_constraints,
    print_json,
    print_table,
    results,
    shown,
)
from penstock.errors import UserError

if TYPE_CHECKING:
    from penstock.api.result import RunResult


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
    policy: options.Policies = None,
    set_: options.Set = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--for", metavar="TIME", parser=parse_duration, help="How long, e.g. 2m; default: until Ctrl-C."
        ),
    ] = None,
    interval: options.Interval = 5.0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Checkpoint folder; default: a temporary one.")
    ] = None,
    journal: options.Journal = None,
    report: Annotated[Path | None, typer.Option(help="HTML report; default: beside the journal.")] = None,
    machine: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Machine class that executors run on: the run gets a bill."),
    ] = None,
    classes: options.Classes = "current",
    audit: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of records that also go through the best alternate while another runs: measures values.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    dry_run: options.DryRun = False,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark's; may be repeated.")
    ] = None,
    ui: options.Ui = None,
    realtime: Annotated[
        bool,
        typer.Option(
            "--realtime", help="In Spark's real-time mode: native operators, Kafka to Kafka, milliseconds."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Run dataflows on Spark under control, with a live view and a report at the end."""
    from penstock.cli.live import shown_live

    with shown_live(f"penstock run {' '.join(flows)}") as view:
        # Importing Spark takes its time: there is something to see before.
        from penstock.api.journals import DEFAULT_JOURNAL
        from penstock.api.run import run as run_flows

        found = run_flows(
            flows,
            master=master,
            cluster=cluster,
            executors=executors,
            max_executors=max_executors,
            policies=policy or (),
            options=options.settings(set_),
            for_s=duration,
            interval_s=interval,
            checkpoint=checkpoint,
            journal=journal or DEFAULT_JOURNAL,
            report=report,
            machine=machine,
            classes=classes,
            audit=audit,
            dry_run=dry_run,
            conf=options.pairs("--conf", conf, "spark.KEY=VALUE"),
            ui=ui,
            subscribers=[view],
            mode="realtime" if realtime else "micro-batch",
        )
    if json:
        print_json(found.to_dict())
    else:
        _print(found)
    if found.failure is not None:
        raise UserError(f"the query failed: {found.failure}")
    for line in found.missed:
        complaints.print(f"[red]missed:[/] {escape(line)}", soft_wrap=True)
    if not found.held:
        raise typer.Exit(GOAL_MISSED)


def _print(found: RunResult) -> None:
    late = found["latency_ms"]
    length = shown_duration(max(1.0, found["seconds"]))
    how = (
        f"real-time mode, {found['slots']} slots"
        if "slots" in found.figures
        else f"{found['batches']} micro-batches"
    )
    results.print(f"[bold]{found['flow']}[/], {length} on Spark, {how}\n")
    print_constraints(found["constraints"])
    figures = [
        ["records in", found["records_in"]],
        ["records at the sinks", found["records_out"]],
        ["records shed", found["shed"]],
        [
            "latency of records, mean / p95 / p99, ms",
            " / ".join(shown(late[n]) for n in ("mean", "p95", "p99")),
        ],
        *([f"accuracy of {s}, %", None if a is None else 100 * a] for s, a in found["accuracy"].items()),
        ["executor-seconds", found["node_seconds"]],
        *([["bill", found["bill"]]] if found.figures.get("bill") is not None else []),
        *([["restarts", found["restarts"]]] if "restarts" in found.figures else []),
        *(
            [f"{kind} actions", ", ".join(f"{n} {status}" for status, n in counts.items())]
            for kind, counts in found["outcomes"].items()
        ),
    ]
    print_table("", ["", ""], figures)
    if found["dropped"]:
        print_table(
            "\nWhat was dropped",
            ["where", "records", "% of what came by", "for", "why"],
            [[d["where"], d["records"], 100 * d["share"], d["sink"], d["why"]] for d in found["dropped"]],
        )
    if found["faults"]:
        results.print(f"[red]faults survived:[/] {found['faults']}")
    if "report" in found.figures:
        results.print(f"\nreport   {found['report']}\nexplain  penstock explain {found['run']}", style="dim")
