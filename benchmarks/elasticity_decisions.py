"""How long the elasticity policies think: Rebalance, and a whole decision, at sizes beyond any dataflow.

python benchmarks/elasticity_decisions.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from penstock.dataflow import Constraint
from penstock.dataflow import Sequence as OperatorSequence
from penstock.policies.elasticity import ElasticityOptions, Proactive, Waits, rebalance
from penstock.policies.elasticity.seasons import season_steps
from penstock.testing import a_dataflow, a_snapshot

REPEATS = 20
LIMIT_MS = 10.0


def median_ms(work: Callable[[], object]) -> float:
    work()
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return 1e3 * float(np.median(took))


def rebalance_ms(operators: int, most: int) -> float:
    """Half the wait of the minimum is allowed, so that many tasks must be handed out."""
    rng = np.random.default_rng(0)
    waits = Waits(rng.uniform(0.01, 1, operators), rng.uniform(1, most / 4, operators))
    low, high = np.ones(operators, np.int64), np.full(operators, most)
    floor = np.floor(waits.b).astype(np.int64) + 1
    budget = float(np.sum(waits.at(floor))) / 50
    found = rebalance(waits, low, high, budget)
    assert found.feasible
    assert found.wait_s <= budget
    return median_ms(lambda: rebalance(waits, low, high, budget))


def decision_ms(operators: int, tasks: int) -> float:
    """One cycle of the proactive policy on a line of operators, each with so many tasks."""
    ids = ["in", *(f"o{i}" for i in range(operators)), "out"]
    flow = a_dataflow(*ids, bound_ms=None, parallelism=(1, 4 * tasks))
    sequence = OperatorSequence(operators=tuple(o.id for o in flow.operators[1:-1]), leading_stream=True)
    flow = replace(flow, constraints=(Constraint(name="all", sequence=sequence, bound_ms=60_000),))
    snapshot = a_snapshot(flow, demand_rps=1000, parallelism=tasks, nodes=100)
    policy, options = Proactive(), ElasticityOptions()
    memory = policy.start(options)
    for cycle in range(3):
        _, memory = policy.decide(replace(snapshot, time_s=5.0 * (cycle + 1)), memory, options)
    later = replace(snapshot, time_s=20.0)
    return median_ms(lambda: policy.decide(later, memory, options))


def season_ms(steps: int) -> float:
    series = (
        100 + np.random.default_rng(0).normal(size=steps) + np.tile(np.arange(64.0), steps // 64 + 1)[:steps]
    )
    return median_ms(lambda: season_steps(series))


def main() -> int:
    print("| what | ms (median) |\n|---|---|")
    slowest = 0.0
    for operators, most in ((10, 100), (100, 1000), (1000, 1000)):
        slowest = rebalance_ms(operators, most)
        print(f"| Rebalance, {operators:,} operators, at most {most:,} tasks each | {slowest:.2f} |")
    for operators, tasks in ((10, 50), (100, 100), (100, 1000)):
        took = decision_ms(operators, tasks)
        print(f"| a decision, {operators:,} operators of {tasks:,} tasks | {took:.1f} |")
    print(f"| search for a season in 4,096 steps | {season_ms(4096):.2f} |")
    return int(slowest >= LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
