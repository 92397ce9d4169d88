"""The length of a season, found in the data: after how many steps a series repeats itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats

THRESHOLD = 0.1
"""Largest normalised difference that counts as a repetition (the value of de Cheveigné and Kawahara)."""
OVERLAP = 0.25
"""Share of a second season that must have been seen before a first one is believed in."""


def season_steps(series: Floats, *, shortest: int = 8, threshold: float = THRESHOLD) -> int:
    """The lag at which the series repeats itself, in steps; 0 if it does not.

    The cumulative-mean-normalised difference of YIN (de Cheveigné, Kawahara 2002), on means rather than sums
    because the longer the lag, the less there is to compare:

        d(L) = mean_t (x_t - x_{t-L})²,   d'(L) = d(L) / mean_{j=1..L} d(j)

    A plain autocorrelation takes any slow rise for a repetition; d' does not, since on the way to a true period
    the series must have moved away from itself first. What overlaps must itself vary, or there is nothing to see.
    """
    x = series[np.isfinite(series)]
    longest = int(len(x) / (1 + OVERLAP))
    if longest <= shortest:
        return 0
    d = _differences(x - x.mean(), longest)
    walked = np.cumsum(d[1:]) / np.arange(1, longest + 1)
    normalised = np.where(walked > 0, d[1:] / np.where(walked > 0, walked, 1.0), 1.0)
    lags = np.arange(1, longest + 1)
    good = (lags >= shortest) & (normalised < threshold) & _varies(x, longest)
    if not good.any():
        return 0
    # The first dip is the season, later ones are its multiples; its lowest point is where it lies.
    start = int(np.argmax(good))
    end = start + int(np.argmin(good[start:])) if not good[start:].all() else len(good)
    return int(lags[start + int(np.argmin(normalised[start:end]))])


def _differences(x: Floats, longest: int) -> Floats:
    """d(L) for L = 0..longest, by the Fourier transform: Σ(x_t - x_{t-L})² = Σx_t² + Σx_{t-L}² - 2·Σx_t·x_{t-L}."""
    n = len(x)
    size = 1 << int(np.ceil(np.log2(2 * n)))
    spectrum = np.fft.rfft(x, size)
    products = np.fft.irfft(spectrum * np.conj(spectrum), size)[: longest + 1]
    squares = np.concatenate([[0.0], np.cumsum(x * x)])
    lags = np.arange(longest + 1)
    later, earlier = squares[n] - squares[lags], squares[n - lags]
    return np.asarray(np.clip(later + earlier - 2 * products, 0.0, None) / (n - lags))


def _varies(x: Floats, longest: int) -> NDArray[np.bool_]:
    """Whether the part of the series from each lag 1..longest on varies at least a quarter as much as the whole."""
    n = len(x)
    lags = np.arange(1, longest + 1)
    centred = x - x.mean()
    total = np.concatenate([[0.0], np.cumsum(centred)])
    squares = np.concatenate([[0.0], np.cumsum(centred * centred)])
    count = n - lags
    variance = (squares[n] - squares[lags]) / count - ((total[n] - total[lags]) / count) ** 2
    return np.asarray(variance >= 0.25 * squares[n] / n)
