"""Writes `docs/results/reproductions.md` from what `penstock reproduce all --json` printed.

    penstock reproduce all --json > reproductions.json
    python -m scripts.results reproductions.json        (`make results` does both)

No figure is typed: tables, red rows and what is not shown come from the document. A paper that ended without a result
is told on the page as well.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.policies.wording import shown
from penstock_papers.common.red_rows import reason
from scripts.reference import table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "reproductions.md"
MADE = "<!-- Made by `make results` from what the command printed; do not edit. -->"


def page(document: Mapping[str, Any], commit: str) -> str:
    """The whole page."""
    return "\n".join([MADE, *_lines(document, commit)]).rstrip() + "\n"


def _lines(document: Mapping[str, Any], commit: str) -> Iterator[str]:
    machine, papers = document["machine"], document["papers"]
    yield "# The papers, like for like"
    yield ""
    yield (
        f"`penstock reproduce all --json`, begun {document['began']} at commit {commit}, "
        f"{document['seconds'] / 60:.0f} minutes on {machine['cores']} cores ({machine['processor']}, "
        f"Python {machine['python']})."
    )
    yield ""
    yield "Everything here is simulation or solving; no figure was measured on Spark. A **row** is a comparison that"
    yield "can fail: ours is held against our own goal, else against the rival with the same inputs, cadence and time,"
    yield "else against the paper's figure. With several seeds and a rival, the whole 95 % interval of the paired"
    yield "difference ours - rival must be on the right side; *worst* is that difference on the worst seed. Everything"
    yield "else is a reference, and what was calibrated or tuned is an input. Rows that do not hold stay in."
    yield ""
    yield from table(
        ("paper", "rows", "hold", "do not", "minutes"),
        [_count(name, found) for name, found in papers.items()],
    )
    for name, found in papers.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield from _paper(found)


def _count(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    minutes = f"{found['seconds'] / 60:.1f}"
    if "error" in found:
        return name, "ended without a result", "", "", minutes
    held = sum(row["holds"] for row in found["rows"])
    return name, str(len(found["rows"])), str(held), str(len(found["rows"]) - held), minutes


def _paper(found: Mapping[str, Any]) -> Iterator[str]:
    if "error" in found:
        yield f"Ended without a result: {found['error']}"
        return
    yield from table(
        ("trial", "metric", "paper", "rival", "ours", "better", "difference, 95 %", "worst", "seeds", "asked", "holds"),
        [
            (
                row["trial"],
                row["metric"],
                _figure(row["paper"]),
                " ".join(filter(None, (_figure(row["rival"]), row["rival_name"]))),
                _figure(row["ours"]),
                row["better"],
                " … ".join(_figure(end) for end in row["interval"] or ()),
                _figure(row["worst"]),
                _seeds(row["seeds"]),
                _figure(row["asked"]),
                "yes" if row["holds"] else "**no**",
            )
            for row in found["rows"]
        ],
    )  # fmt: skip
    missed = [row for row in found["rows"] if not row["holds"]]
    if missed:
        yield ""
        yield "Rows that do not hold, and why:"
        yield ""
        for row in missed:
            rival = f", against {row['rival_name']}" if row["rival_name"] else ""
            yield f"- {row['trial']}, {row['metric']}{rival}: {_why(found['paper'], row)}"
    if found["not_shown"]:
        yield ""
        told = " ".join(f"*{_capital(each['what'])}*: {_ended(each['why'])}" for each in found["not_shown"])
        yield f"**What we do not show, and why.** {told}"
    if found["inputs"]:
        yield ""
        yield "Put in, calibrated or tuned, and never counted as a win:"
        yield ""
        yield from table(
            ("input", "value", "from"),
            [(each["name"], _figure(each["value"]), each["source"]) for each in found["inputs"]],
        )
    if found["references"]:
        yield ""
        yield "References, no claims of ours:"
        yield ""
        yield from table(
            ("trial", "metric", "paper", "simulated", ""),
            [
                (r["trial"], r["metric"], _figure(r["paper"]), _figure(r["simulated"]), r["note"])
                for r in found["references"]
            ],
        )


def _figure(value: Any) -> str:
    """A figure as the command line shows it; nothing where there is none."""
    return "" if value is None else shown(value)


def _seeds(seeds: list[int]) -> str:
    return "" if not seeds else f"{len(seeds)}: {min(seeds)} to {max(seeds)}"


def _why(paper: str, row: Mapping[str, Any]) -> str:
    """Why a row is red: in the trial's own words, in ours, or that the seeds differ too much."""
    spread = row["interval"] and min(row["interval"]) < 0.0 < max(row["interval"])
    if row["note"]:
        return _ended(row["note"])
    if spread and (row["ours"] > row["rival"]) == (row["better"] == "higher"):
        return f"ours is better on the mean, but with {len(row['seeds'])} seeds the interval reaches over 0."
    if why := reason(paper, row["trial"], row["metric"]):
        return _ended(why)
    return "with these seeds the interval reaches over 0." if spread else "not explained yet."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("document", type=Path, help="what `penstock reproduce all --json` printed")
    given = parser.parse_args()
    try:
        document = json.loads(given.document.read_text(encoding="utf-8"))
        papers = document["papers"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        sys.exit(f"{given.document}: not what `penstock reproduce all --json` prints ({problem})")
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    PAGE.write_text(page(document, done.stdout.strip() or "unknown"), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(papers)} papers")


if __name__ == "__main__":
    main()
