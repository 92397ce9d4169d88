"""Histories for tests: a real event log and progress file, and runs of the simulator written down as Spark would.

`plain-application.gz` and `.json` are of one run of a PySpark program without Penstock, in local mode on two cores with
adaptive execution: `counts` (2,000 records a second, state in 3 partitions) and `hashes` (400 a second, every second).
Events and fields of the log that hold paths of the machine were taken out.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from penstock.control import Loop, Settings, SqliteJournal
from penstock.control.decision import PolicyRun
from penstock.dataflow import Load
from penstock.simulator import SimulatedClock
from penstock.simulator import microbatch_kernel as kernel
from penstock.simulator.calibration.history import QueryHistory
from penstock.simulator.microbatch import MicrobatchRuntime
from penstock.simulator.microbatch_model import Executors
from penstock.telemetry import MachineClass
from tests.simulator.microbatches import application

HERE = Path(__file__).parent
EVENT_LOG = HERE / "plain-application.gz"
PROGRESS = HERE / "plain-application.json"
START_UNIX = 1_800_000_000.0


def a_runtime(
    load: Load,
    *,
    executors: int = 1,
    seed: int = 0,
    record_s: float = 1e-3,
    task_s: float = 0.0,
    noise: float = 0.1,
    limit: int = 8,
    read_limit: float = math.inf,
    partitions: int = 12,
) -> MicrobatchRuntime:
    """One query; a new executor takes 6 s and is as fast as the others."""
    made = application(
        {"q": load},
        {"q": 3e3},
        executors=executors,
        seed=seed,
        limit=limit,
        noise=noise,
        record_s=record_s,
        partitions=partitions,
        engine_executors=Executors(startup_s=6.0, cold_factor=1.0),
    )
    (query,) = made.engine.queries
    stages = tuple(replace(s, task_s=task_s) for s in query.stages)
    costly = replace(query, stages=stages, read_limit=read_limit)
    return MicrobatchRuntime(
        made.dataflow,
        replace(made.engine, queries=(costly,)),
        loads=[load],
        machine=MachineClass(name="executor", available=limit, price_per_hour=1.0),
        executors=executors,
        seed=seed,
    )


def journal_of(
    path: Path, runtime: MicrobatchRuntime, *, for_s: float, policies: tuple[PolicyRun, ...] = ()
) -> str:
    """Run it under the loop and keep the journal; the run's id."""
    with SqliteJournal(path) as journal:
        loop = Loop(
            runtime,
            policies,
            clock=SimulatedClock(runtime),
            journal=journal,
            settings=Settings(interval_s=5.0),
            name="app",
        )
        loop.run(for_s=for_s)
        assert loop.run_id is not None
        return loop.run_id


def progress_of(runtime: MicrobatchRuntime, *, for_s: float) -> list[str]:
    """Progress documents of its batches, as a listener on Spark would have got them from a Kafka source."""
    runtime.advance(for_s)
    log = np.vstack(runtime._ended)
    lines = []
    for row in log:
        began, ended, fixed = row[kernel.BEGAN], row[kernel.ENDED], row[kernel.FIXED]
        stamp = datetime.fromtimestamp(START_UNIX + began, UTC).isoformat(timespec="milliseconds")
        latest = kernel.produced(*runtime._points[int(row[kernel.QUERY])], float(began))
        lines.append(
            json.dumps(
                {
                    "id": f"id-{int(row[kernel.QUERY])}",
                    "runId": "run",
                    "name": "q",
                    "timestamp": stamp.replace("+00:00", "Z"),
                    "batchId": int(row[kernel.BATCH]),
                    "durationMs": {
                        "queryPlanning": 500 * fixed,
                        "addBatch": 1e3 * (ended - began) - 500 * fixed,
                        "triggerExecution": 1e3 * (ended - began),
                    },
                    "numInputRows": row[kernel.RECORDS],
                    "sources": [
                        {
                            "description": "KafkaV2[Subscribe[topic]]",
                            "numInputRows": row[kernel.RECORDS],
                            "endOffset": {"topic": {"0": int(row[kernel.FIRST] + row[kernel.RECORDS])}},
                            "latestOffset": {"topic": {"0": int(latest)}},
                        }
                    ],
                    "stateOperators": [{"numShufflePartitions": 12, "memoryUsedBytes": 1200}],
                }
            )
        )
    return lines


def synthetic(
    *, fixed_s: float, record_s: float, slots: np.ndarray, records: np.ndarray, noise: float, seed: int
) -> QueryHistory:
    """Batches whose work is `fixed_s + record_s · records / slots`, with noise and a few that are far off."""
    rng = np.random.default_rng(seed)
    count = len(records)
    work = (fixed_s + record_s * records / slots) * np.exp(noise * rng.standard_normal(count))
    work[rng.choice(count, count // 20, replace=False)] *= 6.0
    began = np.cumsum(work + 0.2)
    return QueryHistory(
        name="q",
        began_s=began,
        duration_s=work + 0.1,
        records=records,
        plan_s=np.full(count, 0.1),
        work_s=work,
        partitions=48,
        trigger_s=0.0,
    )
