"""The HTML report of a run."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.api.durations import shown_duration
from penstock.control import Cycle
from penstock.web.report import Section, html_report

log = logging.getLogger(__name__)


def write_report(path: Path, figures: Mapping[str, Any], cycles: Sequence[Cycle], story: str) -> str | None:
    """Write the page and return where it is; None when it could not be written."""
    late = figures["latency_ms"]
    sections = [
        Section(
            title="Goals",
            columns=("constraint", "bound, ms", "", "held in % of intervals", "mean, ms", "p95, ms"),
            rows=tuple(
                (
                    c["name"],
                    c["bound_ms"],
                    "held" if c["held"] == 1 else "missed",
                    None if c["held"] is None else 100 * c["held"],
                    c["mean_ms"],
                    c["p95_ms"],
                )
                for c in figures["constraints"]
            ),
        ),
        Section(
            title="The run",
            columns=("", ""),
            rows=(
                ("micro-batches", figures["batches"]),
                ("records in", figures["records_in"]),
                ("records at the sinks", figures["records_out"]),
                ("records shed", figures["shed"]),
                *((f"latency {name}, ms", late[name]) for name in ("mean", "p50", "p95", "p99")),
                *(
                    (f"accuracy of {s}, %", None if a is None else 100 * a)
                    for s, a in figures["accuracy"].items()
                ),
                ("executor-seconds", figures["executor_seconds"]),
                ("bill", figures["bill"]),
                *(
                    (f"{kind} actions", ", ".join(f"{n} {status}" for status, n in by_status.items()))
                    for kind, by_status in figures["actions"].items()
                ),
            ),
        ),
    ]
    if figures["dropped"]:
        sections.append(
            Section(
                title="What was dropped",
                columns=("where", "records", "% of what came by", "for", "why"),
                rows=tuple(
                    (d["where"], d["records"], 100 * d["share"], d["sink"], d["why"])
                    for d in figures["dropped"]
                ),
            )
        )
    text = html_report(
        title=f"Penstock: {figures['flow']}",
        subtitle=f"run {figures['run']}, {shown_duration(max(1.0, figures['seconds']))}",
        sections=sections if figures["constraints"] else sections[1:],
        cycles=cycles,
        story=story,
        version=importlib.metadata.version("penstock"),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        log.warning("the report could not be written: %s", problem)
        return None
    return str(path)
