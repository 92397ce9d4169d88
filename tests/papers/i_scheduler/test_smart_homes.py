"""Smart homes: predictions are the reference's, whatever batches the readings come in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.api.choices import find_flow
from penstock.dataflow import constant
from penstock_papers.i_scheduler.smart_homes import (
    DAY_S,
    LOAD,
    Homes,
    predict,
    recorded_readings,
    smart_homes,
)
from tests.papers.common.interpreter import Interpreter, in_order, some_cuts
from tests.papers.i_scheduler.home_reference import predictions

FEW = Homes(houses=2, households=2, plugs=2, every_s=300)
ROWS = FEW.per_tick * (288 * 3 + 1)
"""Three days, and a reading of each plug from the fourth."""


@pytest.mark.parametrize(("batches", "seed"), [(0, None), (40, 1), (7, 2)])
def test_predictions_are_those_of_the_reference(batches: int, seed: int | None) -> None:
    run = Interpreter(smart_homes(homes=FEW), seed=seed).run(ROWS, batches=some_cuts(ROWS, batches, 3))
    wanted = predictions(FEW(0, ROWS).to_pylist())
    assert len(wanted) == (8 + 2) * (96 * 3)
    assert in_order(run["predictions"]) == in_order(wanted)


def test_gaps_are_no_slices() -> None:
    short = Homes(houses=1, households=1, plugs=1, every_s=1000)
    rows = short.per_tick * 400
    run = Interpreter(smart_homes(homes=short), seed=4).run(rows, batches=some_cuts(rows, 20, 5))
    slices = {row["slice"] for row in run["predictions"]}
    assert len(slices) < max(slices) - min(slices), (
        "a reading every 1,000 s leaves some slices of 900 s empty"
    )
    assert in_order(run["predictions"]) == in_order(predictions(short(0, rows).to_pylist()))


def test_other_slices() -> None:
    run = Interpreter(smart_homes(homes=FEW, slice_s=3600)).run(2000)
    assert in_order(run["predictions"]) == in_order(predictions(FEW(0, 2000).to_pylist(), slice_s=3600))
    with pytest.raises(ValueError, match="whole number of slices"):
        smart_homes(slice_s=7000)


def test_the_formula_of_the_challenge() -> None:
    history = {(10 + 2) % 96: [100.0, 500.0, 300.0]}
    assert predict(history, 10, 50.0, 96) == (50.0 + 300.0) / 2
    assert history[10] == [50.0]
    assert predict({}, 10, 50.0, 96) == 50.0


def test_readings_depend_on_their_number_alone_and_look_like_homes() -> None:
    homes = Homes(houses=5, every_s=600)
    whole = homes(0, homes.per_tick * 144)
    assert whole.slice(777, 300).equals(homes(777, 1077))
    frame = whole.to_pandas()
    loads = frame[frame["property"] == LOAD]
    assert len(loads) * 2 == len(frame)
    assert loads["value"].min() >= 0
    hour = loads["time_s"] % DAY_S // 3600
    assert loads["value"][hour.between(19, 21)].mean() > 2 * loads["value"][hour.between(1, 4)].mean()
    assert np.array_equal(np.round(loads["value"], 3), loads["value"])


def test_reads_the_challenges_file(tmp_path: Path) -> None:
    path = tmp_path / "readings.csv"
    rows = FEW(0, 1000).to_pandas()[["id", "time_s", "value", "property", "plug", "household", "house"]]
    rows.sample(frac=1.0, random_state=1).to_csv(path, header=False, index=False)
    recording = recorded_readings(str(path))
    assert recording.rows == 1000
    run = Interpreter(smart_homes(path=str(path), load=constant(10))).run(1000)
    assert in_order(run["predictions"]) == in_order(predictions(FEW(0, 1000).to_pylist()))
    again = recording(1000, 2000).column("time_s").to_numpy()
    assert again.min() > recording(0, 1000).column("time_s").to_numpy().max(), (
        "time goes on when it starts again"
    )


def test_is_the_papers_diamond() -> None:
    flow = find_flow("smart-homes")
    assert {o.id: o.parallelism.maximum for o in flow.operators} == dict.fromkeys(
        ("readings", "loads", "plugs", "houses", "predictions"), 10
    )
    assert [s.source for s in flow.upstream("predictions")] == ["plugs", "houses"]
