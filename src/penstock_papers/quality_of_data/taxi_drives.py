"""Taxi drives: two topics of events, brought together, and two CPU-heavy queries with restrictions of their own.

The first application of `quality-of-data.txt` (section 7): pick-ups and drop-offs meet in a union; one query finds the
zone of every event among some thousand zone centres, the other the stands nearest to it, both by great-circle
distance to every candidate. The second query has two tasks, all else one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Floats
from penstock.dataflow import Connector, Dataflow, Load, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock_papers.common.chance import chance
from penstock_papers.i_scheduler.taxi_routes import Cabs

EVENT = "id long, topic string, time_s long, lon double, lat double"
ZONED = f"{EVENT}, zone long, metres double"
STANDS = f"{EVENT}, stands array<long>, metres double"
EARTH_M = 6_371_000.0
ZONES, PLACES = 1_000, 1_500
NEAREST = 3
"""Stands that are told for an event."""


def pickups(start: int, stop: int) -> pa.RecordBatch:
    """Pick-ups number `start` to `stop`."""
    return _events("pickup", start, stop)


def dropoffs(start: int, stop: int) -> pa.RecordBatch:
    """Drop-offs number `start` to `stop`."""
    return _events("dropoff", start, stop)


def with_zone(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the nearest zone of each event, and how far its centre is."""
    metres = distances_m(_column(batch, "lat"), _column(batch, "lon"), *places(ZONES, salt=20))
    zone = metres.argmin(axis=1) if batch.num_rows else np.empty(0, np.int64)
    found = np.take_along_axis(metres, zone[:, None], axis=1)[:, 0]
    return batch.append_column("zone", pa.array(zone, pa.int64())).append_column("metres", pa.array(found))


def with_stands(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the nearest stands of each event, nearest first, and how far they are on average."""
    metres = distances_m(_column(batch, "lat"), _column(batch, "lon"), *places(PLACES, salt=30))
    nearest = np.argsort(metres, axis=1, kind="stable")[:, :NEAREST]
    mean = np.take_along_axis(metres, nearest, axis=1).mean(axis=1) if batch.num_rows else np.empty(0)
    stands = pa.array(nearest.tolist(), pa.list_(pa.int64()))
    return batch.append_column("stands", stands).append_column("metres", pa.array(mean, pa.float64()))


def distances_m(lat: Floats, lon: Floats, to_lat: Floats, to_lon: Floats) -> Floats:
    """[from, to] great-circle distances (haversine)."""
    a, b = np.radians(lat)[:, None], np.radians(to_lat)[None, :]
    across = np.radians(to_lon)[None, :] - np.radians(lon)[:, None]
    h = np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(across / 2) ** 2
    return np.asarray(2 * EARTH_M * np.arcsin(np.sqrt(np.clip(h, 0.0, 1.0))))


def places(count: int, *, salt: int) -> tuple[Floats, Floats]:
    """Latitudes and longitudes of made-up places in Manhattan."""
    ids = np.arange(count, dtype=np.int64)
    return 40.70 + 0.11 * chance(ids, salt), -74.015 + 0.075 * chance(ids, salt + 1)


def taxi_drives(
    *,
    load: Load | None = None,
    priorities: tuple[int, int] = (0, 0),
    minima: tuple[float, float] = (0.4, 0.6),
    sinks: tuple[Connector, Connector] | None = None,
    cost_s: float = 1e-3,
    max_rows_per_batch: int | None = None,
) -> Dataflow:
    """The dataflow; `load` is that of each topic, the pairs are of the zones and of the stands query.

    By default the paper's minima, 40 % and 60 %, at equal priorities. `cost_s` is the cost of a record in either query,
    for the simulation.
    """
    app = flow("taxi-drives")
    each = load if load is not None else constant(200.0)
    topics = [
        app.source(
            name,
            replay(generator=made, load=each, schema=EVENT, max_rows_per_batch=max_rows_per_batch),
            cost_s=cost_s / 20,
            record_bytes=40,
            keep_by=("id", "topic"),
        )
        for name, made in (("pickups", pickups), ("dropoffs", dropoffs))
    ]
    events = app.union("drives", *topics)
    queries: list[tuple[str, str, Any, str, int]] = [
        ("zones", "by_zone", with_zone, ZONED, 1),
        ("stands", "by_stand", with_stands, STANDS, 2),
    ]
    for number, (query, sink, function, schema, tasks) in enumerate(queries):
        found = events.map(
            query,
            function,
            schema=schema,
            wiring="spread",
            parallelism=tasks,
            cost_s=cost_s,
            cost_cv=0.2,
            record_bytes=60,
        )
        found.sink(
            sink,
            discard() if sinks is None else sinks[number],
            parallelism=tasks,
            priority=priorities[number],
            min_accuracy=minima[number],
        )
    return app.build()


def _events(topic: str, start: int, stop: int) -> pa.RecordBatch:
    trips = Cabs()(start, stop)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(range(start, stop), pa.int64()),
            "topic": pa.array([topic] * (stop - start), pa.string()),
            "time_s": trips.column(f"{topic}_s"),
            "lon": trips.column(f"{topic}_lon"),
            "lat": trips.column(f"{topic}_lat"),
        }
    )


def _column(batch: pa.RecordBatch, name: str) -> Floats:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.float64)
