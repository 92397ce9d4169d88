"""The trial of dynamic-dataflows.txt, section 9: Linear Road as eight abstract operators, its loads and its machines.

The paper prints the three alternates of congestion estimation. Costs of the other operators, selectivities and the two
alternates of travel time are ours: what can be read of figure 5 does not tell them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.dataflow import Alternate, Dataflow, Operator, OperatorId, Stream, random_walk, read_trace
from penstock.dataflow.graph import Kind
from penstock.policies.provisioning import M1, Demand, Worth, demand_of
from penstock.policies.provisioning.problem import Floats

PERIOD_S = 12 * 3600.0
STEP_S = 120.0
STEPS = int(PERIOD_S / STEP_S)
WEATHER_SHARE = 0.02
"""Of all records, those that are weather updates: they are rare."""
MACHINE_TRACES = ("ec2_cpu_24ae8d.csv", "ec2_cpu_53ea38.csv", "ec2_cpu_5f5533.csv")


def _operator(id_: str, kind: Kind, *alternates: tuple[str, float, float, float]) -> Operator:
    return Operator(
        id=OperatorId(id_),
        kind=kind,
        alternates=tuple(
            Alternate(name=name, value=value, cost_s=cost, selectivity=selectivity)
            for name, value, cost, selectivity in alternates
        ),
    )


OPERATORS: tuple[Operator, ...] = (
    _operator("weather", "source", ("parse", 1.0, 0.05, 1.0)),
    _operator("reports", "source", ("parse", 1.0, 0.02, 1.0)),
    _operator(
        "congestion",
        "map",
        ("long-horizon", 1.0, 1.2, 1.0),
        ("short-horizon", 0.8, 0.8, 1.0),
        ("coarse", 0.5, 0.8, 0.5),
    ),
    _operator("accidents", "map", ("detect", 1.0, 0.02, 0.05)),
    _operator("tolls", "map", ("compute", 1.0, 0.03, 1.0)),
    _operator("notifications", "sink", ("send", 1.0, 0.01, 1.0)),
    _operator("balances", "sink", ("answer", 1.0, 0.01, 1.0)),
    _operator("travel-time", "sink", ("regression-tree", 1.0, 0.4, 1.0), ("time-series", 0.9, 0.1, 1.0)),
)
STREAMS = (
    ("weather", "congestion"),
    ("reports", "congestion"),
    ("reports", "accidents"),
    ("congestion", "tolls"),
    ("congestion", "travel-time"),
    ("accidents", "tolls"),
    ("accidents", "travel-time"),
    ("tolls", "notifications"),
    ("tolls", "balances"),
)


def roads(*, alternates: bool = True) -> Dataflow:
    """The dataflow; without alternates every operator has its best one only."""
    operators = OPERATORS
    if not alternates:
        operators = tuple(
            Operator(id=o.id, kind=o.kind, alternates=(o.best,)) if len(o.alternates) > 1 else o
            for o in OPERATORS
        )
    streams = tuple(Stream(source=OperatorId(a), target=OperatorId(b)) for a, b in STREAMS)
    return Dataflow("linear-road-trial", operators, streams)


def roads_demand(rate_rps: float, *, dataflow: Dataflow | None = None, seed: int = 0) -> Demand:
    """The demand at a mean rate: C(Γmax) = T·rate/10, C(Γmin) half of it, prices of the m1 family."""
    shares = {"weather": WEATHER_SHARE * rate_rps, "reports": (1 - WEATHER_SHARE) * rate_rps}
    worth = Worth(full_per_hour=rate_rps / 10, least_per_hour=rate_rps / 20)
    flow = dataflow or roads()
    return demand_of(flow, shares, M1, worth=worth, period_s=PERIOD_S, throughput=0.8, seed=seed)


def walk(seed: int = 0, steps: int = STEPS) -> Floats:
    """The rate relative to its mean, a step each: a random walk within ±50 %, the first from `seed` on of mean 1."""
    for draw in range(1000 * seed, 1000 * (seed + 1)):
        load = random_walk(1.0, spread=0.5, step_s=STEP_S, duration_s=steps * STEP_S, seed=draw)
        rates = np.asarray(load.rates_rps[:steps])
        if abs(rates.mean() - 1) < 0.01:
            break
    return rates


@dataclass(frozen=True, slots=True, eq=False)
class MachineSpeeds:
    """Speed of machines relative to their rating: rows are kinds of neighbour, columns steps."""

    traces: Floats
    seed: int = 0

    def of(self, machines: range, step: int) -> Floats:
        """Of the machines with the given serial numbers: each has one trace, from a place of its own."""
        rng = np.random.default_rng([self.seed, 7])
        # The n-th machine is the same one for every decider.
        rows = rng.integers(0, len(self.traces), max(machines.stop, 1))
        offsets = rng.integers(0, self.traces.shape[1], max(machines.stop, 1))
        at = (offsets[machines.start : machines.stop] + step) % self.traces.shape[1]
        return np.asarray(self.traces[rows[machines.start : machines.stop], at])


STEADY = MachineSpeeds(np.ones((1, 1)))


def machine_speeds(data: Path | None, seed: int = 0) -> MachineSpeeds:
    """From the CPU of real EC2 machines, each the one neighbour on a host that is shared fairly: 1 - cpu/2.

    Without the data, made-up neighbours that are busy to a different degree and wander.
    """
    if data is None:
        rng = np.random.default_rng([seed, 11])
        busy = rng.uniform(0.0, 0.5, (12, 1)) + np.cumsum(rng.normal(0, 0.02, (12, 2000)), axis=1) % 0.4
        return MachineSpeeds(1 - np.clip(busy, 0, 1) / 2, seed)
    rows = []
    for name in MACHINE_TRACES:
        trace = read_trace(data / name)
        times = np.arange(0, trace.duration_s, STEP_S)
        rows.append(1 - trace.rate_at(times) / 200.0)
    shortest = min(len(r) for r in rows)
    return MachineSpeeds(np.clip(np.stack([r[:shortest] for r in rows]), 0.2, 1.0), seed)
