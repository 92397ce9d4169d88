"""The interference policy: CPU time of scores and whole cycles, and how far its rings are off on real traces.

    python benchmarks/interference.py

The traces are those of tweet volumes in `../shared/data` beside the repository, their days squeezed into 430 s; without
them that part is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock.policies.interference import RingShape
from penstock_papers.common.forecast_accuracy import load_trace
from penstock_papers.neptune import patients
from penstock_papers.neptune.method import scores_on_nodes
from penstock_papers.neptune.ring_errors import ring_errors, squeezed

NODES, RESOURCES = 1_000, 3
TRACES = Path(__file__).resolve().parents[2] / "shared" / "data"
DAY_STEPS, DAY_S, DAYS = 288, 430.0, 8


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
    rates, needs = rng.uniform(0, 1, shape.count), rng.uniform(0, 1, RESOURCES)
    one = cpu_ms(lambda: scores_on_nodes(rates, needs, loads, rooms, full, shape.weights, 3), 50)
    print(f"one computation on {NODES:,} nodes: {one:.2f} ms of CPU")
    course = patients.run(patients.uneven(patients.Size(), seconds=600.0), *patients.ours())
    settled = course.policy_s[course.time_s > 2 * patients.WAKE_S]
    print(
        f"a cycle of 2,250 computations on 15 nodes: {1e3 * settled.mean():.1f} ms of CPU,"
        f" {settled.mean() / patients.INTERVAL_S:.2%} of a core"
    )
    for path in sorted(TRACES.glob("tweet_volume_*.csv")):
        trace = squeezed(load_trace(path), steps_per_day=DAY_STEPS, day_s=DAY_S, days=DAYS)
        off = ring_errors(trace[None], season_s=DAY_S, warm_up_s=3 * DAY_S)
        ratios = [f"{off['rings'][0] / off[way][0]:.3f} of the {way}'s" for way in off if way != "rings"]
        print(f"error of the rings over 180 s ahead, {path.stem}: {', '.join(ratios)}")


if __name__ == "__main__":
    main()
