"""The trials of I-Scheduler: what their rows are made of, on a few instances and one application."""

from __future__ import annotations

import time

import pytest

from penstock_papers.i_scheduler.instances import benchmarks
from penstock_papers.i_scheduler.plots import draw
from penstock_papers.i_scheduler.reproduction import OURS, micro_rows, throughput_rows
from penstock_papers.i_scheduler.schedules import Trial, smart_homes, taxi_routes, tuples_under_way
from penstock_papers.i_scheduler.solvers import POLICIES, place


def test_instances_are_proved_and_never_worse_than_i_scheduler(tmp_path) -> None:
    instances = [i for i in benchmarks() if i.tasks in (10, 30) and i.shape == "diamond"]
    placements = [
        {p: place(i.problem, policy=p, clock=time.process_time, seconds=0.5) for p in POLICIES}
        for i in instances
    ]
    rows, references = micro_rows(instances, placements, 16)
    found = {row.metric: row.ours for row in rows}
    assert found["instances where the default is worse than I-Scheduler"] == 0
    printed = next(r for r in references if r.trial == "diamond, heterogeneous, 30 tasks")
    assert printed.note == "optimum 146"


@pytest.mark.parametrize("app", [smart_homes(), taxi_routes()], ids=lambda app: app.name)
def test_throughput_is_calibrated_by_r_storm_and_ours_is_ahead(app, tmp_path) -> None:
    trial = Trial(app, "equal", pending=tuples_under_way(app))
    schedules = {s: trial.schedule(s) for s in ("round-robin", "r-storm", "ols", "i-scheduler")}
    schedules[OURS] = trial.policy()
    assert schedules["r-storm"].tuples == pytest.approx(app.r_storm, rel=0.01)
    assert schedules["round-robin"].tuples < schedules["r-storm"].tuples
    assert schedules[OURS].cut < min(s.cut for n, s in schedules.items() if n != OURS)
    rows, _ = throughput_rows({(app.name, "equal"): schedules})
    assert all(row.ours is not None and row.ours > 1.2 for row in rows)
    paths = draw([], [], {(app.name, "equal"): schedules, (app.name, "unequal"): schedules}, tmp_path)
    assert all(path.is_file() for path in paths)
