"""The live view of a run: rates, latency against its bound, nodes, what was decided and why."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.api.durations import shown_duration
from penstock.cli.output import complaints
from penstock.control import Brief, Cycle
from penstock.policies.wording import sentence, shown
from penstock.telemetry import Snapshot

_BARS = " ▁▂▃▄▅▆▇█"
HISTORY = 60
SHOWN_DECISIONS = 6


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
            line = Text.assemble((f"{at:>7}  ", "dim"), (f"{outcome.status:<8} ", colour))
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
            style = "green" if constraint.held else "bold red"
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


@contextmanager
def shown_live(title: str) -> Iterator[LiveView]:
    """A view that is drawn on the terminal, if there is one, while the block runs."""
    view = LiveView(title)
    if not complaints.is_terminal:
        yield view
        return
    with Live(get_renderable=lambda: view, console=complaints, refresh_per_second=2, transient=True):
        yield view
