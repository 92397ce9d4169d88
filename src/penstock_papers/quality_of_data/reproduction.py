"""`penstock reproduce quality-of-data`: the three scenarios, the controller's time by tasks, and overload."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from penstock.policies.shedding import SheddingOptions
from penstock_papers.common.figures import Reference, Reproduction, Row, Tell
from penstock_papers.quality_of_data import sharing
from penstock_papers.quality_of_data.crowds import CASES, cycle_times_ms
from penstock_papers.quality_of_data.sharing import GUESSES, STANDS, UP_AND_DOWN, ZONES, Story, rate_errors

Better = Literal["higher", "lower"]
SIZES = (500, 1_000, 2_000, 10_000, 100_000)
LIMITS_MS = {2_000: 5.0, 100_000: 250.0}
PAPER_2000_MS = 115.0
PAPER_GAP = 0.024
PAPER_RATE_P90, RATE_P90 = 0.028, 0.02
ACCURACY_ERROR = 0.01


def reproduce(
    *,
    plot: Path | None = None,
    tell: Tell = lambda _: None,
    sizes: tuple[int, ...] = SIZES,
    repeat: int = 15,
) -> Reproduction:
    """All rows; `sizes` are the numbers of tasks that the controller's time is measured for."""
    stories: dict[str, Story] = {}
    runs: dict[str, Callable[[], Story]] = {
        "equal priorities": sharing.equal_priorities,
        "equal priorities, with relief": lambda: sharing.equal_priorities(SheddingOptions()),
        "different priorities": sharing.different_priorities,
        "Kafka": sharing.kafka_integration,
        "overload": lambda: sharing.overloaded(shedding=True),
        "overload, without": lambda: sharing.overloaded(shedding=False),
    }
    for name, run in runs.items():
        tell(name)
        stories[name] = run()
    rows = [
        *equal_rows(stories["equal priorities"]),
        *priority_rows(stories["different priorities"]),
        *kafka_rows(stories["Kafka"]),
        *overload_rows(stories["overload"], stories["overload, without"]),
    ]
    tell("the controller's time")
    timed, references = scaling(sizes, repeat)
    plots: tuple[Path, ...] = ()
    if plot is not None:
        from penstock_papers.quality_of_data.plots import draw

        plots = draw(stories, plot)
    return Reproduction(
        paper="quality-of-data",
        rows=(*rows, *timed),
        references=(*stories_references(stories), *references),
        plots=plots,
    )


def equal_rows(story: Story) -> list[Row]:
    """Section 7.1."""
    trial = "equal priorities, minima 40 % and 60 %"
    fell = story.between(180.0, 240.0)
    whole = np.logical_and(story.wanted[ZONES][fell] >= 1, story.wanted[STANDS][fell] >= 1)
    until = int(np.argmax(whole)) + 1 if whole.any() else None
    first = story.between(0.0, 60.0)
    return [
        _row(trial, "lowest accuracy before the load rises, both sinks", 1.0,
             min(story.wanted[s][first].min() for s in (ZONES, STANDS)), "higher"),
        _row(trial, "lowest accuracy told to the first sink", 0.4, story.wanted[ZONES].min(), "higher"),
        _row(trial, "lowest accuracy told to the second sink", 0.6, story.wanted[STANDS].min(), "higher"),
        _row(trial, "intervals until nothing is shed after the load fell", None, until, "lower", 3.0),
        _row(trial, "accuracy at the sources off what was told, mean", PAPER_GAP, story.source_gap.mean(),
             "lower", ACCURACY_ERROR),
        *(
            _row(trial, f"estimated accuracy off the counted one over the whole trial, {sink}", PAPER_GAP,
                 estimate_error(story, sink), "lower", ACCURACY_ERROR)
            for sink in (ZONES, STANDS)
        ),
    ]  # fmt: skip


def priority_rows(story: Story) -> list[Row]:
    """Section 7.2: who matters more sheds only when who matters less is at its minimum (0.2 and 0.3)."""
    trial = "different priorities, with KNN"
    zones_first = (story.wanted[ZONES] < 1) & (story.wanted[GUESSES] > 0.2 + 1e-6)
    stands_first = (story.wanted[STANDS] < 1) & (story.wanted[ZONES] > 0.3 + 1e-6)
    return [
        _row(trial, "intervals in which a higher priority sheds before a lower one is at its minimum", None,
             float(np.count_nonzero(zones_first | stands_first)), "lower", 0.0),
        _row(trial, "lowest accuracy of the lowest priority", 0.2, story.wanted[GUESSES].min(), "higher"),
        _row(trial, "lowest accuracy of the highest priority", 1.0, story.wanted[STANDS].min(), "higher"),
        _row(trial, "lag at the end, s", None, story.lag_s[-1], "lower", 5.0),
    ]  # fmt: skip


def kafka_rows(story: Story) -> list[Row]:
    """Section 7.3."""
    trial = "KNN, two tasks, Kafka"
    errors = np.abs(rate_errors(UP_AND_DOWN, UP_AND_DOWN.duration_s))
    return [
        _row(trial, "production rate from offsets, error, 90th percentile", PAPER_RATE_P90,
             np.quantile(errors, 0.9), "lower", RATE_P90),
        _row(trial, "estimated accuracy off the counted one over the whole trial", PAPER_GAP,
             estimate_error(story, GUESSES), "lower", ACCURACY_ERROR),
        _row(trial, "highest lag, s", None, story.lag_s.max(), "lower", 5.0),
    ]  # fmt: skip


def overload_rows(ours: Story, without: Story) -> list[Row]:
    """Section 7.4, the second benchmark: a load that climbs to twice what the machine can do."""
    trial = "overload on one machine"
    late = ours.between(150.0, 300.0)
    return [
        _row(trial, "highest lag, s", None, ours.lag_s.max(), "lower", 5.0),
        _row(trial, "lag at the end over that without shedding", None, ours.lag_s[-1] / without.lag_s[-1],
             "lower", 0.1),
        _row(trial, "median latency over that without shedding, once overloaded", 1.0,
             np.median(ours.latency_s[late]) / np.median(without.latency_s[late]), "lower"),
    ]  # fmt: skip


def scaling(sizes: tuple[int, ...], repeat: int) -> tuple[list[Row], list[Reference]]:
    """CPU time of a whole cycle: the median over repetitions, of the slowest case."""
    rows, references = [], []
    for tasks in sizes:
        took = {case: cycle_times_ms(tasks, case, repeat)[0] for case in CASES}
        slowest = max(took, key=lambda case: statistics.median(took[case]))
        metric, trial = f"CPU time of a cycle, {tasks:,} tasks, median, ms", "the controller"
        median = statistics.median(took[slowest])
        note = f"case {slowest}; best {min(took[slowest]):.2f} ms"
        paper = PAPER_2000_MS if tasks == 2_000 else None
        if tasks in LIMITS_MS:
            rows.append(_row(trial, metric, paper, median, "lower", LIMITS_MS[tasks]))
        references.append(Reference(trial=trial, metric=metric, paper=paper, simulated=median, note=note))
    return rows, references


def stories_references(stories: dict[str, Story]) -> list[Reference]:
    """What was done, and what the per-interval differences are."""
    relief, without = stories["equal priorities, with relief"], stories["overload, without"]
    references = [
        Reference(
            trial=name,
            metric="tasks moved",
            paper=2.0 if name == "equal priorities" else None,
            simulated=float(len(story.moves)),
            note=", ".join(f"{task} at {time_s:g} s" for time_s, task in story.moves),
        )
        for name, story in stories.items()
        if name.startswith(("equal", "different"))
    ]
    references += [
        Reference(
            trial=name,
            metric=f"estimated accuracy off the counted one, mean over single intervals, {sink}",
            paper=None,
            simulated=float(np.abs(story.estimated[sink] - story.counted[sink]).mean()),
            note="an interval that drains what waited counts more than it produced",
        )
        for name, story in stories.items()
        for sink in story.wanted
        if name in ("equal priorities", "Kafka")
    ]
    last = relief.between(360.0, 420.0)
    references += [
        Reference(
            trial="equal priorities, with relief",
            metric=f"accuracy at the end, {sink}",
            paper=None,
            simulated=float(relief.wanted[sink][last].mean()),
            note=f"{stories['equal priorities'].wanted[sink][last].mean():.2f} where tasks move for minima only",
        )
        for sink in (ZONES, STANDS)
    ]
    references.append(
        Reference(
            trial="overload on one machine",
            metric="without shedding: lag at the end, s",
            paper=None,
            simulated=float(without.lag_s[-1]),
            note="grows without end",
        )
    )
    return references


def estimate_error(story: Story, sink: str) -> float:
    """Difference between the records that the estimates add up to and those counted, over records produced."""
    estimated = float((story.estimated[sink] * story.produced).sum())
    counted = float((story.counted[sink] * story.produced).sum())
    return abs(estimated - counted) / float(story.produced.sum())


def _row(
    trial: str,
    metric: str,
    paper: float | None,
    ours: float | None,
    better: Better,
    goal: float | None = None,
) -> Row:
    value = None if ours is None else float(ours)
    return Row(trial=trial, metric=metric, paper=paper, ours=value, better=better, goal=goal)
