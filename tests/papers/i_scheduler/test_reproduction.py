"""The trials of I-Scheduler: what their rows are made of, on a few instances and one application."""

from __future__ import annotations

import time

import pytest

from penstock_papers.i_scheduler.instances import benchmarks
from penstock_papers.i_scheduler.plots import draw
from penstock_papers.i_scheduler.reproduction import SINGLE, applied, micro_rows, throughput_rows
from penstock_papers.i_scheduler.schedules import (
    CPU,
    SLOTS,
    Trial,
    drawn,
    smart_homes,
    taxi_routes,
    tuples_under_way,
)
from penstock_papers.i_scheduler.solvers import place


def test_instances_are_proved_and_never_worse_than_i_scheduler(tmp_path) -> None:
    instances = [i for i in benchmarks() if i.tasks in (10, 30) and i.shape == "diamond"]
    placements = [
        {p: place(i.problem, policy=p, clock=time.process_time, seconds=0.5) for p in SINGLE}
        for i in instances
    ]
    rows, references = micro_rows(instances, placements, 16)
    found = {row.metric: row.ours for row in rows}
    assert found["instances where the default is worse than I-Scheduler"] == 0
    printed = next(r for r in references if r.trial == "diamond, heterogeneous, 30 tasks")
    assert printed.note == "optimum 146"


@pytest.mark.parametrize("app", [smart_homes(), taxi_routes()], ids=lambda app: app.name)
def test_throughput_is_calibrated_by_r_storm(app, tmp_path) -> None:
    trial = Trial(app, "equal", pending=tuples_under_way(app))
    schedules = {s: trial.schedule(s) for s in ("default", "round-robin", "r-storm", "i-scheduler")}
    assert schedules["r-storm"].tuples == pytest.approx(app.r_storm, rel=0.01)
    assert schedules["round-robin"].tuples < schedules["r-storm"].tuples
    assert schedules["default"].cut <= min(s.cut for s in schedules.values())
    assert schedules["default"].latency_s <= schedules["round-robin"].latency_s
    paths = draw([], [], {(app.name, "equal"): schedules, (app.name, "unequal"): schedules}, tmp_path)
    assert all(path.is_file() for path in paths)


def test_everybody_places_drawn_applications_by_both_capacity_models() -> None:
    app = taxi_routes()
    assert drawn(app, 1) == drawn(app, 1) != drawn(app, 2)
    schedules = applied(drawn(app, 1), "unequal", 50.0)
    assert {model for model, _ in schedules} == {SLOTS, CPU}
    # By CPU fewer nodes do than by slots: that is for everybody, not for ours alone.
    for name in ("default", "i-scheduler"):
        assert schedules[CPU, name].nodes <= schedules[SLOTS, name].nodes
    rows = throughput_rows({("taxi routes", "unequal"): [schedules, schedules]}, (1, 2))
    assert {row.trial for row in rows} == {f"taxi routes, unequal nodes, by {m}" for m in (SLOTS, CPU)}
    assert all(row.rival is not None for row in rows)
