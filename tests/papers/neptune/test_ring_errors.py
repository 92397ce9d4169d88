"""Rings on real traces are closer to what comes than the last value and a moving average."""

from pathlib import Path

import numpy as np
import pytest

from penstock_papers.common.forecast_accuracy import load_trace
from penstock_papers.neptune.ring_errors import ring_errors, squeezed

STOCKS = ("AAPL", "FB", "GOOG")
DAY_STEPS, DAY_S, DAYS = 288, 430.0, 8


def test_errors_by_hand() -> None:
    seconds = np.arange(900.0)
    found = ring_errors(np.stack([np.full(900, 7.0), seconds]), season_s=0.0, warm_up_s=300.0)
    assert [float(found[way][0]) for way in found] == pytest.approx([0, 0, 0], abs=1e-9)
    # A ramp: seen is the mean over the last 5 s, windows of a ring have their middle 90 s from now on average.
    assert found["last value"][1] == pytest.approx(90 + 2.5)
    assert found["moving average"][1] == pytest.approx(90 + 30)
    assert found["rings"][1] < found["last value"][1]


def test_better_than_last_value_and_moving_average_on_tweets(shared_data: Path) -> None:
    traces = np.stack(
        [
            squeezed(
                load_trace(shared_data / f"tweet_volume_{name}.csv"),
                steps_per_day=DAY_STEPS,
                day_s=DAY_S,
                days=DAYS,
            )
            for name in STOCKS
        ]
    )
    found = ring_errors(traces, season_s=DAY_S, warm_up_s=3 * DAY_S)
    for way in ("last value", "moving average"):
        print(f"rings over {way}: {np.round(found['rings'] / found[way], 3).tolist()}")
        assert (found["rings"] < found[way]).all()
