"""The documentation says what the code does: the reference is made from it, links lead somewhere, pages stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.reference import drift

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
TWO_SCREENS = 120
"""Lines of a guide page."""


def test_the_reference_equals_the_code() -> None:
    assert not sorted(drift()), "run make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
