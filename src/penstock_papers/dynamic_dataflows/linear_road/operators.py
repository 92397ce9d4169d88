"""The operators of Linear Road: trips, congestion, accidents, tolls, notifications and accounts.

Every rule looks back over whole minutes that are over, or over times strictly before a record's own, because those are
complete when the record arrives: results then depend neither on batches nor on the order of records within one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock_papers.common.chance import choice
from penstock_papers.dynamic_dataflows.linear_road.records import (
    ACCIDENT,
    ACCIDENT_ALERT,
    BALANCE,
    CLEARED,
    EXIT_LANE,
    EXPENDITURE,
    MOVED,
    NONE,
    REPORT,
    SEGMENTS,
    STOPPED,
    TOLL_NOTICE,
    TRAVEL,
    WEATHER,
    Record,
    in_order_of_time,
    minute_of,
)

LAV_MINUTES = 5
STOPPED_REPORTS = 4
ACCIDENT_CARS = 2
UPSTREAM_SEGMENTS = 4
FREE_CARS, FREE_MPH = 50, 40
"""There is a toll above so many cars, below that speed."""
RAIN_SLOWDOWN = 0.25
"""Share of speed that is lost in the heaviest rain."""
HISTORY_DAYS = 69


def weather(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Reports of rain, for either direction of their segment."""
    rain = _event(batch.filter(pc.equal(batch.column("kind"), WEATHER)))
    at = rain.schema.get_field_index("direction")
    both = [rain.set_column(at, "direction", pa.repeat(pa.scalar(d, pa.int64()), len(rain))) for d in (0, 1)]
    return pa.concat_batches(both)


def reports(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Position reports."""
    return _event(batch.filter(pc.equal(batch.column("kind"), REPORT)))


def queries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Questions; one about a travel time gets the direction in which it leads."""
    asked = _event(batch.filter(pc.is_in(batch.column("kind"), pa.array([BALANCE, EXPENDITURE, TRAVEL]))))
    west = pc.less(asked.column("end"), asked.column("begin")).cast(pa.int64())
    return asked.set_column(asked.schema.get_field_index("direction"), "direction", west)


def _event(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the columns of an event; the time it came into being stays with it."""
    empty = {"trip": pa.int64(), "entered": pa.bool_(), "lav": pa.float64(), "cars": pa.int64()}
    empty |= {"expected_mph": pa.float64(), "toll": pa.int64(), "accident": pa.int64()}
    for name, kind in empty.items():
        batch = batch.append_column(name, pa.nulls(batch.num_rows, kind))
    return batch.drop_columns(["weekday", "minute"])


TripState = tuple[int, int, int, int, int, int, int]


def follow_trips(
    key: tuple[int], rows: list[Record], state: TripState | None
) -> tuple[list[Record], TripState | None]:
    """(the vehicle's reports, and where it stopped and moved on; the state: place, equal reports, trip).

    A trip ends with a report from the exit lane. A vehicle has stopped with the fourth report in a row from one place.
    """
    out = []
    for row in sorted(rows, key=in_order_of_time):
        way, place = (row["xway"], row["direction"]), (row["lane"], row["position"])
        if state is None:
            same_trip, equal, trip, entered = False, 1, 1, True
        else:
            same_trip = state[3] != EXIT_LANE and state[:2] == way
            here = state[:2] == way and state[3:5] == place
            equal, trip = state[5] + 1 if here else 1, state[6] + (not same_trip)
            entered = not same_trip or state[2] != row["segment"]
            if not here and state[5] >= STOPPED_REPORTS:
                left = dict(zip(("xway", "direction", "segment", "lane", "position"), state[:5], strict=True))
                out.append({**row, **left, "kind": MOVED, "entered": False, "trip": trip})
        out.append({**row, "entered": entered, "trip": trip})
        if equal == STOPPED_REPORTS:
            out.append({**row, "kind": STOPPED, "entered": False, "trip": trip})
        state = (*way, row["segment"], *place, equal, trip)
    return out, state


Speeds = dict[int, tuple[int, int]]
"""By vehicle: sum of its speeds and number of its reports in the minute that is open."""
CongestionState = tuple[int, Speeds, dict[int, tuple[float, int]], list[tuple[int, int]]]
"""The minute that is open and its speeds; mean speed and cars by minute; rain by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Congestion:
    """Estimates the congestion of one segment: mean speed over five minutes (LAV), and cars in the last.

    `vehicles` takes the mean of the vehicles' mean speeds, as the benchmark does; `first` looks at the first report of
    a vehicle in each minute; `entering` does so too, and gives an estimate only for cars that enter the segment.
    """

    of: Literal["vehicles", "first", "entering"] = "vehicles"

    def __call__(
        self, key: tuple[int, int, int], rows: list[Record], state: CongestionState | None
    ) -> tuple[list[Record], CongestionState]:
        """(the reports, each with what is known before its minute; the state)."""
        current, speeds, past, rain = state if state is not None else (NONE, {}, {}, [])
        speeds, past, rain, out = dict(speeds), dict(past), list(rain), []
        cars: int
        lav: float | None
        expected: float | None
        cars, lav, expected = 0, None, None
        known_for = NONE
        for row in sorted(rows, key=in_order_of_time):
            if row["kind"] == WEATHER:
                rain.append((row["time_s"], row["speed"]))
            if row["kind"] != REPORT:
                continue
            minute = minute_of(row["time_s"])
            if minute > current:
                if speeds:
                    mean = math.fsum(total / count for total, count in speeds.values()) / len(speeds)
                    past[current] = (mean, len(speeds))
                past = {m: known for m, known in past.items() if m >= minute - LAV_MINUTES}
                current, speeds = minute, {}
            if minute > known_for:
                lav, cars = _lav(past, minute), past.get(minute - 1, (0.0, 0))[1]
                rain = _since(rain, minute)
                expected = None if lav is None else lav * (1 - RAIN_SLOWDOWN * _rain_at(rain, minute) / 100)
                known_for = minute
            total, count = speeds.get(row["vehicle"], (0, 0))
            if not count or self.of == "vehicles":
                speeds[row["vehicle"]] = (total + row["speed"], count + 1)
            if row["entered"] or self.of != "entering":
                out.append({**row, "lav": lav, "cars": cars, "expected_mph": expected})
        # Whatever comes later is of this batch's last minute or after it.
        return out, (current, speeds, past, _since(rain, minute_of(max(row["time_s"] for row in rows))))


def _lav(past: dict[int, tuple[float, int]], minute: int) -> float | None:
    means = [past[m][0] for m in range(minute - LAV_MINUTES, minute) if m in past]
    return math.fsum(means) / len(means) if means else None


def _since(rain: list[tuple[int, int]], minute: int) -> list[tuple[int, int]]:
    """What was told last before the minute, and since, in order of time."""
    before = sorted(told for told in rain if told[0] < minute * 60)
    return before[-1:] + [told for told in rain if told[0] >= minute * 60]


def _rain_at(rain: list[tuple[int, int]], minute: int) -> int:
    return max((told for told in rain if told[0] < minute * 60), default=(0, 0))[1]


Stops = dict[tuple[int, int], tuple[int, ...]]
"""Vehicles that have stopped, by lane and position."""


def find_accidents(
    key: tuple[int, int, int], rows: list[Record], state: tuple[Stops] | None
) -> tuple[list[Record], tuple[Stops] | None]:
    """(accidents that begin and end, told to their segment and the four before it; the state: who has stopped)."""
    stops = dict(state[0]) if state is not None else {}
    out: list[Record] = []
    for row in sorted(rows, key=in_order_of_time):
        if row["kind"] not in (STOPPED, MOVED):
            continue
        place = (row["lane"], row["position"])
        before = stops.get(place, ())
        rest = tuple(v for v in before if v != row["vehicle"])
        after = (*rest, row["vehicle"]) if row["kind"] == STOPPED else rest
        if after:
            stops[place] = after
        else:
            stops.pop(place, None)
        was, is_ = len(before) >= ACCIDENT_CARS, len(after) >= ACCIDENT_CARS
        if was != is_:
            told = {**row, "kind": ACCIDENT if is_ else CLEARED, "accident": row["segment"]}
            out.extend({**told, "segment": segment} for segment in upstream(row["segment"], key[1]))
    return out, (stops,) if stops else None


def upstream(segment: int, direction: int) -> list[int]:
    """A segment and the four before it, as vehicles come: eastward (0) segments count up, westward (1) down.

    >>> upstream(2, 0), upstream(97, 1)
    ([2, 1, 0], [97, 98, 99])
    """
    step = 1 if direction else -1
    ahead = (segment + step * i for i in range(UPSTREAM_SEGMENTS + 1))
    return [s for s in ahead if 0 <= s < SEGMENTS]


Accidents = list[tuple[int, int, int, int, int | None]]
"""Segment, lane and position of an accident, and when it began and ended."""


def with_mark(accidents: Accidents, row: Record) -> Accidents:
    """The accidents after one more was told to begin, or to be over."""
    place = (row["accident"], row["lane"], row["position"])
    if row["kind"] == ACCIDENT:
        return [*accidents, (*place, row["time_s"], None)]
    return [(*a[:4], row["time_s"]) if a[:3] == place and a[4] is None else a for a in accidents]


def in_minute(accidents: Accidents, minute: int) -> Accidents:
    """The accidents that lasted for some time of a minute."""
    return [
        a for a in accidents if minute_of(a[3]) <= minute and (a[4] is None or a[4] > max(a[3], minute * 60))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolls:
    """The toll of one segment: 2·(cars - 50)² if there were more than 50 cars in the minute before and LAV < 40 mph.

    Free where an accident lay on the segment or within four ahead in the minute before.
    """

    free_cars: int = FREE_CARS

    def __call__(
        self, key: tuple[int, int, int], rows: list[Record], state: tuple[Accidents] | None
    ) -> tuple[list[Record], tuple[Accidents] | None]:
        """(each report that enters the segment, with toll and accident; the state: accidents that matter here)."""
        accidents = list(state[0]) if state is not None else []
        out = []
        for row in sorted(rows, key=in_order_of_time):
            if row["kind"] in (ACCIDENT, CLEARED):
                accidents = with_mark(accidents, row)
            elif row["entered"]:
                before = minute_of(row["time_s"]) - 1
                accidents = [a for a in accidents if a[4] is None or a[4] > before * 60]
                near = [a[0] for a in in_minute(accidents, before)]
                accident = min(near, key=lambda s: abs(s - row["segment"])) if near else NONE
                out.append({**row, "toll": self.of(row, accident), "accident": accident})
        return out, (accidents,) if accidents else None

    def of(self, row: Record, accident: int) -> int:
        """What the vehicle owes when it leaves the segment by the road."""
        lav, cars = row["lav"], row["cars"]
        free = lav is None or lav >= FREE_MPH or cars <= self.free_cars
        if free or accident != NONE or row["lane"] == EXIT_LANE:
            return 0
        return int(2 * (cars - self.free_cars) ** 2)


def notifications(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A toll notice for each vehicle that entered a segment, not to leave it, and an alert if there is an accident."""
    told = batch.filter(pc.not_equal(batch.column("lane"), EXIT_LANE))
    near = told.filter(pc.not_equal(told.column("accident"), NONE))
    common = [name for name in batch.schema.names if name in ("time_s", "vehicle", "source_time")]
    parts = []
    for rows, kind, segment in ((told, TOLL_NOTICE, "segment"), (near, ACCIDENT_ALERT, "accident")):
        alert = kind == ACCIDENT_ALERT
        columns = {name: rows.column(name) for name in common}
        columns["kind"] = pa.repeat(pa.scalar(kind, pa.int64()), len(rows))
        columns["segment"] = rows.column(segment)
        columns["lav"] = pa.nulls(len(rows), pa.float64()) if alert else rows.column("lav")
        columns["toll"] = pa.nulls(len(rows), pa.int64()) if alert else rows.column("toll")
        parts.append(pa.RecordBatch.from_pydict(columns))
    return pa.concat_batches(parts)


History = Callable[[int, int, int], int]
"""What a vehicle (first) paid on an expressway (second) so many days ago (third)."""
AccountState = tuple[int, int, int, int, int, int]
"""Trip, toll told last; charged before the last charge, charged then, time of the charge before and of the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The account of one vehicle: the toll told on entering a segment is charged on entering the next of the trip."""

    history: str | None = None
    """CSV file of past expenditures: vehicle, day, expressway, toll, without a header; None: made-up ones."""

    def __call__(
        self, key: tuple[int], rows: list[Record], state: AccountState | None
    ) -> tuple[list[Record], AccountState | None]:
        """(answers to questions, by what was charged before the second of the question; the state)."""
        trip, told, settled, recent, before_s, last_s = (
            state if state is not None else (0, 0, 0, 0, NONE, NONE)
        )
        out = []
        for row in sorted(rows, key=in_order_of_time):
            time_s = row["time_s"]
            if row["kind"] == REPORT:
                if row["trip"] == trip and told:
                    settled, before_s = settled + recent, last_s
                    recent, last_s = told, time_s
                trip, told = row["trip"], row["toll"]
                continue
            answer = {name: row[name] for name in ("kind", "query", "time_s", "vehicle")}
            if "source_time" in row:
                answer["source_time"] = row["source_time"]
            if row["kind"] == BALANCE:
                amount, since_s = (settled + recent, last_s) if time_s > last_s else (settled, before_s)
                out.append({**answer, "amount": amount, "since_s": since_s})
            elif row["kind"] == EXPENDITURE:
                paid = _paid(self.history)(row["vehicle"], row["xway"], row["day"])
                out.append({**answer, "amount": paid, "since_s": NONE})
        after = (trip, told, settled, recent, before_s, last_s)
        return out, None if after == (0, 0, 0, 0, NONE, NONE) else after


def made_expenditure(vehicle: int, xway: int, day: int) -> int:
    """A made-up past: what depends on the three numbers alone, 0 to 89, nothing beyond ten weeks."""
    if not 1 <= day <= HISTORY_DAYS:
        return 0
    return int(choice(np.array([(vehicle * 64 + xway) * 128 + day]), 31, 90)[0])


@cache
def _paid(path: str | None) -> History:
    if path is None:
        return made_expenditure
    names = ["vehicle", "day", "xway", "toll"]
    table = pa.csv.read_csv(path, read_options=pa.csv.ReadOptions(column_names=names))
    known = {(r["vehicle"], r["xway"], r["day"]): int(r["toll"]) for r in table.to_pylist()}
    return lambda vehicle, xway, day: known.get((vehicle, xway, day), 0)
