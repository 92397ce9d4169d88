"""The accuracy that docs/results/forecast.md reports, and that its measures are what they say."""

from pathlib import Path

import numpy as np
import pytest

from penstock.forecast import ForecastOptions
from penstock_papers.common.forecast_accuracy import AccuracyReport, baseline_forecasts, load_trace, measure

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
DAY = 288


def a_trace(name: str) -> np.ndarray:
    path = DATA / f"tweet_volume_{name}.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not in ../shared/data")
    return load_trace(path)


def test_baselines_on_a_trace_known_by_heart() -> None:
    trace = np.arange(10.0)
    found = baseline_forecasts(trace, [1, 5], season_steps=4, mean_steps=[2])
    assert found["last value"][9].tolist() == [9, 9]
    assert found["mean of 2"][9].tolist() == [8.5, 8.5]
    assert found["mean of 2"][0].tolist() == [0, 0]
    assert found["last season"][9].tolist() == [6, 6]  # 10 - 4, and 14 - 8
    assert np.isnan(found["last season"][1]).all()


def test_scores_by_hand() -> None:
    trace = np.tile([10.0, 20.0], 40)
    report = measure(trace, [1, 2], ForecastOptions(season_steps=2, horizon_steps=2), warm_up_steps=20)
    assert report.origins == 80 - 2 - 20
    assert [s.mae for s in report.scores["last value"]] == [10, 0]
    assert [s.rmse for s in report.scores["last value"]] == [10, 0]
    assert [s.mase for s in report.scores["last value"]] == [1, 0]
    assert [s.mae for s in report.scores["last season"]] == [0, 0]
    assert report.scores["penstock"][0].mae == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "message"), [("a,b\n1,2\n", "starts with"), ("timestamp,value\nx,1\ny,z\n", "line 3")]
)
def test_a_bad_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_trace(path)


def test_too_short_a_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="no origin"):
        measure(np.arange(10.0), [5], ForecastOptions(), warm_up_steps=6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AAPL", "FB", "GOOG"])
def test_better_than_every_baseline_on_the_traces(name: str) -> None:
    """Three weeks of each; docs/results/forecast.md has all of them."""
    options = ForecastOptions(season_steps=DAY, horizon_steps=DAY)
    report = measure(a_trace(name)[: 21 * DAY], [1, 6, 12, 36], options, warm_up_steps=3 * DAY)
    assert worst(report, "last value") < 0.99
    assert worst(report, "mean of 12") < 0.97
    assert worst(report, "last season") < 0.90
    assert min(report.under_two_sigma) > 0.90


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AAPL", "FB", "GOOG"])
def test_better_than_fallbacks_three_minutes_ahead(name: str) -> None:
    """The rings: a day in 429 s, one-second steps (ten days of the trace)."""
    days = a_trace(name)[: 10 * DAY]
    trace = np.interp(np.arange(10 * 429) * DAY / 429, np.arange(len(days)), days)
    options = ForecastOptions(season_steps=429, horizon_steps=180)
    report = measure(trace, [30, 60, 120, 180], options, warm_up_steps=3 * 429)
    assert worst(report, "last value") < 0.95
    assert worst(report, "mean of 12") < 0.97


def worst(report: AccuracyReport, method: str) -> float:
    return max(report.mae_ratio(method))
