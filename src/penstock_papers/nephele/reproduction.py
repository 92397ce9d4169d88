"""`penstock reproduce nephele`: the paper's evaluation in simulation, every method at the same cadence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from penstock.dataflow import Load, read_trace
from penstock_papers.common.figures import Input, NotShown, Reference, Reproduction, Row, Tell, compared
from penstock_papers.common.trials import Course
from penstock_papers.nephele import comparisons, primes, tweets
from penstock_papers.nephele.primes import OURS, PAPERS
from penstock_papers.nephele.sentiment import TraceForm, days_and_nights, tweet_load

PAPER_HELD = 0.91
PAPER_PEAKS_RPS = {"instant": 40_000, "adaptive": 52_000, "full": 63_000}
PAPER_TWEETS_HELD = (0.93, 0.96)
PAPER_UTILISATION = 0.557
PAPER_NEW_TASKS = 28
PAPER_FIXED_MS = (348, 564)
SEEDS = (101, 102, 103, 104, 105)
"""None of them was used for tuning."""
SMALL = 0.1
"""Size of the trials with several seeds, of the paper's: rates, workers and tasks alike."""
TRACES = ("AAPL", "FB", "GOOG")
TWEETS_HELD = 0.97
CONSTRAINTS = ("215 ms on hot topics", "30 ms on scores")


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
    small: float = SMALL,
    seeds: Sequence[int] = SEEDS,
    data: Path | None = None,
    tweet_seconds: float | None = None,
) -> Reproduction:
    """All rows. `scale` and `small` make PrimeTester smaller; `data` is where the tweet traces lie (else made-up)."""
    bound_rows, bound_references = comparisons.bounds(small, seeds, tell)
    cycle_rows, cycle_references = comparisons.cycles(small, seeds, tell)
    prime_references, ours, paper, fixed = _whole(scale, seeds[0], tell)
    tweet_rows, tweet_references, courses = _tweets(data or _shared_data(), tweet_seconds, tell)
    findings = Findings(ours=ours, paper=paper, fixed=fixed, tweets=courses)
    plots: tuple[Path, ...] = ()
    if plot is not None:
        from penstock_papers.nephele.plots import draw

        tell("drawing")
        plots = draw(findings, plot)
    return Reproduction(
        paper="nephele",
        rows=(*bound_rows, *cycle_rows, *tweet_rows),
        references=(
            *bound_references,
            *cycle_references,
            *comparisons.costs(small, seeds[0], tell),
            *prime_references,
            *_peaks(scale, tell),
            *tweet_references,
        ),
        inputs=_inputs(small),
        not_shown=NOT_SHOWN,
        plots=plots,
    )


def _inputs(small: float) -> tuple[Input, ...]:
    return (
        Input(
            name="size of the trials with several seeds",
            value=f"{small:g} of the paper's",
            source="rates, workers and most tasks alike; the trial at the paper's size runs once, as a reference",
        ),
        Input(
            name="time of a test",
            value=f"{1e3 * primes.TESTER_S:g} ms",
            source="calibrated: the paper's method then has the paper's 36 tasks in the warm-up",
        ),
        Input(
            name="core-seconds of a message",
            value=primes.MESSAGE_S,
            source="calibrated by the paper's peak with instant flushing; peaks are therefore references",
        ),
        Input(name="start of a task", value=f"{primes.STARTUP_S:g} s", source="the paper: 1 to 2 s"),
        Input(
            name="options of our policy",
            value="as it comes",
            source="it was developed beside PrimeTester's staircase and these tweets with seed 0, so the shape of the "
            "loads is not new to it; on which inputs each default was chosen was not written down",
        ),
        Input(
            name="the paper's method",
            value="fit unclipped, two adjustment intervals of rest, wait share 0.2",
            source="the paper; how fast output batches may grow is ours for both, the paper refers to earlier work",
        ),
        Input(
            name="costs of the tweets' operators",
            value="see sentiment.py",
            source="chosen so that scoring grows by some 28 tasks at the peak, as in the paper",
        ),
    )


NOT_SHOWN = (
    NotShown(
        what="the cluster",
        why="130 workers are simulated; no figure here was measured on machines",
    ),
    NotShown(
        what="figure 3's breakpoints of throughput and latency by batching",
        why="the peaks are references calibrated by one of them; the curves between them were not simulated",
    ),
    NotShown(
        what="a burst on few topics that loads one operator",
        why="the simulated tweets have no topics: a record's way depends on selectivities, not on its text",
    ),
    NotShown(
        what="the two weeks of tweets of the paper",
        why="they are not at hand; the traces are mentions of three companies",
    ),
    NotShown(
        what="several seeds at the paper's size, and at 5 s on tweets",
        why="a run takes up to a minute; the tweets are three traces in two forms instead, at the cadence of 1 s",
    ),
)


def _whole(scale: float, seed: int, tell: Tell) -> tuple[list[Reference], Course, Course, Course]:
    """The trial at the paper's size, once."""
    courses = {}
    for method in (OURS, PAPERS):
        tell(f"PrimeTester, 20 ms, the paper's size: {method}")
        courses[method] = primes.elastic(method, interval_s=5.0, scale=scale, seed=seed)
    tell("PrimeTester: 175 fixed tasks, batches of 16 KiB")
    fixed = primes.fixed(scale=scale, seed=seed)
    ours, paper = courses[OURS], courses[PAPERS]
    trial, fixed_trial = "PrimeTester, 20 ms, the paper's size, every 5 s", "PrimeTester, 175 fixed tasks"
    figures = (
        (trial, "the paper's method: bound held", PAPER_HELD, paper.held_share()[0]),
        (trial, "our policy: bound held", None, ours.held_share()[0]),
        (trial, "the paper's method: fewest tasks in the warm-up", 36, paper.parallelism[4:12, 1].min()),
        (trial, "the paper's method: task-hours", None, paper.task_hours),
        (trial, "our policy: task-hours", None, ours.task_hours),
        (trial, "the paper's method: p95 of records, median interval, ms", 30.0, 1e3 * np.nanmedian(paper.p95_s)),
        (trial, "our policy: p95 of records, median interval, ms", None, 1e3 * np.nanmedian(ours.p95_s)),
        (fixed_trial, "lowest mean latency, ms", PAPER_FIXED_MS[0], 1e3 * np.nanmin(fixed.latency_s[2:, 0])),
        (fixed_trial, "lowest p95, ms", PAPER_FIXED_MS[1], 1e3 * np.nanmin(fixed.p95_s[2:])),
        (fixed_trial, "task-hours", None, fixed.task_hours),
    )  # fmt: skip
    return [
        Reference(trial=name, metric=metric, paper=printed, simulated=float(value))
        for name, metric, printed, value in figures
    ], ours, paper, fixed  # fmt: skip


def _peaks(scale: float, tell: Tell) -> list[Reference]:
    """What batching is worth; the first figure calibrates the others."""
    names = {
        "instant": "instant flush",
        "adaptive": "batches within 20 ms, adaptive",
        "full": "batches of 16 KiB",
    }
    references = []
    for flushing, paper in PAPER_PEAKS_RPS.items():
        tell(f"PrimeTester, 200 fixed tasks: {flushing} batches")
        references.append(
            Reference(
                trial="PrimeTester, 200 fixed tasks",
                metric=f"peak records per second, {names[flushing]}",
                paper=paper,
                simulated=primes.peak_rps(flushing, scale=scale) / scale,
                note="the cost of a message is calibrated by this figure" if flushing == "instant" else "",
            )
        )
    return references


def _tweets(
    data: Path | None, seconds: float | None, tell: Tell
) -> tuple[list[Row], list[Reference], dict[str, tuple[Course, Load]]]:
    """Every trace in both forms, both methods at 1 s."""
    rows: list[Row] = []
    references: list[Reference] = []
    drawn: dict[str, tuple[Course, Load]] = {}
    for form in get_args(TraceForm):
        loads = tweet_loads(data, form)
        held: dict[str, list[list[float]]] = {OURS: [], PAPERS: []}
        busy: dict[str, list[float]] = {OURS: [], PAPERS: []}
        for number, (name, load) in enumerate(loads.items()):
            trial = f"TwitterSentiment, {name} as {form}"
            for method in (OURS, PAPERS):
                tell(f"{trial}: {method}")
                course = tweets.feelings(load, method, seconds=seconds, seed=SEEDS[number])
                held[method].append(course.held_share().tolist())
                busy[method].append(course.utilisation(tweets.elastic_rows(load)))
                references += _tweets_told(trial, method, course, load)
                if method == OURS and form == "lines":
                    drawn[name] = (course, load)
            rows += [
                Row(
                    trial=trial,
                    metric=f"bound held, share of intervals, {constraint}",
                    paper=PAPER_TWEETS_HELD[at],
                    ours=held[OURS][number][at],
                    better="higher",
                    goal=TWEETS_HELD,
                    seeds=(SEEDS[number],),
                )
                for at, constraint in enumerate(CONSTRAINTS)
            ]
        pooled = f"TwitterSentiment, {len(loads)} traces as {form}, both decide every second"
        rows += [
            compared(trial=pooled, metric=f"bound held, share of intervals, {constraint}",
                     ours=[h[at] for h in held[OURS]], rival=[h[at] for h in held[PAPERS]], rival_name=PAPERS,
                     better="higher", seeds=SEEDS[: len(loads)])
            for at, constraint in enumerate(CONSTRAINTS)
        ]  # fmt: skip
        rows.append(
            compared(trial=pooled, metric="busy share of the elastic tasks", ours=busy[OURS], rival=busy[PAPERS],
                     rival_name=PAPERS, better="higher", seeds=SEEDS[: len(loads)])
        )  # fmt: skip
    return rows, references, drawn


def _tweets_told(trial: str, method: str, course: Course, load: Load) -> list[Reference]:
    theirs = method == PAPERS
    figures = [
        (f"bound held, {constraint}", PAPER_TWEETS_HELD[at] if theirs else None, course.held_share()[at])
        for at, constraint in enumerate(CONSTRAINTS)
    ]
    busy = course.utilisation(tweets.elastic_rows(load))
    figures += [
        ("busy share of the elastic tasks", PAPER_UTILISATION if theirs else None, busy),
        ("new scoring tasks at the peak", PAPER_NEW_TASKS if theirs else None, tweets.new_scoring_tasks(course, load)),
        ("changes of size", None, course.resizes.sum()),
        ("p95 of records, median interval, ms", None, 1e3 * np.nanmedian(course.p95_s)),
    ]  # fmt: skip
    return [
        Reference(trial=trial, metric=f"{method}: {metric}", paper=paper, simulated=float(value))
        for metric, paper, value in figures
    ]


def tweet_loads(data: Path | None, form: TraceForm = "lines") -> dict[str, Load]:
    """The load of each tweet trace in a folder; a made-up one where there is no folder."""
    if data is None:
        return {"made up": tweet_load(days_and_nights(), form=form)}
    return {name: tweet_load(read_trace(data / f"tweet_volume_{name}.csv"), form=form) for name in TRACES}


def _shared_data() -> Path | None:
    """The folder of real traces beside the repository, if there is one."""
    for parent in (Path.cwd(), *Path(__file__).resolve().parents):
        folder = parent.parent / "shared" / "data"
        if (folder / f"tweet_volume_{TRACES[0]}.csv").is_file():
            return folder
    return None
