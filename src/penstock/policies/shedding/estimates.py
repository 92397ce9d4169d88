"""What the whole input would have given, from the records that shedding kept, with error bars.

A record is kept with probability d and then counts w = 1/d times (Horvitz and Thompson 1952): counts and sums are
unbiased. Keeping goes by a hash, so records with one hash are kept or dropped together: they are one *unit*, and
their errors add up instead of averaging out. Different units are independent, hence an unbiased estimate of the
variance of Σ w·y is

    V = Σ over kept units of (Σ over the unit's records of z)²,   z = y·√(w·(w-1))

(where the shares of one unit's records differ, V is a little too large). An aggregation that is no nested one cannot
add up units. So it adds up z with random signs that all records of a unit share: S_r = Σ ±z. The mean of S_r² over r
has the expectation V (Alon, Matias and Szegedy 1996) and scatters like a χ² with as many degrees of freedom as there
are sums. The signs are the last bits of the hash, which say nothing about whether it was kept.

The interval is one of Student's t with ν: 1/ν = 1/(units - 1) + 1/sums. Few kept units of values that are all of one
sign make a skewed estimate whose variance grows with it. There the bounds solve (estimate - T)² = t²·V·T/estimate
for T, as Wilson's interval does for a share.

The same formulas work on NumPy arrays, here, and on Spark's columns, in `penstock.spark.estimate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from penstock.arrays import Floats

SIGNS = 32
"""Sums with random signs: more make narrower, steadier bars and cost more."""
HASH_BITS = 53
"""A hash is a multiple of 2^-53."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What the formulas need beside + - * /, for numbers or for columns."""

    sqrt: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    greatest: Callable[[Any, Any], Any]
    magnitude: Callable[[Any], Any]


def quantile(confidence: float) -> float:
    """The normal quantile of a two-sided interval; a ValueError for what is no confidence."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not {confidence}")
    return float(ndtri((1 + confidence) / 2))


def student(freedom: Any, z: float) -> Any:
    """Student's t with `freedom` degrees (1 or more) at the normal quantile z (Abramowitz and Stegun, 26.7.5).

    >>> [round(student(nu, quantile(0.95)), 2) for nu in (2, 5, 30)]
    [4.3, 2.57, 2.04]
    """
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    total: Any = z
    power: Any = 1.0
    for term in terms:
        power = power / freedom
        total = total + term * power
    return total


def freedom(units: Any, ops: Operations, sums: int | None = SIGNS) -> Any:
    """Degrees of freedom of a variance from so many units, and from so many sums with random signs if it was."""
    inverse = 1.0 / ops.greatest(units - 1.0, 1.0)
    return 1.0 / (inverse if sums is None else inverse + 1.0 / sums)


def bounds(value: Any, variance: Any, t: Any, one_sign: Any, ops: Operations) -> tuple[Any, Any]:
    """(low, high) of a sum; `one_sign` says that its values are all of one sign."""
    size = ops.where(value == 0, 1.0, ops.magnitude(value))
    skew = ops.where(one_sign, t * t * variance / size / 2.0, 0.0)
    margin = ops.sqrt(t * t * variance + skew * skew)
    centre = value + ops.where(value < 0, -skew, skew)
    return centre - margin, centre + margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with the bounds that hold the true one, None where too little is known to tell them."""

    value: float
    low: float | None
    high: float | None


_NUMPY = Operations(sqrt=np.sqrt, where=np.where, greatest=np.maximum, magnitude=np.abs)


def count(weights: ArrayLike, hashes: ArrayLike | None = None, *, confidence: float = 0.95) -> Estimate:
    """How many records there were, from the weight of each kept one; `hashes` where several may share one."""
    return total(np.ones(np.shape(weights)), weights, hashes, confidence=confidence)


def total(
    values: ArrayLike, weights: ArrayLike, hashes: ArrayLike | None = None, *, confidence: float = 0.95
) -> Estimate:
    """The sum of a column over all records."""
    y, w, h = _checked(values, weights, hashes)
    value, kept = float(np.sum(w * y)), float(np.sum(y))
    units, spread = _units(w, h), _spread([y], w, h)
    one_sign = bool(np.all(y >= 0) or np.all(y <= 0))
    t = student(freedom(units, _NUMPY, None if h is None else SIGNS), quantile(confidence))
    low, high = bounds(value, spread([1.0]), t, one_sign, _NUMPY)
    # What was kept is there for sure.
    low, high = (max(low, kept) if np.all(y >= 0) else low), (min(high, kept) if np.all(y <= 0) else high)
    return _told(value, low, high, w, units)


def mean(
    values: ArrayLike, weights: ArrayLike, hashes: ArrayLike | None = None, *, confidence: float = 0.95
) -> Estimate | None:
    """The mean of a column over all records: weighted sum by weighted count (Hájek 1971), None without records."""
    return ratio(values, np.ones(np.shape(values)), weights, hashes, confidence=confidence)


def ratio(
    numerators: ArrayLike,
    denominators: ArrayLike,
    weights: ArrayLike,
    hashes: ArrayLike | None = None,
    *,
    confidence: float = 0.95,
) -> Estimate | None:
    """Σx / Σy over all records, None where Σy is 0. To first order its error is that of Σ w·(x - ratio·y) / Σ w·y."""
    x, w, h = _checked(numerators, weights, hashes)
    y = np.broadcast_to(np.asarray(denominators, np.float64).ravel(), x.shape)
    size = float(np.sum(w * y))
    if size == 0:
        return None
    value = float(np.sum(w * x)) / size
    units, spread = _units(w, h), _spread([x, y], w, h)
    t = student(freedom(units, _NUMPY, None if h is None else SIGNS), quantile(confidence))
    margin = t * np.sqrt(spread([1.0, -value])) / abs(size)
    return _told(value, value - margin, value + margin, w, units)


def signs(hashes: Floats) -> Floats:
    """The random signs of each record, one row per sum."""
    bits = np.floor(np.nan_to_num(hashes) * 2.0**HASH_BITS).astype(np.int64)
    return np.where(bits[None, :] & (1 << np.arange(SIGNS))[:, None], 1.0, -1.0)


def _spread(columns: Sequence[Floats], w: Floats, h: Floats | None) -> Callable[[Sequence[float]], float]:
    """The estimated variance of a linear combination of the columns' weighted sums."""
    z = np.array([column * np.sqrt(w * (w - 1)) for column in columns])
    if h is None:
        return lambda factors: float(np.sum((np.asarray(factors) @ z) ** 2))
    sums = z @ signs(h).T
    return lambda factors: float(np.mean((np.asarray(factors) @ sums) ** 2))


def _units(w: Floats, h: Floats | None) -> int:
    # Rows without a hash were kept for sure, so they say nothing about what was dropped.
    return len(w) if h is None else len(np.unique(h[~np.isnan(h)]))


def _told(value: float, low: float, high: float, w: Floats, units: int) -> Estimate:
    if len(w) and np.all(w == 1):
        return Estimate(value=value, low=value, high=value)
    if units < 2:
        return Estimate(value=value, low=None, high=None)
    return Estimate(value=value, low=float(low), high=float(high))


def _checked(
    values: ArrayLike, weights: ArrayLike, hashes: ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    y, w = np.broadcast_arrays(
        np.asarray(values, np.float64).ravel(), np.asarray(weights, np.float64).ravel()
    )
    if not np.all(w >= 1):
        raise ValueError("the weight of a kept record is 1 or more")
    return y, w, None if hashes is None else np.asarray(hashes, np.float64).ravel()
