"""Taxi routes: the lists are the reference's, whatever batches the trips come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.api.choices import find_flow
from penstock.dataflow import constant
from penstock_papers.i_scheduler.taxi_routes import (
    CELL_LAT,
    CELL_LON,
    CELLS,
    FIRST_LAT,
    FIRST_LON,
    Cabs,
    cells_of,
    recorded_trips,
    taxi_routes,
)
from tests.papers.common.interpreter import Interpreter, in_order, some_cuts
from tests.papers.i_scheduler.taxi_reference import cell, top_routes

SPARSE = Cabs(places=6, trips_per_second=1)
ROWS = 2400
"""40 minutes."""


@pytest.fixture(scope="module")
def lists() -> list[dict[str, Any]]:
    return top_routes(SPARSE(0, ROWS).to_pylist())


@pytest.mark.parametrize(("batches", "seed"), [(0, None), (60, 1), (9, 2)])
def test_lists_are_those_of_the_reference_when_trips_leave_the_window(
    lists: list[dict[str, Any]], batches: int, seed: int | None
) -> None:
    run = Interpreter(taxi_routes(cabs=SPARSE), seed=seed).run(ROWS, batches=some_cuts(ROWS, batches, 3))
    assert len(lists) > 700
    assert in_order(run["routes"]) == in_order(lists)


@pytest.mark.parametrize(("batches", "seed"), [(0, None), (25, 1)])
def test_lists_of_the_real_trips(shared_data: Path, batches: int, seed: int | None) -> None:
    path = str(shared_data / "taxi_trips.csv")
    trips = recorded_trips(path)
    rows = trips.rows
    assert rows == 5000
    run = Interpreter(taxi_routes(path=path, load=constant(10)), seed=seed).run(
        rows, batches=some_cuts(rows, batches, 4)
    )
    wanted = top_routes(trips(0, rows).to_pylist())
    assert len(wanted) >= 40
    assert in_order(run["routes"]) == in_order(wanted)


def test_the_grid_is_the_challenges() -> None:
    # Within a cell, on its border, one step over it, and outside.
    places = [
        (0.0, 0.0, 0),
        (-0.49, 0.49, 0),
        (-0.51, 0.0, CELLS),
        (0.0, 0.51, 1),
        (0.0, 0.5, 1),
        (-299.0, 299.0, CELLS * CELLS - 1),
        (0.51, 0.0, -1),
        (-299.51, 0.0, -1),
        (-9e3, 12e3, -1),
    ]
    north, east, wanted = (np.array(column) for column in zip(*places, strict=True))
    lat, lon = (FIRST_LAT + north * CELL_LAT) / 1e9, (FIRST_LON + east * CELL_LON) / 1e9
    assert cells_of(lat, lon).tolist() == wanted.tolist()
    times_square = cell(40.758, -73.9855)
    assert times_square is not None
    column, row = times_square
    assert cells_of(np.array([40.758]), np.array([-73.9855])).tolist() == [(row - 1) * CELLS + column - 1]


def test_trips_depend_on_their_number_alone() -> None:
    whole = Cabs()(0, 3000)
    assert whole.slice(1000, 500).equals(Cabs()(1000, 1500))
    assert np.all(np.diff(whole.column("dropoff_s").to_numpy()) >= 0)


def test_is_the_papers_row() -> None:
    flow = find_flow("taxi-routes")
    assert [o.parallelism.maximum for o in flow.operators][:5] == [16, 16, 8, 4, 1]
