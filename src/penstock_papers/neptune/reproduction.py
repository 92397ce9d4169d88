"""`penstock reproduce neptune`: the paper's evaluation in simulation, ours, its method and the last value alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.dataflow import Load, sine
from penstock.policies.policy import AnyPolicy
from penstock_papers.common.figures import (
    Better,
    Reference,
    Reproduction,
    Row,
    Tell,
    compared,
)
from penstock_papers.neptune import patients
from penstock_papers.neptune.inputs import FOREIGN_SHARE, NOT_SHOWN, PERIOD_S, inputs
from penstock_papers.neptune.patients import Course, Scene, Size

PAPER_FIXED = (0.83932, -0.00413)
"""Throughput over doing nothing, and over the even placement (table 2)."""
PAPER_VARIABLE = (0.48891, -0.00001)
PAPER_FIXED_LATENCY = (-0.05241, -0.15845)
"""p99 and standard deviation of latency, against doing nothing."""
PAPER_RECOVERED, PAPER_FOREIGN_LATENCY = 0.7725, -0.82
PAPER_SPREAD = 0.0082
PAPER_CPU_SHARE = 0.0033
RECOVERED = 0.9
SHORT_OF_EVEN = -0.003
MOST_LATE = 0.01
DISTURBED_SHARE = 0.27
"""Computations that run in the trial with foreign load: what is left elsewhere can carry them."""
LAST = 1 / 3
"""Part of a run over which it is compared: the end, when all has settled."""
SEEDS = (201, 202, 203, 204, 205)
"""Of rates, phases and chance; none of them was used for tuning."""
SMALL = Size(per_node=60)
"""Of the trials with several seeds."""
STEADY_S, WAVES_S = 900.0, 1_800.0
"""How long trials are; the last third of the longer ones is one whole wave of the variable rates."""
PHASES = 6
AMPLIFIERS, SWEEP_S = (2, 3, 4, 5, 6), 900.0
OURS, PAPERS, LAST_VALUE, NOTHING, EVEN = (
    "ours",
    "the paper's method",
    "ours with the last value",
    "doing nothing",
    "even placement",
)
Figure = Callable[[Course], float]
Courses = dict[str, list[Course]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trio:
    """One trial under our policy and the paper's, beside doing nothing and the ideal."""

    ours: Course
    papers: Course
    nothing: Course
    ideal: Course


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """Courses behind the rows, for the plots: those of the first seed."""

    fixed: Trio
    variable: Trio
    foreign: Trio
    amplifiers: Mapping[int, tuple[Course, Course]]
    """n to the course under our policy and under the paper's."""


def reproduce(
    *,
    plot: Path | None = None,
    tell: Tell = lambda _: None,
    size: Size = SMALL,
    whole: Size | None = None,
    seeds: Sequence[int] = SEEDS,
    seconds: tuple[float, float] = (STEADY_S, WAVES_S),
    amplifiers: Sequence[int] = AMPLIFIERS,
) -> Reproduction:
    """All rows. `size` is that of the trials with several `seeds`, `whole` that of the references."""
    whole = whole or Size()
    rows: list[Row] = []
    references: list[Reference] = []
    trios = {}
    for name, scene, figures, methods in _trials(size, seconds):
        courses = _run(name, scene, seeds, methods, tell)
        rows += _rows(name, courses, figures, seeds)
        references += _told(name, courses)
        trios[name] = courses
    rows += _claims(trios, seeds, size)
    amplified, sweep = _amplifiers(whole, min(SWEEP_S, seconds[0]), amplifiers, tell)
    whole_rows, whole_references = _whole(whole, seconds[0], tell)
    plots: tuple[Path, ...] = ()
    if plot is not None:
        from penstock_papers.neptune.plots import draw

        tell("drawing")
        fixed, variable, foreign = (_trio(trios[name]) for name in (FIXED, WAVES, FOREIGN))
        findings = Findings(fixed=fixed, variable=variable, foreign=foreign, amplifiers=amplified)
        plots = draw(findings, plot)
    return Reproduction(
        paper="neptune",
        rows=(*rows, *whole_rows),
        references=(*references, *sweep, *whole_references),
        inputs=inputs(size),
        not_shown=NOT_SHOWN,
        plots=plots,
    )


FIXED, HOLDING, WAVES, SHIFTED, FOREIGN = (
    "fixed rates",
    "fixed rates, senders hold back",
    "variable rates",
    "variable rates out of phase",
    "foreign load on a third of the nodes",
)


def waves() -> Load:
    """The factor on all rates in the trials with variable rates: a sine between a half and one, in steps of 10 s."""
    return sine(0.75, 0.25, PERIOD_S, step_s=10.0)


def throughput(course: Course) -> float:
    """Messages per second at the end of a run."""
    return float(course.throughput_rps[course.after(LAST)].mean())


def spread(course: Course) -> float:
    """Standard deviation of CPU load over nodes at the end of a run."""
    return float(course.cpu[course.after(LAST)].std(axis=1).mean())


def p99_s(course: Course) -> float:
    """Of the latency at the end of a run, mean over cycles."""
    return float(np.nanmean(course.p99_s[course.after(LAST)]))


def deviation_s(course: Course) -> float:
    """Standard deviation of the latency at the end of a run."""
    return float(course.latency_sd_s[course.after(LAST)].mean())


def sent_latency_s(course: Course) -> float:
    """Mean latency from leaving the source, whole run since the wake-up."""
    return float(np.nanmean(course.sent_latency_s[course.time_s > patients.WAKE_S]))


def since_change_rps(course: Course) -> float:
    """Messages per second over the whole time since the wake-up: who is even sooner has more."""
    return float(course.throughput_rps[course.time_s > patients.WAKE_S].mean())


def moves(course: Course) -> float:
    """Moves in all."""
    return float(course.total_moves)


FIGURES: Mapping[str, tuple[Better, Figure]] = {
    "messages/s at the end": ("higher", throughput),
    "messages/s since the change": ("higher", since_change_rps),
    "s.d. of CPU load over nodes at the end": ("lower", spread),
    "p99 of latency at the end, s": ("lower", p99_s),
    "s.d. of latency at the end, s": ("lower", deviation_s),
    "mean latency from leaving the source, s": ("lower", sent_latency_s),
    "moves": ("lower", moves),
}
STEADY = (*tuple(FIGURES)[:3], "p99 of latency at the end, s", "moves")
HELD_BACK = ("messages/s since the change", "mean latency from leaving the source, s", "moves")


def _trials(
    size: Size, seconds: tuple[float, float]
) -> list[tuple[str, Callable[[int, bool], Scene], Sequence[str], Sequence[str]]]:
    """Name, scene (of a seed, and whether placed evenly), figures that are compared, and who takes part."""
    steady_s, waves_s = seconds
    active = round(DISTURBED_SHARE * size.per_node)

    def placed(even: bool) -> Callable[..., Scene]:
        return patients.even if even else patients.uneven

    def foreign(seed: int, even: bool) -> Scene:
        share = 0.0 if even else FOREIGN_SHARE
        return patients.disturbed(size, active=active, foreign=share, seconds=steady_s, seed=seed)

    shape, all_of = waves(), (OURS, PAPERS, NOTHING, EVEN)
    return [
        (FIXED, lambda seed, even: placed(even)(size, seconds=steady_s, seed=seed), STEADY, all_of),
        (HOLDING, lambda seed, even: placed(even)(size, seconds=steady_s, seed=seed, holding=True), HELD_BACK,
         (OURS, PAPERS, NOTHING)),
        (WAVES, lambda seed, even: placed(even)(size, seconds=waves_s, seed=seed, shape=shape), STEADY,
         (*all_of, LAST_VALUE)),
        (SHIFTED, lambda seed, even: placed(even)(size, seconds=waves_s, seed=seed, shape=shape, phases=PHASES),
         STEADY, (*all_of, LAST_VALUE)),
        (FOREIGN, foreign, STEADY, all_of),
    ]  # fmt: skip


def _policy(method: str, name: str, **changes: Any) -> tuple[AnyPolicy | None, Any]:
    season = {"season_s": PERIOD_S} if name in (WAVES, SHIFTED) else {}
    if method == OURS:
        return patients.ours(**season, **changes)
    if method == PAPERS:
        return patients.papers(**season, **changes)
    if method == LAST_VALUE:
        return patients.ours(forecasts=False, **changes)
    return None, None


def _run(
    name: str,
    scene: Callable[[int, bool], Scene],
    seeds: Sequence[int],
    methods: Sequence[str],
    tell: Tell,
) -> Courses:
    found: Courses = {}
    for method in methods:
        tell(f"{name}: {method}")
        found[method] = [patients.run(scene(seed, method == EVEN), *_policy(method, name)) for seed in seeds]
    return found


def _rows(name: str, courses: Courses, figures: Sequence[str], seeds: Sequence[int]) -> list[Row]:
    """Ours against the paper's method, and where foresight is claimed, against the last value."""
    return [
        compared(
            trial=name,
            metric=metric,
            ours=[FIGURES[metric][1](c) for c in courses[OURS]],
            rival=[FIGURES[metric][1](c) for c in courses[rival]],
            rival_name=rival,
            better=FIGURES[metric][0],
            seeds=seeds,
        )
        for rival in (PAPERS, LAST_VALUE)
        if rival in courses
        for metric in figures
    ]


def _claims(found: Mapping[str, Courses], seeds: Sequence[int], size: Size) -> list[Row]:
    """What we ask of ourselves, on the worst seed."""
    rows = []
    for name in (FIXED, WAVES, SHIFTED):
        courses = found[name]
        short = [
            over(throughput(a), throughput(b)) for a, b in zip(courses[OURS], courses[EVEN], strict=True)
        ]
        paper = {FIXED: PAPER_FIXED[1], WAVES: PAPER_VARIABLE[1]}.get(name)
        rows.append(
            Row(trial=name, metric="throughput over the even placement, worst seed", paper=paper, ours=min(short),
                better="higher", goal=SHORT_OF_EVEN, seeds=tuple(seeds))
        )  # fmt: skip
    courses = found[FOREIGN]
    back = [
        recovered(throughput(a), throughput(n), throughput(e))
        for a, n, e in zip(courses[OURS], courses[NOTHING], courses[EVEN], strict=True)
    ]
    rows.append(
        Row(trial=FOREIGN, metric="lost throughput recovered, worst seed", paper=PAPER_RECOVERED, ours=min(back),
            better="higher", goal=RECOVERED, seeds=tuple(seeds))
    )  # fmt: skip
    for name in (FIXED, WAVES, SHIFTED, FOREIGN):
        late = [float(c.moves[c.after(LAST)].sum()) / (size.nodes * size.per_node) for c in found[name][OURS]]
        rows.append(
            Row(trial=name, metric="moves in the last third, share of computations, worst seed", ours=max(late),
                better="lower", goal=MOST_LATE, seeds=tuple(seeds))
        )  # fmt: skip
    return rows


def over(a: float, b: float) -> float:
    """By how much a is more than b, as a share of b."""
    return a / b - 1 if b else 0.0


def recovered(ours: float, nothing: float, undisturbed: float) -> float:
    """Share of what others took that came back; all of it where they took nothing."""
    lost = undisturbed - nothing
    return (ours - nothing) / lost if lost > 0 else 1.0


def _told(name: str, courses: Courses) -> list[Reference]:
    """Against doing nothing, as the paper compares: anybody who does something is better than that."""
    if NOTHING not in courses:
        return []
    papers = {
        FIXED: {"messages/s at the end": PAPER_FIXED[0], "p99 of latency at the end, s": PAPER_FIXED_LATENCY[0],
                "s.d. of latency at the end, s": PAPER_FIXED_LATENCY[1]},
        WAVES: {"messages/s at the end": PAPER_VARIABLE[0]},
        FOREIGN: {"p99 of latency at the end, s": PAPER_FOREIGN_LATENCY,
                  "s.d. of latency at the end, s": PAPER_FOREIGN_LATENCY},
    }.get(name, {})  # fmt: skip
    references = []
    for method, each in courses.items():
        if method == NOTHING:
            continue
        for metric, (_, figure) in FIGURES.items():
            if metric == "moves":
                continue
            changes = [over(figure(a), figure(b)) for a, b in zip(each, courses[NOTHING], strict=True)]
            references.append(
                Reference(
                    trial=name,
                    metric=f"{method}: {metric.rpartition(',')[0] or metric} over doing nothing",
                    paper=papers.get(metric) if method == PAPERS else None,
                    simulated=float(np.mean(changes)),
                )
            )
        references.append(
            Reference(
                trial=name,
                metric=f"{method}: s.d. of CPU load over nodes at the end",
                paper=PAPER_SPREAD if method == PAPERS and name in (FIXED, WAVES) else None,
                simulated=float(np.mean([spread(c) for c in each])),
            )
        )
    return references


def _trio(courses: Courses) -> Trio:
    ours, papers, nothing, ideal = (courses[m][0] for m in (OURS, PAPERS, NOTHING, EVEN))
    return Trio(ours=ours, papers=papers, nothing=nothing, ideal=ideal)


def _amplifiers(
    size: Size, seconds: float, amplifiers: Sequence[int], tell: Tell
) -> tuple[dict[int, tuple[Course, Course]], list[Reference]]:
    """The trial with fixed rates for every n, at the paper's size, once."""
    scene = patients.uneven(size, seconds=seconds, seed=SEEDS[0])
    ideal = throughput(patients.run(patients.even(size, seconds=seconds, seed=SEEDS[0])))
    found, references = {}, []
    for n in amplifiers:
        tell(f"amplifier n = {n}")
        both = tuple(patients.run(scene, *_policy(method, FIXED, amplifier=n)) for method in (OURS, PAPERS))
        found[n] = (both[0], both[1])
        for method, course in zip((OURS, PAPERS), both, strict=True):
            references += [
                Reference(
                    trial=f"amplifier n = {n}",
                    metric=f"{method}: throughput over the even placement",
                    paper=PAPER_FIXED[1] if n == 3 and method == PAPERS else None,
                    simulated=over(throughput(course), ideal),
                ),
                Reference(
                    trial=f"amplifier n = {n}",
                    metric=f"{method}: moves",
                    paper=None,
                    simulated=moves(course),
                ),
            ]
    return found, references


def _whole(size: Size, seconds: float, tell: Tell) -> tuple[list[Row], list[Reference]]:
    """The policy's CPU and how soon all is even, at the paper's size, once."""
    tell("fixed rates at the paper's size")
    scene = patients.uneven(size, seconds=seconds, seed=SEEDS[0])
    courses = {method: patients.run(scene, *_policy(method, FIXED)) for method in (OURS, PAPERS)}
    trial = f"fixed rates, {size.nodes * size.per_node:,} computations"
    mine = courses[OURS]
    busy = mine.policy_s[mine.time_s > 2 * patients.WAKE_S]
    row = Row(
        trial=trial,
        metric="CPU of the policy, share of one core of its node",
        paper=PAPER_CPU_SHARE,
        ours=float(busy.mean()) / patients.INTERVAL_S if len(busy) else 0.0,
        better="lower",
        seeds=(SEEDS[0],),
    )
    references = [
        Reference(
            trial=trial,
            metric=f"{method}: s.d. of CPU load over nodes after {seconds / 60:g} min",
            paper=PAPER_SPREAD if method == PAPERS else None,
            simulated=spread(course),
            note="the paper after 25 min",
        )
        for method, course in courses.items()
    ]
    return [row], references
