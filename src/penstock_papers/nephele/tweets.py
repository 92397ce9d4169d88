"""TwitterSentiment at the paper's size, on any rate trace (section V-B)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.dataflow import Load, OperatorId
from penstock.simulator import Cluster, SimulationOptions
from penstock.telemetry import MachineClass
from penstock_papers.common.trials import Course, Trial, run
from penstock_papers.nephele.primes import METHODS, OURS
from penstock_papers.nephele.sentiment import WINDOW_S, sentiment

WORKERS, WORKER_CORES = 130, 4
STARTUP_S = 1.5
ELASTIC = ("hot_topics", "filter", "sentiment")


def feelings(
    load: Load,
    method: str = OURS,
    *,
    interval_s: float = 1.0,
    seconds: float | None = None,
    seed: int = 0,
) -> Course:
    """The trial under one of `METHODS`."""
    policy, options = METHODS[method]
    flow = sentiment(load=load)
    return run(
        Trial(
            dataflow=flow,
            cluster=Cluster.of(MachineClass(name="worker", cores=WORKER_CORES), WORKERS),
            seconds=load.duration_s if seconds is None else seconds,
            policy=policy(),
            options=options(),
            interval_s=interval_s,
            simulation=SimulationOptions(
                task_startup_s=STARTUP_S,
                windows_s={"hot_topics": WINDOW_S},
                traffic=False,
            ),
            loads={OperatorId("tweets"): replace(load, period_s=None)},
            seed=seed,
        )
    )


def elastic_rows(load: Load) -> list[int]:
    """Rows of the operators that can be scaled."""
    return [sentiment(load=load).row[OperatorId(o)] for o in ELASTIC]


def new_scoring_tasks(course: Course, load: Load, *, before_s: float = 60.0) -> int:
    """By how many tasks scoring grew towards the peak of the load, at most, within `before_s`."""
    row = sentiment(load=load).row[OperatorId("sentiment")]
    at = int(np.argmax(course.rate_rps))
    steps = max(1, round(before_s / (course.time_s[1] - course.time_s[0])))
    window = course.parallelism[max(0, at - steps) : at + 3, row]
    return int(window.max() - window.min())
