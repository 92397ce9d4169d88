"""What the whole input would have given, from the records that shedding kept, with error bars.

A record is kept with probability d, the product of the keep-probabilities on its way (`keeps.thresholds`), and then
counts w = 1/d times (Horvitz and Thompson 1952): counts and sums are unbiased. Keeping goes by a hash, so records
with the same `keep_by` values are kept or dropped together: they are one *unit*, and their errors add up instead of
averaging out. Different units are independent (Poisson sampling), hence an unbiased estimate of the variance is

    V = Σ over pairs (i, j) of kept records of one unit:  y_i·y_j · (1 - max(d_i, d_j)) / (d_i·d_j)

because both are kept exactly if the lower threshold passes: π_ij = min(d_i, d_j). Where each record is its own unit,
V = Σ w·(w - 1)·y², which any SQL engine adds up along with Σ w·y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from penstock.policies.shedding.graph import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its estimated variance, from so many kept units."""

    value: float
    variance: float
    units: int
    complete: bool = False
    """Whether nothing was dropped, so that the value is exact."""

    @property
    def standard_error(self) -> float:
        """Square root of the variance."""
        return math.sqrt(self.variance)

    def interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """The bounds that hold the true value with this confidence (Student's t); None from fewer than two units.

        >>> low, high = Estimate(value=100.0, variance=25.0, units=10_001).interval(0.95)
        >>> round(low, 3), round(high, 3)
        (90.199, 109.801)
        """
        if not 0 < confidence < 1:
            raise ValueError(f"a confidence lies between 0 and 1, not {confidence}")
        if self.complete:
            return self.value, self.value
        if self.units < 2:
            return None
        margin = float(stdtrit(self.units - 1, (1 + confidence) / 2)) * self.standard_error
        return self.value - margin, self.value + margin

    def __add__(self, other: Estimate) -> Estimate:
        """The sum of two estimates from different units, such as those of two disjoint sets of keys."""
        return Estimate(
            value=self.value + other.value,
            variance=self.variance + other.variance,
            units=self.units + other.units,
            complete=self.complete and other.complete,
        )


def count(keep: ArrayLike, unit: ArrayLike | None = None) -> Estimate:
    """How many records there were, from the keep-probability of each kept one."""
    return total(np.ones(np.shape(keep)), keep, unit)


def total(values: ArrayLike, keep: ArrayLike, unit: ArrayLike | None = None) -> Estimate:
    """The sum of a column over all records; `unit` tells which of the kept ones share a hash."""
    y, d = _checked(values, keep)
    variance, units = _variance(y, d, unit)
    return Estimate(value=float(np.sum(y / d)), variance=variance, units=units, complete=_complete(d))


def mean(values: ArrayLike, keep: ArrayLike, unit: ArrayLike | None = None) -> Estimate | None:
    """The mean of a column over all records: weighted sum by weighted count (Hájek 1971), None without records.

    Its variance is, to first order, that of Σ w·(y - mean) / Σ w.
    """
    y, d = _checked(values, keep)
    if not len(y):
        return None
    size = float(np.sum(1.0 / d))
    value = float(np.sum(y / d)) / size
    variance, units = _variance(y - value, d, unit)
    return Estimate(value=value, variance=variance / size**2, units=units, complete=_complete(d))


def _complete(d: Floats) -> bool:
    # No record at all tells nothing about how many were dropped.
    return bool(len(d)) and bool(np.all(d == 1))


def _checked(values: ArrayLike, keep: ArrayLike) -> tuple[Floats, Floats]:
    y, d = np.broadcast_arrays(np.asarray(values, np.float64).ravel(), np.asarray(keep, np.float64).ravel())
    if not np.all((d > 0) & (d <= 1)):
        raise ValueError("the keep-probability of a kept record lies in (0, 1]")
    return y, d


def _variance(y: Floats, d: Floats, unit: ArrayLike | None) -> tuple[float, int]:
    """(variance of Σ y/d, number of units)."""
    own = float(np.sum(y**2 * (1 - d) / d**2))
    if unit is None:
        return own, len(y)
    ids, member = np.unique(np.asarray(unit).ravel(), return_inverse=True)
    order = np.lexsort((d, member))
    z, of, top = (y / d)[order], member[order], d[order]
    # Sorted by d within a unit, every pair's higher d is that of its later record: running sums give all pairs.
    running = np.cumsum(z) - z
    starts = np.searchsorted(of, np.arange(len(ids)))
    earlier = running - running[starts][of] if len(of) else running
    return own + 2 * float(np.sum(z * (1 - top) * earlier)), len(ids)
