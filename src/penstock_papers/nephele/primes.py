"""PrimeTester at the paper's size: elastic and fixed (section V-A), and what batching is worth (section III)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.dataflow import Constraint, Dataflow, Load, OperatorId, Parallelism
from penstock.dataflow import Sequence as OperatorSequence
from penstock.policies.elasticity import Elasticity, ElasticityOptions, Proactive
from penstock.policies.policy import AnyPolicy
from penstock.simulator import Cluster, SimulationOptions
from penstock.telemetry import MachineClass
from penstock_papers.common.trials import Course, Trial, run
from penstock_papers.nephele.method import Reactive, ReactiveOptions
from penstock_papers.nephele.primetester import PAPER_STEPS_RPS, primetester, steps_up_and_down
from penstock_papers.rivals.autoscalers import (
    Ds2,
    Ds2Options,
    Fixed,
    FixedOptions,
    Threshold,
    ThresholdOptions,
)

WORKERS, WORKER_CORES = 130, 4
SOURCES = 32
MOST_TESTERS = 520
FIRST_TESTERS = 50
TESTER_S = 0.0027
STARTUP_S = 1.5
"""«Spinning up new tasks is a fast operation (1-2 s).»"""
CYCLE_S = 60.0 * len(PAPER_STEPS_RPS)

METHODS: Mapping[str, tuple[Callable[[], AnyPolicy], Callable[[], Any]]] = {
    "ours": (Elasticity, ElasticityOptions),
    "the paper's method": (Reactive, ReactiveOptions),
    "DS2": (Ds2, Ds2Options),
    "threshold": (Threshold, ThresholdOptions),
}
"""Each with the options it comes with."""
OURS, PAPERS = "ours", "the paper's method"

BATCHING_WORKERS, BATCHING_SOURCES, BATCHING_TESTERS = 50, 50, 200
BATCHING_STEPS_RPS = (30_000, 35_000, 40_000, 45_000, 50_000, 55_000, 60_000, 65_000, 70_000, 75_000, 80_000)
BATCHING_STEP_S = 30.0
INSTANT_PEAK_RPS = 40_000
MESSAGE_S = (BATCHING_WORKERS * WORKER_CORES / INSTANT_PEAK_RPS - TESTER_S) / 4
"""Core-seconds that sending or receiving a message takes, from the paper's peak with instant flushing.

200 cores were all busy at 40,000 records a second: 5 ms a record, of which the test takes 2.7 ms. The rest is four
times the handling of a message: sent by a source, received and sent by a tester, received by a sink.
"""


def primes(
    *,
    sources: int,
    testers: tuple[int, int, int],
    bound_ms: float,
    steps_rps: tuple[float, ...] = PAPER_STEPS_RPS,
    step_s: float = 60.0,
    cost_s: float = TESTER_S,
) -> tuple[Dataflow, dict[OperatorId, list[Load]]]:
    """The dataflow with so many sources and sinks, and a load for each source task.

    The paper's constraint reaches from leaving a source until entering a sink.
    """
    flow = primetester(testers=testers[:2], bound_ms=bound_ms, cost_s=cost_s)
    sizes = {
        "numbers": Parallelism(minimum=sources, maximum=sources),
        "tester": Parallelism(minimum=testers[0], maximum=testers[1], initial=testers[2]),
        "results": Parallelism(minimum=sources, maximum=sources),
    }
    operators = tuple(replace(o, parallelism=sizes[o.id]) for o in flow.operators)
    constraint = Constraint(
        name="latency", sequence=OperatorSequence.parse("-> tester ->"), bound_ms=bound_ms, window_s=5.0
    )
    load = steps_up_and_down([r / sources for r in steps_rps], step_s=step_s, repeat=True)
    return replace(flow, operators=operators, constraints=(constraint,)), {
        OperatorId("numbers"): [load] * sources
    }


def elastic(
    method: str = OURS,
    *,
    interval_s: float = 1.0,
    bound_ms: float = 20.0,
    cycles: int = 1,
    scale: float = 1.0,
    cost_s: float = TESTER_S,
    seed: int = 0,
) -> Course:
    """The elastic trial under one of `METHODS`; `scale` makes rates, tasks and workers fewer.

    What a message costs is left out here: the tester's time is what it took with its messages, so that the
    parallelism in the warm-up phase is the paper's (36 tasks).
    """
    sources = max(1, round(SOURCES * scale))
    flow, loads = primes(
        sources=sources,
        testers=(1, max(2, round(MOST_TESTERS * scale)), max(1, round(FIRST_TESTERS * scale))),
        bound_ms=bound_ms,
        steps_rps=tuple(r * scale for r in PAPER_STEPS_RPS),
        cost_s=cost_s,
    )
    policy, options = METHODS[method]
    return run(
        Trial(
            dataflow=flow,
            cluster=_workers(max(1, round(WORKERS * scale))),
            seconds=cycles * CYCLE_S,
            policy=policy(),
            options=options(),
            interval_s=interval_s,
            simulation=SimulationOptions(task_startup_s=STARTUP_S, traffic=False),
            loads=loads,
            seed=seed,
        )
    )


def fewest_tasks(
    rate_rps: float, *, bound_ms: float, scale: float = 1.0, seconds: float = 40.0, seed: int = 0
) -> int:
    """The fewest testers that hold the bound at a steady rate in all intervals but the first, by bisection."""
    low = math.floor(rate_rps * TESTER_S)
    high = max(low + 1, round(MOST_TESTERS * scale))
    while high - low > 1:
        count = (low + high) // 2
        flow, loads = primes(
            sources=max(1, round(SOURCES * scale)),
            testers=(count, count, count),
            bound_ms=bound_ms,
            steps_rps=(rate_rps,),
            step_s=seconds,
        )
        course = run(
            Trial(
                dataflow=flow,
                cluster=_workers(max(1, round(WORKERS * scale))),
                seconds=seconds,
                policy=Fixed(),
                options=FixedOptions(tasks=count),
                interval_s=5.0,
                simulation=SimulationOptions(traffic=False),
                loads=loads,
                seed=seed,
            )
        )
        low, high = (low, count) if course.held_share(1)[0] == 1.0 else (count, high)
    return high


def fixed(tasks: int = 175, *, scale: float = 1.0, seed: int = 0) -> Course:
    """The hand-tuned baseline: so many testers, batches of 16 KiB that leave only when they are full."""
    count = max(1, round(tasks * scale))
    flow, loads = primes(
        sources=max(1, round(SOURCES * scale)),
        testers=(count, count, count),
        bound_ms=20.0,
        steps_rps=tuple(r * scale for r in PAPER_STEPS_RPS),
    )
    return run(
        Trial(
            dataflow=flow,
            cluster=_workers(max(1, round(WORKERS * scale))),
            seconds=CYCLE_S,
            policy=Fixed(),
            options=FixedOptions(tasks=count),
            interval_s=5.0,
            simulation=SimulationOptions(spread="batches", deadline_s=math.inf, traffic=False),
            loads=loads,
            seed=seed,
        )
    )


def peak_rps(flushing: str, *, scale: float = 1.0, seed: int = 0) -> float:
    """The highest throughput of 200 fixed testers: `instant`, `adaptive` (20 ms) or `full` batches of 16 KiB."""
    count = max(1, round(BATCHING_TESTERS * scale))
    flow, loads = primes(
        sources=max(1, round(BATCHING_SOURCES * scale)),
        testers=(count, count, count),
        bound_ms=20.0,
        steps_rps=tuple(r * scale for r in BATCHING_STEPS_RPS),
        step_s=BATCHING_STEP_S,
    )
    adaptive = flushing == "adaptive"
    course = run(
        Trial(
            dataflow=flow,
            cluster=_workers(max(1, round(BATCHING_WORKERS * scale))),
            seconds=BATCHING_STEP_S * len(BATCHING_STEPS_RPS),
            policy=Proactive() if adaptive else Fixed(),
            options=ElasticityOptions() if adaptive else FixedOptions(tasks=count),
            interval_s=1.0 if adaptive else 5.0,
            simulation=SimulationOptions(
                spread="batches",
                deadline_s=math.inf if flushing == "full" else 0.0,
                send_s=MESSAGE_S,
                receive_s=MESSAGE_S,
                queue_records=1_000,
                traffic=False,
            ),
            loads=loads,
            seed=seed,
        )
    )
    # Ten seconds, as the paper measures throughput; full batches leave in lumps.
    pairs = (course.throughput_rps[:-1] + course.throughput_rps[1:]) / 2
    return float(pairs.max())


def _workers(count: int) -> Cluster:
    return Cluster.of(MachineClass(name="worker", cores=WORKER_CORES), count)
