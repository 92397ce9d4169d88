"""`penstock state`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import options
from penstock.cli.output import print_json, print_table, results
from penstock.errors import InputError

if TYPE_CHECKING:
    from penstock.telemetry.state_report import OperatorState, StateReport

LARGEST = 10


def state(
    run: Annotated[
        str, typer.Argument(metavar="[RUN|FOLDER]", help="A run's id, 'last', or the folder of a checkpoint.")
    ] = "last",
    journal: options.Journal = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Tell what as many state partitions would bring.")
    ] = None,
    executors: Annotated[
        int, typer.Option(min=0, help="How many there are, where a checkpoint cannot say.")
    ] = 0,
    keys: Annotated[
        bool,
        typer.Option("--keys", help="Count keys of joins in a checkpoint: starts a Spark, reads all state."),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="All partitions, not only the largest.")] = False,
    json: options.Json = False,
) -> None:
    """How large the state of queries is, how even, where it lies, and what another layout would bring."""
    from penstock.telemetry.state_report import advice

    report = _counted(run, _report(run, journal)) if keys else _report(run, journal)
    told = {id(o): advice(o, executors=executors, partitions=partitions) for o in report.operators}
    if json:
        print_json(
            {
                "origin": report.origin,
                "operators": [
                    {**_document(o, executors, partitions), "advice": list(told[id(o)])}
                    for o in report.operators
                ],
            }
        )
        return
    for operator in report.operators:
        _print(operator, every=every)
        for line in told[id(operator)]:
            results.print(f"  {line}", markup=False, soft_wrap=True)
    if not report.operators:
        results.print(f"{report.origin}: no operator with state", markup=False, soft_wrap=True)


def _report(run: str, journal: Path | None) -> StateReport:
    from penstock.api.journals import recorded_run
    from penstock.spark.observe.checkpoint_files import state_of_checkpoint
    from penstock.telemetry.state_report import RECENT, last_known

    if Path(run).is_dir():
        return state_of_checkpoint(Path(run), now_unix=time.time())
    with recorded_run(journal, run) as (opened, chosen):
        recent = opened.newest_snapshots(chosen.id, at_most=RECENT)
    if not recent:
        raise InputError(f"run {chosen.id} has no full snapshot: it ended before one, or has too many tasks")
    return last_known(recent, f"run {chosen.id}")


def _counted(folder: str, report: StateReport) -> StateReport:
    from penstock.spark.session import create_session
    from penstock.spark.state_keys import with_largest_keys

    if not Path(folder).is_dir():
        raise InputError("--keys counts in a checkpoint: name its folder")
    spark = create_session("local[2]", "penstock-state")
    try:
        return with_largest_keys(spark, Path(folder).absolute(), report)
    finally:
        spark.stop()


def _document(state: OperatorState, executors: int, partitions: int | None) -> dict[str, Any]:
    import dataclasses

    count = len(state.executors) or executors
    return {
        "query": state.query,
        "operator": state.operator,
        "kind": state.kind,
        "by": state.by,
        "rows": state.total("rows"),
        "bytes": state.total("bytes"),
        "skew": state.skew,
        "hottest": state.hottest,
        "hottest_share": state.hottest_share,
        "hot_keys_share": state.hot_keys_share,
        "largest_key_share": state.largest_key_share,
        "executors": count or None,
        "fullest_executor_share": state.slowest_share,
        "even_placement_share": state.even_share(count),
        "repartitioned": None
        if partitions is None
        else {"partitions": partitions, "share": state.repartitioned_share(count, partitions)},
        "partitions": [dataclasses.asdict(p) for p in state.partitions],
    }


def _print(state: OperatorState, *, every: bool) -> None:
    from penstock.telemetry.state_report import in_a_line

    order = list(range(len(state.partitions)))
    if len(state.weights):
        order.sort(key=lambda i: -state.weights[i])
    shown = [state.partitions[i] for i in (order if every else order[:LARGEST])]
    results.print(in_a_line(state), markup=False, soft_wrap=True)
    print_table(
        "All partitions" if every or len(order) <= LARGEST else "Largest partitions",
        ["partition", "executor", "rows", "KB", "busy s", "version", "snapshot", "its age s"],
        [
            (
                p.index,
                p.executor,
                p.rows,
                None if p.bytes is None else p.bytes / 1e3,
                p.busy_s,
                p.version,
                p.snapshot_version,
                p.snapshot_age_s,
            )
            for p in shown
        ],
    )
