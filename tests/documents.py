"""The pages of the documentation, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GUIDE = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]

_BLOCK = re.compile(
    r"(?:<!-- needs: (?P<needs>\w+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    line: int
    needs: str
    """What must be there to run it: `spark`, or nothing."""


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Block(m["language"], m["text"], text.count("\n", 0, m.start("text")) + 1, m["needs"] or "")
        for m in _BLOCK.finditer(text)
    ]
