"""Fits that a few strange batches do not spoil, and how far what was seen is from them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]

HUBER = 1.345
ROUNDS = 60
FAR = 3.0
"""Residuals count up to this many deviations in the mean: what is skewed is part of it, what is absurd is not."""
WIDEST = 1.5
"""Largest logarithm of a ratio that counts as variation."""


def robust_fit(columns: Floats, seen: Floats) -> Floats:
    """Coefficients, none negative, of the columns (a row for each observation) that explain what was seen.

    Errors grow with the size of what is seen, as times do: residuals are shares of the fit. Huber's weights (k = 1.345)
    hold outliers down; the mean of the fit is then that of the observations, which are skewed to the right.
    """
    scale = np.maximum(columns.max(axis=0), 1e-300)
    scaled = columns / scale
    usual = max(float(np.median(seen)), 1e-12)
    found, _ = nnls(scaled / usual, seen / usual)
    off = np.zeros(len(seen))
    for _ in range(ROUNDS):
        fitted = np.maximum(scaled @ found, 1e-3 * usual)
        off = (seen - fitted) / fitted
        spread = _spread(off)
        weights = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(off), 1e-12))
        root = np.sqrt(weights) / fitted
        before, (found, _) = found, nnls(scaled * np.reshape(root, (-1, 1)), seen * root)
        if np.allclose(before, found, rtol=1e-6, atol=0.0):
            break
    fitted = np.maximum(scaled @ found, 1e-3 * usual)
    off = (seen - fitted) / fitted
    far = FAR * _spread(off)
    centred = 1.0 + float(np.mean(np.clip(off, -far, far))) if len(off) else 1.0
    return np.asarray(found / scale * max(centred, 0.1))


def variation(ratios: Floats) -> float:
    """Coefficient of variation of factors around 1, as a lognormal has it."""
    if len(ratios) < 2:
        return 0.0
    logs = np.clip(np.log(np.maximum(ratios, 1e-6)), -WIDEST, WIDEST)
    return math.sqrt(math.expm1(float(np.var(logs))))


def _spread(off: Floats) -> float:
    """Standard deviation of the middle of the residuals, around 0: a fit that is off everywhere is not exact."""
    return max(1e-6, 1.4826 * float(np.median(np.abs(off)))) if len(off) else 0.0
