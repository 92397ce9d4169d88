"""Taxi drives and KNN: operator functions against plain loops, and dataflows that say what the paper says."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from penstock_papers.quality_of_data.knn import DIMENSIONS, Neighbours, Points, knn
from penstock_papers.quality_of_data.taxi_drives import (
    EARTH_M,
    NEAREST,
    PLACES,
    ZONES,
    dropoffs,
    pickups,
    places,
    taxi_drives,
    with_stands,
    with_zone,
)


def metres(lat: float, lon: float, to_lat: float, to_lon: float) -> float:
    """The angle between two places seen from the centre, by the spherical law of cosines."""
    a, b, across = math.radians(lat), math.radians(to_lat), math.radians(to_lon - lon)
    return EARTH_M * math.acos(
        min(1.0, math.sin(a) * math.sin(b) + math.cos(a) * math.cos(b) * math.cos(across))
    )


@pytest.mark.parametrize("topic", [pickups, dropoffs])
def test_events_depend_on_their_number_alone(topic) -> None:
    whole = topic(0, 50).to_pylist()
    assert topic(0, 7).to_pylist() + topic(7, 50).to_pylist() == whole
    assert [row["id"] for row in whole] == list(range(50))


def test_zones_are_the_nearest() -> None:
    events = pickups(0, 20)
    centres = [(float(a), float(b)) for a, b in zip(*places(ZONES, salt=20), strict=True)]
    for row in with_zone(events).to_pylist():
        away = [metres(row["lat"], row["lon"], *centre) for centre in centres]
        assert away[row["zone"]] == pytest.approx(min(away), abs=0.2)
        assert row["metres"] == pytest.approx(min(away), abs=0.2)


def test_stands_are_the_nearest_three() -> None:
    stands = [(float(a), float(b)) for a, b in zip(*places(PLACES, salt=30), strict=True)]
    for row in with_stands(dropoffs(0, 20)).to_pylist():
        away = sorted(metres(row["lat"], row["lon"], *stand) for stand in stands)[:NEAREST]
        told = [metres(row["lat"], row["lon"], *stands[s]) for s in row["stands"]]
        assert told == pytest.approx(away, abs=0.2)
        assert row["metres"] == pytest.approx(sum(away) / NEAREST, abs=0.2)


def test_no_events_no_answers() -> None:
    assert with_zone(pickups(0, 0)).num_rows == with_stands(pickups(0, 0)).num_rows == 0


def plain_knn(rows: list[dict], k: int, reservoir: int) -> list[tuple[int | None, float]]:
    answers = []
    for i, row in enumerate(rows):

        def away(other: dict, row: dict = row) -> float:
            return math.sqrt(sum((other[f"x{d}"] - row[f"x{d}"]) ** 2 for d in range(DIMENSIONS)))

        near = sorted(rows[max(0, i - reservoir) : i], key=away)[:k]
        votes = Counter(other["label"] for other in near)
        answers.append((min(votes, key=lambda c: (-votes[c], c)), away(near[-1])) if near else (None, 0.0))
    return answers


@pytest.mark.parametrize("cuts", [(), (1, 40, 41), (10, 60)])
def test_neighbours_are_those_of_a_plain_search_in_any_batches(cuts: tuple[int, ...]) -> None:
    reservoir, k, count = 30, 5, 90
    rows = Points()(0, count)
    expected = plain_knn(rows.to_pylist(), k, reservoir)
    classify, state, told = Neighbours(k=k, reservoir=reservoir), None, []
    for begin, end in zip((0, *cuts), (*cuts, count), strict=True):
        backwards = rows.slice(begin, end - begin).take(list(range(end - begin))[::-1])
        found, state = classify((0,), backwards, state)
        told += found.to_pylist()
    assert [row["guess"] for row in told] == [guess for guess, _ in expected]
    assert [row["distance"] for row in told] == pytest.approx([distance for _, distance in expected])
    assert state is not None
    assert len(state[0]) == reservoir
    hits = sum(row["guess"] == row["label"] for row in told[reservoir:])
    assert hits > 0.8 * (count - reservoir), "classes lie apart: most guesses are right"


def test_the_dataflows_declare_the_papers_restrictions() -> None:
    drives = taxi_drives()
    assert [(s.id, s.priority, s.min_accuracy) for s in drives.sinks] == [
        ("by_zone", 0, 0.4),
        ("by_stand", 0, 0.6),
    ]
    assert [o.parallelism.minimum for o in drives.operators if o.id in ("zones", "stands")] == [1, 2]
    assert [s.id for s in drives.sources] == ["pickups", "dropoffs"]
    assert knn(tasks=2).operator("neighbours").parallelism.maximum == 2
