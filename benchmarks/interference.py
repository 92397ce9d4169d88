"""CPU time of the interference policy: one computation against 1,000 nodes, 100,000 computations, whole cycles.

Run: python benchmarks/interference.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from penstock.policies.interference import RingShape
from penstock.policies.interference.scores import scores_at_home, scores_on_nodes

NODES, COMPUTATIONS, RESOURCES = 1_000, 100_000, 3


def cpu_ms(work: Callable[[], object], times: int) -> float:
    """The median CPU time of a call, in milliseconds; the first one compiles and does not count."""
    work()
    spent = []
    for _ in range(times):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return 1e3 * float(np.median(spent))


def main() -> None:
    """Print the figures."""
    shape, rng = RingShape(), np.random.default_rng(0)
    loads = rng.uniform(0, 4, (NODES, RESOURCES, shape.count))
    rooms, full = np.full((NODES, RESOURCES), 0.2), np.full(RESOURCES, 2.0)
    rates, needs = (
        rng.uniform(0, 1, (COMPUTATIONS, shape.count)),
        rng.uniform(0, 1, (COMPUTATIONS, RESOURCES)),
    )
    node = rng.integers(0, NODES, COMPUTATIONS)
    one = cpu_ms(lambda: scores_on_nodes(rates[0], needs[0], loads, rooms, full, shape.weights, 3), 50)
    every = cpu_ms(lambda: scores_at_home(rates, needs, node, loads, rooms, full, shape.weights, 3), 5)
    print(f"one computation on {NODES:,} nodes: {one:.2f} ms of CPU")
    print(f"{COMPUTATIONS:,} computations where they are, {NODES:,} nodes: {every:.0f} ms of CPU")


if __name__ == "__main__":
    main()
