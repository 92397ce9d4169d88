"""Chance without state: every draw is a hash of the record and of what it is drawn for.

The same record costs the same at the same operator whichever task serves it, whatever else happened before, and
under every policy, so two runs of one seed differ only by what was decided.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.arrays import Floats
from penstock.simulator.compiled import compiled

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11, _S32 = (np.uint64(n) for n in (30, 27, 31, 11, 32))

CONSTANT, EXPONENTIAL, HYPEREXPONENTIAL, GAMMA = range(4)


def distribution(cv: float) -> int:
    """Which family has the coefficient of variation `cv`: constant, gamma (< 1), exponential, two exponentials."""
    if cv == 0:
        return CONSTANT
    if cv == 1:
        return EXPONENTIAL
    return GAMMA if cv < 1 else HYPEREXPONENTIAL


@compiled
def mix(x: np.uint64) -> np.uint64:
    """64 well-mixed bits (the finaliser of SplitMix64; Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


@compiled
def uniform(bits: np.uint64) -> float:
    """A number in [0, 1) from mixed bits."""
    return float(bits >> _S11) * (1.0 / 9007199254740992.0)


@compiled
def bucket(bits: np.uint64, count: int) -> int:
    """One of `count` equal buckets from mixed bits."""
    # int() of an unsigned number stays unsigned in compiled code, and mixes badly with signed ones.
    chosen: Any = np.int64(((bits >> _S32) * np.uint64(count)) >> _S32)
    return chosen  # type: ignore[no-any-return]  # an int


@compiled
def owned_shares(shares: Floats, key_salt: np.uint64, count: int, into: Floats) -> None:
    """Add the share of each key to that of the task, of `count`, which owns it."""
    for k in range(len(shares)):
        into[bucket(mix(mix(np.uint64(k) + GOLDEN) ^ key_salt), count)] += shares[k]


@compiled
def positive(bits: np.uint64, kind: int, cv: float) -> float:
    """A positive number of mean 1 and the given coefficient of variation; `bits` is where its chance starts."""
    if kind == CONSTANT:
        return 1.0
    s = bits + GOLDEN
    u = 1.0 - uniform(mix(s))
    if kind == EXPONENTIAL:
        return -math.log(u)
    c2 = cv * cv
    if kind == HYPEREXPONENTIAL:
        # Two phases with balanced means: p/µ1 = (1-p)/µ2 (Whitt 1982).
        p = 0.5 * (1.0 + math.sqrt((c2 - 1.0) / (c2 + 1.0)))
        if uniform(mix(s + GOLDEN)) < p:
            return -math.log(u) / (2.0 * p)
        return -math.log(u) / (2.0 * (1.0 - p))
    # Gamma of shape k = 1/cv² >= 1 (Marsaglia, Tsang 2000).
    k = 1.0 / c2
    d = k - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        v = 1.0 - uniform(mix(s + GOLDEN))
        normal = math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)
        t = 1.0 + c * normal
        s += GOLDEN + GOLDEN
        w = 1.0 - uniform(mix(s))
        if t > 0.0:
            t3 = t * t * t
            if math.log(w) < 0.5 * normal * normal + d - d * t3 + d * math.log(t3):
                return d * t3 / k
        s += GOLDEN
        u = 1.0 - uniform(mix(s))
