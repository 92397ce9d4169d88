"""Chance that depends on a number alone, so that made-up records are the same however often they are asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_WHOLE = (1 << 64) - 1


def chance(numbers: NDArray[np.int64], salt: int) -> NDArray[np.float64]:
    """A uniform draw from [0, 1) for each number and salt: the SplitMix64 mixer (Steele et al., OOPSLA 2014).

    >>> np.array_equal(chance(np.arange(9), 1), chance(np.arange(9), 1))
    True
    """
    z = np.asarray(numbers, np.int64).astype(np.uint64) * np.uint64(_GOLDEN)
    z = z + np.uint64((salt + 1) * 0xD1B54A32D192ED03 & _WHOLE)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def choice(numbers: NDArray[np.int64], salt: int, count: int) -> NDArray[np.int64]:
    """One of 0 … `count` - 1 for each number and salt."""
    return (chance(numbers, salt) * count).astype(np.int64)
