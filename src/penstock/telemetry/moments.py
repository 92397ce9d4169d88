"""Counts, means and variances that merge: partial summaries of workers add up to one of the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.arrays import Floats


def totals(groups: NDArray[np.integer], values: Floats, count: int) -> Floats:
    """Sum of `values` per group 0..count-1."""
    return np.asarray(np.bincount(groups, values, count), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Count, mean and sum of squared deviations, one entry per row (a task, a stream, an alternate).

    Merging follows Chan, Golub and LeVeque (1983), so any split of the same observations merges to the same
    result but for rounding.

    >>> a, b = Moments.of([1.0, 2.0]), Moments.of([6.0])
    >>> float(a.merge(b).mean[0]), float(a.merge(b).variance[0])
    (3.0, 7.0)
    """

    count: Floats
    mean: Floats
    m2: Floats

    @classmethod
    def empty(cls, rows: int) -> Moments:
        """No observation yet, for `rows` rows."""
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows))

    @classmethod
    def of(cls, values: ArrayLike) -> Moments:
        """One row that summarises all the given values."""
        v = np.asarray(values, dtype=np.float64).ravel()
        if not v.size:
            return cls.empty(1)
        mean = float(v.mean())
        return cls(np.array([float(v.size)]), np.array([mean]), np.array([float(np.sum((v - mean) ** 2))]))

    @classmethod
    def known(cls, count: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Moments:
        """Rows whose count, mean and sample variance are already known."""
        n = np.asarray(count, dtype=np.float64)
        m, v = np.broadcast_arrays(np.asarray(mean, np.float64), np.asarray(variance, np.float64))
        return cls(n, np.broadcast_to(m, n.shape).copy(), v * np.clip(n - 1, 0.0, None))

    def __len__(self) -> int:
        return len(self.count)

    def merge(self, other: Moments) -> Moments:
        """Row by row, both summaries as one."""
        n = self.count + other.count
        safe = np.where(n > 0, n, 1.0)
        delta = other.mean - self.mean
        return Moments(
            n,
            np.where(n > 0, (self.count * self.mean + other.count * other.mean) / safe, 0.0),
            self.m2 + other.m2 + delta**2 * self.count * other.count / safe,
        )

    def grouped(self, groups: NDArray[np.integer], count: int) -> Moments:
        """Rows merged by group: `groups[i]` (0..count-1) says where row i belongs; negative: nowhere."""
        inside = groups >= 0
        g, n, mean, m2 = groups[inside], self.count[inside], self.mean[inside], self.m2[inside]
        total = totals(g, n, count)
        merged = totals(g, n * mean, count) / np.where(total > 0, total, 1.0)
        spread = totals(g, m2 + n * (mean - merged[g]) ** 2, count)
        return Moments(total, merged, spread)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Moments:
        """The chosen rows."""
        return Moments(self.count[rows], self.mean[rows], self.m2[rows])

    @property
    def variance(self) -> Floats:
        """Sample variance; 0 where fewer than two values were seen."""
        return np.where(self.count > 1, self.m2 / np.where(self.count > 1, self.count - 1, 1.0), 0.0)

    @property
    def cv2(self) -> Floats:
        """Squared coefficient of variation; 0 where the mean is 0."""
        return np.where(self.mean > 0, self.variance / np.where(self.mean > 0, self.mean, 1.0) ** 2, 0.0)

    @property
    def total(self) -> Floats:
        """Sum of all values."""
        return self.count * self.mean
