"""`penstock reproduce neptune`: every figure of the paper's evaluation, in simulation at the paper's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.dataflow import Load, sine
from penstock_papers.common.figures import Reference, Reproduction, Row, Tell
from penstock_papers.neptune import patients
from penstock_papers.neptune.patients import Course, Size

PAPER_FIXED = (0.83932, -0.00413)
"""Throughput over doing nothing, and over the even placement (table 2)."""
PAPER_VARIABLE = (0.48891, -0.00001)
PAPER_FIXED_LATENCY = (-0.05241, -0.15845)
"""p99 and standard deviation of latency, against doing nothing."""
PAPER_RECOVERED, PAPER_FOREIGN_LATENCY = 0.7725, -0.82
PAPER_EVEN_S, PAPER_SPREAD = 25 * 60.0, 0.0082
PAPER_CPU_SHARE, PAPER_MOVE_S = 0.0033, 0.05468
EVEN_SPREAD = 0.01
PERIOD_S = 600.0
FOREIGN_SHARE = 0.75
"""Of CPU and bandwidth, on a third of the nodes."""
DISTURBED_ACTIVE = 40
"""Computations a node runs in the trial with foreign load: what is left elsewhere can carry them."""
LAST = 1 / 3
"""Part of a run over which it is compared: the end, when all has settled."""
MOST_LATE = 0.01
SECONDS = 1_800.0
"""How long a trial is: the last third is one whole wave of the variable rates."""
AMPLIFIERS, USUAL = (2, 3, 4, 5, 6), 3
SWEEP_S = 900.0
"""How much of it the amplifiers are compared over."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trio:
    """One trial under our policy and the paper's, beside doing nothing and the ideal."""

    ours: Course
    papers: Course
    nothing: Course
    ideal: Course


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """The courses behind the rows, for the plots."""

    fixed: Trio
    variable: Trio
    foreign: Trio
    amplifiers: Mapping[int, tuple[Course, Course]]
    """n to the course under our policy and under the paper's."""


def reproduce(
    *,
    plot: Path | None = None,
    tell: Tell = lambda _: None,
    size: Size | None = None,
    seconds: float = SECONDS,
    amplifiers: Sequence[int] = AMPLIFIERS,
) -> Reproduction:
    """All rows. `size`, `seconds` and `amplifiers` make it smaller."""
    size = size or Size()
    fixed = _trio("fixed rates", size, seconds, tell)
    findings = Findings(
        fixed=fixed,
        variable=_trio("variable rates", size, seconds, tell, shape=waves(), season_s=PERIOD_S),
        foreign=_foreign(size, seconds, tell),
        amplifiers=_amplifiers(fixed, size, seconds, amplifiers, tell),
    )
    rows, references = _fixed_rows(findings.fixed, size)
    for more in (
        _variable_rows(findings.variable, size),
        _foreign_rows(findings.foreign, size),
        _sweep(findings),
    ):
        rows += more[0]
        references += more[1]
    plots: tuple[Path, ...] = ()
    if plot is not None:
        from penstock_papers.neptune.plots import draw

        tell("drawing")
        plots = draw(findings, plot)
    return Reproduction(paper="neptune", rows=tuple(rows), references=tuple(references), plots=plots)


def waves() -> Load:
    """The factor on all rates in the trial with variable rates: a sine between a half and one, in steps of 10 s."""
    return sine(0.75, 0.25, PERIOD_S, step_s=10.0)


def _trio(
    name: str, size: Size, seconds: float, tell: Tell, shape: Load | None = None, season_s: float = 0.0
) -> Trio:
    uneven = patients.uneven(size, seconds=seconds, shape=shape)
    tell(f"{name}: our policy")
    ours = patients.run(uneven, *patients.ours(season_s=season_s))
    tell(f"{name}: the paper's method")
    papers = patients.run(uneven, *patients.papers(season_s=season_s))
    tell(f"{name}: doing nothing")
    nothing = patients.run(uneven)
    tell(f"{name}: spread evenly")
    ideal = patients.run(patients.even(size, seconds=seconds, shape=shape))
    return Trio(ours=ours, papers=papers, nothing=nothing, ideal=ideal)


def _foreign(size: Size, seconds: float, tell: Tell) -> Trio:
    active = min(DISTURBED_ACTIVE, round(0.27 * size.per_node))
    quiet = patients.disturbed(size, active=active, foreign=0.0, seconds=seconds)
    loud = patients.disturbed(size, active=active, foreign=FOREIGN_SHARE, seconds=seconds)
    courses = []
    for name, scene, policy in (
        ("our policy", loud, patients.ours()),
        ("the paper's method", loud, patients.papers()),
        ("doing nothing", loud, (None, None)),
        ("no foreign load", quiet, (None, None)),
    ):
        tell(f"foreign load on a third of the nodes: {name}")
        courses.append(patients.run(scene, *policy))
    return Trio(ours=courses[0], papers=courses[1], nothing=courses[2], ideal=courses[3])


def _amplifiers(
    fixed: Trio, size: Size, seconds: float, amplifiers: Sequence[int], tell: Tell
) -> dict[int, tuple[Course, Course]]:
    """The trial with fixed rates for every n; that with the usual one has been run."""
    seconds = min(seconds, SWEEP_S)
    scene = patients.uneven(size, seconds=seconds)
    found = {}
    for n in amplifiers:
        if n == USUAL:
            found[n] = (fixed.ours.until(seconds), fixed.papers.until(seconds))
            continue
        tell(f"amplifier n = {n}")
        found[n] = (
            patients.run(scene, *patients.ours(amplifier=n)),
            patients.run(scene, *patients.papers(amplifier=n)),
        )
    return found


def throughput(course: Course) -> float:
    """Messages per second at the end of a run."""
    return float(course.throughput_rps[course.after(LAST)].mean())


def peak(course: Course) -> float:
    """The most messages per second in a cycle at the end of a run."""
    return float(course.throughput_rps[course.after(LAST)].max())


def tail(course: Course) -> tuple[float, float]:
    """(p99, standard deviation) of the latency at the end of a run, mean over cycles."""
    late = course.after(LAST)
    return float(np.nanmean(course.p99_s[late])), float(course.latency_sd_s[late].mean())


def over(a: float, b: float) -> float:
    """By how much a is more than b, as a share of b."""
    return a / b - 1 if b else 0.0


def _throughput_rows(
    trial: str, trio: Trio, paper: tuple[float, float], *, goal: float | None = None
) -> list[Row]:
    """Mean over the end of the run, against doing nothing and against the even placement."""
    ours, nothing, ideal = throughput(trio.ours), throughput(trio.nothing), throughput(trio.ideal)
    return [
        Row(
            trial=trial,
            metric="throughput over doing nothing",
            paper=paper[0],
            ours=over(ours, nothing),
            better="higher",
            goal=goal,
        ),
        Row(
            trial=trial,
            metric="throughput over the even placement",
            paper=paper[1],
            ours=over(ours, ideal),
            better="higher",
            goal=-0.003,
        ),
    ]


def _spread(course: Course) -> float:
    """Standard deviation of CPU load over nodes at the end of a run."""
    return float(course.cpu[course.after(LAST)].std(axis=1).mean())


def _fixed_rows(trio: Trio, size: Size) -> tuple[list[Row], list[Reference]]:
    trial, mine = "fixed rates", trio.ours
    (p99, sd), (p99_before, sd_before) = tail(mine), tail(trio.nothing)
    busy = mine.policy_s[mine.time_s > 2 * patients.WAKE_S]
    rows = [
        *_throughput_rows(trial, trio, PAPER_FIXED, goal=0.84),
        Row(
            trial=trial,
            metric="p99 of latency over doing nothing",
            paper=PAPER_FIXED_LATENCY[0],
            ours=over(p99, p99_before),
            better="lower",
        ),
        Row(
            trial=trial,
            metric="s.d. of latency over doing nothing",
            paper=PAPER_FIXED_LATENCY[1],
            ours=over(sd, sd_before),
            better="lower",
        ),
        Row(
            trial=trial,
            metric="seconds until even (s.d. of CPU load below 0.01)",
            paper=PAPER_EVEN_S,
            ours=mine.even_after_s(EVEN_SPREAD),
            better="lower",
            goal=300.0,
        ),
        Row(
            trial=trial,
            metric="s.d. of CPU load over nodes at the end",
            paper=PAPER_SPREAD,
            ours=_spread(mine),
            better="lower",
        ),
        Row(
            trial=trial,
            metric="moves over those of the paper's method here",
            paper=1.0,
            ours=mine.total_moves / max(trio.papers.total_moves, 1),
            better="lower",
        ),
        _late_moves(trial, mine, size),
        Row(
            trial=trial,
            metric="CPU of the policy, share of one core of its node",
            paper=PAPER_CPU_SHARE,
            ours=float(busy.mean()) / patients.INTERVAL_S if len(busy) else 0.0,
            better="lower",
        ),
    ]
    return rows, [
        _moves(trial, "our policy", mine),
        Reference(
            trial=trial,
            metric="pause of a move, s",
            paper=PAPER_MOVE_S,
            simulated=patients.PAUSE_S,
            note="goes into the simulation: a fixed part and the transfer of the state",
        ),
        _most(
            trial, trio, "follows from message sizes and rates, which were chosen knowing the paper's figures"
        ),
        *_papers(trial, trio, PAPER_FIXED),
    ]


def _variable_rows(trio: Trio, size: Size) -> tuple[list[Row], list[Reference]]:
    trial = "variable rates"
    best, before = peak(trio.ours), peak(trio.nothing)
    mean, even = _throughput_rows(trial, trio, PAPER_VARIABLE)
    rows = [
        Row(
            trial=trial,
            metric="peak throughput over the peak of doing nothing",
            paper=PAPER_VARIABLE[0],
            ours=over(best, before),
            better="higher",
        ),
        even,
        _late_moves(trial, trio.ours, size),
    ]
    return rows, [
        Reference(
            trial=trial,
            metric="our policy: mean throughput over doing nothing",
            paper=None,
            simulated=mean.ours,
            note="the paper compares peaks (section 5.4)",
        ),
        _most(trial, trio, "all that is sent comes through: no placement has a higher mean"),
        _moves(trial, "our policy", trio.ours),
        Reference(
            trial=trial,
            metric="our policy: s.d. of CPU load over nodes at the end",
            paper=PAPER_SPREAD,
            simulated=_spread(trio.ours),
            note="computations that woke at different times swing at different times",
        ),
        *_papers(trial, trio, PAPER_VARIABLE),
    ]


def _foreign_rows(trio: Trio, size: Size) -> tuple[list[Row], list[Reference]]:
    trial = "foreign load on a third of the nodes"
    (p99, sd), (p99_before, sd_before) = tail(trio.ours), tail(trio.nothing)
    nothing, ideal = throughput(trio.nothing), throughput(trio.ideal)

    def recovered(course: Course) -> float:
        return (throughput(course) - nothing) / (ideal - nothing)

    rows = [
        Row(
            trial=trial,
            metric="lost throughput recovered",
            paper=PAPER_RECOVERED,
            ours=recovered(trio.ours),
            better="higher",
            goal=0.9,
        ),
        Row(
            trial=trial,
            metric="p99 of latency over doing nothing",
            paper=PAPER_FOREIGN_LATENCY,
            ours=over(p99, p99_before),
            better="lower",
        ),
        Row(
            trial=trial,
            metric="s.d. of latency over doing nothing",
            paper=PAPER_FOREIGN_LATENCY,
            ours=over(sd, sd_before),
            better="lower",
        ),
        _late_moves(trial, trio.ours, size),
    ]
    return rows, [
        _moves(trial, "our policy", trio.ours),
        Reference(
            trial=trial,
            metric="throughput lost by doing nothing",
            paper=None,
            simulated=-over(nothing, ideal),
        ),
        Reference(
            trial=trial,
            metric="the paper's method: lost throughput recovered",
            paper=PAPER_RECOVERED,
            simulated=recovered(trio.papers),
        ),
        _moves(trial, "the paper's method", trio.papers),
    ]


def _late_moves(trial: str, course: Course, size: Size) -> Row:
    """No see-saw: hardly anything moves once all has settled."""
    late = float(course.moves[course.after(LAST)].sum()) / (size.nodes * size.per_node)
    return Row(
        trial=trial,
        metric="moves in the last third, share of computations",
        paper=None,
        ours=late,
        better="lower",
        goal=MOST_LATE,
    )


def _moves(trial: str, name: str, course: Course) -> Reference:
    return Reference(trial=trial, metric=f"{name}: moves", paper=None, simulated=float(course.total_moves))


def _most(trial: str, trio: Trio, note: str) -> Reference:
    """What could be gained at most."""
    return Reference(
        trial=trial,
        metric="the even placement over doing nothing",
        paper=None,
        simulated=over(throughput(trio.ideal), throughput(trio.nothing)),
        note=note,
    )


def _papers(trial: str, trio: Trio, figures: tuple[float, float]) -> list[Reference]:
    theirs = throughput(trio.papers)
    return [
        Reference(
            trial=trial,
            metric="the paper's method: throughput over doing nothing",
            paper=figures[0],
            simulated=over(theirs, throughput(trio.nothing)),
        ),
        Reference(
            trial=trial,
            metric="the paper's method: throughput over the even placement",
            paper=figures[1],
            simulated=over(theirs, throughput(trio.ideal)),
        ),
        Reference(
            trial=trial,
            metric="the paper's method: seconds until 99 % of the even throughput",
            paper=PAPER_EVEN_S,
            simulated=_reaches_s(trio.papers, 0.99 * throughput(trio.ideal)),
        ),
        _moves(trial, "the paper's method", trio.papers),
    ]


def _reaches_s(course: Course, rps: float) -> float:
    """From the wake-up until a throughput is first reached; infinite if never."""
    there = np.flatnonzero((course.throughput_rps >= rps) & (course.time_s > patients.WAKE_S))
    return float(course.time_s[there[0]] - patients.WAKE_S) if len(there) else float("inf")


def _sweep(findings: Findings) -> tuple[list[Row], list[Reference]]:
    ideal = throughput(findings.fixed.ideal)
    references = []
    for n, (ours, papers) in findings.amplifiers.items():
        for name, course in (("our policy", ours), ("the paper's method", papers)):
            references += [
                Reference(
                    trial=f"amplifier n = {n}",
                    metric=f"{name}: throughput over the even placement",
                    paper=PAPER_FIXED[1] if n == 3 and course is papers else None,
                    simulated=over(throughput(course), ideal),
                ),
                _moves(f"amplifier n = {n}", name, course),
            ]
    return [], references
