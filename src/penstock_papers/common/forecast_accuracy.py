"""Rolling-origin accuracy of forecasts on a rate trace, beside simple baselines.

Every step of the trace is an origin: what is foreseen there for t+h, with nothing known of the time after t, is
compared with what came. All methods are scored on the same origins.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.arrays import Floats
from penstock.forecast.options import ForecastOptions
from penstock.forecast.outlook import foresee
from penstock.forecast.state import start
from penstock.forecast.update import update

OURS = "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How far forecasts were off: *mae* and *rmse* in the units of the trace.

    *mase* is the MAE over that of the last value one step ahead before the first origin (Hyndman and Koehler,
    «Another look at measures of forecast accuracy», 2006).
    """

    mae: float
    rmse: float
    mase: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyReport:
    """Scores by method and horizon, and how often the truth stayed under our mean + k sigma."""

    horizons: tuple[int, ...]
    origins: int
    scores: dict[str, tuple[Score, ...]]
    under_two_sigma: tuple[float, ...]

    def mae_ratio(self, method: str) -> tuple[float, ...]:
        """Return our MAE over that of *method*, for each horizon; below 1 ours is better."""
        pairs = zip(self.scores[OURS], self.scores[method], strict=True)
        return tuple(ours.mae / theirs.mae if theirs.mae else math.inf for ours, theirs in pairs)


def load_trace(path: Path) -> Floats:
    """Return the values of a rate trace: a CSV file with the header `timestamp,value`."""
    with path.open(newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if header != ["timestamp", "value"]:
            raise ValueError(f"{path} starts with {header}; a rate trace starts with timestamp,value")
        values = []
        for line, row in enumerate(rows, start=2):
            try:
                values.append(float(row[1]))
            except (IndexError, ValueError):
                raise ValueError(f"{path}, line {line}: {row} is no timestamp and value") from None
    return np.array(values)


def rolling_forecasts(
    trace: Floats, horizons: Sequence[int], options: ForecastOptions
) -> tuple[Floats, Floats]:
    """Return our (mean, sigma), each [origin, horizon], as foreseen at every step of *trace*."""
    steps = np.array(horizons, np.int64)
    mean, sigma = np.empty((len(trace), len(steps))), np.empty((len(trace), len(steps)))
    state = start(1, options)
    for t, value in enumerate(trace):
        state = update(state, np.array([value]), options)
        means, sigmas, _, _ = foresee(state, steps, options)
        mean[t], sigma[t] = means[0], sigmas[0]
    return mean, sigma


def baseline_forecasts(
    trace: Floats, horizons: Sequence[int], season_steps: int, mean_steps: Sequence[int]
) -> dict[str, Floats]:
    """Return [origin, horizon] of last value, last season and moving averages; NaN before there is a season."""
    steps = np.array(horizons, np.int64)
    end = np.arange(1, len(trace) + 1)
    sums = np.concatenate([[0.0], np.cumsum(trace)])
    result = {"last value": np.repeat(trace[:, None], len(steps), axis=1)}
    if season_steps:
        source = end[:, None] - 1 + steps - -(-steps // season_steps) * season_steps
        result["last season"] = np.where(source >= 0, trace[np.maximum(source, 0)], np.nan)
    for window in mean_steps:
        count = np.minimum(end, window)
        mean = (sums[end] - sums[end - count]) / count
        result[f"mean of {window}"] = np.repeat(mean[:, None], len(steps), axis=1)
    return result


def measure(
    trace: Floats,
    horizons: Sequence[int],
    options: ForecastOptions,
    *,
    warm_up_steps: int,
    mean_steps: Sequence[int] = (12,),
) -> AccuracyReport:
    """Return the accuracy of ours and the baselines on *trace*, from the origin *warm_up_steps* on.

    *mean_steps* are the windows of the moving averages.
    """
    if not 1 < warm_up_steps < len(trace) - max(horizons):
        raise ValueError(
            f"{warm_up_steps} steps of warm-up and a horizon of {max(horizons)} leave no origin in a "
            f"trace of {len(trace)} steps"
        )
    ours, sigma = rolling_forecasts(trace, horizons, options)
    methods = {OURS: ours} | baseline_forecasts(trace, horizons, options.season_steps, mean_steps)
    unit = float(np.abs(np.diff(trace[:warm_up_steps])).mean())
    scores: dict[str, list[Score]] = {name: [] for name in methods}
    under = []
    for j, h in enumerate(horizons):
        origins = np.arange(warm_up_steps, len(trace) - max(horizons))
        truth = trace[origins + h]
        for name, forecasts in methods.items():
            off = truth - forecasts[origins, j]
            mae = float(np.abs(off).mean())
            rmse = float(np.sqrt((off**2).mean()))
            scores[name].append(Score(mae=mae, rmse=rmse, mase=mae / unit if unit else math.inf))
        under.append(float((truth <= ours[origins, j] + 2 * sigma[origins, j]).mean()))
    return AccuracyReport(
        horizons=tuple(horizons),
        origins=len(trace) - max(horizons) - warm_up_steps,
        scores={name: tuple(rows) for name, rows in scores.items()},
        under_two_sigma=tuple(under),
    )
