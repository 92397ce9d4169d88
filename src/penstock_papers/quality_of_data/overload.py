"""Two applications on one small Spark, live, through real Kafka: what becomes of them when the load doubles capacity.

`alerts` matters more than `trends`. Both score events; the load of `trends` jumps and falls again. With shedding the
lag is to stay bounded, `alerts` to keep all and `trends` at least its minimum; without it, on the same load, the lag
grows as long as the overload lasts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep, time
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from penstock.control import Cycle, PolicyRun, Settings
from penstock.dataflow import Dataflow, Load, constant, staircase, together
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.spark.observe.progress import kafka_total
from penstock.spark.pilot import Pilot
from penstock.spark.several_queries import SharedRuntime, launch_shared
from penstock.telemetry import Snapshot
from penstock_papers.common.kafka_broker import KafkaBroker, feeding
from penstock_papers.quality_of_data.scoring import COST_S, scoring

ALERTS, TRENDS = "alerts", "trends"
PARTITIONS = 2
WARM_UP_RPS = 20.0
START_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The load and what is asked of the applications."""

    calm_s: float = 15.0
    overload_s: float = 45.0
    after_s: float = 21.0
    interval_s: float = 3.0
    trigger_s: float = 1.0
    alerts_rps: float = 60.0
    trends_rps: float = 60.0
    overload_rps: float = 580.0
    """Of `trends`; both together then need over three cores, at `COST_S`."""
    min_accuracy: float = 0.1
    """Of `trends`; `alerts` may lose nothing."""
    cost_s: float = COST_S
    max_rows_per_batch: int = 1200
    """Of each query, with shedding and without: no batch is so large that nothing can be done for long."""
    lag_s: float = 4.0
    drain_s: float = 12.0

    @property
    def loads(self) -> Mapping[str, Load]:
        """Per application."""
        whole_s = self.calm_s + self.overload_s + self.after_s
        return {
            ALERTS: staircase([(whole_s, self.alerts_rps)]),
            TRENDS: staircase(
                [
                    (self.calm_s, self.trends_rps),
                    (self.overload_s, self.overload_rps),
                    (self.after_s, self.trends_rps),
                ]
            ),
        }

    @property
    def needed_cores(self) -> float:
        """CPU that the overload asks for, beside what Spark itself needs."""
        return self.cost_s * (self.alerts_rps + self.overload_rps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One interval; per application, in the order of names."""

    time_s: float
    """Since the load began."""
    lag_records: tuple[float, ...]
    """By the broker: written, less read by batches that have ended."""
    lag_s: tuple[float, ...]
    """The same in seconds of what is produced at that time."""
    latency_s: tuple[float | None, ...]
    """Mean, from Kafka's time stamp to the end of the batch."""
    accuracy: tuple[float, ...]
    """Share of the input that counted at the sink."""
    told: tuple[float, ...]
    """Share to keep that the controller had asked for at the end of the interval."""
    available_cores: float
    """Cores of the machine less what foreign processes use."""
    notices: tuple[str, ...]


def run_trial(
    spark: SparkSession, broker: KafkaBroker, folder: Path, trial: Trial, *, shed: bool, label: str
) -> list[Moment]:
    """Run it once, with shedding or without; a moment per interval."""
    topics = {
        name: broker.create_topic(f"{name}-{label}", partitions=PARTITIONS) for name in (ALERTS, TRENDS)
    }

    def application(name: str, priority: int, min_accuracy: float) -> Dataflow:
        return scoring(
            name,
            topics[name],
            broker.bootstrap,
            priority=priority,
            min_accuracy=min_accuracy,
            cost_s=trial.cost_s,
            max_rows_per_batch=trial.max_rows_per_batch,
        )

    flow = together(application(ALERTS, 5, 1.0), application(TRENDS, 0, trial.min_accuracy))
    options = SheddingOptions(moves="none", lag_s=trial.lag_s, drain_s=trial.drain_s)
    policies = [PolicyRun(policy=Shedding(), options=options)] if shed else []
    loads, moments = trial.loads, list[Moment]()
    with _ends(broker.bootstrap, tuple(topics.values())) as ends:
        runtime = launch_shared(spark, flow, checkpoint=folder / label, trigger_s=trial.trigger_s)
        try:
            # The clock of the load starts when both queries run: the first batches take seconds.
            with feeding(broker.bootstrap, dict.fromkeys(topics.values(), constant(WARM_UP_RPS))):
                _await_batches(runtime)
            with feeding(broker.bootstrap, {topics[n]: load for n, load in loads.items()}) as began_s:

                def note(cycle: Cycle, snapshot: Snapshot | None) -> None:
                    if snapshot is not None:
                        moments.append(_moment(runtime, loads, ends(), time() - began_s, cycle, snapshot))

                settings = Settings(interval_s=trial.interval_s)
                with Pilot(runtime, policies, settings=settings, subscribers=[note]):
                    sleep(max(0.0, began_s + trial.calm_s + trial.overload_s + trial.after_s - time()))
        finally:
            runtime.stop()
            runtime.close()
    problem = runtime.failure()
    if problem is not None:
        raise problem
    return moments


def _await_batches(runtime: SharedRuntime) -> None:
    deadline_s = time() + START_TIMEOUT_S
    while not all(p.query.lastProgress and p.query.lastProgress["batchId"] >= 2 for p in runtime.parts):
        if time() > deadline_s or not runtime.query_is_active():
            raise RuntimeError(f"the queries did not start within {START_TIMEOUT_S:g} s: {runtime.failure()}")
        sleep(0.1)


def _moment(
    runtime: SharedRuntime,
    loads: Mapping[str, Load],
    written: tuple[int, ...],
    now_s: float,
    cycle: Cycle,
    snapshot: Snapshot,
) -> Moment:
    lags = tuple(
        float(w - _read(part.query.lastProgress)) for w, part in zip(written, runtime.parts, strict=True)
    )
    rates = [float(load.rate_at(min(now_s, load.duration_s - 1e-3))) for load in loads.values()]
    sinks = snapshot.sinks
    told = {k: v for part in runtime.parts for k, v in part.controls.items()}
    return Moment(
        time_s=now_s,
        lag_records=lags,
        lag_s=tuple(lag / rate for lag, rate in zip(lags, rates, strict=True)),
        latency_s=tuple(
            float(mean) if count else None
            for mean, count in zip(sinks.latency_s.mean, sinks.latency_s.count, strict=True)
        ),
        accuracy=tuple(sinks.accuracy.tolist()),
        told=tuple(float(told.get(f"keep:{name}.events", 1.0)) for name in loads),
        available_cores=float(snapshot.nodes.available_cpu.sum()),
        notices=tuple(n.reason.code for n in cycle.plan.notices),
    )


def _read(progress: Mapping[str, Any] | None) -> int:
    """Records of batches that have ended."""
    offsets = None if progress is None else progress["sources"][0]["endOffset"]
    return kafka_total(json.loads(offsets)) if offsets else 0


@contextmanager
def _ends(servers: str, topics: Sequence[str]) -> Iterator[Callable[[], tuple[int, ...]]]:
    """A function that asks the broker how many records each topic has ever had."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "lag"})

    def ask() -> tuple[int, ...]:
        return tuple(
            sum(consumer.get_watermark_offsets(TopicPartition(t, p), 5)[1] for p in range(PARTITIONS))
            for t in topics
        )

    try:
        yield ask
    finally:
        consumer.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the must-shows ask of one run with shedding and one without, on the same load."""

    highest_lag_s: float
    """Of any application, from the jump on."""
    settled_lag_s: float
    """The same, in the second half of the overload."""
    plain_lag_s: float
    """Without shedding, when the overload ends."""
    plain_growth_rps: float
    """Records per second by which the lag grows without shedding, while the overload lasts."""
    latency_s: tuple[float, float]
    """Mean latency of `alerts` in the two halves of the overload: steady, if they are alike."""
    plain_latency_s: tuple[float, float]
    alerts_accuracy: float
    """The least."""
    trends_told: float
    """The least share that the controller asked to keep."""
    trends_accuracy: tuple[float, float]
    """Least and mean of what was counted, from the third decision of the overload on; a hash of some hundred records
    keeps a little more or less than it was told."""
    intervals_to_all: float
    """Decisions from the fall of the load until all is kept again; infinite: it never was."""

    @classmethod
    def of(cls, trial: Trial, shed: Sequence[Moment], plain: Sequence[Moment]) -> Verdict:
        """The figures of two runs."""
        fall_s = trial.calm_s + trial.overload_s
        middle_s = trial.calm_s + trial.overload_s / 2
        over = [m for m in shed if trial.calm_s < m.time_s <= fall_s]
        plain_over = [m for m in plain if trial.calm_s < m.time_s <= fall_s]
        settled = [m for m in over if m.time_s > middle_s]
        decided = [m for m in over if m.time_s > trial.calm_s + 3 * trial.interval_s]
        after = [m for m in shed if m.time_s > fall_s]
        kept = [i + 1 for i, m in enumerate(after) if m.told[1] == 1]
        times, lags = np.array([(m.time_s, sum(m.lag_records)) for m in plain_over]).T
        return cls(
            highest_lag_s=max(max(m.lag_s) for m in (*over, *after)),
            settled_lag_s=max(max(m.lag_s) for m in settled),
            plain_lag_s=max(plain_over[-1].lag_s),
            plain_growth_rps=float(np.polyfit(times, lags, 1)[0]),
            latency_s=_halves(over, middle_s),
            plain_latency_s=_halves(plain_over, middle_s),
            alerts_accuracy=min(m.accuracy[0] for m in shed),
            trends_told=min(m.told[1] for m in shed),
            trends_accuracy=(
                min(m.accuracy[1] for m in decided),
                float(np.mean([m.accuracy[1] for m in decided])),
            ),
            intervals_to_all=kept[0] if kept else float("inf"),
        )


def _halves(moments: Sequence[Moment], middle_s: float) -> tuple[float, float]:
    """Mean latency of the first application before and after; NaN where no batch ended."""
    seen = [(m.time_s <= middle_s, m.latency_s[0]) for m in moments if m.latency_s[0] is not None]
    early, late = [s for is_early, s in seen if is_early], [s for is_early, s in seen if not is_early]
    return (float(np.mean(early)) if early else np.nan), (float(np.mean(late)) if late else np.nan)
