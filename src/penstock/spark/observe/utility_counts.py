"""What utilities records have, counted by tasks, and from that the cutoff with which utility shedding keeps a share.

A record of utility x is kept with probability min(1, c / w), w = 1 - x. The expected share is then
mean(min(1, c / w)), so the cutoff c of a share depends on all records. Tasks count w in bins and the driver solves for
c: the next micro-batches decide record by record with it, whatever else is in their Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_PER_OCTAVE, _OCTAVES = 8, 20
BINS = _PER_OCTAVE * _OCTAVES + 1
HALF_LIFE_RECORDS = 200_000.0
"""Records after which what was counted before weighs half: utilities drift."""


@dataclass(frozen=True, slots=True, eq=False)
class UtilityCounts:
    """Per bin of w, how many records there were and the sum of their 1/w."""

    records: Floats
    inverse: Floats

    @classmethod
    def of(cls, useless: Floats) -> UtilityCounts:
        """The counts of these w, each in (0, 1]."""
        bins = np.clip(np.floor(-np.log2(useless) * _PER_OCTAVE), 0, BINS - 1).astype(np.int64)
        records, inverse = np.bincount(bins, minlength=BINS), np.bincount(bins, 1 / useless, BINS)
        return cls(records.astype(np.float64), inverse.astype(np.float64))

    def __add__(self, other: UtilityCounts) -> UtilityCounts:
        return UtilityCounts(self.records + other.records, self.inverse + other.inverse)

    def faded(self, records: float) -> UtilityCounts:
        """The same after `records` more have come by."""
        factor = 0.5 ** (records / HALF_LIFE_RECORDS)
        return UtilityCounts(self.records * factor, self.inverse * factor)

    def cutoff(self, share: float) -> float:
        """The c with Σ min(1, c / w) = share · n: exact but for the one bin in which c lies.

        >>> round(UtilityCounts.of(np.array([0.8] * 9 + [0.05])).cutoff(0.5), 3)
        0.356
        """
        # From the smallest w up, the bins before k are kept for sure and those from k on with c / w.
        records, inverse = self.records[::-1], self.inverse[::-1]
        sure = np.cumsum(records) - records
        tails = np.cumsum(inverse[::-1])[::-1]
        target = share * float(records.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            solved = (target - sure) / tails
        smallest = 2.0 ** (-np.arange(BINS, 0, -1) / _PER_OCTAVE)  # the lower end of each bin
        # The first k whose c is not above the w that are treated as above it.
        fits = (tails > 0) & (solved <= np.append(smallest[1:], 1.0))
        return float(solved[np.argmax(fits)]) if fits.any() else 1.0


@dataclass(slots=True)
class Cutoffs:
    """The driver's memory of utilities, by shedder."""

    counts: dict[str, UtilityCounts]

    @classmethod
    def empty(cls) -> Cutoffs:
        """Before any record."""
        return cls({})

    def learn(self, found: Iterable[tuple[str, UtilityCounts]]) -> None:
        """Add what tasks counted."""
        for subject, counts in found:
            before = self.counts.get(subject)
            faded = None if before is None else before.faded(float(counts.records.sum()))
            self.counts[subject] = counts if faded is None else faded + counts

    def of(self, shares: Mapping[str, float]) -> dict[str, float]:
        """The cutoff of each shedder that has one, for the share it is to keep."""
        return {
            s: self.counts[s].cutoff(share) for s, share in shares.items() if s in self.counts and share < 1
        }
