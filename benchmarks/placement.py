"""Cut and time of every placement policy: the paper's 72 instances, and a large cluster.

    python benchmarks/placement.py [micro] [large] [--seconds 1] [--large-seconds 9] [--tasks 10000] [--nodes 500]

Prints Markdown tables; without a name, both. Exit 1 if an instance is not proved within --seconds, if the default
policy is beaten on the large cluster, or if it takes longer than 10 s there. The kernels are compiled before the
clock starts (once per machine; Numba keeps them).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from penstock.policies.placement import Placement
from penstock.policies.placement.iterative import calibrated_threshold
from penstock_papers.i_scheduler.instances import Instance, benchmarks, random_cluster
from penstock_papers.i_scheduler.solvers import BASELINES, POLICIES, compile_kernels, place

LARGE_LIMIT_S = 10.0
# What the paper prints of I-Scheduler where it is not the optimum (figures 5 and 6).
PAPER = {("diamond", "heterogeneous", 30): 148, ("star", "heterogeneous", 30): 90}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="micro|large", help="what to run; default: both")
    parser.add_argument("--seconds", type=float, default=1.0, help="per micro instance")
    parser.add_argument(
        "--large-seconds", type=float, default=9.0, help="for the default policy on the large cluster"
    )
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="large clusters to try")
    given = parser.parse_args()
    unknown = set(given.parts) - {"micro", "large"}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    parts: dict[str, Callable[[], bool]] = {
        "micro": lambda: micro(given.seconds),
        "large": lambda: large_of_each_seed(given.tasks, given.nodes, given.large_seconds, given.seeds),
    }
    met = {name: parts[name]() for name in given.parts or parts}
    return 0 if all(met.values()) else 1


def micro(seconds: float) -> bool:
    """One row per instance; True if the exact and the default policy proved all of them in time."""
    began_s = time.monotonic()
    threshold = calibrated_threshold(seconds, time.monotonic)
    print(
        f"\nφ = {threshold} tasks for θ = {seconds:g} s on this machine ({time.monotonic() - began_s:.1f} s to find)\n"
    )
    print("| instance | " + " | ".join(POLICIES) + " | proved | exact s | default s |")
    print("|---|" + "--:|" * len(POLICIES) + "---|--:|--:|")
    instances = list(benchmarks())
    rows = [_micro_row(instance, seconds, threshold) for instance in instances]
    slowest = {policy: max(row[policy].seconds for row in rows) for policy in POLICIES}
    proved = {p: sum(r[p].optimal and r[p].seconds <= seconds for r in rows) for p in ("exact", "default")}
    at_optimum = {p: sum(r[p].cost == r["exact"].cost for r in rows) for p in POLICIES}
    print("| at the optimum | " + " | ".join(str(at_optimum[p]) for p in POLICIES) + " | | | |")
    print("| slowest, s | " + " | ".join(f"{slowest[p]:.3f}" for p in POLICIES) + " | | | |")
    print(
        f"\nProved within {seconds:g} s: exact {proved['exact']} of {len(rows)}, default {proved['default']}."
    )
    beaten = [
        i for i, r in zip(instances, rows, strict=True)
        if r["default"].cost > min(r["i-scheduler"].cost, PAPER.get((i.shape, i.cluster, i.tasks), r["exact"].cost))
    ]  # fmt: skip
    print(f"Default worse than I-Scheduler, as printed or as built: {len(beaten)} of {len(rows)}.")
    return min(proved.values()) == len(rows) and not beaten


def _micro_row(instance: Instance, seconds: float, threshold: int) -> dict[str, Placement]:
    row = {
        policy: place(
            instance.problem, policy=policy, clock=time.monotonic, seconds=seconds, threshold=threshold
        )
        for policy in POLICIES
    }
    print(
        f"| {instance.shape} {instance.cluster} {instance.tasks} | "
        + " | ".join(f"{row[policy].cost:g}" for policy in POLICIES)
        + f" | {'yes' if row['exact'].optimal and row['default'].optimal else 'no'}"
        + f" | {row['exact'].seconds:.3f} | {row['default'].seconds:.3f} |",
        flush=True,
    )
    return row


def large_of_each_seed(tasks: int, nodes: int, seconds: float, seeds: list[int]) -> bool:
    met = {seed: large(tasks, nodes, seconds, seed) for seed in seeds}
    return all(met.values())


def large(tasks: int, nodes: int, seconds: float, seed: int) -> bool:
    """One row per policy; True if the default is fast enough and no other policy cuts less."""
    compile_kernels(time.monotonic)
    problem = random_cluster(tasks=tasks, nodes=nodes, seed=seed)
    print(
        f"\n{tasks:,} tasks on {nodes:,} nodes of five sizes, seed {seed}, traffic {problem.traffic:,.0f}\n"
    )
    print("| policy | traffic between nodes | of all | nodes used | s |\n|---|--:|--:|--:|--:|")
    found = {}
    for policy in ("default", "i-scheduler", *BASELINES):
        answer = place(problem, policy=policy, clock=time.monotonic, seconds=seconds, threshold=26)
        found[policy] = answer
        share = answer.cost / problem.traffic
        print(
            f"| {policy} | {answer.cost:,.0f} | {share:.1%} | {answer.nodes_used} | {answer.seconds:.2f} |",
            flush=True,
        )
    ours = found.pop("default")
    best = min(found.values(), key=lambda answer: answer.cost)
    print(f"\nDefault against the best other ({best.policy}): {ours.cost / best.cost - 1:+.1%} traffic.")
    return ours.seconds <= LARGE_LIMIT_S and ours.cost <= best.cost


if __name__ == "__main__":
    sys.exit(main())
