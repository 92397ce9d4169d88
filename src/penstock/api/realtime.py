"""`penstock.run(flow, mode="realtime")`: a dataflow in Spark's real-time mode, its latency measured at the sink."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.api.result import RunResult, missed_goals
from penstock.control.summary import ConstraintFigures, RunSummary, SinkFigures
from penstock.dataflow import Dataflow
from penstock.dataflow.graph import Constraint
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.sink_latency import SinkLatency
from penstock.spark.launch import have_executors
from penstock.spark.query.realtime import RealTimeDataflow, compile_realtime
from penstock.spark.query.sinks import kafka_options
from penstock.spark.query.user_functions import SOURCE_TIME
from penstock.spark.realtime import Preflight, RealTimeError

REALTIME_CONF = {"spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "10"}
"""What suits real-time mode where the user says nothing else: records wait 50 ms before each shuffle by default."""
QUIET_S = 120.0
"""How long after the start the first result may come before the time of the run counts all the same."""
STEADY_S = 10.0
"""A query that fails sooner after its start than this is not started again."""


def run_realtime(
    spark: SparkSession,
    dataflow: Dataflow,
    *,
    checkpoint: Path,
    given: int,
    limit: int | None,
    batch_s: float,
    interval_s: float,
    for_s: float | None,
    stop: threading.Event,
) -> RunResult:
    """Run until the time is over, and say what it came to. Raise RealTimeError with all that stands in the way.

    A lost executor costs the batch under way: Spark runs it again, or the query fails and is started again from its
    last checkpoint. Records since then reach the sink a second time (at least once).
    """
    compiled = compile_realtime(spark, dataflow, checkpoint=checkpoint)
    found = size_executors(spark, compiled.preflight(batch_s), given=given, limit=limit)
    run = _Run(compiled, batch_s, interval_s)
    began_s = time.monotonic()
    failure = run.until(stop, for_s)
    figures = run.figures(time.monotonic() - began_s, found)
    return RunResult(figures=figures, missed=missed_goals(dataflow, figures), failure=failure)


def size_executors(spark: SparkSession, found: Preflight, *, given: int, limit: int | None) -> Preflight:
    """Have as many executors as its slots take, of `given` there are at the start. Raise RealTimeError if it cannot be.

    In local mode the slots are what the master says.
    """
    local = (spark.sparkContext.master or "local").startswith("local")
    standing = [o for o in found.standing if local or o.kind != "slots"]
    if standing:
        raise RealTimeError(str(found))
    if local or found.slots_needed is None:
        return found
    cores = max((e.cores for e in Executors(spark).list()), default=1)
    count = math.ceil(found.slots_needed / cores)
    needs = f"{found.slots_needed} slots at once, {count} executors with {cores} each"
    if limit is not None and count > limit:
        raise RealTimeError(f"it needs {needs}; at most {limit} may be had")
    try:
        have_executors(spark, count, given=given)
    except SparkInternalsError as problem:
        raise RealTimeError(f"it needs {needs}: {problem.reason}") from None
    return found


class _Run:
    """One query, started again where it fails, and what was read at its sink."""

    def __init__(self, compiled: RealTimeDataflow, batch_s: float, interval_s: float) -> None:
        self._compiled, self._batch_s, self._interval_s = compiled, batch_s, interval_s
        self._intervals: list[NDArray[np.float64]] = []
        self._results, self.restarts = 0, 0
        self._watch: SinkLatency | None = None

    def until(self, stop: threading.Event, for_s: float | None) -> str | None:
        """Run; return why it ended early, None if it did not."""
        query, began_s, end_s = self._started(), time.monotonic(), math.inf
        started_s = began_s
        try:
            while not stop.wait(self._interval_s):
                self._look()
                now_s = time.monotonic()
                quiet = self._watch is not None and not self._results and now_s - began_s < QUIET_S
                if for_s is not None and end_s == math.inf and not quiet:
                    end_s = now_s + for_s
                if now_s >= end_s:
                    return None
                if not query.isActive:
                    failure = query.exception()
                    if failure is None or now_s - started_s < STEADY_S:
                        return None if failure is None else str(failure).strip().splitlines()[0][:300]
                    query, started_s = self._started(), time.monotonic()
                    self.restarts += 1
            return None
        finally:
            with suppress(SparkInternalsError):
                if self._watch is not None:
                    self._watch.close()
            query.stop()

    def _started(self) -> StreamingQuery:
        query = self._compiled.start(self._batch_s)
        sink = self._compiled.dataflow.sinks[0].connector
        if self._watch is None and sink is not None and sink.kind == "kafka":
            with suppress(SparkInternalsError):  # then the latency is not known
                topic, options = str(sink.options["topic"]), kafka_options(sink)
                options.pop("topic")
                self._watch = SinkLatency(query, topic, options, column=SOURCE_TIME)
        return query

    def _look(self) -> None:
        if self._watch is None:
            return
        with suppress(SparkInternalsError):
            count, latencies_ms = self._watch.read()
            self._results += count
            self._intervals.append(latencies_ms)

    def figures(self, seconds: float, found: Preflight) -> dict[str, Any]:
        """What is known; there is no loop, so there are no decisions."""
        dataflow, known = self._compiled.dataflow, [i for i in self._intervals if len(i)]
        (sink,) = dataflow.sinks
        summary = RunSummary(
            seconds=seconds,
            duration_s=seconds,
            constraints=tuple(self._held(c, known) for c in dataflow.constraints),
            sinks=(
                SinkFigures(
                    name=sink.id,
                    records=self._results,
                    accuracy=None,
                    lowest=None,
                    min_accuracy=sink.min_accuracy,
                ),
            ),
            latency_ms=_statistics(np.concatenate(known)) if known else {},
            records_out=self._results,
        )
        return {
            **summary.figures(),
            "records_in": None,  # Spark tells only when a batch ends
            "node_seconds": None,
            "flow": dataflow.name,
            "mode": "realtime",
            "slots": found.slots_needed,
            "restarts": self.restarts,
        }

    def _held(self, constraint: Constraint, known: list[NDArray[np.float64]]) -> ConstraintFigures:
        each = [_statistics(i)[constraint.statistic] for i in known]
        return ConstraintFigures(
            name=constraint.name,
            bound_ms=constraint.bound_ms,
            statistic=constraint.statistic,
            held=float(np.mean([one <= constraint.bound_ms for one in each])) if each else None,
            unknown=1.0 - len(each) / max(1, len(self._intervals)),
            mean_ms=float(np.mean(each)) if each else None,
            p95_ms=float(np.percentile(each, 95)) if each else None,
            worst_ms=max(each, default=None),
        )


def _statistics(latencies_ms: NDArray[np.float64]) -> Mapping[str, float]:
    shares = {name: float(np.percentile(latencies_ms, int(name[1:]))) for name in ("p50", "p95", "p99")}
    return {"mean": float(latencies_ms.mean()), **shares}
