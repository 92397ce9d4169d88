"""The documentation says what the code does: the reference is made from it, examples run, links lead somewhere.

Python blocks of README and the guide are executed as they stand, those of one page after one another. A block below
`<!-- needs: spark -->` runs in `tests/spark/test_docs_on_spark.py`, with `spark` and a running `query`; one below
`<!-- needs: session -->` likewise, with `spark` only.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from scripts.reference import commands_and_flags, drift

from penstock.dataflow.flow_file import parse_dataflow
from tests.documents import GUIDE, PAGES, ROOT, blocks

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
LINE = re.compile(r"(?:^    |`)(penstock [a-z][^`\n]*)", re.MULTILINE)
TWO_SCREENS = 120
"""Lines of a guide page."""


def test_the_reference_equals_the_code() -> None:
    assert not sorted(drift()), "run make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", GUIDE, ids=lambda p: p.name)
def test_examples_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.language == "yaml":
            parse_dataflow(block.text, origin=f"{page.name}:{block.line}")
        elif block.language == "python" and not block.needs:
            exec(compile(block.text, f"{page.name}:{block.line}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    known = commands_and_flags()
    for line in LINE.findall(page.read_text("utf-8")):
        words = shlex.split(line.replace("|", " ").replace("…", ""), comments=True)[1:]
        name = next(
            (n for n in sorted(known, key=len, reverse=True) if words[: len(n.split())] == n.split()), None
        )
        assert name is not None or words[0] in {n.split()[0] for n in known}, f"{page.name}: {line}"
        for word in words:
            if name is not None and word.startswith("--") and word.strip("[]") != "--":
                assert word.strip("[]") in {*known[name], "--help"}, f"{page.name}: {line}"


@pytest.mark.parametrize("page", [p for p in GUIDE if p.name != "README.md"], ids=lambda p: p.name)
def test_a_page_of_the_guide_fits_on_two_screens(page: Path) -> None:
    assert len(page.read_text("utf-8").splitlines()) <= TWO_SCREENS


def test_the_map_of_contributing_leads_to_files() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`src/" in line]
    assert len(rows) >= 20
    for path in re.findall(r"`((?:src|tests|scripts|docs)/[^`]*)`", text):
        assert (ROOT / path).exists(), path
