"""`penstock reproduce`: a paper's figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock import extensions
from penstock.cli.output import GOAL_MISSED, InputError, complaints, print_json, print_table, results
from penstock.control.sentences import shown
from penstock.dataflow.errors import did_you_mean


def reproduce_paper(paper: str, plot: Path | None, *, as_json: bool) -> int:
    """Run a paper's trials and print what came of them; the exit code."""
    papers = extensions.installed().papers
    if not papers:
        raise InputError("the papers' trials are not installed; pip install 'penstock[papers]' brings them")
    if paper not in papers:
        raise InputError(f"no paper '{paper}'{did_you_mean(paper, papers)}; there are {', '.join(papers)}")
    if plot is not None and plot.exists() and not plot.is_dir():
        raise InputError(f"--plot {plot}: is a file, not a folder")
    with complaints.status("…") as status:

        def tell(what: str) -> None:
            if complaints.is_terminal:
                status.update(f"{what} …")
            else:
                complaints.print(what, markup=False, soft_wrap=True)

        found = extensions.load(papers[paper])(plot=plot, tell=tell)
    if as_json:
        print_json(found.document())
    else:
        _print(found)
    return 0 if found.holds else GOAL_MISSED


def _print(found: Any) -> None:
    print_table(
        f"{found.paper}: the paper's figures and ours",
        ["trial", "metric", "paper", "ours", "better", "asked", "holds"],
        [
            [r.trial, r.metric, r.paper, r.ours, r.better, r.paper if r.goal is None else r.goal, r.holds]
            for r in found.rows
        ],
    )
    if found.references:
        print_table(
            "\nIn the same simulator, for comparison",
            ["trial", "metric", "paper", "simulated", ""],
            [[r.trial, r.metric, r.paper, r.simulated, r.note] for r in found.references],
        )
    for path in found.plots:
        results.print(f"[dim]{path}[/]")
    missed = [r for r in found.rows if not r.holds]
    for row in missed:
        asked = row.paper if row.goal is None else row.goal
        results.print(f"[red]missed:[/] {row.trial}, {row.metric}: {shown(row.ours)}, asked {shown(asked)}")
