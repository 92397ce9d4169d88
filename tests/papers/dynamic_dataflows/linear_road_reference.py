"""Linear Road in plain Python, rule by rule over all records at once; shares no code with the operators."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import fsum
from typing import Any

Record = dict[str, Any]
Segment = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    notifications: list[Record]
    answers: list[Record]
    travel_times: list[Record]


def results(
    records: list[Record], *, free_cars: int = 50, model: str = "tree", first_only: bool = False
) -> Results:
    """Everything the benchmark asks for but past expenditures; `first_only`: by a car's first report in a minute."""
    road = Road(records, first_only)
    tolls: list[Record] = []
    for car in road.cars.values():
        tolls.extend(road.tolls(car, free_cars))
    notices: list[Record] = []
    for t in tolls:
        if t["lane"] == 4:
            continue
        common = {"time_s": t["time_s"], "vehicle": t["vehicle"]}
        notices.append({**common, "kind": 0, "segment": t["segment"], "lav": t["lav"], "toll": t["toll"]})
        if t["accident"] is not None:
            notices.append({**common, "kind": 1, "segment": t["accident"], "lav": None, "toll": None})
    charges = defaultdict(list)
    for t in tolls:
        charges[t["vehicle"]].extend(t["charged"])
    answers = []
    for q in (r for r in records if r["kind"] == 2):
        paid = [(at, toll) for at, toll in charges[q["vehicle"]] if at < q["time_s"] and toll]
        found = {name: q[name] for name in ("kind", "query", "time_s", "vehicle")}
        found |= {"amount": sum(toll for _, toll in paid), "since_s": max((at for at, _ in paid), default=-1)}
        answers.append(found)
    return Results(
        notifications=notices,
        answers=answers,
        travel_times=[road.travel(q, model) for q in records if q["kind"] == 4],
    )


class Road:
    """All records of a run, and what can be asked about them."""

    def __init__(self, records: list[Record], first_only: bool = False) -> None:
        self.cars: dict[int, list[Record]] = defaultdict(list)
        for r in sorted((r for r in records if r["kind"] == 0), key=lambda r: r["time_s"]):
            self.cars[r["vehicle"]].append(r)
        self.rain = [r for r in records if r["kind"] == 5]
        self._speeds: dict[tuple[Segment, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for car in self.cars.values():
            for r in car:
                told = self._speeds[_segment(r), r["time_s"] // 60][r["vehicle"]]
                if not told or not first_only:
                    told.append(r["speed"])
        self.accidents = self._accidents()
        self.lav = cache(self._lav)
        self.expected = cache(self._expected)
        self.accidents_in = cache(self._accidents_in)
        self.seen = cache(self._seen)

    def _mean(self, place: Segment, minute: int) -> float | None:
        cars = self._speeds.get((place, minute))
        return fsum(sum(v) / len(v) for v in cars.values()) / len(cars) if cars else None

    def _lav(self, place: Segment, minute: int) -> float | None:
        means = [m for i in range(1, 6) if (m := self._mean(place, minute - i)) is not None]
        return fsum(means) / len(means) if means else None

    def cars_in(self, place: Segment, minute: int) -> int:
        return len(self._speeds.get((place, minute), ()))

    def _expected(self, place: Segment, minute: int) -> float | None:
        """LAV in the rain of the last report from before the minute."""
        lav = self._lav(place, minute)
        told = [
            (r["time_s"], r["speed"])
            for r in self.rain
            if (r["xway"], r["segment"]) == (place[0], place[2]) and r["time_s"] < minute * 60
        ]
        return None if lav is None else lav * (1 - 0.25 * (max(told)[1] if told else 0) / 100)

    def _accidents(self) -> list[tuple[Segment, float, float]]:
        """(segment, from, until): times at which two cars or more stood at one place."""
        stood = defaultdict(list)
        for car in self.cars.values():
            begin = 0
            for i in range(1, len(car) + 1):
                if i < len(car) and _place(car[i]) == _place(car[begin]):
                    continue
                if i - begin >= 4:
                    until = car[i]["time_s"] if i < len(car) else float("inf")
                    stood[_place(car[begin]), car[begin]["segment"]].append((car[begin + 3]["time_s"], until))
                begin = i
        found = []
        for ((xway, direction, *_), segment), stops in stood.items():
            times = sorted({t for stop in stops for t in stop})
            for a, b in pairwise(times):
                if sum(since <= a and b <= until for since, until in stops) >= 2:
                    found.append(((xway, direction, segment), float(a), float(b)))
        return found

    def _accidents_in(self, minute: int) -> set[Segment]:
        return {place for place, a, b in self.accidents if a < (minute + 1) * 60 and b > minute * 60}

    def tolls(self, car: list[Record], free_cars: int) -> list[Record]:
        """An entry for each segment the car entered, with what was charged then."""
        found: list[Record] = []
        for i, r in enumerate(car):
            before = car[i - 1] if i else None
            same = before is not None and before["lane"] != 4 and _way(before) == _way(r)
            if same and before is not None and before["segment"] == r["segment"]:
                continue
            place, minute = _segment(r), r["time_s"] // 60
            lav, cars = self.lav(place, minute), self.cars_in(place, minute - 1)
            ahead = 1 if r["direction"] == 0 else -1
            near = [
                r["segment"] + ahead * i
                for i in range(5)
                if (r["xway"], r["direction"], r["segment"] + ahead * i) in self.accidents_in(minute - 1)
            ]
            due = lav is not None and lav < 40 and cars > free_cars and not near and r["lane"] != 4
            found.append(
                {
                    **r,
                    "lav": lav,
                    "accident": near[0] if near else None,
                    "toll": 2 * (cars - free_cars) ** 2 if due else 0,
                    "charged": [(r["time_s"], found[-1]["toll"])] if same else [],
                }
            )
        return found

    def _seen(self, way: tuple[int, int], minute: int) -> dict[int, list[tuple[int, float]]]:
        """(minute, expected speed) by segment, of the half hour before a minute."""
        seen: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for (place, m), cars in sorted(self._speeds.items(), key=lambda item: item[0]):
            if place[:2] == way and minute - 30 <= m < minute and cars:
                expected = self.expected(place, m)
                if expected is not None:
                    seen[place[2]].append((m, expected))
        return dict(seen)

    def travel(self, query: Record, model: str) -> Record:
        minute, down = query["time_s"] // 60, query["end"] < query["begin"]
        way = (query["xway"], int(down))
        seen = self.seen(way, minute)
        low, high = sorted((query["begin"], query["end"]))
        slow = {place[2] for place in self.accidents_in(minute - 1) if place[:2] == way}
        points = tuple((s, m, round(v * 10)) for s, values in sorted(seen.items()) for m, v in values)
        times = []
        for s in range(low, high + 1):
            mph = leaf(points, (s, minute)) if model == "tree" else holt([v for _, v in seen.get(s, ())])
            times.append(3600 / max(min(mph, 10.0) if s in slow else mph, 5.0))
        found = {name: query[name] for name in ("query", "time_s", "vehicle")}
        return {**found, "seconds": fsum(times)}


Points = tuple[tuple[int, int, int], ...]


def leaf(points: Points, place: tuple[int, int]) -> float:
    """What a regression tree of six levels says of a place, following only the way to its leaf."""
    for _ in range(6):
        split = best_split(points)
        if split is None:
            break
        axis, at = split
        side = place[axis] <= at
        points = tuple(p for p in points if (p[axis] <= at) == side)
    return sum(p[2] for p in points) / len(points) / 10 if points else 60.0


@cache
def best_split(points: Points) -> tuple[int, int] | None:
    """The axis and border that explain most, with four points or more on either side."""
    total = sum(p[2] for p in points)
    best, found = total * total / len(points) if points else 0.0, None
    for axis in (0, 1):
        for at in sorted({p[axis] for p in points})[:-1]:
            below = [p[2] for p in points if p[axis] <= at]
            n, rest = len(below), len(points) - len(below)
            if n >= 4 and rest >= 4:
                score = sum(below) ** 2 / n + (total - sum(below)) ** 2 / rest
                if score > best:
                    best, found = score, (axis, at)
    return found


def holt(values: list[float]) -> float:
    """Holt's linear method with 0.5 and 0.2, one step ahead."""
    if not values:
        return 60.0
    level, trend = values[0], 0.0
    for v in values[1:]:
        level, trend = (new := 0.5 * v + 0.5 * (level + trend)), 0.2 * (new - level) + 0.8 * trend
    return level + trend


def _place(r: Record) -> tuple[int, ...]:
    return r["xway"], r["direction"], r["lane"], r["position"]


def _segment(r: Record) -> Segment:
    return r["xway"], r["direction"], r["segment"]


def _way(r: Record) -> tuple[int, int]:
    return r["xway"], r["direction"]
