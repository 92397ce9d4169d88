"""What a user may set about forecasting."""

from dataclasses import dataclass

from penstock.errors import check_ranges

FIRST_FIT_STEPS = 24  # observations before the first fit of the unseasonal model
PROBE_RATIOS = 3  # from one step to the horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """Options shared by all series of one state; a step is the time between two updates."""

    season_steps: int = 0
    """Length of the season (steps, 0 = no season, else 2 or more). At 5-minute steps a day is 288."""

    history_seasons: int = 3
    """Seasons kept for fitting (seasons, 2 or more); a refit sees this much and nothing older."""

    history_steps: int = 360
    """Observations kept for fitting (steps, 48 or more) when that is more than `history_seasons` are."""

    horizon_steps: int = 180
    """Furthest horizon that forecasts are asked for (steps, 1 or more); further ones are less sure than they say."""

    mean_steps: int = 12
    """Window of the moving average (steps, 1 or more)."""

    error_memory_steps: int = 288
    """How far back tracked errors reach (steps, 1 or more): weight 1/memory for each new error."""

    choice_sharpness: float = 4.0
    """How strongly lower error wins (exponent, 0 or more): a model weighs error**-sharpness."""

    outlier_sigmas: float = 2.0
    """Innovations move level, trend and season by at most this many spreads (spreads, above 0, inf = all)."""

    nonnegative: bool = True
    """Whether the series are rates or counts: negative values are refused and never forecast."""

    drift_ratio: float = 2.0
    """Recent one-step error over long-run error that counts as drift (ratio, above 1)."""

    drift_patience_steps: int = 12
    """Consecutive updates over `drift_ratio` before a refit (steps, 1 or more)."""

    refits_per_update: int = 2_000
    """Series fitted in one update at most (series, 1 or more); the others wait their turn, oldest fit first."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            {
                "season_steps is 0 or at least 2": self.season_steps == 0 or self.season_steps >= 2,
                "history_seasons is at least 2": self.history_seasons >= 2,
                "history_steps is at least 48": self.history_steps >= 2 * FIRST_FIT_STEPS,
                "horizon_steps is at least 1": self.horizon_steps >= 1,
                "mean_steps is at least 1": self.mean_steps >= 1,
                "error_memory_steps is at least 1": self.error_memory_steps >= 1,
                "choice_sharpness is 0 or more": self.choice_sharpness >= 0,
                "outlier_sigmas is above 0": self.outlier_sigmas > 0,
                "drift_ratio is above 1": self.drift_ratio > 1,
                "drift_patience_steps is at least 1": self.drift_patience_steps >= 1,
                "refits_per_update is at least 1": self.refits_per_update >= 1,
            },
        )

    @property
    def capacity_steps(self) -> int:
        """Observations that a state keeps."""
        return max(self.history_seasons * self.season_steps, self.history_steps, self.mean_steps)

    @property
    def probe_steps(self) -> tuple[int, ...]:
        """Horizons at which errors are tracked, rising from 1 in even ratios; between them they are interpolated.

        Long ones lie half a season off a whole number of seasons. At whole seasons the last value looks as good
        as a seasonal model, and would be trusted for all the horizons between.
        """
        steps = {round(self.horizon_steps ** (k / PROBE_RATIOS)) for k in range(PROBE_RATIOS + 1)}
        half = self.season_steps // 2
        if half:
            steps = {
                h if h <= half else max(1, round(h / self.season_steps)) * self.season_steps - half
                for h in steps
            }
        return tuple(sorted(steps))
