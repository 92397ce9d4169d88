"""Accuracy on real traces beside simple baselines, and speed beside statsmodels.

    python benchmarks/forecast.py [accuracy] [heldout] [rings] [speed] [statsforecast] [--data DIR]

Prints Markdown tables on standard output; without a name, all of them but `statsforecast`, which needs that library
(it is not among ours: install it into an environment of its own). Options were chosen while looking at
`tweet_volume_*.csv` (accuracy, rings); `heldout` runs them unchanged on traces that were not looked at.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from statsmodels.tsa.holtwinters import ExponentialSmoothing

from penstock.forecast import ForecastOptions, forecast, start, update
from penstock_papers.common.forecast_accuracy import (
    OURS,
    AccuracyReport,
    load_trace,
    measure,
    rolling_forecasts,
)

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
DAY_STEPS = 288  # of 5 minutes
DAILY = ForecastOptions(season_steps=DAY_STEPS, horizon_steps=DAY_STEPS)
DAILY_HORIZONS = (1, 6, 12, 36, 288)
# As in the Nephele trial, two weeks of tweets in 100 minutes: a day lasts 429 s, and a step is one second.
RING_DAY_S = 429
RINGS = ForecastOptions(season_steps=RING_DAY_S, horizon_steps=180)
RING_HORIZONS = (1, 30, 60, 120, 180)
WINDOWS = (3, 12, 24, 72, 288)  # of the moving averages


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
    """MAE / RMSE of every method, then how ours compares with the best baseline of that column, chosen afterwards."""
    horizons = next(iter(reports.values())).horizons
    print("| trace | method | " + " | ".join(f"{h} {unit}" for h in horizons) + " |")
    print("|---|---|" + "---|" * len(horizons))
    for name, report in reports.items():
        for method, scores in report.scores.items():
            print(
                f"| {name} | {method} | " + " | ".join(f"{s.mae:.4g} / {s.rmse:.4g}" for s in scores) + " |"
            )
        ours = report.scores[OURS]
        others = [scores for method, scores in report.scores.items() if method != OURS]
        for label, of in (("MAE", lambda s: s.mae), ("RMSE", lambda s: s.rmse)):
            best = [min(of(scores[j]) for scores in others) for j in range(len(horizons))]
            cells = [f"{of(s) / b - 1:+.1%}" for s, b in zip(ours, best, strict=True)]
            print(f"| {name} | *our {label} against the best other* | " + " | ".join(cells) + " |")
        print(f"| {name} | *our MASE* | " + " | ".join(f"{s.mase:.2f}" for s in ours) + " |")
        print(
            f"| {name} | *under mean + 2σ* | " + " | ".join(f"{u:.1%}" for u in report.under_two_sigma) + " |"
        )


def accuracy(data: Path) -> None:
    print("\nMAE / RMSE, 5-minute steps, every step after the first three days an origin\n")
    print_accuracy(
        {
            name: measure(trace, DAILY_HORIZONS, DAILY, warm_up_steps=3 * DAY_STEPS, mean_steps=WINDOWS)
            for name, trace in traces(data).items()
        },
        "steps",
    )


def heldout(data: Path) -> None:
    half_hours = ForecastOptions(season_steps=48, horizon_steps=48)
    reports = {}
    for path in sorted(data.glob("ec2_*.csv")):
        reports[path.stem] = measure(
            load_trace(path), DAILY_HORIZONS, DAILY, warm_up_steps=3 * DAY_STEPS, mean_steps=WINDOWS
        )
    print("\nMAE / RMSE, traces not used to choose options, 5-minute steps\n")
    print_accuracy(reports, "steps")
    taxi = load_trace(data / "nyc_taxi_demand.csv")
    print("\nMAE / RMSE, likewise, half-hour steps, a day is 48\n")
    print_accuracy(
        {
            "nyc_taxi": measure(
                taxi, (1, 2, 6, 12, 48), half_hours, warm_up_steps=3 * 48, mean_steps=(2, 6, 12, 48)
            )
        },
        "steps",
    )


def rings(data: Path) -> None:
    print("\nMAE / RMSE, two weeks in 100 minutes, one-second steps\n")
    print_accuracy(
        {
            name: measure(
                ring_trace(trace), RING_HORIZONS, RINGS, warm_up_steps=3 * RING_DAY_S, mean_steps=WINDOWS
            )
            for name, trace in traces(data).items()
        },
        "s",
    )


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
    print(
        "\n| statsmodels, one series after another | ms a fit (mean of 5) | 1,000 series, s | 10,000 series, s |"
    )
    print("|---|---|---|---|")
    for method in ("heuristic", "estimated"):
        begin = time.perf_counter()
        for column in sample.T:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about convergence, which is not asked here
                ExponentialSmoothing(
                    column, trend="add", damped_trend=True, seasonal="add", seasonal_periods=DAY_STEPS,
                    initialization_method=method,
                ).fit()  # fmt: skip
        fit_s = (time.perf_counter() - begin) / sample.shape[1]
        print(f"| initial states {method} | {fit_s * 1e3:.0f} | {fit_s * 1e3:,.0f}* | {fit_s * 1e4:,.0f}* |")
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(
        f"\n\\* the mean times the number of series, not run. {cores} cores, load average {load:.1f} at the end."
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


def statsforecast(data: Path) -> None:
    """Ours beside models of statsforecast that are fitted anew at each origin to the same three days."""
    from statsforecast.models import MSTL, AutoETS, DynamicOptimizedTheta

    print("\nMAE over ours, geometric mean over the traces; 40 origins each, three days of history\n")
    ratios: dict[str, list[np.ndarray]] = {}
    cpu_s: dict[str, list[float]] = {}
    for path in sorted(
        [*data.glob("tweet_volume_*.csv"), *data.glob("ec2_*.csv"), data / "nyc_taxi_demand.csv"]
    ):
        trace = load_trace(path)
        day, horizons = (48, (1, 2, 6, 12, 48)) if "taxi" in path.stem else (DAY_STEPS, DAILY_HORIZONS)
        options = ForecastOptions(season_steps=day, horizon_steps=day)
        begin_s = time.process_time()
        mean, _ = rolling_forecasts(trace, horizons, options)
        cpu_s.setdefault(OURS, []).append((time.process_time() - begin_s) / len(trace))
        origins = np.linspace(3 * day, len(trace) - max(horizons) - 1, 40).astype(int)
        truth = np.array([trace[i + np.array(horizons)] for i in origins])
        ours = np.abs(truth - mean[origins]).mean(axis=0)
        # AutoETS takes no season above 24 steps; MSTL takes the season out first.
        models = {
            "AutoETS, no season": AutoETS(season_length=1),
            "MSTL and AutoETS": MSTL(season_length=day, trend_forecaster=AutoETS(model="ZZN")),
            "DynamicOptimizedTheta": DynamicOptimizedTheta(season_length=day),
        }
        for name, model in models.items():
            model.forecast(y=trace[: 3 * day], h=day)  # compiles
            begin_s = time.process_time()
            found = [model.forecast(y=trace[i + 1 - 3 * day : i + 1], h=day)["mean"] for i in origins]
            cpu_s.setdefault(name, []).append((time.process_time() - begin_s) / len(origins))
            theirs = np.array([each[np.array(horizons) - 1] for each in found])
            ratios.setdefault(name, []).append(np.abs(truth - theirs).mean(axis=0) / ours)
    print("| model | 1st horizon | 2nd | 3rd | 4th | a day | all | ours is better in | CPU ms a forecast |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, rows in ratios.items():
        table = np.array(rows)
        cells = [f"{x:.2f}" for x in (*np.exp(np.log(table).mean(axis=0)), np.exp(np.log(table).mean()))]
        won = f"{np.count_nonzero(table > 1)} of {table.size}"
        print(f"| {name} | {' | '.join(cells)} | {won} | {1e3 * np.mean(cpu_s[name]):.0f} |")
    print(f"\nOurs takes {1e3 * np.mean(cpu_s[OURS]):.2f} ms of CPU a step, fits included.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="accuracy, heldout, rings, speed, statsforecast"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="directory of the traces")
    given = parser.parse_args()
    usual = {"accuracy": accuracy, "heldout": heldout, "rings": rings, "speed": lambda _: speed()}
    tables = {**usual, "statsforecast": statsforecast}
    if unknown := set(given.tables) - set(tables):
        parser.error(f"no table {sorted(unknown)}; there are {', '.join(tables)}")
    for name in given.tables or usual:
        tables[name](given.data)


if __name__ == "__main__":
    main()
