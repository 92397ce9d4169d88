"""What every task of a micro-batch did, on any query: a listener in the driver's JVM that keeps a row per task.

The listener is Spark's public interface for task ends. It follows only the runs that somebody asks for, from the first
batch that begins afterwards, and holds their rows until the batch has ended and they are taken; a reader that never
comes back loses the oldest batches, no memory. Which operators a stage contains follows from the accumulators that its
tasks update: Spark announces each plan with the accumulators of its nodes, those of an adaptive plan and of actions
inside ``foreachBatch`` too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession

from penstock.spark.internals import task_recorder
from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import context, listener

CAPABILITY = "task metrics"
MOST_TASKS = 100_000
"""Tasks of one run that wait to be taken; beyond, the oldest batches go."""
PATIENCE_MS = 300
"""How long a reader waits for the end of a batch: Spark tells listeners of it later than it publishes progress."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NUMBERS = (
    "stage", "stage_attempt", "partition", "executor", "succeeded", "launched_ms", "duration_ms", "run_ms", "cpu_ns",
    "deserialize_ms", "gc_ms", "input_records", "input_bytes", "output_records", "output_bytes",
    "shuffle_read_records", "shuffle_read_local_bytes", "shuffle_read_remote_bytes", "shuffle_wait_ms",
    "shuffle_write_records", "shuffle_write_bytes", "spilled_bytes",
)  # fmt: skip
"""Columns of a task's row, in the order in which the listener writes them."""

STATE_METRICS: Mapping[str, str] = {
    "rows": "number of total state rows",
    "updated": "number of updated state rows",
    "emitted": "number of output rows",
    "update_ms": "time to update",
    "remove_ms": "time to remove",
    "commit_ms": "time to commit changes",
    "load_ms": "RocksDB: load - time taken to load the store",
    "memory_bytes": "memory used by state",
    "version_bytes": "estimated size of state only on current version",
    "sst_bytes": "RocksDB: size of all SST files",
}
"""Column and how Spark's name of the metric begins; the first is what tells a stateful operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """One attempt of one stage: where it stands in its query, and what runs in it."""

    id: int
    attempt: int
    tasks: int
    is_first: bool
    """It reads no shuffle: it begins with a source."""
    is_last: bool
    """It writes no shuffle: its results go to the sink, or to the driver."""
    has_python: bool
    """Python workers take part, whose CPU Spark does not count."""
    sources: tuple[int, ...]
    """Positions of the sources that it reads, in the order of the plan's leaves."""
    states: tuple[int, ...]
    """Numbers of the stateful operators in it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateTable:
    """What stateful operators did in tasks: a row for each operator of each task. Unknown figures are 0."""

    task: Ints
    """Row in the task table."""
    operator: Ints
    rows: Floats
    updated: Floats
    emitted: Floats
    update_ms: Floats
    remove_ms: Floats
    commit_ms: Floats
    load_ms: Floats
    memory_bytes: Floats
    version_bytes: Floats
    sst_bytes: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskTable:
    """The tasks of one micro-batch, a column each; row i is the same task in every column.

    Failed and speculative ones are there too, with `succeeded` False: their time was spent.
    """

    executor: tuple[str, ...]
    host: tuple[str, ...]
    stage: Ints
    stage_attempt: Ints
    partition: Ints
    succeeded: Bools
    launched_ms: Floats
    duration_ms: Floats
    """From launch to end, as the driver saw it."""
    run_ms: Floats
    cpu_ns: Floats
    deserialize_ms: Floats
    gc_ms: Floats
    input_records: Floats
    input_bytes: Floats
    output_records: Floats
    output_bytes: Floats
    shuffle_read_records: Floats
    shuffle_read_local_bytes: Floats
    """From the same executor, or from the disk of another one on the same host."""
    shuffle_read_remote_bytes: Floats
    shuffle_wait_ms: Floats
    shuffle_write_records: Floats
    shuffle_write_bytes: Floats
    spilled_bytes: Floats
    stages: tuple[StageFacts, ...]
    states: StateTable

    def __len__(self) -> int:
        return len(self.stage)

    @cached_property
    def stage_row(self) -> Ints:
        """Per task, its row in `stages`."""
        rows = {(s.id, s.attempt): i for i, s in enumerate(self.stages)}
        pairs = zip(self.stage.tolist(), self.stage_attempt.tolist(), strict=True)
        return np.fromiter((rows[pair] for pair in pairs), np.int64, len(self))

    @property
    def shuffled_bytes(self) -> tuple[int, int]:
        """Bytes read in shuffles, in all and from other hosts."""
        remote = int(self.shuffle_read_remote_bytes.sum())
        return int(self.shuffle_read_local_bytes.sum()) + remote, remote


class TaskMetrics:
    """Follows the tasks of one run, or of several, with a listener of its own; `close` ends it."""

    def __init__(self, spark: SparkSession, run_id: str | None = None) -> None:
        """With *run_id*, the run is followed at once, else from the first time that it is asked for."""
        with reaching(CAPABILITY):
            self._context, self._recorder, self._open = context(spark), recorder(), True
            self._followed: set[str] = set()
            self._context.addSparkListener(self._recorder)
            if run_id is not None:
                self._follow(run_id)

    def _follow(self, run_id: str) -> None:
        if run_id not in self._followed:
            self._followed.add(run_id)
            self._recorder.follow(run_id)

    def batch(self, run_id: str, batch_id: int) -> TaskTable:
        """Return the tasks of a micro-batch that has ended; once, and then of no earlier one.

        Empty for a batch that ran no job, or that began before its run was followed.
        """
        with reaching(CAPABILITY):
            self._follow(str(run_id))
            return _table(bytes(self._recorder.take(str(run_id), int(batch_id), PATIENCE_MS)))

    def close(self) -> None:
        """Stop listening."""
        with reaching(CAPABILITY):
            if self._open:
                self._open = False
                self._context.removeSparkListener(self._recorder)


def recorder() -> Any:
    """Return a new listener in the driver's JVM, if this Spark has what it needs."""
    made = listener(task_recorder.SOURCE)
    made.configure("\n".join(STATE_METRICS.values()), MOST_TASKS)
    return made


def _table(reply: bytes) -> TaskTable:
    size, tasks, states = (int(n) for n in np.frombuffer(reply, "<i8", 3)) if reply else (0, 0, 0)
    stages, executors = [], []
    for line in reply[24 : 24 + size].decode().splitlines():
        kind, *words = line.split(" ")
        if kind == "stage":
            stages.append(_stage(words))
        else:
            executors.append(words)
    at = 24 + (size + 7) // 8 * 8
    width, state_width = len(NUMBERS), len(STATE_METRICS) + 2
    rows = np.frombuffer(reply, "<f8", tasks * width, at if tasks else 0).reshape(tasks, width).T
    held = np.frombuffer(reply, "<f8", states * state_width, at + 8 * tasks * width if states else 0)
    held = held.reshape(states, state_width).T
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(row) for name, row in zip(NUMBERS, rows, strict=True)
    }
    ran = columns.pop("executor").astype(np.int64).tolist()
    whole = {name: columns.pop(name).astype(np.int64) for name in ("stage", "stage_attempt", "partition")}
    return TaskTable(
        executor=tuple(executors[i][0] for i in ran),
        host=tuple(executors[i][1] for i in ran),
        succeeded=columns.pop("succeeded") > 0,
        **whole,
        **columns,
        stages=tuple(stages),
        states=StateTable(
            task=held[0].astype(np.int64),
            operator=held[1].astype(np.int64),
            **dict(zip(STATE_METRICS, held[2:], strict=True)),
        ),
    )


def _stage(words: list[str]) -> StageFacts:
    number, attempt, _, tasks, reads, writes = map(int, words[:6])
    nodes = words[6:]
    return StageFacts(
        id=number,
        attempt=attempt,
        tasks=tasks,
        is_first=not reads,
        is_last=not writes,
        has_python="python" in nodes,
        sources=tuple(sorted(int(n[4:]) for n in nodes if n.startswith("scan"))),
        states=tuple(sorted(int(n[5:]) for n in nodes if n.startswith("state"))),
    )
