"""Prediction rings: what is expected in the coming time, finely for the near and coarsely for the far future.

All rings of one kind are one array, [row, window]: a row for a computation or a node, the windows of all rings one
after the other, the nearest first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class RingShape:
    """How many rings there are, and the windows of each from the inside out.

    >>> RingShape().span_s, RingShape(windows=(16, 12), seconds=(1.25, 1.75)).edges_s[16]
    (180.0, np.float64(20.0))
    """

    windows: tuple[int, ...] = (30, 30, 30)
    seconds: tuple[float, ...] = (1.0, 2.0, 3.0)
    """Length of a window of each ring."""

    def __post_init__(self) -> None:
        if len(self.windows) != len(self.seconds) or not self.windows:
            raise ValueError(
                f"{len(self.windows)} rings have {len(self.seconds)} window lengths; give one each"
            )
        if min(self.windows) < 1 or not all(0 < s < float("inf") for s in self.seconds):
            raise ValueError(f"rings have at least one window, each longer than 0 s: {self}")

    @property
    def count(self) -> int:
        """Windows of all rings together."""
        return sum(self.windows)

    @property
    def inner(self) -> int:
        """Windows of the innermost ring."""
        return self.windows[0]

    @property
    def lengths_s(self) -> Floats:
        """How long each window is."""
        return np.repeat(np.array(self.seconds), self.windows)

    @property
    def edges_s(self) -> Floats:
        """[window + 1]: where windows begin, in seconds from now, and where the last one ends."""
        return np.concatenate([[0.0], np.cumsum(self.lengths_s)])

    @property
    def span_s(self) -> float:
        """How far the rings look ahead."""
        return float(self.lengths_s.sum())

    @property
    def weights(self) -> Floats:
        """[window]: (1 - dist/total)/res. Soon counts more than late (figure 5 of the paper)."""
        return (1.0 - self.edges_s[:-1] / self.span_s) / self.lengths_s


def summed(values: Floats, group: Ints, count: int) -> Floats:
    """[count, window]: rows added up by group; negative: nowhere."""
    total = np.zeros((count, values.shape[1]))
    rows = np.flatnonzero(group >= 0)
    rows = rows[np.argsort(group[rows], kind="stable")]
    if len(rows):
        there, first = np.unique(group[rows], return_index=True)
        total[there] = np.add.reduceat(values[rows], first, axis=0)
    return total


def resampling(old: Floats, new: Floats) -> Floats:
    """[old window, new window]: weights that turn means over windows into means over others, given their edges.

    What lies after the last old window counts as that window.
    """
    start = np.maximum(old[:-1, None], new[None, :-1])
    ends = old[1:].copy()
    ends[-1] = max(ends[-1], new[-1])
    end = np.minimum(ends[:, None], new[None, 1:])
    return np.asarray(np.clip(end - start, 0.0, None) / np.diff(new))
