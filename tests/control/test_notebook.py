"""What a notebook shows of a run."""

from __future__ import annotations

from penstock.control import Cycle
from penstock.control.notebook import as_frame, as_html
from tests.web.runs import MARKUP, a_loop


def cycles(seconds: float) -> list[Cycle]:
    loop, found = a_loop(), []
    loop.subscribers.append(lambda cycle, _: found.append(cycle))
    loop.run(for_s=seconds)
    return found


def test_html_has_goals_and_decisions_and_escapes_names() -> None:
    shown = as_html(cycles(130.0), title=MARKUP)
    assert "orders.on-time" in shown
    assert "2.6 s of 2 s" in shown
    assert "move orders.totals[0]" in shown
    assert "<img" not in shown
    assert "nothing has been seen yet" in as_html([], title="empty")


def test_frame_has_a_row_per_cycle() -> None:
    frame = as_frame(cycles(130.0))
    assert len(frame) == 26
    assert frame["orders.on-time bound_s"].unique().tolist() == [2.0]
    assert frame["orders.on-time latency_s"].max() == 2.6
    assert frame["decided"].str.contains("move").any()
    assert as_frame([]).empty
