"""`penstock reproduce nephele`: every figure of the paper's evaluation, in simulation at the paper's size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.dataflow import Load, read_trace
from penstock_papers.common.figures import Reference, Reproduction, Row, Tell
from penstock_papers.common.trials import Course
from penstock_papers.nephele import primes, tweets
from penstock_papers.nephele.sentiment import days_and_nights, tweet_load

PAPER_HELD = 0.91
PAPER_TASK_HOURS = {30: 46.4, 40: 44.3, 50: 41.8, 100: 37.6}
PAPER_PEAKS_RPS = {"instant": 40_000, "adaptive": 52_000, "full": 63_000}
PAPER_TWEETS_HELD = (0.93, 0.96)
PAPER_UTILISATION = 0.557
PAPER_NEW_TASKS = 28
PAPER_FIXED_MS = (348, 564)
CYCLES = 3
"""The first is first sight; in the second the season is found; the third can be foreseen."""
TRACES = ("AAPL", "FB", "GOOG")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """The courses behind the rows, for the plots."""

    ours: Course
    paper: Course
    fixed: Course
    tweets: Mapping[str, tuple[Course, Load]]


def reproduce(
    *,
    plot: Path | None = None,
    tell: Tell = lambda _: None,
    scale: float = 1.0,
    data: Path | None = None,
    tweet_seconds: float | None = None,
) -> Reproduction:
    """All rows. `scale` makes PrimeTester smaller; `data` is where the tweet traces lie (else made-up ones)."""
    prime_rows, prime_references, ours, paper, fixed = _primes(scale, tell)
    batch_rows, batch_references = _batching(scale, tell)
    tweet_rows, tweet_references, courses = _tweets(data or _shared_data(), tweet_seconds, tell)
    findings = Findings(ours=ours, paper=paper, fixed=fixed, tweets=courses)
    plots: tuple[Path, ...] = ()
    if plot is not None:
        from penstock_papers.nephele.plots import draw

        tell("drawing")
        plots = draw(findings, plot)
    return Reproduction(
        paper="nephele",
        rows=(*prime_rows, *batch_rows, *tweet_rows),
        references=(*prime_references, *batch_references, *tweet_references),
        plots=plots,
    )


def _primes(scale: float, tell: Tell) -> tuple[list[Row], list[Reference], Course, Course, Course]:
    tell("PrimeTester, 20 ms: our policy, three cycles")
    ours = primes.elastic(cycles=CYCLES, scale=scale)
    tell("PrimeTester, 20 ms: the paper's method")
    paper = primes.elastic(paper=True, scale=scale)
    tell("PrimeTester: 175 fixed tasks, batches of 16 KiB")
    fixed = primes.fixed(scale=scale)
    per = len(ours.time_s) // CYCLES
    hours = float(ours.task_s[:per].sum()) / 3600
    trial = "PrimeTester, 20 ms"
    rows = [
        Row(
            trial=trial,
            metric="bound held, share of intervals, first sight",
            paper=PAPER_HELD,
            ours=float(ours.held_share(0, per)[0]),
            better="higher",
            goal=0.95,
        ),
        Row(
            trial=trial,
            metric="bound held, share of intervals, repeated cycle",
            paper=PAPER_HELD,
            ours=float(ours.held_share((CYCLES - 1) * per)[0]),
            better="higher",
            goal=0.99,
        ),
        Row(
            trial=trial,
            metric="task-hours over those of 175 fixed tasks",
            paper=1.0,
            ours=hours / fixed.task_hours,
            better="lower",
        ),
        Row(
            trial=trial,
            metric="task-hours over those of the paper's method here",
            paper=1.0,
            ours=hours / paper.task_hours,
            better="lower",
        ),
        Row(
            trial=trial,
            metric="p95 of records, median interval, ms",
            paper=30.0,
            ours=1e3 * float(np.nanmedian(ours.p95_s[:per])),
            better="lower",
        ),
    ]
    references = [
        Reference(
            trial=trial,
            metric="the paper's method: bound held",
            paper=PAPER_HELD,
            simulated=float(paper.held_share()[0]),
        ),
        Reference(
            trial=trial,
            metric="the paper's method: fewest tasks in the warm-up",
            paper=36,
            simulated=float(paper.parallelism[4:12, 1].min()),
        ),
        Reference(
            trial=trial, metric="the paper's method: task-hours", paper=None, simulated=paper.task_hours
        ),
        Reference(trial=trial, metric="our policy: task-hours", paper=None, simulated=hours),
        Reference(
            trial=trial,
            metric="our policy: bound held in the second cycle",
            paper=None,
            simulated=float(ours.held_share(per, 2 * per)[0]),
            note="the season is found on the way",
        ),
        Reference(
            trial="PrimeTester, 175 fixed tasks",
            metric="lowest mean latency, ms",
            paper=PAPER_FIXED_MS[0],
            simulated=1e3 * float(np.nanmin(fixed.latency_s[2:, 0])),
        ),
        Reference(
            trial="PrimeTester, 175 fixed tasks",
            metric="lowest p95, ms",
            paper=PAPER_FIXED_MS[1],
            simulated=1e3 * float(np.nanmin(fixed.p95_s[2:])),
        ),
    ]
    for bound_ms, theirs in PAPER_TASK_HOURS.items():
        tell(f"PrimeTester, {bound_ms} ms: our policy")
        course = primes.elastic(bound_ms=bound_ms, scale=scale)
        name = f"PrimeTester, {bound_ms} ms"
        rows.append(
            Row(
                trial=name,
                metric="task-hours",
                paper=theirs,
                ours=course.task_hours / scale,
                better="lower",
            )
        )
        references.append(
            Reference(
                trial=name,
                metric="our policy: bound held",
                paper=None,
                simulated=float(course.held_share()[0]),
            )
        )
    return rows, references, ours, paper, fixed


def _batching(scale: float, tell: Tell) -> tuple[list[Row], list[Reference]]:
    peaks = {}
    for flushing in PAPER_PEAKS_RPS:
        tell(f"PrimeTester, 200 fixed tasks: {flushing} batches")
        peaks[flushing] = primes.peak_rps(flushing, scale=scale) / scale
    trial = "PrimeTester, 200 fixed tasks"
    names = {"adaptive": "batches within 20 ms, adaptive", "full": "batches of 16 KiB"}
    rows = [
        Row(
            trial=trial,
            metric=f"peak records per second, {name}",
            paper=PAPER_PEAKS_RPS[flushing],
            ours=peaks[flushing],
            better="higher",
        )
        for flushing, name in names.items()
    ]
    calibration = Reference(
        trial=trial,
        metric="peak records per second, instant flush",
        paper=PAPER_PEAKS_RPS["instant"],
        simulated=peaks["instant"],
        note="the cost of a message is calibrated by this figure",
    )
    return rows, [calibration]


def _tweets(
    data: Path | None, seconds: float | None, tell: Tell
) -> tuple[list[Row], list[Reference], dict[str, tuple[Course, Load]]]:
    rows: list[Row] = []
    references: list[Reference] = []
    courses: dict[str, tuple[Course, Load]] = {}
    for name, load in tweet_loads(data).items():
        trial = f"TwitterSentiment, {name}"
        tell(f"{trial}: our policy")
        course = tweets.feelings(load, seconds=seconds)
        courses[name] = (course, load)
        tell(f"{trial}: the paper's method")
        theirs = tweets.feelings(load, paper=True, seconds=seconds)
        elastic = tweets.elastic_rows(load)
        for number, constraint in enumerate(("215 ms on hot topics", "30 ms on scores")):
            rows.append(
                Row(
                    trial=trial,
                    metric=f"bound held, share of intervals, {constraint}",
                    paper=PAPER_TWEETS_HELD[number],
                    ours=float(course.held_share()[number]),
                    better="higher",
                    goal=0.97,
                )
            )
            references.append(
                Reference(
                    trial=trial,
                    metric=f"the paper's method: bound held, {constraint}",
                    paper=PAPER_TWEETS_HELD[number],
                    simulated=float(theirs.held_share()[number]),
                )
            )
        rows.append(
            Row(
                trial=trial,
                metric="busy share of the elastic tasks",
                paper=PAPER_UTILISATION,
                ours=course.utilisation(elastic),
                better="higher",
            )
        )
        references += [
            Reference(
                trial=trial,
                metric="the paper's method: busy share of the elastic tasks",
                paper=PAPER_UTILISATION,
                simulated=theirs.utilisation(elastic),
            ),
            Reference(
                trial=trial,
                metric="new scoring tasks at the peak",
                paper=PAPER_NEW_TASKS,
                simulated=float(tweets.new_scoring_tasks(course, load)),
            ),
        ]
    return rows, references, courses


def tweet_loads(data: Path | None) -> dict[str, Load]:
    """The load of each tweet trace in a folder; a made-up one where there is no folder."""
    if data is None:
        return {"made up": tweet_load(days_and_nights())}
    return {name: tweet_load(read_trace(data / f"tweet_volume_{name}.csv")) for name in TRACES}


def _shared_data() -> Path | None:
    """The folder of real traces beside the repository, if there is one."""
    for parent in (Path.cwd(), *Path(__file__).resolve().parents):
        folder = parent.parent / "shared" / "data"
        if (folder / f"tweet_volume_{TRACES[0]}.csv").is_file():
            return folder
    return None
