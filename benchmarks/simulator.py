"""Speed of the simulator on one core: record-hops per second (discrete), task-steps per second (fluid).

    python benchmarks/simulator.py

CPU time, not wall time, so that a busy machine does not blur it. Compilation is left out. Counts are asserted, so
this is a check of determinism and conservation as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from penstock.dataflow import Dataflow, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.simulator import Cluster, Link, SimulatedRuntime, SimulationOptions
from penstock.telemetry import MachineClass

LEAST_HOPS_PER_S = 3e6
MOST_FLUID_S = 60.0


def chain(rate_rps: float, tasks: int, hops: int = 4) -> Dataflow:
    """A source, operators in a row, each with `tasks` tasks at 70 % use, and a sink."""
    builder = flow("chain")
    at = builder.source("source", replay(load=constant(rate_rps)))
    for i in range(hops - 2):
        at = at.map(f"work{i}", wiring="spread", parallelism=tasks, cost_s=0.7 * tasks / rate_rps)
    at.sink("sink", discard(), wiring="spread", parallelism=tasks, cost_s=0.7 * tasks / rate_rps)
    return builder.build()


def discrete(name: str, runtime: SimulatedRuntime, seconds: float) -> dict[str, object]:
    runtime.advance(seconds / 20)
    runtime.observe()
    start = time.process_time()
    runtime.advance(seconds)
    took = time.process_time() - start
    hops = float(runtime.observe().tasks.processed.sum())
    return {"case": name, "count": int(hops), "cpu_s": round(took, 2), "per_s": round(hops / took)}


def fluid(nodes: int, tasks: int, steps: int) -> dict[str, object]:
    per_operator = -(-tasks // 3)
    dataflow = chain(100.0 * per_operator, per_operator)
    cluster = Cluster.of(MachineClass(name="node", cores=16), nodes, link=Link(latency_s=0.001))
    runtime = SimulatedRuntime(dataflow, cluster, fidelity="fluid")
    runtime.advance(10)
    start = time.process_time()
    runtime.advance(10 + steps)
    took = time.process_time() - start
    reached, sent = float(runtime.observe().sinks.records.sum()), 100.0 * per_operator * (10 + steps)
    assert abs(reached - sent) < 1e-6 * sent
    placed = sum(o.parallelism.start for o in dataflow.operators)
    name = f"fluid: {nodes} nodes, {placed} tasks, {steps} steps"
    return {
        "case": name,
        "count": placed * steps,
        "cpu_s": round(took, 2),
        "per_s": round(placed * steps / took),
    }


def cases(quick: bool) -> list[Callable[[], dict[str, object]]]:
    small = MachineClass(name="node", cores=8)
    part = 0.1 if quick else 1.0
    lan, batched = Link(latency_s=0.0005), SimulationOptions(deadline_s=0.01)
    return [
        lambda: discrete(
            "one node, 1 task an operator",
            SimulatedRuntime(chain(1000.0, 1), Cluster.of(small, 1), seed=1),
            3000.0 * part,
        ),
        lambda: discrete(
            "8 nodes, 16 tasks an operator, in memory or instant links",
            SimulatedRuntime(chain(20_000.0, 16), Cluster.of(small, 8), seed=1),
            150.0 * part,
        ),
        lambda: discrete(
            "8 nodes, 16 tasks an operator, links of 0.5 ms, every record a message",
            SimulatedRuntime(chain(20_000.0, 16), Cluster.of(small, 8, link=lan), seed=1),
            150.0 * part,
        ),
        lambda: discrete(
            "8 nodes, 16 tasks an operator, links of 0.5 ms, batches of 10 ms",
            SimulatedRuntime(chain(20_000.0, 16), Cluster.of(small, 8, link=lan), seed=1, options=batched),
            150.0 * part,
        ),
        lambda: fluid(1000, 20_000, 360 if quick else 3600),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    given = parser.parse_args()
    rows = []
    for case in cases(given.quick):
        rows.append(case())
        if not given.json:
            row = rows[-1]
            print(
                f"{row['case']:<75} {row['count']:>12,} {row['cpu_s']:>8} s {row['per_s']:>14,} /s",
                flush=True,
            )
    if given.json:
        json.dump({"cases": rows}, sys.stdout)
    fast = float(str(rows[0]["per_s"])) >= LEAST_HOPS_PER_S
    soon = float(str(rows[-1]["cpu_s"])) <= MOST_FLUID_S
    return 0 if fast and soon else 1


if __name__ == "__main__":
    sys.exit(main())
