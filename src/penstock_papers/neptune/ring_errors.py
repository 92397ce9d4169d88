"""How far prediction rings are off on real traces, beside the last value and a moving average."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Floats
from penstock.policies.interference.expectations import Learned, expected_rps, observe
from penstock.policies.interference.rings import RingShape

STEP_S = 5.0
"""A controller's cycle."""
MEAN_STEPS = 12
"""Cycles in the moving average."""


def squeezed(trace: Floats, *, steps_per_day: int, day_s: float, days: int) -> Floats:
    """[second]: a trace whose days pass in `day_s` seconds each, so that rings look hours ahead."""
    seconds = np.arange(round(days * day_s)) * (steps_per_day / day_s)
    return np.asarray(np.interp(seconds, np.arange(len(trace)), trace), np.float64)


def ring_errors(
    traces: Floats, *, season_s: float, warm_up_s: float, shape: RingShape | None = None
) -> dict[str, Floats]:
    """Way to [series]: the mean absolute error over all windows of the rings, weighted by their lengths.

    `traces` is [series, second]. Rings are filled as the policy fills them, a cycle at a time from what came before.
    """
    shape = shape or RingShape()
    series, step = len(traces), round(STEP_S)
    total = np.concatenate([np.zeros((series, 1)), np.cumsum(traces, axis=1)], axis=1)
    edges = np.round(shape.edges_s).astype(np.int64)
    share = np.diff(edges) / edges[-1]
    learned, nothing = Learned.nothing(), np.full(series, np.nan)
    rates: list[Floats] = []
    off: dict[str, list[Floats]] = {"rings": [], "last value": [], "moving average": []}
    for now in range(step, traces.shape[1] - int(edges[-1]) + 1, step):
        rates.append((total[:, now] - total[:, now - step]) / step)
        learned = observe(
            learned,
            np.arange(series),
            rates[-1],
            np.ones(series, np.bool_),
            nothing,
            nothing,
            step_s=STEP_S,
            season_s=season_s,
            mean_steps=2,
            span_s=shape.span_s,
        )
        if now < warm_up_s:
            continue
        came = np.diff(total[:, now + edges], axis=1) / np.diff(edges)
        guesses = {
            "rings": expected_rps(learned, shape, season_s=season_s),
            "last value": rates[-1][:, None],
            "moving average": np.mean(rates[-MEAN_STEPS:], axis=0)[:, None],
        }
        for way, guess in guesses.items():
            off[way].append((np.abs(guess - came) * share).sum(axis=1))
    return {way: np.mean(found, axis=0) for way, found in off.items()}
