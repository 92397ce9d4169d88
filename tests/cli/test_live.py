"""The live view on 80 columns, and lines where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from penstock.cli import live
from tests.web.runs import a_loop


def test_the_view_fits_80_columns() -> None:
    view, loop = live.LiveView("penstock run shop"), a_loop()
    loop.subscribers.append(view)
    loop.run(for_s=300.0)
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=False).print(view)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any("latency orders.on-time" in line and "of 2s" in line for line in lines)
    assert any("move orders.totals[0]" in line for line in lines)
    assert len(lines) < 24


def test_without_a_terminal_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(live, "complaints", Console(file=out, width=200))
    loop = a_loop()
    with live.shown_live("shop") as view:
        loop.subscribers.append(view)
        loop.run(for_s=120.0)
    lines = out.getvalue().splitlines()
    assert len(lines) >= 24
    assert "orders.on-time 400ms of 2s" in lines[0]
    assert any("orders.on-time 2.6s of 2s MISSED" in line for line in lines)
    assert any("applied move orders.totals[0]" in line for line in lines)
