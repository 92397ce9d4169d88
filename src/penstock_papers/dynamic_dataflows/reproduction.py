"""`penstock reproduce dynamic-dataflows`: static deployment under variation, adaptation, time to decide, the bill."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.dataflow import Dataflow
from penstock.policies.provisioning import ProvisioningOptions
from penstock_papers.common.figures import Input, NotShown, Reference, Reproduction, Row, Tell, compared
from penstock_papers.dynamic_dataflows import deployments
from penstock_papers.dynamic_dataflows.cloud import Course, play
from penstock_papers.dynamic_dataflows.deciders import DECIDERS
from penstock_papers.dynamic_dataflows.roads import (
    MACHINE_TRACES,
    STEPS,
    machine_speeds,
    roads,
    roads_demand,
    walk,
)

RATES = (10.0, 50.0, 200.0, 1000.0, 8000.0)
DECIDED_RPS = (*RATES, 100_000.0)
"""Rates at which the time to decide is measured: the last is beyond what the paper has."""
SEEDS = (11, 12, 13, 14, 15)
"""None of them was used for tuning; those were 0, 1 and 2."""
OPTIONS = ProvisioningOptions(utilisation=1.0, band=0.0, lag_s=15.0, caution=0.5)
"""The shipped policy's, for two-minute intervals without noise within them."""
ASKS = (0.8, 0.85, 0.9, 0.95)
"""Throughputs that CE and SH are asked for, so that they can be compared at the Ω that ours has."""
MANY_RPS, MANY_ASKS = 8000.0, (0.9, 0.95)
"""From this rate on, only these: a run takes long."""
GENETIC_RPS, GENETIC_STEPS, GENETIC_ASKS = 50.0, 90, (0.85, 0.95)
"""Where the genetic decider runs with the search of a deployment."""
HIGH_RPS = 1000.0
COSTS_RPS, COSTS_STEPS = 1000.0, 180
OTHER_COSTS = (0.5, 1.0, 2.0, 4.0)
"""Factors on the costs of operators that the paper does not print."""
TRAVEL_COSTS = (0.1, 0.2, 0.4)
"""Cost of the cheaper travel time, which the paper does not print either."""
PAPER_SAVED = 0.275
PAPER_DECIDE_S = 2.5
NOT_ABOVE = (
    "where the interval reaches below 0 the two are equal within the seeds: with shared cores a fleet that CE changes "
    "late is used up by what waits, and both run the same alternates most of the time"
)

Runs = dict[tuple[str, float], list[Course]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Findings:
    """The courses of the first seed, for the plots."""

    adaptive: Mapping[tuple[str, float], Course]
    decide_s: Mapping[tuple[str, float], float]
    cores: Mapping[tuple[str, float], int]
    bills: Mapping[float, tuple[float, float]]
    """Rate to the bill with and without alternates."""


def reproduce(
    *,
    plot: Path | None = None,
    tell: Tell = lambda _: None,
    rates: Sequence[float] = RATES,
    seeds: Sequence[int] | None = None,
    steps: int = STEPS,
    genetic: bool = True,
    data: Path | None = None,
) -> Reproduction:
    """All rows. Fewer `rates`, `seeds` or `steps` make it smaller; `data` is where machine traces lie (else made-up).

    PENSTOCK_SEEDS=20 in the environment takes so many seeds.
    """
    if seeds is None:
        seeds = range(SEEDS[0], SEEDS[0] + int(os.environ.get("PENSTOCK_SEEDS", len(SEEDS))))
    folder = data or _shared_data()
    rows, references = deployments.small(tell)
    more_rows, more_references = deployments.static(folder, seeds, steps, tell)
    rows += more_rows
    references += more_references
    runs: Runs = {}
    for rate in rates:
        more_rows, more_references = _adaptive(folder, rate, seeds, steps, runs, tell)
        rows += more_rows
        references += more_references
    if genetic:
        more_rows, more_references = _genetic(folder, seeds, min(steps, GENETIC_STEPS), tell)
        rows += more_rows
        references += more_references
    time_rows, time_references, decide_s, cores = _times(DECIDED_RPS if rates is RATES else rates, tell)
    cost_references = _costs(folder, seeds[0], min(steps, COSTS_STEPS), tell)
    plots: tuple[Path, ...] = ()
    if plot is not None:
        from penstock_papers.dynamic_dataflows.plots import draw

        tell("drawing")
        first = {key: courses[0] for key, courses in runs.items()}
        bills = {r: (first["best", r].cost, first["plain", r].cost) for r in rates}
        plots = draw(Findings(adaptive=first, decide_s=decide_s, cores=cores, bills=bills), plot)
    return Reproduction(
        paper="dynamic-dataflows",
        rows=(*rows, *time_rows),
        references=(*references, *time_references, *cost_references),
        inputs=_inputs(folder),
        not_shown=(
            NotShown(
                what="GA at run time beyond 50/s",
                why="with the search of a deployment it takes longer than the interval it decides for",
            ),
            NotShown(
                what="the cloud",
                why="machines are simulated, their speeds made from the CPU of EC2 machines; none was rented",
            ),
            NotShown(
                what="GA's and CE's printed profits",
                why="the paper prints the costs of one operator of eight; profits are compared with one another only",
            ),
        ),
        plots=plots,
    )


def _inputs(folder: Path | None) -> tuple[Input, ...]:
    traces = "CPU of EC2 machines as a neighbour: 1 - cpu/2" if folder else "made up: neighbours that wander"
    return (
        Input(name="options", value=repr(OPTIONS), source="tuned on seeds 0, 1 and 2 at 50 and 1,000/s"),
        Input(
            name="machine speeds",
            value=traces,
            source="not measured speeds: no public trace of them is at hand",
        ),
        Input(
            name="cores",
            value="shared by all operators while it runs",
            source="as on Spark; in the paper, and in the static trials here, a core belongs to one operator",
        ),
        Input(
            name="costs of all but congestion",
            value="see roads.py",
            source="ours: the paper does not print them",
        ),
    )


def at_equal_throughput(ours: Course, theirs: Sequence[Course]) -> float:
    """Profit of a decider at the Ω that ours has, between its runs of different asks; beyond them, the nearest's."""
    ordered = sorted(theirs, key=lambda c: float(c.throughput.mean()))
    reached = [float(c.throughput.mean()) for c in ordered]
    return float(np.interp(float(ours.throughput.mean()), reached, [c.profit for c in ordered]))


def _adaptive(
    data: Path | None, rate: float, seeds: Sequence[int], steps: int, runs: Runs, tell: Tell
) -> tuple[list[Row], list[Reference]]:
    asks = ASKS if rate < MANY_RPS else MANY_ASKS
    equal: dict[str, list[float]] = {"ce": [], "sh": []}
    for seed in seeds:
        moving, speeds = walk(seed, steps=steps), machine_speeds(data, seed)
        given: dict[str, Any] = {"rates": moving, "speeds": speeds, "options": OPTIONS, "seed": seed}
        tell(f"adaptive at {rate:g}/s, seed {seed}")
        ours = play(rate, "best", **given)
        runs.setdefault(("best", rate), []).append(ours)
        runs.setdefault(("plain", rate), []).append(
            play(rate, "best", dataflow=roads(alternates=False), **given)
        )
        for name, profits in equal.items():
            theirs = [play(rate, name, throughput=ask, **given) for ask in asks]
            profits.append(at_equal_throughput(ours, theirs))
            runs.setdefault((name, rate), []).append(theirs[0])
        tell(
            f"adaptive at {rate:g}/s, seed {seed}: Ω held in {ours.held_share:.1%}, {ours.throughput.mean():.3f} on "
            f"average, {ours.backlog_s:.0f} s behind, profit {ours.profit:.4f}, CE {equal['ce'][-1]:.4f}, "
            f"SH {equal['sh'][-1]:.4f}"
        )
    trial = f"adaptive at {rate:g}/s, both vary"
    mine, used = runs["best", rate], tuple(seeds)
    profit = [c.profit for c in mine]
    rows = [
        Row(
            trial=trial,
            metric="intervals with Ω ≥ 0.75, share, worst seed",
            ours=min(c.held_share for c in mine),
            better="higher",
            goal=0.95,
            seeds=used,
        ),
        Row(
            trial=trial,
            metric="backlog at the end, seconds of input, worst seed",
            ours=max(c.backlog_s for c in mine),
            better="lower",
            goal=60.0,
            seeds=used,
            note="the last peak was not over yet" if max(c.backlog_s for c in mine) > 60 else "",
        ),
        *(
            compared(
                trial=trial,
                metric="profit at equal Ω",
                ours=profit,
                rival=equal[name],
                rival_name=name.upper(),
                better="higher",
                seeds=used,
                note=NOT_ABOVE,
            )
            for name in ("ce", "sh")
        ),
        compared(
            trial=trial,
            metric="CE's profit, as the paper orders them",
            ours=equal["ce"],
            rival=equal["sh"],
            rival_name="SH",
            better="higher",
            seeds=used,
            note="CE repacks and knows what follows an alternate; SH does neither",
        ),
    ]
    if rate >= HIGH_RPS:
        rows.append(_saved(trial, mine, runs["plain", rate], used))
    references = [r for name in ("best", "plain", "ce", "sh") for r in _told(trial, name, runs[name, rate])]
    return rows, references


def _saved(trial: str, ours: Sequence[Course], plain: Sequence[Course], seeds: tuple[int, ...]) -> Row:
    saved = [1 - a.cost / b.cost for a, b in zip(ours, plain, strict=True)]
    given_up = 1 - float(np.mean([c.value.mean() for c in ours]))
    reached = [float(np.mean([c.throughput.mean() for c in each])) for each in (ours, plain)]
    # Γ is a mean over all eight operators, of which two have a choice.
    switched = given_up * len(roads().operators) / sum(len(o.alternates) > 1 for o in roads().operators)
    return Row(
        trial=trial,
        metric="saved by alternates, share of the bill",
        paper=PAPER_SAVED,
        ours=float(np.mean(saved)),
        better="higher",
        seeds=seeds,
        note=f"value given up: {given_up:.1%} of all, {switched:.1%} of the operators that switched; "
        f"Ω {reached[0]:.3f} with alternates, {reached[1]:.3f} without",
    )


def _told(trial: str, name: str, courses: Sequence[Course]) -> list[Reference]:
    paper = {"ga": 0.34, "ce": 0.29}.get(name) if trial.startswith("adaptive at 50/s") else None
    figures = (
        ("profit", [c.profit for c in courses], paper),
        ("Ω on average", [c.throughput.mean() for c in courses], None),
        ("intervals with Ω ≥ 0.75, share", [c.held_share for c in courses], None),
        ("backlog at the end, seconds of input", [c.backlog_s for c in courses], None),
        ("value", [c.value.mean() for c in courses], None),
        ("bill", [c.cost for c in courses], None),
        ("switches of alternates", [c.switches for c in courses], None),
        ("longest decision, CPU s", [c.decide_s[2:].max(initial=0.0) for c in courses], None),
    )
    note = "asked for Ω 0.8" if name in ("ce", "sh") else ""
    return [
        Reference(
            trial=trial, metric=f"{name}: {metric}", paper=theirs, simulated=float(np.mean(each)), note=note
        )
        for metric, each, theirs in figures
    ]


def _genetic(
    data: Path | None, seeds: Sequence[int], steps: int, tell: Tell
) -> tuple[list[Row], list[Reference]]:
    """GA with the search of a deployment in every decision; a shorter period, because that takes its time."""
    profits: dict[str, list[float]] = {"best": [], "ga": [], "ce": []}
    courses: list[Course] = []
    for seed in seeds:
        tell(f"genetic at {GENETIC_RPS:g}/s, seed {seed}")
        given: dict[str, Any] = {
            "rates": walk(seed, steps=steps),
            "speeds": machine_speeds(data, seed),
            "options": OPTIONS,
            "seed": seed,
        }
        ours = play(GENETIC_RPS, "best", **given)
        profits["best"].append(ours.profit)
        for name in ("ga", "ce"):
            theirs = [play(GENETIC_RPS, name, throughput=ask, **given) for ask in GENETIC_ASKS]
            profits[name].append(at_equal_throughput(ours, theirs))
            courses += theirs[:1] if name == "ga" else []
    trial = f"adaptive at {GENETIC_RPS:g}/s, both vary, {steps * 2 / 60:g} h"
    pairs = (("best", "ga", "profit at equal Ω"), ("ga", "ce", "GA's profit, as the paper orders them"))
    rows = [
        compared(
            trial=trial,
            metric=metric,
            ours=profits[one],
            rival=profits[other],
            rival_name=other.upper(),
            better="higher",
            seeds=tuple(seeds),
        )
        for one, other, metric in pairs
    ]
    return rows, _told(trial, "ga", courses)


def _times(
    rates: Sequence[float], tell: Tell
) -> tuple[list[Row], list[Reference], dict[tuple[str, float], float], dict[tuple[str, float], int]]:
    seconds: dict[tuple[str, float], float] = {}
    cores: dict[tuple[str, float], int] = {}
    references: list[Reference] = []
    for name in ("best", "ce", "sh", "ga"):
        for rate in rates:
            if name == "ga" and rate > 200:
                continue
            tell(f"time to decide at {rate:g}/s: {name}")
            demand = roads_demand(rate)
            began = time.process_time()
            found = DECIDERS[name](demand)
            seconds[name, rate] = time.process_time() - began
            cores[name, rate] = int(found.deployment.cores.sum())
            trial = f"deployment at {rate:g}/s"
            references += [
                Reference(trial=trial, metric=f"{name}: CPU s", paper=None, simulated=seconds[name, rate]),
                Reference(trial=trial, metric=f"{name}: cores", paper=None, simulated=cores[name, rate]),
            ]
    rows = [
        Row(
            trial=f"deployment at {rate:g}/s",
            metric="time to decide, CPU s",
            paper=PAPER_DECIDE_S if rate == 8000 else None,
            ours=seconds["best", rate],
            better="lower",
            goal=goal,
        )
        for rate, goal in ((8000.0, 0.1), (100_000.0, 2.0))
        if ("best", rate) in seconds
    ]
    return rows, references, seconds, cores


def with_costs(*, others: float = 1.0, travel_s: float = 0.1) -> Dataflow:
    """The trial's dataflow with other figures where the paper prints none."""
    operators = []
    for operator in roads().operators:
        ways = operator.alternates
        if operator.id == "travel-time":
            ways = tuple(replace(a, cost_s=travel_s) if a.name == "time-series" else a for a in ways)
        elif operator.id != "congestion":
            ways = tuple(replace(a, cost_s=others * a.cost_s) for a in ways)
        operators.append(replace(operator, alternates=ways))
    return replace(roads(), operators=tuple(operators))


def best_only(dataflow: Dataflow) -> Dataflow:
    """The dataflow without a choice."""
    return replace(dataflow, operators=tuple(replace(o, alternates=(o.best,)) for o in dataflow.operators))


def _costs(data: Path | None, seed: int, steps: int, tell: Tell) -> list[Reference]:
    """What alternates save, over costs that the paper does not print."""
    references = []
    given: dict[str, Any] = {
        "rates": walk(seed, steps=steps),
        "speeds": machine_speeds(data, seed),
        "options": OPTIONS,
    }
    for others in OTHER_COSTS:
        for travel_s in TRAVEL_COSTS:
            tell(f"saved by alternates: other operators × {others:g}, travel time {travel_s:g} s")
            flow = with_costs(others=others, travel_s=travel_s)
            ours = play(COSTS_RPS, "best", dataflow=flow, **given)
            plain = play(COSTS_RPS, "best", dataflow=best_only(flow), **given)
            references.append(
                Reference(
                    trial=f"other operators × {others:g}, cheaper travel time {travel_s:g} s a record",
                    metric="saved by alternates, share of the bill",
                    paper=None,
                    simulated=1 - ours.cost / plain.cost,
                    note=f"value given up {1 - float(ours.value.mean()):.1%}; Ω {ours.throughput.mean():.3f} with, "
                    f"{plain.throughput.mean():.3f} without",
                )
            )
    return references


def _shared_data() -> Path | None:
    """The folder of real traces beside the repository, if there is one."""
    for parent in (Path.cwd(), *Path(__file__).resolve().parents):
        folder = parent.parent / "shared" / "data"
        if (folder / MACHINE_TRACES[0]).is_file():
            return folder
    return None
