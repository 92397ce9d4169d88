"""Linear Road: every output is the reference's, on real and on made records, whatever batches they come in."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.api.choices import find_flow
from penstock.dataflow import constant
from penstock_papers.dynamic_dataflows.linear_road import Traffic, linear_road, recorded_traffic
from penstock_papers.dynamic_dataflows.linear_road.operators import (
    Accounts,
    Tolls,
    find_accidents,
    follow_trips,
    upstream,
)
from penstock_papers.dynamic_dataflows.linear_road.records import ACCIDENT, CLEARED, MOVED, REPORT, STOPPED
from tests.papers.common.interpreter import Interpreter, in_order, some_cuts
from tests.papers.dynamic_dataflows.linear_road_reference import Results, Road, results

TRAFFIC = Traffic(expressways=2, cars=240, questions=2, accident_percent=8.0)
ROWS = TRAFFIC.per_second * 480
FREE_CARS = 10

Record = dict[str, Any]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return list(TRAFFIC(0, ROWS).to_pylist())


@pytest.fixture(scope="module")
def wanted(records: list[Record]) -> Results:
    return results(records, free_cars=FREE_CARS)


@pytest.fixture(scope="module")
def rougher(records: list[Record]) -> Results:
    return results(records, free_cars=FREE_CARS, first_only=True, model="series")


@pytest.fixture(scope="module")
def wanted_of_file(shared_data: Path) -> Results:
    rows = recorded_traffic(str(shared_data / "linear_road.csv"))(0, 10_000).to_pylist()
    return results(rows, free_cars=15)


def balances(rows: list[Record]) -> list[tuple[Any, ...]]:
    return in_order([row for row in rows if row["kind"] == 2])


@pytest.mark.parametrize(("batches", "seed"), [(0, None), (15, 1), (4, 2)])
def test_made_traffic_with_accidents(wanted: Results, batches: int, seed: int | None) -> None:
    flow = linear_road(traffic=TRAFFIC, free_cars=FREE_CARS)
    run = Interpreter(flow, seed=seed).run(ROWS, batches=some_cuts(ROWS, batches, 3))
    assert in_order(run["notifications"]) == in_order(wanted.notifications)
    assert balances(run["answers"]) == in_order(wanted.answers)
    assert in_order(run["travel_times"]) == in_order(wanted.travel_times)


def test_made_traffic_has_everything_in_it(records: list[Record], wanted: Results) -> None:
    road = Road(records)
    assert len(road.accidents) >= 4
    assert {xway for (xway, _, _), _, _ in road.accidents} == {0, 1}
    assert any(until < 480 for _, _, until in road.accidents), "some are over"
    assert sum(bool(n["toll"]) for n in wanted.notifications) > 100
    assert sum(n["kind"] == 1 for n in wanted.notifications) > 100
    assert sum(a["amount"] > 0 for a in wanted.answers) > 20
    assert len({round(t["seconds"]) for t in wanted.travel_times}) > 100


@pytest.mark.parametrize("seed", [None, 1])
def test_the_benchmarks_own_records(shared_data: Path, wanted_of_file: Results, seed: int | None) -> None:
    path = str(shared_data / "linear_road.csv")
    assert recorded_traffic(path).rows == 10_000
    # The file is a sample, with at most 35 cars in a segment and minute: tolls are due from 16 on here.
    flow = linear_road(path=path, load=constant(10), free_cars=15)
    run = Interpreter(flow, seed=seed).run(10_000, batches=some_cuts(10_000, 6, 5) if seed else ())
    wanted = wanted_of_file
    assert sum(bool(n["toll"]) for n in wanted.notifications) > 20
    assert in_order(run["notifications"]) == in_order(wanted.notifications)
    assert balances(run["answers"]) == in_order(wanted.answers)
    assert in_order(run["travel_times"]) == in_order(wanted.travel_times)
    assert Counter(row["kind"] for row in run["answers"]) == {2: 56, 3: 12}
    assert len(run["travel_times"]) == 52


@pytest.mark.parametrize("congestion", ["first", "entering"])
def test_cheaper_congestion_looks_at_first_reports(rougher: Results, congestion: str) -> None:
    wanted = rougher
    chosen = {"congestion": congestion, "travel": "series"}
    flow = linear_road(traffic=TRAFFIC, free_cars=FREE_CARS)
    run = Interpreter(flow, seed=3, alternates=chosen).run(ROWS, batches=some_cuts(ROWS, 6, 4))
    assert in_order(run["notifications"]) == in_order(wanted.notifications)
    assert balances(run["answers"]) == in_order(wanted.answers)
    if congestion == "first":  # the other tells travel times less
        assert in_order(run["travel_times"]) == in_order(wanted.travel_times)


def test_state_survives_a_switch_of_alternates(wanted: Results) -> None:
    class Switching(Interpreter):
        def _batch(self, start: int, stop: int) -> None:
            name = "vehicles" if start // 2000 % 2 else "first"
            self._chosen |= {"congestion": name, "travel": "series" if start // 4000 % 2 else "tree"}
            super()._batch(start, stop)

    flow = linear_road(traffic=TRAFFIC, free_cars=FREE_CARS)
    run = Switching(flow, seed=5).run(ROWS, batches=range(2000, ROWS, 2000))
    told = {(n["vehicle"], n["time_s"], n["kind"], n["segment"]) for n in run["notifications"]}
    assert told == {(n["vehicle"], n["time_s"], n["kind"], n["segment"]) for n in wanted.notifications}
    lav = {(n["vehicle"], n["time_s"]): n["lav"] for n in wanted.notifications if n["lav"] is not None}
    off = [
        abs(n["lav"] - lav[n["vehicle"], n["time_s"]]) for n in run["notifications"] if n["lav"] is not None
    ]
    assert np.mean(off) < 1.0


def report(time_s: int, *, vehicle: int = 1, position: int = 100, lane: int = 1, **more: Any) -> Record:
    row = {"kind": REPORT, "time_s": time_s, "vehicle": vehicle, "xway": 0, "direction": 0, "speed": 30}
    return row | {"lane": lane, "position": position, "segment": position // 5280} | more


def test_four_equal_reports_are_a_stop_and_the_next_place_ends_it() -> None:
    rows = [report(30 * i) for i in range(5)] + [report(150, position=6000)]
    out, _ = follow_trips((1,), rows, None)
    events = [(r["kind"], r["time_s"], r["position"]) for r in out if r["kind"] != REPORT]
    assert events == [(STOPPED, 90, 100), (MOVED, 150, 100)]
    assert [r["entered"] for r in out if r["kind"] == REPORT] == [True, *[False] * 4, True]


def test_a_trip_ends_in_the_exit_lane() -> None:
    rows = [report(0), report(30, lane=4), report(60, lane=0)]
    out, _ = follow_trips((1,), rows, None)
    assert [(r["trip"], r["entered"]) for r in out] == [(1, True), (1, False), (2, True)]


def test_an_accident_takes_two_and_is_over_when_one_leaves() -> None:
    stops = [
        report(90, vehicle=1, kind=STOPPED),
        report(95, vehicle=2, kind=STOPPED, lane=2),
        report(100, vehicle=3, kind=STOPPED),
        report(130, vehicle=1, kind=MOVED),
    ]
    out, state = find_accidents((0, 1, 50), stops, None)
    assert [(r["kind"], r["time_s"], r["segment"]) for r in out] == [
        (kind, time_s, s) for kind, time_s in ((ACCIDENT, 100), (CLEARED, 130)) for s in range(5)
    ]
    assert state == ({(2, 100): (2,), (1, 100): (3,)},)


@pytest.mark.parametrize(
    ("lav", "cars", "accident", "lane", "toll"),
    [
        (39.9, 51, -1, 1, 2),
        (20.0, 60, -1, 1, 200),
        (40.0, 60, -1, 1, 0),
        (20.0, 50, -1, 1, 0),
        (20.0, 60, 7, 1, 0),
        (20.0, 60, -1, 4, 0),
        (None, 60, -1, 1, 0),
    ],
)
def test_the_rule_of_tolls(lav: float | None, cars: int, accident: int, lane: int, toll: int) -> None:
    assert Tolls().of({"lav": lav, "cars": cars, "lane": lane}, accident) == toll


@pytest.mark.parametrize(("minute", "alerted"), [(0, False), (1, True), (2, True), (3, True), (4, False)])
def test_an_accident_counts_from_the_minute_after_it_to_the_one_after_its_end(
    minute: int, alerted: bool
) -> None:
    marks = [report(t, kind=k, accident=2) for t, k in ((50, ACCIDENT), (130, CLEARED))]
    enters = report(minute * 60 + 5, entered=True, lav=30.0, cars=60)
    (found,), _ = Tolls()((0, 0, 0), [m for m in marks if m["time_s"] < enters["time_s"]] + [enters], None)
    assert (found["accident"] == 2) == alerted
    assert found["toll"] == (0 if alerted else 200)


def test_upstream_stays_on_the_road() -> None:
    assert upstream(50, 0) == [50, 49, 48, 47, 46]
    assert upstream(50, 1) == [50, 51, 52, 53, 54]
    assert upstream(0, 0) == [0]
    assert upstream(99, 1) == [99]


def test_expenditures_come_from_the_history(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text("7,12,0,31\n7,13,0,5\n")
    asked = [
        {"kind": 3, "query": i, "time_s": 9, "vehicle": 7, "xway": 0, "day": d}
        for i, d in enumerate((12, 13, 14))
    ]
    out, state = Accounts(history=str(path))((7,), asked, None)
    assert [row["amount"] for row in out] == [31, 5, 0]
    assert state is None
    made, _ = Accounts()((7,), asked, None)
    assert [row["amount"] for row in made] == [row["amount"] for row in Accounts()((7,), asked, None)[0]]
    assert all(0 <= row["amount"] < 90 for row in made)


def test_traffic_depends_on_numbers_alone_and_reports_every_30_s() -> None:
    whole = TRAFFIC(0, ROWS)
    assert whole.slice(3333, 1000).equals(TRAFFIC(3333, 4333))
    frame = whole.to_pandas()
    reports = frame[frame["kind"] == REPORT]
    assert set(reports.groupby("vehicle")["time_s"].diff().dropna()) == {30}
    assert reports["segment"].between(0, 99).all()
    assert (reports["segment"] == reports["position"] // 5280).all()
    assert set(reports["xway"]) == {0, 1}
    with pytest.raises(ValueError, match="multiples of 60"):
        Traffic(cars=100)


def test_declares_the_papers_alternates() -> None:
    flow = find_flow("linear-road")
    told = [(a.value, a.cost_s, a.selectivity) for a in flow.operator("congestion").alternates]
    assert told == [(1.0, 1.2, 1.0), (0.8, 0.8, 1.0), (0.5, 0.8, 0.5)]
    assert [a.name for a in flow.operator("travel").alternates] == ["tree", "series"]
    assert len(flow.operators) == 1 + 8 + 2 + 3
