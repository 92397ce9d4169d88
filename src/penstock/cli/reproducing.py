"""`penstock reproduce`: a paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.cli.output import GOAL_MISSED, InputError, complaints, print_json, print_table, results, shown
from penstock.dataflow.errors import did_you_mean
from penstock.experiments.figures import Reproduce, Reproduction


def _nephele() -> Reproduce:
    from penstock.experiments.nephele import reproduce

    return reproduce


def _i_scheduler() -> Reproduce:
    from penstock.experiments.i_scheduler import reproduce

    return reproduce


def _neptune() -> Reproduce:
    from penstock.experiments.neptune import reproduce

    return reproduce


def _dynamic_dataflows() -> Reproduce:
    from penstock.experiments.dynamic_dataflows import reproduce

    return reproduce


def _quality_of_data() -> Reproduce:
    from penstock.experiments.quality_of_data import reproduce

    return reproduce


PAPERS: dict[str, Callable[[], Reproduce]] = {
    "nephele": _nephele,
    "i-scheduler": _i_scheduler,
    "neptune": _neptune,
    "dynamic-dataflows": _dynamic_dataflows,
    "quality-of-data": _quality_of_data,
}
"""Paper to what runs its trials; imported when asked for, since a simulator takes a while to load."""


def reproduce_paper(paper: str, plot: Path | None, *, as_json: bool) -> int:
    """Run a paper's trials and print what came of them; the exit code."""
    if paper not in PAPERS:
        known = ", ".join(PAPERS)
        raise InputError(f"no paper '{paper}'{did_you_mean(paper, PAPERS)}; there are {known}")
    if plot is not None and plot.exists() and not plot.is_dir():
        raise InputError(f"--plot {plot}: is a file, not a folder")
    with complaints.status("…") as status:

        def tell(what: str) -> None:
            if complaints.is_terminal:
                status.update(f"{what} …")
            else:
                complaints.print(what, markup=False, soft_wrap=True)

        found = PAPERS[paper]()(plot=plot, tell=tell)
    if as_json:
        print_json(found.document())
    else:
        _print(found)
    return 0 if found.holds else GOAL_MISSED


def _print(found: Reproduction) -> None:
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
