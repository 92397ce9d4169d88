"""The live view of a run: rates, latency against its bound, nodes, what was decided and why."""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.api.durations import shown_duration
from penstock.cli.output import complaints
from penstock.control import Brief, Cycle, Subscriber
from penstock.policies.wording import sentence, shown
from penstock.telemetry import Snapshot

_BARS = " ▁▂▃▄▅▆▇█"
HISTORY = 30
"""Bars of a sparkline: with names and figures they fit on 80 columns."""
SHOWN_DECISIONS = 6
LINE_EVERY_S = 5.0
SPARK_LOG = Path(".penstock/spark.log")


class LiveView:
    """Subscribes to the loop and draws what it knows; `__rich__` makes it a renderable."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._briefs: deque[Brief] = deque(maxlen=HISTORY)
        self._decisions: deque[Text] = deque(maxlen=SHOWN_DECISIONS)
        self._start_s: float | None = None
        self._status = "starting Spark, waiting for the first micro-batch …"

    def __call__(self, cycle: Cycle, _: Snapshot | None) -> None:
        """Take one cycle in."""
        if cycle.brief is not None:
            self._briefs.append(cycle.brief)
            if self._start_s is None:
                self._start_s = cycle.brief.time_s - cycle.brief.interval_s
            self._status = ""
        at = shown_duration(max(1.0, cycle.time_s - self._start_s)) if self._start_s is not None else "0s"
        for outcome in cycle.outcomes:
            if outcome.status == "held":
                continue
            colour = {"applied": "green", "deferred": "yellow"}.get(outcome.status, "red")
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{at:>7}  ", "dim").append(f"{outcome.status:<8} ", colour)
            line.append(f"{outcome.action.kind} {outcome.action.subject}: {sentence(outcome.action.reason)}")
            self._decisions.append(line)
        for fault in cycle.faults:
            self._decisions.append(Text.assemble((f"{at:>7}  ", "dim"), ("fault    ", "red"), fault.cause))

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._figures()] if self._briefs else [Text(self._status, style="dim")]
        if self._decisions:
            parts.append(Text("\nlately", style="bold"))
            parts.extend(self._decisions)
        return Panel(Group(*parts), title=self._title, title_align="left", border_style="dim")

    def _figures(self) -> Table:
        now = self._briefs[-1]
        table = Table.grid(padding=(0, 2))
        table.add_row(
            "produced", _amount(now.produced_rps, "/s"), _spark([b.produced_rps for b in self._briefs])
        )
        waiting = sum(s.backlog_records for s in now.sources)
        past = [sum(s.backlog_records for s in b.sources) for b in self._briefs]
        table.add_row("backlog", _amount(waiting, ""), _spark(past))
        for constraint in now.constraints:
            values = [
                next((c.latency_s for c in b.constraints if c.name == constraint.name), None)
                for b in self._briefs
            ]
            style = {True: "green", False: "bold red", None: "dim"}[constraint.held]
            late = "-" if constraint.latency_s is None else shown_duration(constraint.latency_s)
            text = Text(f"{late} of {shown_duration(constraint.bound_s)}", style=style)
            table.add_row(f"latency {constraint.name}", text, _spark(values))
        cores = f"{now.own_cpu:.1f} of {now.cores:.0f} cores busy"
        table.add_row(
            "nodes", Text(f"{now.nodes}  ({cores})"), _spark([float(b.nodes) for b in self._briefs])
        )
        for sink in now.sinks:
            if sink.accuracy is not None and (sink.accuracy < 1 or sink.min_accuracy > 0):
                table.add_row(f"accuracy {sink.id}", Text(f"{100 * sink.accuracy:.0f} %"), "")
        return table


def _amount(value: float | None, unit: str) -> Text:
    return Text("-" if value is None else f"{shown(round(value))}{unit}")


def _spark(values: Sequence[float | None]) -> Text:
    """The values as a line of small bars, from zero to the largest."""
    top = max((v for v in values if v is not None), default=0.0) or 1.0
    bars = "".join(" " if v is None else _BARS[min(8, max(0, round(8 * v / top)))] for v in values)
    return Text(bars, style="cyan")


class Lines:
    """For logs and pipes: a line now and then, and one for whatever is done."""

    def __init__(self) -> None:
        self._told_s = float("-inf")
        self._start_s: float | None = None

    def __call__(self, cycle: Cycle, _: Snapshot | None) -> None:
        """Take one cycle in."""
        self._start_s = cycle.time_s if self._start_s is None else self._start_s
        done = [o for o in cycle.outcomes if o.status != "held" and o.action.kind != "pace"]
        if not done and cycle.time_s - self._told_s < LINE_EVERY_S:
            return
        self._told_s = cycle.time_s
        at = shown_duration(max(1.0, cycle.time_s - self._start_s))
        complaints.print(f"{at:>7}  {line_of(cycle)}", markup=False, soft_wrap=True)
        for outcome in done[:SHOWN_DECISIONS]:
            why = sentence(outcome.action.reason)
            text = f"{outcome.status} {outcome.action.kind} {outcome.action.subject}: {why}"
            complaints.print(f"{at:>7}  {text}", markup=False, soft_wrap=True)


def line_of(cycle: Cycle) -> str:
    """A cycle in one line."""
    brief = cycle.brief
    if brief is None:
        return "nothing observed yet"
    parts = [f"{'-' if brief.produced_rps is None else shown(round(brief.produced_rps))}/s produced"]
    parts.append(f"{shown(round(sum(s.backlog_records for s in brief.sources)))} waiting")
    for goal in brief.constraints:
        late = "-" if goal.latency_s is None else shown_duration(goal.latency_s)
        parts.append(f"{goal.name} {late} of {shown_duration(goal.bound_s)}{'' if goal.held else ' MISSED'}")
    parts.append(f"{brief.nodes} nodes")
    return ", ".join(parts)


@contextmanager
def shown_live(title: str) -> Iterator[Subscriber]:
    """A view that is drawn on the terminal while the block runs; without a terminal, a line every few seconds."""
    # Ctrl-C breaks off whatever Py4J asks at that moment; it would tell that with a stack trace.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if not complaints.is_terminal:
        yield Lines()
        return
    view = LiveView(title)
    with (
        _children_to_log(SPARK_LOG),
        Live(get_renderable=lambda: view, console=complaints, refresh_per_second=2, transient=True),
    ):
        yield view


@contextmanager
def _children_to_log(path: Path) -> Iterator[None]:
    """What processes started meanwhile (Spark's Java, its Python workers) say goes to a file, not over the view."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError:
        yield
        return
    before, terminal = sys.stderr, os.dup(2)
    os.dup2(log, 2)
    os.close(log)
    with os.fdopen(terminal, "w", buffering=1) as shown_on:
        sys.stderr = shown_on
        try:
            yield
        finally:
            sys.stderr = before
            os.dup2(terminal, 2)
