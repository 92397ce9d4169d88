"""One deployment for the whole period: beside the optimum, and under each kind of variation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from penstock.policies.provisioning import DemandError
from penstock_papers.common.figures import Reference, Row, Tell, compared
from penstock_papers.dynamic_dataflows.cloud import deployed, hold
from penstock_papers.dynamic_dataflows.roads import STEADY, machine_speeds, walk

STATIC_RPS = 50.0
REPETITIONS = 3
"""As the paper has."""
SMALL = (5.0, 10.0, 20.0, 50.0)
"""Rates at which everything can be tried."""
RISING = (10.0, 50.0, 200.0, 1000.0, 2000.0)
"""Of figure 6a."""
PAPER_STATIC = {"br": 0.67, "ga": 0.65, "ce": 0.58, "sh": 0.45}
PAPER_OMEGA = {
    "br": (0.80, 0.68, 0.59, 0.44),
    "ga": (0.79, 0.67, 0.48, 0.37),
    "sh": (0.81, 0.60, 0.40, 0.29),
    "ce": (0.81, 0.66, 0.42, 0.31),
}
VARIATIONS = ("neither", "machines", "rate", "both")
ORDER = ("br", "ga", "ce", "sh")
"""By profit, as the paper's table 2 has it."""


def small(tell: Tell) -> tuple[list[Row], list[Reference]]:
    """Ours and the genetic one beside the optimum, where that can be found by trying everything."""
    rows: list[Row] = []
    references: list[Reference] = []
    for rate in SMALL:
        tell(f"optimum at {rate:g}/s")
        optimum = deployed(rate, "br")[1].assessment
        for name in ("best", "ga"):
            found = deployed(rate, name)[1].assessment
            # Profit can be negative at such rates: the gap is measured in its own size.
            gap = (optimum.profit - found.profit) / max(abs(optimum.profit), 1e-9)
            trial = f"deployment at {rate:g}/s"
            rows.append(
                Row(
                    trial=trial,
                    metric=f"{name}: profit short of the optimum, share",
                    paper=None if name == "best" else 0.03,
                    ours=max(0.0, gap),
                    better="lower",
                    goal=0.05,
                )
            )
            references.append(
                Reference(trial=trial, metric=f"{name}: profit", paper=None, simulated=found.profit)
            )
        references.append(
            Reference(
                trial=f"deployment at {rate:g}/s",
                metric="optimum: profit",
                paper=None,
                simulated=optimum.profit,
            )
        )
    return rows, references


def static(
    data: Path | None, seeds: Sequence[int], steps: int, tell: Tell
) -> tuple[list[Row], list[Reference]]:
    """The paper's table 2, three times: throughput under each kind of variation, and the order by profit."""
    seeds = seeds[:REPETITIONS]
    profits: dict[str, list[float]] = {}
    omega: dict[tuple[str, str], list[float]] = {}
    for name in ("best", *ORDER):
        tell(f"static deployment by {name}")
        for seed in seeds:
            still, moving, real = np.ones(steps), walk(seed, steps=steps), machine_speeds(data, seed)
            kinds = ((still, STEADY), (still, real), (moving, STEADY), (moving, real))
            for kind, (rates, speeds) in zip(VARIATIONS, kinds, strict=True):
                try:
                    throughput, profit = hold(STATIC_RPS, name, rates=rates, speeds=speeds, seed=seed)
                except DemandError:
                    break  # brute force may give up here, as it did in the paper at higher rates
                omega.setdefault((name, kind), []).append(float(throughput.mean()))
                if kind == "neither":
                    profits.setdefault(name, []).append(profit)
    trial = f"static at {STATIC_RPS:g}/s"
    rows = [
        Row(
            trial=trial,
            metric="best: throughput, nothing varies, worst repetition",
            paper=0.80,
            ours=min(omega["best", "neither"]),
            better="higher",
            seeds=tuple(seeds),
        )
    ]
    rows += [
        compared(trial=trial, metric=f"{one.upper()}'s profit, as the paper orders them", ours=profits[one],
                 rival=profits[other], rival_name=other.upper(), better="higher", seeds=seeds)
        for one, other in pairwise(ORDER)
        if len(profits.get(one, ())) == len(profits.get(other, ())) == len(seeds)
    ]  # fmt: skip
    references = [
        Reference(
            trial=f"{trial}, {kind} varies",
            metric=f"{name}: throughput",
            paper=PAPER_OMEGA[name][VARIATIONS.index(kind)] if name in PAPER_OMEGA else None,
            simulated=float(np.mean(values)),
        )
        for (name, kind), values in omega.items()
    ]
    references += [
        Reference(
            trial=trial,
            metric=f"{name}: profit",
            paper=PAPER_STATIC.get(name),
            simulated=float(np.mean(values)),
            note="the paper's costs of most operators are not printed",
        )
        for name, values in profits.items()
    ]
    return rows, references + _rising(data, seeds[0], steps, tell)


def _rising(data: Path | None, seed: int, steps: int, tell: Tell) -> list[Reference]:
    """Figure 6a: what is left of the throughput of a static deployment as the rate rises, both kinds varying."""
    references = []
    moving, real = walk(seed, steps=steps), machine_speeds(data, seed)
    for rate in RISING:
        tell(f"static deployment at {rate:g}/s")
        references += [
            Reference(
                trial=f"static at {rate:g}/s, both vary (figure 6a)",
                metric=f"{name}: throughput",
                paper=None,
                simulated=float(hold(rate, name, rates=moving, speeds=real, seed=seed)[0].mean()),
            )
            for name in ("best", "ce", "sh")
        ]
    return references
