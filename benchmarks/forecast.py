"""Accuracy on real traces beside simple baselines, and speed beside statsmodels.

    python benchmarks/forecast.py [accuracy] [rings] [speed] [--data DIR]

Prints Markdown tables on standard output; without a name, all of them. The traces are `tweet_volume_*.csv`.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from penstock.forecast import ForecastOptions, forecast, start, update
from penstock.forecast.accuracy import AccuracyReport, load_trace, measure

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
DAY_STEPS = 288  # of 5 minutes
DAILY = ForecastOptions(season_steps=DAY_STEPS, horizon_steps=DAY_STEPS)
DAILY_HORIZONS = (1, 6, 12, 36, 288)
# As in the Nephele trial, two weeks of tweets in 100 minutes: a day lasts 429 s, and a step is one second.
RING_DAY_S = 429
RINGS = ForecastOptions(season_steps=RING_DAY_S, horizon_steps=180)
RING_HORIZONS = (1, 30, 60, 120, 180)


def traces(data: Path) -> dict[str, np.ndarray]:
    found = {
        path.stem.removeprefix("tweet_volume_"): load_trace(path)
        for path in sorted(data.glob("tweet_volume_*.csv"))
    }
    if not found:
        sys.exit(f"no tweet_volume_*.csv in {data}; name their directory with --data")
    return found


def ring_trace(trace: np.ndarray) -> np.ndarray:
    """The first two weeks of *trace* as a rate per second, interpolated to one value for each of 6,000 seconds."""
    fortnight = trace[: 14 * DAY_STEPS] / (RING_DAY_S / DAY_STEPS)
    seconds = np.arange(14 * RING_DAY_S)
    return np.interp(seconds * DAY_STEPS / RING_DAY_S, np.arange(len(fortnight)), fortnight)


def print_accuracy(reports: dict[str, AccuracyReport], unit: str) -> None:
    horizons = next(iter(reports.values())).horizons
    print("| trace | method | " + " | ".join(f"{h} {unit}" for h in horizons) + " |")
    print("|---|---|" + "---|" * len(horizons))
    for name, report in reports.items():
        for method, scores in report.scores.items():
            cells = [f"{s.mae:.2f} / {s.rmse:.1f} / {s.mase:.2f}" for s in scores]
            print(f"| {name} | {method} | " + " | ".join(cells) + " |")
        for method in report.scores:
            if method != "penstock":
                cells = [f"{ratio - 1:+.1%}" for ratio in report.mae_ratio(method)]
                print(f"| {name} | *our MAE against {method}* | " + " | ".join(cells) + " |")
        print(
            f"| {name} | *under mean + 2σ* | " + " | ".join(f"{u:.1%}" for u in report.under_two_sigma) + " |"
        )


def accuracy(data: Path) -> None:
    reports = {
        name: measure(trace, DAILY_HORIZONS, DAILY, warm_up_steps=3 * DAY_STEPS)
        for name, trace in traces(data).items()
    }
    print("\nMAE / RMSE / MASE, every step after the first three days an origin\n")
    print_accuracy(reports, "steps")


def rings(data: Path) -> None:
    reports = {
        name: measure(ring_trace(trace), RING_HORIZONS, RINGS, warm_up_steps=3 * RING_DAY_S)
        for name, trace in traces(data).items()
    }
    print("\nMAE / RMSE / MASE, two weeks in 100 minutes, one-second steps\n")
    print_accuracy(reports, "s")


def made_up(series: int, length: int) -> np.ndarray:
    """Poisson counts with a daily wave, each series with its own phase."""
    rng = np.random.default_rng(7)
    time_of_day = 2 * np.pi * (np.arange(length)[:, None] + 37 * np.arange(series)) / DAY_STEPS
    return rng.poisson(50 + 20 * np.sin(time_of_day)).astype(float)


def speed() -> None:
    print("\nA season of 288 steps, two seasons seen; one thread\n")
    print("| series | update, µs a series | first fit, ms a series | forecast of 90 steps, µs a series |")
    print("|---|---|---|---|")
    warm = made_up(2, 2 * DAY_STEPS + 1)
    time_ours(warm)
    for series in (1_000, 10_000):
        update_s, fit_s, forecast_s = time_ours(made_up(series, 2 * DAY_STEPS + 20))
        print(f"| {series:,} | {update_s * 1e6:.2f} | {fit_s * 1e3:.2f} | {forecast_s * 1e6:.1f} |")
    sample = made_up(1_000, 2 * DAY_STEPS)[:, :5]
    begin = time.perf_counter()
    for column in sample.T:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about convergence, which is not asked here
            ExponentialSmoothing(
                column, trend="add", damped_trend=True, seasonal="add", seasonal_periods=DAY_STEPS
            ).fit()
    per_fit = (time.perf_counter() - begin) / sample.shape[1]
    print(
        f"\nstatsmodels {per_fit * 1e3:.0f} ms a fit (mean of {sample.shape[1]} of these series, fitted one after "
        f"another): {per_fit * 1_000:,.0f} s for 1,000 series and {per_fit * 10_000:,.0f} s for 10,000 by that mean. "
        "It has no update: a new observation is a new fit, or a pass over the history with fixed parameters."
    )


def time_ours(values: np.ndarray) -> tuple[float, float, float]:
    """Seconds a series for (an update without fits, a fit of Holt-Winters, a forecast of 90 steps)."""
    series = values.shape[1]
    options = ForecastOptions(season_steps=DAY_STEPS, horizon_steps=DAY_STEPS, refits_per_update=10**9)
    state, updates, fit_s = start(series, options), [], float("nan")
    for row in values:
        begin = time.perf_counter()
        later = update(state, row, options)
        elapsed = time.perf_counter() - begin
        first = (
            state.holt_winters.fitted_on.max(initial=0) == 0
            and later.holt_winters.fitted_on.max(initial=0) > 0
        )
        if first:
            fit_s = elapsed / series
        updates.append(elapsed)
        state = later
    begin = time.perf_counter()
    forecast(state, 90, options)
    return float(np.median(updates)) / series, fit_s, (time.perf_counter() - begin) / series


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", choices=["accuracy", "rings", "speed", []], help="default: all")
    parser.add_argument("--data", type=Path, default=DATA, help="directory of the traces")
    given = parser.parse_args()
    wanted = given.tables or ["accuracy", "rings", "speed"]
    if "accuracy" in wanted:
        accuracy(given.data)
    if "rings" in wanted:
        rings(given.data)
    if "speed" in wanted:
        speed()


if __name__ == "__main__":
    main()
