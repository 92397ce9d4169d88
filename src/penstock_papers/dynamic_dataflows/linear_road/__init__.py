"""Linear Road: variable tolls on expressways, by congestion and accidents, with accounts and travel times.

The benchmark of Arasu et al. (VLDB 2004) in the shape of `dynamic-dataflows.txt`, figure 5: weather (P0), reports (P1),
congestion (P2, three alternates), accidents (P3), tolls (P4), notifications (P5), balances (P6), travel times (P7, two
alternates). Two operators are ours: `queries` takes the questions out of the input, and `trips` follows each vehicle,
which the figure leaves to the operators after it.

Records must come in order of time from batch to batch; within a batch their order does not matter.
"""

from __future__ import annotations

from typing import Any, Literal

from penstock.dataflow import Connector, Dataflow, Load, Output, alternate, flow, random_walk
from penstock.dataflow.connectors import discard, replay
from penstock_papers.dynamic_dataflows.linear_road import operators, records
from penstock_papers.dynamic_dataflows.linear_road.operators import FREE_CARS, Accounts, Congestion, Tolls
from penstock_papers.dynamic_dataflows.linear_road.records import EVENT
from penstock_papers.dynamic_dataflows.linear_road.traffic import Traffic, recorded_traffic
from penstock_papers.dynamic_dataflows.linear_road.travel import TravelTimes

SEGMENT = ("xway", "direction", "segment")
HOURS_12_S = 43_200.0
CONGESTION: tuple[tuple[Literal["vehicles", "first", "entering"], float, float, float], ...] = (
    ("vehicles", 1.0, 1.2, 1.0),
    ("first", 0.8, 0.8, 1.0),
    ("entering", 0.5, 0.8, 0.5),
)
"""The alternates of P2: value, cost in seconds, selectivity (the paper's figure 5)."""

__all__ = ["Traffic", "linear_road", "recorded_traffic"]


def linear_road(
    *,
    load: Load | None = None,
    path: str | None = None,
    traffic: Traffic | None = None,
    history: str | None = None,
    free_cars: int = FREE_CARS,
    tasks: tuple[int, int] = (1, 100),
    cost_scale: float = 1.0,
    notifications: Connector | None = None,
    answers: Connector | None = None,
    travel_times: Connector | None = None,
    max_rows_per_batch: int | None = None,
) -> Dataflow:
    """The dataflow; `path` is a file of the benchmark, `traffic` describes made traffic instead.

    `history` is a file of past expenditures (vehicle, day, expressway, toll); above `free_cars` cars a toll is due.
    The costs are the paper's for congestion (1.2 and 0.8 s per record) and of that order for the rest, times
    `cost_scale`; the load is the paper's at 50/s. Every sink discards unless another connector is given.
    """
    app = flow("linear-road")
    records_in: Any = recorded_traffic(path) if path else traffic if traffic is not None else Traffic()
    source = app.source(
        "traffic",
        replay(
            generator=records_in,
            load=load
            if load is not None
            else random_walk(50.0, duration_s=HOURS_12_S, spread=0.5, step_s=120.0, seed=1),
            schema=records.INPUT,
            max_rows_per_batch=max_rows_per_batch,
        ),
        record_bytes=120,
        keep_by=("vehicle",),
    )

    events: dict[str, Any] = {"schema": EVENT, "parallelism": tasks, "record_bytes": 150}

    def parsed(name: str, function: Any, share: float) -> Output:
        return source.map(name, function, cost_s=0.1 * cost_scale, selectivity=share, **events)

    weather = parsed("weather", operators.weather, 0.048)
    reports = parsed("reports", operators.reports, 0.952)
    queries = parsed("queries", operators.queries, 0.024)
    trips = reports.keyed(
        "trips",
        operators.follow_trips,
        key="vehicle",
        state="xway long, direction long, segment long, lane long, position long, equal long, trip long",
        takes="record",
        cost_s=0.1 * cost_scale,
        **events,
    )
    congestion = app.keyed(
        "congestion",
        inputs=[trips, weather],
        key=SEGMENT,
        state=(
            "minute long, speeds map<long, struct<total: long, reports: long>>, "
            "past map<long, struct<mph: double, cars: long>>, rain array<struct<time_s: long, percent: long>>"
        ),
        alternates=[
            alternate(
                name,
                Congestion(of=name),
                value=value,
                cost_s=cost * cost_scale,
                cost_cv=0.5,
                selectivity=share,
            )
            for name, value, cost, share in CONGESTION
        ],
        takes="record",
        **events,
    )
    accidents = trips.keyed(
        "accidents",
        operators.find_accidents,
        key=SEGMENT,
        state="stops map<struct<lane: long, position: long>, array<long>>",
        takes="record",
        cost_s=0.2 * cost_scale,
        selectivity=0.005,
        **events,
    )
    tolls = app.keyed(
        "tolls",
        Tolls(free_cars=free_cars),
        inputs=[congestion, accidents],
        key=SEGMENT,
        state="accidents array<struct<segment: long, lane: long, position: long, begin_s: long, end_s: long>>",
        takes="record",
        cost_s=0.3 * cost_scale,
        selectivity=0.3,
        **events,
    )
    tolls.map(
        "notify",
        operators.notifications,
        schema=records.NOTIFICATION,
        parallelism=tasks,
        cost_s=0.1 * cost_scale,
        record_bytes=48,
    ).sink("notifications", notifications if notifications is not None else discard(), priority=2)
    app.keyed(
        "balances",
        Accounts(history=history),
        inputs=[tolls, queries],
        key="vehicle",
        state="trip long, told long, settled long, recent long, before_s long, last_s long",
        takes="record",
        schema=records.ANSWER,
        parallelism=tasks,
        cost_s=0.1 * cost_scale,
        selectivity=0.04,
        record_bytes=48,
    ).sink("answers", answers if answers is not None else discard(), priority=1)
    app.keyed(
        "travel",
        inputs=[congestion, accidents, queries],
        key=("xway", "direction"),
        state=(
            "speeds map<long, map<long, double>>, "
            "accidents array<struct<segment: long, lane: long, position: long, begin_s: long, end_s: long>>"
        ),
        alternates=[
            alternate("tree", TravelTimes(model="tree"), cost_s=0.4 * cost_scale, selectivity=0.01),
            alternate(
                "series", TravelTimes(model="series"), value=0.7, cost_s=0.2 * cost_scale, selectivity=0.01
            ),
        ],
        schema=records.TRAVEL_TIME,
        parallelism=tasks,
        record_bytes=32,
    ).sink("travel_times", travel_times if travel_times is not None else discard())
    app.constrain("-> tolls -> notify ->", mean_ms=5_000, window_s=60, name="tolls")
    return app.build()
