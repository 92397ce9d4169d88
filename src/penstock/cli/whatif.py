"""`penstock whatif`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from rich.markup import escape

from penstock.api.durations import parse_duration, shown_duration
from penstock.cli import options
from penstock.cli.output import complaints, print_json, print_table, results
from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from penstock.dataflow.graph import Statistic

ACTIONS_SHOWN = 10


def whatif(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN|EVENTLOG|PROGRESS.json",
            help="A run's id or 'last', an event log of Spark (file or folder), or a file of progress JSON.",
        ),
    ],
    latency: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME", help="Goal, e.g. 1s; several: repeat or separate by commas. Default: the run's."
        ),
    ] = None,
    statistic: Annotated[
        str | None, typer.Option(metavar="mean|p50|p95|p99", help="Of which statistic that is asked.")
    ] = None,
    rate: Annotated[str, typer.Option(metavar="xN", help="Multiply what the sources produce.")] = "x1",
    rate_trace: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Rate of all sources together (timestamp,value), instead."),
    ] = None,
    executors: Annotated[
        str | None, typer.Option(metavar="N|A..B", help="Sizes to try; with a policy also its bounds.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", "-p", metavar="NAME", help="Policy to run, or as-it-was: the run's own executors."
        ),
    ] = None,
    set_: options.Set = None,
    kill: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME", help="An executor dies this long after the start; repeat for more."),
    ] = None,
    read_limit: Annotated[
        int | None, typer.Option(help="Most records of a batch, as Kafka's maxOffsetsPerTrigger.", min=1)
    ] = None,
    was: Annotated[
        str | None,
        typer.Option(
            metavar="NxC", help="There were N executors with C cores, where the history does not tell."
        ),
    ] = None,
    price: Annotated[
        float | None, typer.Option(help="Price of an executor per hour; default: the run's.", min=0)
    ] = None,
    draws: Annotated[int, typer.Option(help="Models that stand for what is not known.", min=2)] = 8,
    journal: options.Journal = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Tell what a run would have been with other goals, sizes, policies or loads."""
    from penstock.api.whatif import whatif as ask

    bounds = [1e3 * parse_duration(word) for given in latency or () for word in given.split(",")]
    with complaints.status("reading the history …") as status:
        found = ask(
            run,
            journal=journal,
            latency_ms=bounds,
            statistic=_statistic(statistic),
            rate=_factor(rate),
            rate_trace=rate_trace,
            executors=None if executors is None else _range(executors),
            policies=policy or (),
            options=options.settings(set_),
            kills_s=[parse_duration(word) for word in kill or ()],
            read_limit=read_limit,
            was=None if was is None else _was(was),
            price_per_hour=price,
            draws=draws,
            tell=lambda done, of: status.update(f"simulating, {done} of {of} …"),
        )
    if plot is not None:
        from penstock.cli.whatif_plot import draw

        complaints.print(f"[dim]{escape(str(draw(found, plot)))}[/]")
    if json:
        print_json(found)
    else:
        _print(found)


def _statistic(word: str | None) -> Statistic | None:
    from penstock.dataflow.graph import Statistic

    known = get_args(Statistic)
    if word is not None and word not in known:
        raise InputError(f"--statistic: there is no '{word}'{did_you_mean(word, known)}")
    return cast("Statistic | None", word)


def _factor(text: str) -> float:
    """`x2`, `×2` or `2`."""
    try:
        factor = float(text.strip().removeprefix("x").removeprefix("×"))
    except ValueError:
        raise InputError(f"--rate takes x2 or x0.5, not '{text}'") from None
    if not 0 < factor < 1e6:
        raise InputError(f"--rate takes a factor above 0, not '{text}'")
    return factor


def _range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d+)\s*(?:\.\.\s*(\d+))?\s*", text)
    if found is None:
        raise InputError(f"--executors takes 4 or 2..8, not '{text}'")
    return int(found[1]), int(found[2] or found[1])


def _was(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*([1-9]\d*)\s*[x×]\s*([1-9]\d*)\s*", text)
    if found is None:
        raise InputError(f"--was takes 2x4 (2 executors with 4 cores each), not '{text}'")
    return int(found[1]), int(found[2])


COLUMNS = ["", "bound ms", "mean ms", "p95 ms", "p95 within", "held %", "hours", "cost", "actions"]
"""`hours` are those of executors."""


def _print(found: Mapping[str, Any]) -> None:
    results.print(
        f"[bold]{escape(found['source'])}[/], {shown_duration(found['duration_s'])}, "
        f"{', '.join(map(escape, found['queries']))}\n"
    )
    rows = [
        _row("actual", None, found["actual"], None),
        _row("replayed", None, found["replayed"], None),
        *(_row(s["label"], s["latency_bound_ms"], s["predicted"], s["interval"]) for s in found["scenarios"]),
    ]
    shown = [i for i in range(len(COLUMNS)) if COLUMNS[i] != "cost" or any(row[i] for row in rows)]
    print_table("", [COLUMNS[i] for i in shown], [[row[i] for i in shown] for row in rows])
    results.print("\n" + _error_line(found["error"]))
    for best in found["cheapest"]:
        bound = shown_duration(best["latency_bound_ms"] / 1e3)
        if best["executors"] is None:
            results.print(f"No size that was tried holds {bound}.")
        else:
            hours = best["executor_seconds"] / 3600
            results.print(
                f"Cheapest size that holds {bound}: {best['executors']} ({hours:.3g} executor-hours)."
            )
    for action in found["predicted"]["actions"][:ACTIONS_SHOWN]:
        results.print(
            f"  after {shown_duration(max(1.0, action['time_s']))}: {action['what']}, because {action['why']}",
            markup=False,
        )
    more = len(found["predicted"]["actions"]) - ACTIONS_SHOWN
    if more > 0:
        results.print(f"  … and {more} more (--json has them all)")
    for assumed in found["assumed"]:
        results.print(f"[dim]assumed: {escape(_assumption(assumed))}[/]", soft_wrap=True)
    for unknown in found["unknown"]:
        results.print(f"[dim]not known: {escape(unknown)}[/]", soft_wrap=True)


def _row(
    label: str, bound_ms: float | None, one: Mapping[str, Any], interval: Mapping[str, Any] | None
) -> list[Any]:
    within = interval["latency_ms.p95"] if interval is not None else None
    seconds, held = one["executor_seconds"], one["held"]
    return [
        label,
        bound_ms,
        one["latency_ms"]["mean"],
        one["latency_ms"]["p95"],
        None if within is None else f"{within[0]:.0f}..{within[1]:.0f}",
        None if held is None else 100 * held,
        None if seconds is None else float(f"{seconds / 3600:.3g}"),
        one["cost"],
        len(one["actions"]),
    ]


def _error_line(error: Mapping[str, float | None]) -> str:
    names = {
        "latency_ms.mean": "mean latency",
        "latency_ms.p95": "p95",
        "batch_ms": "batches",
        "executor_seconds": "executors",
    }
    parts = [
        f"{shown} {100 * off:+.0f} %" for name, shown in names.items() if (off := error[name]) is not None
    ]
    return "Error of the run as it was, replayed: " + (", ".join(parts) or "not known") + "."


def _assumption(one: Mapping[str, Any]) -> str:
    unit = f" {one['unit']}" if one["unit"] else ""
    between = f", between {one['low']:g} and {one['high']:g}" if one["low"] < one["high"] else ""
    return f"{one['what']}: {one['value']:g}{unit}{between}"
