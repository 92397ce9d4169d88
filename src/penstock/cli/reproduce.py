"""`penstock reproduce`: a paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from penstock import extensions
from penstock.cli import options
from penstock.cli.output import GOAL_MISSED, complaints, print_json, print_table, results, shown
from penstock.errors import InputError, did_you_mean

ALL = "all"


def reproduce(
    paper: Annotated[
        str, typer.Argument(help="nephele, neptune, dynamic-dataflows, i-scheduler, quality-of-data, or all.")
    ],
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """A paper's figures beside ours; all papers run side by side, as many at once as there are cores."""
    papers = extensions.installed().papers
    if not papers:
        raise InputError("the papers' trials are not installed; pip install 'penstock[papers]' brings them")
    if paper not in (*papers, ALL):
        names = [*papers, ALL]
        raise InputError(f"no paper '{paper}'{did_you_mean(paper, names)}; there are {', '.join(names)}")
    if plot is not None and plot.exists() and not plot.is_dir():
        raise InputError(f"--plot {plot}: is a file, not a folder")
    with complaints.status("…") as status:

        def tell(what: str) -> None:
            if complaints.is_terminal:
                status.update(f"{what} …")
            else:
                complaints.print(what, markup=False, soft_wrap=True)

        if paper == ALL:
            from penstock.cli.paper_processes import run_all

            document = run_all(papers, plot=plot, tell=tell)
        else:
            document = extensions.load(papers[paper])(plot=plot, tell=tell).document()
    if json:
        print_json(document)
    else:
        for name, each in (document["papers"] if paper == ALL else {paper: document}).items():
            _print(name, each)
    if not document["holds"]:
        raise typer.Exit(GOAL_MISSED)


def _print(name: str, found: Mapping[str, Any]) -> None:
    if "error" in found:
        results.print(f"[red]{name} ended without a result:[/] {found['error']}", highlight=False)
        return
    rows = found["rows"]
    print_table(
        f"{name}: ours against what is asked",
        ["trial", "metric", "paper", "rival", "", "ours", "better", "difference", "worst", "seeds", "asked", "holds"],
        [
            [r["trial"], r["metric"], r["paper"], r["rival"], r["rival_name"], r["ours"], r["better"],
             _range(r["interval"]), r["worst"], len(r["seeds"]) or None, r["asked"], r["holds"]]
            for r in rows
        ],
    )  # fmt: skip
    if found["references"]:
        print_table(
            "\nIn the same simulator, for comparison",
            ["trial", "metric", "paper", "simulated", ""],
            [[r["trial"], r["metric"], r["paper"], r["simulated"], r["note"]] for r in found["references"]],
        )
    if found["inputs"]:
        print_table(
            "\nPut in",
            ["input", "value", "from"],
            [[i["name"], i["value"], i["source"]] for i in found["inputs"]],
        )
    for path in found["plots"]:
        results.print(f"[dim]{path}[/]")
    for each in found["not_shown"]:
        results.print(f"not shown: {each['what']}: {each['why']}", highlight=False)
    for row in (r for r in rows if not r["holds"]):
        why = f" ({row['note']})" if row["note"] else ""
        missed = f"{row['trial']}, {row['metric']}: {shown(row['ours'])}, asked {shown(row['asked'])}{why}"
        results.print(f"[red]missed:[/] {missed}")


def _range(interval: tuple[float, float] | None) -> str | None:
    return None if interval is None else f"{shown(interval[0])} … {shown(interval[1])}"
