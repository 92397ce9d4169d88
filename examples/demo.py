"""The main job in about two minutes: a load that climbs and falls, on a real Spark cluster on this machine.

Three workers on loopback addresses; every order is looked up in a slow service, at a rate that one executor holds with
ease, then cannot, then can again. Penstock holds the latency bound with as few executors as will do, and tells what it
did.
"""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock import Dataflow, staircase
from penstock_papers.nephele.enrichment import enrichment

WORKERS = 3
BOUND_MS = 8000
STEPS = ((30, 40), (20, 100), (20, 180), (30, 270), (50, 100))
"""Seconds and records per second; the first is the warm-up. One executor does about 230 a second."""


def demo_flow() -> Dataflow:
    """Enrichment with the demo's load and bound."""
    return enrichment(load=staircase(STEPS), bound_ms=BOUND_MS)


def main() -> None:
    """Run it and compare with what a fixed size would have taken."""
    print(
        f"Orders looked up on {WORKERS} loopback workers, {', '.join(f'{r}/s for {s} s' for s, r in STEPS)}; "
        f"mean latency at most {BOUND_MS} ms.\n"
    )
    done = penstock.run(
        demo_flow(),
        cluster=WORKERS,
        policies=["elasticity"],
        for_s=sum(s for s, _ in STEPS),
        interval_s=2.0,
        journal=Path(".penstock/demo.sqlite"),
        report=Path(".penstock/demo.html"),
    )
    peak = WORKERS * done["seconds"]
    share = done["node_seconds"] / peak
    (constraint,) = done["constraints"]
    print(
        f"\nThe bound was held in {constraint['held']:.0%} of the intervals with {done['node_seconds']:.0f} "
        f"executor-seconds; {WORKERS} executors all the time would have been {peak:.0f} ({share:.0%} of that)."
    )


if __name__ == "__main__":
    main()
