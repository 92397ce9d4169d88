"""Each workload on real Spark over finite input: outputs are exactly those of the plain references."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.dataflow import Dataflow
from penstock.spark.query.compile import compile_dataflow
from penstock_papers.common.recordings import finite
from penstock_papers.dynamic_dataflows.linear_road import Traffic, linear_road
from penstock_papers.i_scheduler.shapes import diamond, linear, star
from penstock_papers.i_scheduler.smart_homes import Homes, smart_homes
from penstock_papers.i_scheduler.taxi_routes import Cabs, taxi_routes
from penstock_papers.nephele.sentiment import made_tweets, sentiment, sentiment_of
from tests.papers.common.interpreter import in_order
from tests.papers.dynamic_dataflows.linear_road_reference import results
from tests.papers.i_scheduler.home_reference import predictions
from tests.papers.i_scheduler.taxi_reference import top_routes
from tests.papers.i_scheduler.test_shapes import trace, ways
from tests.spark.flows import Collected
from tests.spark.streams import wait_for

INSTANT_RPS = 1e7


def play(spark: SparkSession, flow: Dataflow, folder: Path, sinks: dict[str, tuple[Collected, int]]) -> None:
    """Run the dataflow until every sink has as many rows as are wanted, and for one more moment."""
    query = compile_dataflow(spark, flow, checkpoint=folder / "checkpoint", state_partitions=2).start()

    def finished() -> bool:
        if not query.isActive:
            raise AssertionError(f"the query failed: {query.exception()}")
        return all(len(sink.rows) >= wanted for sink, wanted in sinks.values())

    try:
        wait_for(finished, timeout_s=240, what=f"{ {name: wanted for name, (_, wanted) in sinks.items()} }")
        query.processAllAvailable()
    finally:
        query.stop()


def rows_of(sink: Collected) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "source_time"} for row in sink.rows]


def test_linear_road(local_spark: SparkSession, tmp_path: Path) -> None:
    traffic, rows = Traffic(cars=240, accident_percent=20.0, questions=2), 11 * 450
    notices, answers, times = Collected(), Collected(), Collected()
    flow = linear_road(
        traffic=traffic,
        load=finite(rows, INSTANT_RPS),
        free_cars=8,
        tasks=(1, 2),
        notifications=notices.connector(),
        answers=answers.connector(),
        travel_times=times.connector(),
        max_rows_per_batch=2000,
    )
    records = traffic(0, rows).to_pylist()
    wanted = results(records, free_cars=8)
    asked = sum(row["kind"] in (2, 3) for row in records)
    expected = {
        "notifications": (notices, len(wanted.notifications)),
        "answers": (answers, asked),
        "travel_times": (times, len(wanted.travel_times)),
    }
    play(local_spark, flow, tmp_path, expected)
    assert sum(bool(n["toll"]) for n in wanted.notifications) > 20
    assert sum(n["kind"] == 1 for n in wanted.notifications) > 20
    assert in_order(rows_of(notices)) == in_order(wanted.notifications)
    assert in_order([row for row in rows_of(answers) if row["kind"] == 2]) == in_order(wanted.answers)
    assert len(answers.rows) == asked
    assert in_order(rows_of(times)) == in_order(wanted.travel_times)
    assert len([b for b in notices.batches.values() if b]) > 1


def test_linear_road_on_the_benchmarks_own_records(
    local_spark: SparkSession, tmp_path: Path, shared_data: Path
) -> None:
    path, rows = str(shared_data / "linear_road.csv"), 3000
    notices, times = Collected(), Collected()
    flow = linear_road(
        path=path,
        load=finite(rows, INSTANT_RPS),
        free_cars=4,
        tasks=(1, 2),
        notifications=notices.connector(),
        travel_times=times.connector(),
        max_rows_per_batch=1600,
    )
    source = flow.operator("traffic").connector
    assert source is not None
    assert source.function is not None
    wanted = results(source.function.resolve()(0, rows).to_pylist(), free_cars=4)
    expected = {
        "notifications": (notices, len(wanted.notifications)),
        "travel_times": (times, len(wanted.travel_times)),
    }
    play(local_spark, flow, tmp_path, expected)
    assert any(n["toll"] for n in wanted.notifications)
    assert in_order(rows_of(notices)) == in_order(wanted.notifications)
    assert in_order(rows_of(times)) == in_order(wanted.travel_times)


def test_sentiment(local_spark: SparkSession, tmp_path: Path) -> None:
    rows, out = 3000, Collected()
    made = sentiment(load=finite(rows, INSTANT_RPS), tasks=(1, 2))
    flow = replace(
        made,
        operators=tuple(
            replace(o, connector=out.connector()) if o.kind == "sink" else o for o in made.operators
        ),
    )
    play(local_spark, flow, tmp_path, {"feelings": (out, rows // 20)})
    tweets = {t["id"]: t for t in made_tweets(0, rows).to_pylist()}
    assert len({row["id"] for row in out.rows}) == len(out.rows), "no tweet twice"
    # Before a task has its first list, all tweets pass: how many that are depends on the batches.
    assert len(out.rows) > 0.05 * rows
    for row in out.rows[::20]:
        assert row["text"] == tweets[row["id"]]["text"]
        assert row["sentiment"] == sentiment_of(row["text"])


def test_smart_homes(local_spark: SparkSession, tmp_path: Path) -> None:
    homes = Homes(houses=2, households=1, plugs=3, every_s=450)
    rows, out = homes.per_tick * (192 * 2 + 1), Collected()
    flow = smart_homes(
        homes=homes,
        load=finite(rows, INSTANT_RPS),
        tasks=2,
        sink=out.connector(),
        max_rows_per_batch=2000,
    )
    wanted = predictions(homes(0, rows).to_pylist())
    play(local_spark, flow, tmp_path, {"predictions": (out, len(wanted))})
    assert len(wanted) == 8 * 192
    assert in_order(rows_of(out)) == in_order(wanted)


@pytest.mark.parametrize("recorded", [True, False])
def test_taxi_routes(local_spark: SparkSession, tmp_path: Path, recorded: bool, request: Any) -> None:
    rows, out = (4000 if recorded else 2100), Collected()
    path = str(request.getfixturevalue("shared_data") / "taxi_trips.csv") if recorded else None
    flow = taxi_routes(
        path=path,
        cabs=Cabs(places=6, trips_per_second=1),
        load=finite(rows, INSTANT_RPS),
        sink=out.connector(),
        max_rows_per_batch=1500,
    )
    source = flow.operator("trips").connector
    assert source is not None
    assert source.function is not None
    wanted = top_routes(source.function.resolve()(0, rows).to_pylist())
    play(local_spark, flow, tmp_path, {"routes": (out, len(wanted))})
    assert len(wanted) > 20
    assert in_order(rows_of(out)) == in_order(wanted)


@pytest.mark.parametrize("make", [linear, diamond, star])
def test_shapes(local_spark: SparkSession, tmp_path: Path, make: Any) -> None:
    rows, out = 2000, Collected()
    flow = make(tasks=12, load=finite(rows, INSTANT_RPS), sink=out.connector())
    wanted: Counter[tuple[int, int]] = Counter()
    for sink in flow.sinks:
        wanted.update((i, trace(i, way)) for way in ways(flow, sink.id) for i in range(rows))
    if len(flow.sinks) > 1:
        # One connector for all sinks keeps the rows of the last only; each sink gets the same.
        wanted = Counter({key: count // len(flow.sinks) for key, count in wanted.items()})
    play(local_spark, flow, tmp_path, {"sink": (out, wanted.total())})
    assert Counter((row["id"], row["trace"]) for row in out.rows) == wanted
