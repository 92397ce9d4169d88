"""Rows say honestly whether they hold; the command tells them and exits accordingly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import extensions
from penstock.cli.app import app
from penstock.cli.reproduce import reproduce
from penstock_papers.common.figures import NotShown, Reference, Reproduce, Reproduction, Row, Tell, compared


@pytest.mark.parametrize(
    ("paper", "ours", "better", "goal", "holds"),
    [
        (0.91, 0.92, "higher", None, True),
        (0.91, 0.90, "higher", None, False),
        (0.91, 0.92, "higher", 0.95, False),
        (46.4, 46.4, "lower", None, True),
        (46.4, 47.0, "lower", None, False),
        (46.4, None, "lower", None, False),
    ],
)
def test_a_row_holds_when_ours_is_as_good_as_asked(
    paper: float, ours: float | None, better: str, goal: float | None, holds: bool
) -> None:
    row = Row(trial="t", metric="m", paper=paper, ours=ours, better=better, goal=goal)  # type: ignore[arg-type]
    assert row.holds == holds


def against(ours: list[float], rival: list[float], better: str, **more: float) -> Row:
    seeds = range(len(ours))
    return compared(
        trial="t", metric="m", ours=ours, rival=rival, rival_name="r", better=better, seeds=seeds, **more
    )  # type: ignore[arg-type]


def test_a_rival_is_beaten_only_if_the_whole_interval_says_so() -> None:
    # Ahead on average, but one seed in four is far behind: that may be chance.
    doubtful = against([12, 12, 12, 6], [10, 10, 10, 10], "higher")
    assert doubtful.ours > doubtful.rival
    assert doubtful.interval[0] < 0 < doubtful.interval[1]
    assert (doubtful.worst, doubtful.holds) == (-4.0, False)
    assert against([12, 12.5, 12, 12], [10, 10, 10, 10], "higher").holds
    assert not against([12, 12.5, 12, 12], [10, 10, 10, 10], "lower").holds


def test_an_equal_figure_is_no_defeat_and_the_paper_is_not_asked_where_there_is_a_rival() -> None:
    row = against([0.1 + 0.2, 5.0], [0.3, 5.0], "lower", paper=1.0)
    assert (row.interval, row.worst, row.asked, row.holds) == ((0.0, 0.0), 0.0, row.rival, True)


def test_runs_are_paired() -> None:
    with pytest.raises(ValueError, match="one entry per run"):
        compared(trial="t", metric="m", ours=[1], rival=[1, 2], rival_name="r", better="lower", seeds=[0])


def found(ours: float) -> Reproduce:
    def reproduce(*, plot: Path | None, tell: Tell) -> Reproduction:
        tell("working")
        return Reproduction(
            paper="small",
            rows=(Row(trial="t", metric="held", paper=0.9, ours=ours, better="higher"),),
            references=(Reference(trial="t", metric="theirs", paper=0.9, simulated=0.88),),
            not_shown=(NotShown(what="figure 3", why="no cluster"),),
        )

    return reproduce


def offer(monkeypatch: pytest.MonkeyPatch, reproduction: Reproduce) -> None:
    """An installed paper called `small`."""
    monkeypatch.setattr(extensions, "installed", lambda: extensions.Extension(papers={"small": "here:small"}))
    monkeypatch.setattr(extensions, "load", lambda reference: reproduction)


@pytest.mark.parametrize(("ours", "code"), [(0.95, 0), (0.85, 1)])
def test_the_command_prints_one_document_and_exits_by_it(
    monkeypatch: pytest.MonkeyPatch, ours: float, code: int
) -> None:
    offer(monkeypatch, found(ours))
    result = CliRunner().invoke(app, ["reproduce", "small", "--json"])
    assert result.exit_code == code
    document = json.loads(result.stdout)
    (row,) = document["rows"]
    assert (row["trial"], row["metric"], row["ours"], row["better"]) == ("t", "held", ours, "higher")
    assert (row["paper"], row["rival"], row["asked"], row["holds"]) == (0.9, None, 0.9, code == 0)
    assert document["not_shown"] == [{"what": "figure 3", "why": "no cluster"}]


def test_the_table_names_what_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, found(0.85))
    result = CliRunner().invoke(app, ["reproduce", "small"])
    assert "missed: t, held: 0.85, asked 0.9" in result.stdout
    assert "not shown: figure 3: no cluster" in result.stdout


def test_a_file_is_no_folder_for_plots(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(Exception, match="is a file, not a folder"):
        reproduce("nephele", taken, json=True)
