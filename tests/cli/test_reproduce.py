"""`penstock reproduce all`: every paper in a process of its own, one document, and a page made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts import results

from penstock import extensions
from tests.cli.running import penstock

PAPERS = """
import os
from penstock_papers.common.figures import Input, NotShown, Reference, Reproduction, Row, compared

def found(paper, ours):
    return Reproduction(
        paper=paper,
        rows=(
            Row(trial="load | half", metric="held", paper=0.9, ours=ours, better="higher", note="too few tasks"),
            compared(trial="t", metric="cost", ours=[1, 2], rival=[2, 3], rival_name="theirs", better="lower",
                     seeds=[7, 8]),
        ),
        references=(Reference(trial="t", metric="theirs", paper=0.9, simulated=0.88),),
        inputs=(Input(name="cost of a record", value="5 ms", source="figure 2"),),
        not_shown=(NotShown(what="figure 3", why="no cluster"),),
    )

def good(*, plot, tell):
    print("a library writes to standard output")
    tell("working")
    if plot is not None:
        plot.mkdir(parents=True)
    return found("good", 0.95)

def missed(*, plot, tell):
    return found("missed", 0.85)

def broken(*, plot, tell):
    raise ValueError("no such node")

def killed(*, plot, tell):
    tell("about to die")
    os._exit(7)
"""


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes papers of the module above the installed ones."""
    (tmp_path / "made_up_papers.py").write_text(PAPERS)
    monkeypatch.syspath_prepend(tmp_path)

    def install(*names: str) -> None:
        papers = {name: f"made_up_papers:{name}" for name in names}
        monkeypatch.setattr(extensions, "installed", lambda: extensions.Extension(papers=papers))

    return install


def test_a_paper_that_fails_is_told_and_the_others_finish(offer, tmp_path: Path) -> None:
    offer("broken", "killed", "good", "missed")
    ran = penstock("reproduce", "all", "--json", "--plot", str(tmp_path / "plots"))
    document = json.loads(ran.out)
    found = document["papers"]
    assert list(found) == ["broken", "killed", "good", "missed"]
    assert found["broken"]["error"] == "ValueError: no such node"
    assert found["killed"]["error"] == "its process ended with code 7"
    assert [found[name]["holds"] for name in ("good", "missed")] == [True, False]
    assert all(each["seconds"] > 0 for each in found.values())
    assert (ran.code, document["holds"]) == (1, False)
    assert document["machine"]["cores"] >= 1
    assert (tmp_path / "plots" / "good").is_dir()
    for line in ("good: working", "killed: about to die", "broken: failed: ValueError: no such node"):
        assert line in ran.err


def test_all_that_hold_end_well_and_are_printed_as_tables(offer) -> None:
    offer("good")
    ran = penstock("reproduce", "all")
    assert ran.code == 0
    assert "good: ours against what is asked" in ran.out
    offer("broken")
    ran = penstock("reproduce", "all")
    assert ran.code == 1
    assert "broken ended without a result: ValueError: no such node" in ran.out


def test_the_page_has_red_rows_what_is_not_shown_and_what_failed(offer) -> None:
    offer("broken", "good", "missed")
    document = json.loads(penstock("reproduce", "all", "--json").out)
    page = results.page(document, "abc1234")
    assert "at commit abc1234" in page
    assert "| good | 2 | 2 | 0 |" in page
    assert "| missed | 2 | 1 | 1 |" in page
    assert "| broken | ended without a result |" in page
    assert "Ended without a result: ValueError: no such node" in page
    red = r"| load \| half | held | 0.9 |  | 0.85 | higher |  |  |  | 0.9 | **no** |"
    assert page.count(red) == 1
    assert "- load | half, held: too few tasks" in page
    assert (
        page.count("| t | cost |  | 2.5 theirs | 1.5 | lower | -1 … -1 | -1 | 2: 7 to 8 | 2.5 | yes |") == 2
    )
    assert page.count("**What we do not show, and why.** *Figure 3*: no cluster.") == 2
    assert "| cost of a record | 5 ms | figure 2 |" in page


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"note": "its own words"}, "its own words."),
        ({}, "ours is better on the mean, but with 3 seeds the interval reaches over 0."),
        ({"ours": 0.8}, "with these seeds the interval reaches over 0."),
        ({"ours": 0.8, "interval": [-0.2, -0.1]}, "not explained yet."),
        ({"interval": None, "metric": "moves in all", "trial": "waves"}, "the price of evenness"),
    ],
)
def test_the_page_says_why_a_row_is_red(changes: dict[str, Any], why: str) -> None:
    row = {"trial": "t", "metric": "held", "note": "", "ours": 1.0, "rival": 0.9, "better": "higher",
           "interval": [-0.1, 0.3], "seeds": [1, 2, 3]}  # fmt: skip
    assert results._why("neptune", row | changes).startswith(why)


def test_a_document_of_another_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"rows": []}')
    monkeypatch.setattr("sys.argv", ["results", str(other)])
    with pytest.raises(SystemExit, match="not what `penstock reproduce all --json` prints"):
        results.main()
