"""The main job in about two minutes: a load that climbs and falls, on a real Spark cluster on this machine.

Three workers on loopback addresses; numbers are tested for primality at a rate that one executor holds with ease, then
cannot, then can again. Penstock holds the latency bound with as few executors as will do, and tells what it did.
"""

from __future__ import annotations

import time
from pathlib import Path

from penstock import Dataflow, staircase
from penstock.cli.output import results
from penstock.cli.running import RunRequest, run_dataflow
from penstock.workloads.primetester import primetester, random_numbers, with_primality

WORKERS = 3
BOUND_MS = 5000
STEP_S = (20, 25, 45, 45)


def seconds_per_number() -> float:
    """What one primality test costs on a core of this machine, now."""
    batch = random_numbers(0, 200)
    began = time.process_time()
    with_primality(batch)
    return (time.process_time() - began) / batch.num_rows


def demo_flow() -> Dataflow:
    """PrimeTester with a load made for this machine: a warm-up, then 0.1 cores' worth of work, 0.3, and 0.1 again."""
    one_core_rps = 1 / seconds_per_number()
    quiet, busy = round(0.1 * one_core_rps), round(0.3 * one_core_rps)
    load = staircase(list(zip(STEP_S, (10, quiet, busy, quiet), strict=True)))
    return primetester(load=load, bound_ms=BOUND_MS, testers=(1, WORKERS))


def main() -> None:
    """Run it and compare with what a fixed size would have taken."""
    flow = demo_flow()
    load = flow.sources[0].connector.load
    assert load is not None
    results.print(
        f"PrimeTester on {WORKERS} loopback workers: {', '.join(f'{r:,.0f}/s' for r in load.rates_rps)} "
        f"for {', '.join(f'{s} s' for s in STEP_S)}; mean latency at most {BOUND_MS} ms.\n"
    )
    request = RunRequest(
        flow="primetester",
        cluster=WORKERS,
        policies=("elasticity",),
        duration=f"{sum(STEP_S)}s",
        interval_s=2.0,
        journal=Path(".penstock/demo.sqlite"),
        report=Path(".penstock/demo.html"),
    )
    document = run_dataflow(flow, request)
    peak = WORKERS * document["seconds"]
    share = document["executor_seconds"] / peak
    (constraint,) = document["constraints"]
    results.print(
        f"\nThe bound was held in {constraint['held']:.0%} of the intervals with {document['executor_seconds']:.0f} "
        f"executor-seconds; {WORKERS} executors all the time would have been {peak:.0f} ({share:.0%} of that)."
    )


if __name__ == "__main__":
    main()
