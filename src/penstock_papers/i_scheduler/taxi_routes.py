"""Taxi routes: the ten most frequent routes of New York's taxis in the last 30 minutes.

Query 1 of the DEBS 2015 grand challenge (Jerzak, Ziekow), the second application of `i-scheduler.txt`: a row of
trips, pre-processing, rolling counts, intermediate ranks and the final rank, of 16, 16, 8, 4 and 1 tasks.

A route leads from one cell of a grid of 300 x 300 cells of 500 m to another. A trip counts from its drop-off until
30 minutes later. Of routes with the same count the one with the later drop-off ranks first, then that with the smaller
number. The list of a second is made from all trips that end in it or before, when a trip that ends later shows that
it is complete, and it is given out when it differs from the list before: trips that end in the same second therefore
change it once, and no order between them matters.

Counts are kept in parts. A part must learn that time went on even if no trip of its own ended, because its counts
fall: pre-processing gives every part a *tick* for each second in which some trip ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.dataflow import Connector, Dataflow, Load, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock_papers.common.chance import chance, choice
from penstock_papers.common.recordings import Recording

TRIP = "pickup_s long, dropoff_s long, pickup_lon double, pickup_lat double, dropoff_lon double, dropoff_lat double"
EVENT = "part long, route long, time_s long"
COUNT = "rank long, route long, time_s long, trips long, last_s long"
RANKED = "top long, rank long, time_s long, routes array<long>, trips array<long>, lasts array<long>"
TOP = "time_s long, routes array<string>, trips array<long>"

WINDOW_S = 1_800
BEST = 10
PARTS = 16
RANKS = 4
TICK = -1
"""The route of a tick."""

CELLS = 300
CELL_LAT, CELL_LON = 4_491_556, 5_986_000
"""500 m to the south and to the east, as the challenge defines them, in degrees · 10^-9: borders are then exact."""
FIRST_LAT, FIRST_LON = 41_474_937_000, -74_913_585_000
"""Centre of cell 1.1, in the north-west."""

Record = dict[str, Any]
Standing = tuple[int, int]
"""Trips in the window, and the last drop-off."""


def cells_of(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of the cell of each place, row by row from the north-west, 0 first; -1 outside the grid."""
    south = (FIRST_LAT + CELL_LAT // 2 - _nano(lat)) // CELL_LAT
    east = (_nano(lon) - FIRST_LON + CELL_LON // 2) // CELL_LON
    inside = (south >= 0) & (south < CELLS) & (east >= 0) & (east < CELLS)
    return np.where(inside, south * CELLS + east, -1)


def route_name(route: int) -> str:
    """A route as the challenge writes cells: column.row, counted from 1.

    >>> route_name(0 * CELLS * CELLS + 301)
    '1.1-2.2'
    """
    begin, end = divmod(route, CELLS * CELLS)
    return "-".join(f"{cell % CELLS + 1}.{cell // CELLS + 1}" for cell in (begin, end))


def with_routes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """An event for each trip that begins and ends in the grid, and a tick for every part and second."""
    begin, end = (
        cells_of(batch.column(f"{at}_lat").to_numpy(), batch.column(f"{at}_lon").to_numpy())
        for at in ("pickup", "dropoff")
    )
    valid = (begin >= 0) & (end >= 0)
    times = batch.column("dropoff_s").to_numpy()[valid]
    routes = (begin * (CELLS * CELLS) + end)[valid]
    seconds = np.unique(times)
    return pa.RecordBatch.from_pydict(
        {
            "part": np.concatenate([_part(routes), np.tile(np.arange(PARTS), len(seconds))]),
            "route": np.concatenate([routes, np.full(len(seconds) * PARTS, TICK)]),
            "time_s": np.concatenate([times, np.repeat(seconds, PARTS)]),
        }
    )


def rolling_counts(
    key: tuple[int], rows: list[Record], state: tuple[list[tuple[int, int]], dict[int, Standing]] | None
) -> tuple[list[Record], tuple[list[tuple[int, int]], dict[int, Standing]]]:
    """(how many trips each route of the part has from now on, wherever that changed; the state).

    The state holds the trips of the window as (drop-off, route), in that order, and the standing of every route in it.
    """
    trips, standings = (list(state[0]), dict(state[1])) if state is not None else ([], {})
    heapq.heapify(trips)
    out = []
    for time_s, events in groupby(sorted((row["time_s"], row["route"]) for row in rows), lambda e: e[0]):
        changed = set()
        while trips and trips[0][0] <= time_s - WINDOW_S:
            _, route = heapq.heappop(trips)
            count, last_s = standings[route]
            standings[route] = (count - 1, last_s)
            changed.add(route)
        for _, route in events:
            if route != TICK:
                heapq.heappush(trips, (time_s, route))
                standings[route] = (standings.get(route, (0, 0))[0] + 1, time_s)
                changed.add(route)
        for route in sorted(changed):
            count, last_s = standings[route]
            if not count:
                del standings[route]
            row = {"route": route, "time_s": time_s, "trips": count, "last_s": last_s}
            out.append({"rank": key[0] % RANKS, **row})
    return out, (sorted(trips), standings)


def intermediate_rank(
    key: tuple[int], rows: list[Record], state: tuple[dict[int, Standing]] | None
) -> tuple[list[Record], tuple[dict[int, Standing]]]:
    """(the best routes of this rank at each time at which a count changed, the state: all counts)."""
    standings = dict(state[0]) if state is not None else {}
    out = []
    for time_s, changes in groupby(sorted(rows, key=lambda row: row["time_s"]), lambda row: row["time_s"]):
        for row in changes:
            if row["trips"]:
                standings[row["route"]] = (row["trips"], row["last_s"])
            else:
                standings.pop(row["route"], None)
        best = best_of(standings.items())
        out.append(
            {
                "top": 0,
                "rank": key[0],
                "time_s": time_s,
                "routes": [route for route, _ in best],
                "trips": [trips for _, (trips, _) in best],
                "lasts": [last_s for _, (_, last_s) in best],
            }
        )
    return out, (standings,)


Lists = dict[int, list[tuple[int, Standing]]]
"""What each rank says are its best routes."""


def final_rank(
    key: tuple[int], rows: list[Record], state: tuple[Lists, dict[int, Lists], list[int], list[int]] | None
) -> tuple[list[Record], tuple[Lists, dict[int, Lists], list[int], list[int]]]:
    """(the best routes of all after each second that is complete, if they changed; the state).

    The state holds what the ranks said until the last complete second, what they said since, by time, and the list
    that was given out last (routes, trips).
    """
    known, pending, routes, trips = state if state is not None else ({}, {}, [], [])
    pending, out = dict(pending), []
    for row in rows:
        standings = zip(row["trips"], row["lasts"], strict=True)
        said = {row["rank"]: list(zip(row["routes"], standings, strict=True))}
        pending[row["time_s"]] = pending.get(row["time_s"], {}) | said
    for time_s in sorted(pending)[:-1]:
        known = known | pending.pop(time_s)
        best = best_of(entry for entries in known.values() for entry in entries)
        now = [route for route, _ in best], [count for _, (count, _) in best]
        if now != (routes, trips):
            routes, trips = now
            out.append({"time_s": time_s, "routes": [route_name(r) for r in routes], "trips": trips})
    return out, (known, pending, routes, trips)


def best_of(standings: Iterable[tuple[int, Standing]]) -> list[tuple[int, Standing]]:
    """The ten best, best first."""
    return heapq.nsmallest(BEST, standings, key=lambda entry: (-entry[1][0], -entry[1][1], entry[0]))


def _nano(degrees: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.asarray(np.rint(degrees * 1e9), np.int64)


def _part(routes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which part counts a route; neighbouring cells are in different ones."""
    return choice(routes, 0, PARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cabs:
    """A generator of trips between places in Manhattan, some far more popular, and a popular pair every hour."""

    places: int = 300
    trips_per_second: int = 4
    start_s: int = 1_356_998_400
    """1 January 2013."""

    def __call__(self, start: int, stop: int) -> pa.RecordBatch:
        """Trips number `start` to `stop`, in order of their drop-off."""
        ids = np.arange(start, stop, dtype=np.int64)
        dropoff_s = self.start_s + ids // self.trips_per_second
        ride_s = 120 + choice(ids, 1, 1500)
        begin, end = (self._place(ids, salt) for salt in (2, 3))
        popular = chance(ids, 4) < 0.15
        hour = dropoff_s // 3600
        begin, end = (
            np.where(popular, choice(hour, salt, self.places), place)
            for salt, place in ((5, begin), (6, end))
        )
        lost = chance(ids, 7) < 0.01  # receivers without a fix tell 0, 0
        places = {}
        for name, place in (("pickup", begin), ("dropoff", end)):
            lon = -74.015 + 0.075 * chance(place, 8) + 0.001 * chance(ids, 10)
            lat = 40.70 + 0.11 * chance(place, 9) + 0.001 * chance(ids, 11)
            places[f"{name}_lon"] = np.where(lost, 0.0, np.round(lon, 6))
            places[f"{name}_lat"] = np.where(lost, 0.0, np.round(lat, 6))
        return pa.RecordBatch.from_pydict({"pickup_s": dropoff_s - ride_s, "dropoff_s": dropoff_s, **places})

    def _place(self, ids: NDArray[np.int64], salt: int) -> NDArray[np.int64]:
        return np.asarray(chance(ids, salt) ** 3 * self.places, np.int64)


_FILE = (
    "medallion string, license string, pickup_s timestamp[s], dropoff_s timestamp[s], seconds int64, miles double, "
    "pickup_lon double, pickup_lat double, dropoff_lon double, dropoff_lat double, payment string, fare double, "
    "surcharge double, tax double, tip double, tolls double, total double"
)


def recorded_trips(path: str) -> Recording:
    """The challenge's own file as a generator."""
    named = [column.split(" ") for column in _FILE.split(", ")]
    keep = tuple(column.split(" ")[0] for column in TRIP.split(", "))
    return Recording(
        path=path,
        columns=tuple((name, kind) for name, kind in named),
        keep=keep,
        times=("dropoff_s", "pickup_s"),
    )


def taxi_routes(
    *,
    load: Load | None = None,
    path: str | None = None,
    cabs: Cabs | None = None,
    sink: Connector | None = None,
    max_rows_per_batch: int | None = None,
) -> Dataflow:
    """The dataflow, with the paper's tasks; `path` is a file of the challenge, `cabs` describes made trips instead."""
    app = flow("taxi-routes")
    trips: Any = recorded_trips(path) if path else cabs if cabs is not None else Cabs()
    source = app.source(
        "trips",
        replay(
            generator=trips,
            load=load if load is not None else constant(1_000),
            schema=TRIP,
            max_rows_per_batch=max_rows_per_batch,
        ),
        parallelism=16,
        cost_s=2e-5,
        record_bytes=48,
    )
    events = source.map(
        "preprocess", with_routes, wiring="spread", schema=EVENT, parallelism=16, cost_s=1e-4, record_bytes=24
    )
    counts = events.keyed(
        "counts",
        rolling_counts,
        key="part",
        state=(
            "trips array<struct<time_s: long, route: long>>, "
            "standings map<long, struct<trips: long, last_s: long>>"
        ),
        takes="record",
        schema=COUNT,
        parallelism=8,
        cost_s=1e-4,
        selectivity=2.0,
        record_bytes=40,
    )
    ranks = counts.keyed(
        "ranks",
        intermediate_rank,
        key="rank",
        state="standings map<long, struct<trips: long, last_s: long>>",
        takes="record",
        schema=RANKED,
        parallelism=4,
        cost_s=5e-5,
        selectivity=0.2,
        record_bytes=260,
    )
    ranks.keyed(
        "top",
        final_rank,
        key="top",
        state="known map<long, binary>, pending map<long, binary>, routes array<long>, trips array<long>",
        takes="record",
        schema=TOP,
        cost_s=1e-4,
        selectivity=0.25,
        record_bytes=250,
    ).sink("routes", sink if sink is not None else discard())
    return app.build()
