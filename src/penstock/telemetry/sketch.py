"""Percentiles that merge: histograms with logarithmic bins and a bounded relative error.

A fixed array of bins rather than a library's sketch: batches of latencies are added with one `bincount`, a merge
is a sum and therefore exact (`docs/decisions.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

RELATIVE_ERROR = 0.01
SMALLEST = 1e-6
LARGEST = 1e6

# DDSketch (Masson, Rim, Lee 2019): with bins of ratio γ = (1+α)/(1-α), the bin's mid-point is off by at most α.
_GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
_LOG_GAMMA = float(np.log(_GAMMA))
_BINS = int(np.ceil(np.log(LARGEST / SMALLEST) / _LOG_GAMMA)) + 2  # the first: at most SMALLEST


@dataclass(frozen=True, slots=True, eq=False)
class Sketch:
    """The distribution of positive numbers (seconds, bytes), each percentile within 1 % of its true value.

    Values at or below 1e-6 count as 0, values above 1e6 as 1e6.

    >>> s = Sketch.of([1.0, 2.0, 3.0]).merge(Sketch.of([100.0]))
    >>> bool(abs(s.quantile(0.5) - 2.0) < 0.03), int(s.count)
    (True, 4)
    """

    bins: NDArray[np.float64]

    @classmethod
    def empty(cls) -> Sketch:
        """Nothing seen yet."""
        return cls(np.zeros(_BINS))

    @classmethod
    def of(cls, values: ArrayLike, weights: ArrayLike | None = None) -> Sketch:
        """The distribution of `values`, each counted `weights` times (default once); NaN is refused."""
        v = np.asarray(values, dtype=np.float64).ravel()
        if np.isnan(v).any():
            raise ValueError("a sketch cannot hold NaN")
        w = None if weights is None else np.asarray(weights, dtype=np.float64).ravel()
        with np.errstate(divide="ignore"):
            index = np.ceil(np.log(np.clip(v, SMALLEST, LARGEST) / SMALLEST) / _LOG_GAMMA).astype(np.int64)
        return cls(np.bincount(index, w, _BINS).astype(np.float64))

    @classmethod
    def of_bins(cls, occupied: Mapping[int, float]) -> Sketch:
        """The sketch with these records in its bins."""
        bins = np.zeros(_BINS)
        bins[list(occupied)] = list(occupied.values())
        return cls(bins)

    @property
    def occupied(self) -> dict[int, float]:
        """Bin to how many values are in it, where there are any."""
        used = np.flatnonzero(self.bins)
        return dict(zip(used.tolist(), self.bins[used].tolist(), strict=True))

    def merge(self, other: Sketch) -> Sketch:
        """Both distributions as one."""
        return Sketch(self.bins + other.bins)

    @property
    def count(self) -> float:
        """How many values were seen."""
        return float(self.bins.sum())

    @property
    def mean(self) -> float | None:
        """Mean, within the relative error; None when empty."""
        return float(self.bins @ _MIDDLES) / self.count if self.count else None

    def quantile(self, q: float) -> float | None:
        """The value below which a share `q` (0..1) lies; None when empty."""
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile lies in 0..1, not {q}")
        total = self.bins.sum()
        if not total:
            return None
        # The rank runs from 0 to total - 1, as in DDSketch: the lower of the two middle values at 0.5.
        at = int(np.searchsorted(np.cumsum(self.bins), q * max(total - 1, 0.0), side="right"))
        return float(_MIDDLES[min(at, _BINS - 1)])


_MIDDLES = SMALLEST * _GAMMA ** np.arange(_BINS, dtype=np.float64) * 2 / (1 + _GAMMA)
_MIDDLES[0] = 0.0
_MIDDLES.setflags(write=False)
