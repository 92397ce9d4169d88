"""What the sources will produce: the arrival forecast with its uncertainty, and seasons found on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from penstock.arrays import Floats
from penstock.forecast import ForecastOptions, ForecastState, forecast
from penstock.forecast import start as start_forecast
from penstock.forecast import update as update_forecast
from penstock.policies.elasticity.seasons import season_steps

LOOK_EVERY = 30
"""Steps between two searches for a season."""
SURPRISE_SIGMAS = 3.0
"""An observation this far above what was expected is believed at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Foresight:
    """Memory of what sources produced, a column per source, and of what was expected of them."""

    step_s: float
    horizon_steps: int
    kept_steps: int
    """Steps of the past that are kept, for finding seasons."""
    history: Floats
    """[step, source]; NaN where nothing was measured."""
    state: ForecastState
    seen: int = 0
    """Steps since the start."""
    season_steps: int = 0
    expected: Floats = field(default_factory=lambda: np.zeros(0))
    """For the coming step, mean and sigma: what was foreseen last."""
    expected_sigma: Floats = field(default_factory=lambda: np.zeros(0))
    surprised: bool = False
    """Whether the last observation was far above what had been expected."""

    @classmethod
    def start(cls, sources: int, *, step_s: float, horizon_s: float, kept_steps: int = 4096) -> Foresight:
        """Nothing seen yet; forecasts will be asked for up to `horizon_s` ahead."""
        horizon = max(1, math.ceil(horizon_s / step_s))
        return cls(
            step_s=step_s,
            horizon_steps=horizon,
            kept_steps=kept_steps,
            history=np.zeros((0, sources)),
            state=start_forecast(sources, _options(0, horizon)),
        )

    def observe(self, rates_rps: Floats) -> Foresight:
        """With one step more; rates that are not finite count as not measured."""
        known = np.isfinite(rates_rps) & (rates_rps >= 0)
        rates = np.where(known, rates_rps, np.nan)
        history = np.vstack([self.history, rates])[-self.kept_steps :]
        season, state = self.season_steps, self.state
        total = history.sum(axis=1)
        if (self.seen + 1) % LOOK_EVERY == 0:
            season = _steadied(season_steps(total), self.season_steps)
        options = _options(season, self.horizon_steps)
        if season != self.season_steps:
            state = start_forecast(history.shape[1], options)
            for past in history[-options.capacity_steps - 1 : -1]:
                state = update_forecast(state, past, options, known=np.isfinite(past))
        state = update_forecast(state, rates, options, known=known)
        coming = forecast(state, 1, options)
        limit = self.expected + SURPRISE_SIGMAS * self.expected_sigma
        surprised = bool(len(limit) and np.any(known & (rates_rps > limit)))
        return Foresight(
            step_s=self.step_s,
            horizon_steps=self.horizon_steps,
            kept_steps=self.kept_steps,
            history=history,
            state=state,
            seen=self.seen + 1,
            season_steps=season,
            expected=coming.mean[:, 0],
            expected_sigma=coming.sigma[:, 0],
            surprised=surprised,
        )

    def highest_rps(self, within_s: float, *, sigmas: float, most: float) -> Floats:
        """Per source, the highest rate to be ready for in the next `within_s`: mean and `sigmas` deviations.

        Uncertainty adds at most the share `most`: before anything has been learnt it knows no bounds. A surprise
        is believed as it is.
        """
        steps = min(self.horizon_steps, max(1, math.ceil(within_s / self.step_s - 1e-9)))
        ahead = forecast(self.state, steps, _options(self.season_steps, self.horizon_steps))
        ready = ahead.mean + np.minimum(sigmas * ahead.sigma, most * ahead.mean)
        highest = ready.max(axis=1)
        if self.surprised and len(self.history):
            highest = np.fmax(highest, self.history[-1])
        return np.asarray(highest)


def _options(season: int, horizon: int) -> ForecastOptions:
    return ForecastOptions(season_steps=season, horizon_steps=horizon)


def _steadied(found: int, before: int) -> int:
    """A season that changed by a few steps is the one known before; one not found again is kept."""
    if not found or (before and abs(found - before) <= max(2, before // 50)):
        return before
    return found
