"""A run as one self-contained HTML file: what was asked, what was held, what was decided and why, with plots."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.control.brief import Brief
from penstock.control.record import Cycle
from penstock.extras import MissingExtraError, optional
from penstock.policies.wording import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

matplotlib, plt = optional("matplotlib"), optional("matplotlib.pyplot")

_COLOURS = ("#1f6f8b", "#d1495b", "#66a182", "#edae49", "#8d6a9f", "#30638e")
_ACTION_COLOUR = "#999999"

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; margin: .5rem 0; }} th, td {{ text-align: left; padding: .25rem .9rem .25rem 0;
border-bottom: 1px solid #ddd; vertical-align: top; }} td.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
.missed {{ color: #b3261e; font-weight: 600; }} .held {{ color: #1b7f4b; font-weight: 600; }}
svg {{ width: 100%; height: auto; }}
pre {{ background: #f6f6f4; padding: 1rem; overflow-x: auto; white-space: pre-wrap; }}
footer {{ color: #777; margin-top: 3rem; font-size: .85rem; }}
</style></head><body>
<h1>{title}</h1><p>{subtitle}</p>
{body}
<footer>Written by Penstock {version}. Everything on this page is inside this file.</footer>
</body></html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and a table below it; numbers stand to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def html_report(
    *,
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    cycles: Sequence[Cycle],
    story: str,
    version: str,
) -> str:
    """The page; `story` is the explanation of the run as text."""
    body = [_table(section) for section in sections]
    try:
        picture = timeline_svg(cycles)
    except MissingExtraError as missing:
        picture = f"<p>{html.escape(str(missing))}</p>"
    if picture:
        body.append(f"<h2>Over time</h2>{picture}")
    if story:
        body.append(f"<h2>What was decided, and why</h2><pre>{html.escape(story)}</pre>")
    return _PAGE.format(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        body="\n".join(body),
        version=html.escape(version),
    )


def _table(section: Section) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in section.columns)
    rows = "".join("<tr>" + "".join(_cell(v) for v in row) + "</tr>" for row in section.rows)
    return f"<h2>{html.escape(section.title)}</h2><table><tr>{head}</tr>{rows}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td class="n">{shown(value)}</td>'
    text = html.escape(shown(value))
    return f'<td class="{value}">{text}</td>' if value in ("held", "missed") else f"<td>{text}</td>"


def timeline_svg(cycles: Sequence[Cycle]) -> str:
    """Rates, latency against bounds, nodes and what was kept, over the seconds of the run, as one SVG picture."""
    seen = [(c, c.brief) for c in cycles if c.brief is not None]
    if len(seen) < 2:
        return ""
    matplotlib.use("svg")  # draws without a display
    start = seen[0][1].time_s - seen[0][1].interval_s
    times = [brief.time_s - start for _, brief in seen]
    briefs = [brief for _, brief in seen]
    panels = [_rates, _latency, _nodes]
    if any(b.keep or any(s.keep < 1 for s in b.sources) for b in briefs):
        panels.append(_accuracy)
    figure, axes = plt.subplots(
        len(panels), 1, sharex=True, figsize=(10, 2.1 * len(panels)), layout="constrained"
    )
    for panel, axis in zip(panels, axes, strict=True):
        panel(axis, times, briefs)
        for cycle, brief in seen:
            if any(outcome.status in ("applied", "deferred") for outcome in cycle.outcomes):
                axis.axvline(brief.time_s - start, color=_ACTION_COLOUR, lw=0.8, ls=":")
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("seconds (dotted: something was done)")
    text = io.StringIO()
    with plt.rc_context({"svg.hashsalt": "penstock", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def _rates(axis: Axes, times: list[float], briefs: list[Brief]) -> None:
    axis.set_ylabel("records/s")
    axis.step(
        times, [b.produced_rps or 0.0 for b in briefs], color=_COLOURS[0], label="produced", where="pre"
    )
    axis.step(
        times,
        [sum(s.read_rps or 0.0 for s in b.sources) for b in briefs],
        color=_COLOURS[3],
        label="read",
        where="pre",
    )
    waiting = axis.twinx()
    waiting.set_ylabel("backlog")
    waiting.fill_between(
        times, [sum(s.backlog_records for s in b.sources) for b in briefs], color="#bbbbbb", alpha=0.35, lw=0
    )
    waiting.set_ylim(bottom=0)
    waiting.spines["top"].set_visible(False)
    axis.legend(loc="upper left", frameon=False, fontsize=8)


def _latency(axis: Axes, times: list[float], briefs: list[Brief]) -> None:
    axis.set_ylabel("latency, s")
    for i, first in enumerate(briefs[-1].constraints):
        mine = [next((c for c in b.constraints if c.name == first.name), None) for b in briefs]
        values = [c.latency_s if c is not None and c.latency_s is not None else float("nan") for c in mine]
        colour = _COLOURS[i % len(_COLOURS)]
        axis.plot(times, values, color=colour, marker=".", ms=4, lw=1.2, label=first.name)
        axis.axhline(first.bound_s, color=colour, ls="--", lw=1)
    if not briefs[-1].constraints:
        for i, sink in enumerate(briefs[-1].sinks):
            mine_s = [next((s.mean_s for s in b.sinks if s.id == sink.id), None) for b in briefs]
            values = [v if v is not None else float("nan") for v in mine_s]
            axis.plot(
                times, values, color=_COLOURS[i % len(_COLOURS)], marker=".", ms=4, lw=1.2, label=sink.id
            )
    axis.legend(loc="upper left", frameon=False, fontsize=8)


def _nodes(axis: Axes, times: list[float], briefs: list[Brief]) -> None:
    axis.set_ylabel("nodes, cores busy")
    axis.step(times, [b.nodes for b in briefs], color=_COLOURS[2], label="nodes", where="pre")
    axis.plot(times, [b.own_cpu for b in briefs], color=_COLOURS[4], lw=1, label="cores busy with our tasks")
    axis.plot(times, [b.foreign_cpu for b in briefs], color="#bbbbbb", lw=1, label="cores busy with others'")
    axis.legend(loc="upper left", frameon=False, fontsize=8)


def _accuracy(axis: Axes, times: list[float], briefs: list[Brief]) -> None:
    axis.set_ylabel("accuracy, %")
    for i, sink in enumerate(briefs[-1].sinks):
        mine = [next((s.accuracy for s in b.sinks if s.id == sink.id), None) for b in briefs]
        colour = _COLOURS[i % len(_COLOURS)]
        axis.plot(
            times, [100 * v if v is not None else float("nan") for v in mine], color=colour, label=sink.id
        )
        axis.axhline(100 * sink.min_accuracy, color=colour, ls="--", lw=1)
    axis.legend(loc="lower left", frameon=False, fontsize=8)
