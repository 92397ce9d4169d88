"""A paper's figures beside ours, as data: comparisons that can fail, references, inputs, and what is not shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from scipy.stats import t as student

Tell = Callable[[str], None]
"""Is told what is being done, for a person who waits."""
Better = Literal["higher", "lower"]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison: ours against what is asked, which is our goal, else a rival's figure, else the paper's.

    `compared` makes a row from paired runs of several seeds.
    """

    trial: str
    metric: str
    ours: float | None
    better: Better
    paper: float | None = None
    """What the paper prints; on other machines and data, so it is asked only where there is no rival."""
    goal: float | None = None
    """What we ask of ourselves, where that is more than a rival or the paper reached."""
    rival: float | None = None
    """The same figure of the best other method, on the same inputs and with the same constraints and time."""
    rival_name: str = ""
    interval: tuple[float, float] | None = None
    """95 % interval of the paired difference ours - rival over the seeds."""
    worst: float | None = None
    """That difference on the seed where it is worst for us."""
    seeds: tuple[int, ...] = ()
    """Seeds of the runs, none of which was used for tuning."""
    note: str = ""
    """Why a row is red, or what a reader must know."""

    @property
    def asked(self) -> float | None:
        """What ours is held against."""
        return next((a for a in (self.goal, self.rival, self.paper) if a is not None), None)

    @property
    def holds(self) -> bool:
        """Whether ours is as good as asked; with an interval, whether all of it is on the right side."""
        if self.ours is None or self.asked is None:
            return False
        sign = 1.0 if self.better == "higher" else -1.0
        if self.goal is None and self.rival is not None and self.interval is not None:
            return min(sign * end for end in self.interval) >= 0.0
        return sign * self.ours >= sign * self.asked


def compared(
    *,
    trial: str,
    metric: str,
    ours: Sequence[float],
    rival: Sequence[float],
    rival_name: str,
    better: Better,
    seeds: Sequence[int],
    paper: float | None = None,
    note: str = "",
) -> Row:
    """Ours against a rival, seed by seed: means, the interval of the difference, and the worst seed.

    >>> row = compared(trial="t", metric="m", ours=[3, 4, 5], rival=[2, 3, 4], rival_name="r", better="higher",
    ...                seeds=[1, 2, 3])
    >>> row.ours, row.rival, row.interval, row.worst, row.holds
    (4.0, 3.0, (1.0, 1.0), 1.0, True)
    """
    if not len(ours) == len(rival) == len(seeds) > 0:
        raise ValueError("ours, rival and seeds have one entry per run")
    difference = np.asarray(ours, np.float64) - np.asarray(rival, np.float64)
    # Sums in another order differ in the last digits: that is no difference.
    difference[np.isclose(ours, rival, rtol=1e-12, atol=0.0)] = 0.0
    return Row(
        trial=trial,
        metric=metric,
        ours=float(np.mean(ours)),
        better=better,
        paper=paper,
        rival=float(np.mean(rival)),
        rival_name=rival_name,
        interval=mean_interval(difference) if len(seeds) > 1 else None,
        worst=float(difference.min() if better == "higher" else difference.max()),
        seeds=tuple(int(s) for s in seeds),
        note=note,
    )


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Student's interval of the mean, at `CONFIDENCE`; needs two values."""
    sample = np.asarray(values, np.float64)
    half = student.ppf((1 + CONFIDENCE) / 2, len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample))
    return float(sample.mean() - half), float(sample.mean() + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A figure that is no claim of ours: the paper's method in our simulator, a baseline, a calibration."""

    trial: str
    metric: str
    paper: float | None
    simulated: float | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Something that was put in, calibrated to the paper or tuned; never counted as a win."""

    name: str
    value: float | str
    source: str
    """Where it comes from: the paper's figure, a measurement, or the inputs it was tuned on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotShown:
    """Something the paper shows and we do not."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """What a reproduction found."""

    paper: str
    rows: tuple[Row, ...]
    references: tuple[Reference, ...] = ()
    inputs: tuple[Input, ...] = ()
    not_shown: tuple[NotShown, ...] = ()
    plots: tuple[Path, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else a reader of the document may want: every instance, every scheduler."""

    @property
    def holds(self) -> bool:
        """Whether every row does."""
        return all(row.holds for row in self.rows)

    def document(self) -> dict[str, Any]:
        """As one JSON document."""
        return {
            "paper": self.paper,
            "holds": self.holds,
            "rows": [{**asdict(row), "asked": row.asked, "holds": row.holds} for row in self.rows],
            "references": [asdict(reference) for reference in self.references],
            "inputs": [asdict(each) for each in self.inputs],
            "not_shown": [asdict(each) for each in self.not_shown],
            "plots": [str(plot) for plot in self.plots],
            **({"details": dict(self.details)} if self.details else {}),
        }


class Reproduce(Protocol):
    """Runs a paper's trials; with a folder, draws its figures there."""

    def __call__(self, *, plot: Path | None, tell: Tell) -> Reproduction:
        """What was found."""
        ...
