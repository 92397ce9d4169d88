"""What every task of a micro-batch did, on any query: a listener in the driver's JVM that keeps a row per task.

The listener is Spark's public interface for task ends. It follows only the runs that somebody asks for, and holds their
rows until the batch has ended and they are taken; a reader that never comes back loses the oldest batches, no memory.
Which operators a stage contains follows from the accumulators that its tasks update: Spark announces each plan with
the accumulators of its nodes, those of an adaptive plan and of actions inside ``foreachBatch`` too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import context, listener

CAPABILITY = "task metrics"
MOST_TASKS = 100_000
"""Tasks of one run that wait to be taken; beyond, the oldest batches go."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TASK_COLUMNS = (
    "stage", "attempt", "partition", "executor", "succeeded", "launched_ms", "held_ms", "run_ms", "cpu_ns",
    "deserialize_ms", "gc_ms", "input_records", "input_bytes", "output_records", "output_bytes",
    "shuffle_read_records", "shuffle_read_local_bytes", "shuffle_read_remote_bytes", "shuffle_wait_ms",
    "shuffle_write_records", "shuffle_write_bytes", "spilled_bytes",
)  # fmt: skip

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
    "written_bytes": "RocksDB: write - total of uncompressed bytes written",
}
"""Column and how Spark's name of the metric begins; the first is what tells a stateful operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """One attempt of one stage: where it stands in its query, and what runs in it."""

    id: int
    attempt: int
    batch_id: int
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
    written_bytes: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskTable:
    """Tasks that ended, a column each; row i is the same task in every column.

    Failed and speculative ones are there too, with `succeeded` 0: their time was spent.
    """

    stage: Ints
    attempt: Ints
    partition: Ints
    executor: Ints
    """Row in `executors`."""
    succeeded: Ints
    launched_ms: Floats
    held_ms: Floats
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
    executors: tuple[str, ...]
    hosts: tuple[str, ...]
    states: StateTable
    dropped: int
    """Tasks that had to make room because nobody took them in time."""

    def __len__(self) -> int:
        return len(self.stage)

    @cached_property
    def stage_row(self) -> Ints:
        """Per task, its row in `stages`."""
        rows = {(s.id, s.attempt): i for i, s in enumerate(self.stages)}
        pairs = zip(self.stage.tolist(), self.attempt.tolist(), strict=True)
        return np.fromiter((rows[pair] for pair in pairs), np.int64, len(self))


class TaskMetrics:
    """Follows the tasks of the runs that are asked for, for all queries of one application; `close` ends it."""

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            self._recorder, self._context = recorder(), context(spark)
            self._context.addSparkListener(self._recorder)

    def take(self, run_id: str, last_batch: int) -> TaskTable:
        """Return the tasks of a run's batches up to *last_batch* that were not taken before.

        The first call begins to follow the run. Tasks that Spark reports after the batch has ended come with the
        next call.
        """
        with reaching(CAPABILITY):
            return _table(bytes(self._recorder.take(str(run_id), last_batch)))

    def forget(self, run_id: str) -> None:
        """Follow a run no longer."""
        with reaching(CAPABILITY):
            self._recorder.forget(str(run_id))

    def close(self) -> None:
        """Stop listening."""
        with reaching(CAPABILITY):
            self._context.removeSparkListener(self._recorder)


def recorder() -> Any:
    """Return a new listener in the driver's JVM, if this Spark has what it needs."""
    made = listener(files("penstock.spark.internals").joinpath("task_recorder.java").read_text("utf-8"))
    made.configure("\n".join(STATE_METRICS.values()), MOST_TASKS)
    return made


def _table(reply: bytes) -> TaskTable:
    size, tasks, states, dropped = (int(n) for n in np.frombuffer(reply, "<i8", 4))
    stages, executors = [], []
    for line in reply[32 : 32 + size].decode().splitlines():
        kind, *words = line.split(" ")
        if kind == "stage":
            stages.append(_stage(words))
        else:
            executors.append(words)
    at = 32 + (size + 7) // 8 * 8
    width, state_width = len(TASK_COLUMNS), len(STATE_METRICS) + 2
    rows = np.frombuffer(reply, "<f8", tasks * width, at).reshape(tasks, width).T
    held = np.frombuffer(reply, "<f8", states * state_width, at + 8 * tasks * width)
    held = held.reshape(states, state_width).T
    columns = dict(zip(TASK_COLUMNS, rows, strict=True))
    whole = {f.name: columns.pop(f.name).astype(np.int64) for f in fields(TaskTable) if f.type == Ints}
    return TaskTable(
        **whole,
        **{name: np.ascontiguousarray(column) for name, column in columns.items()},
        stages=tuple(stages),
        executors=tuple(words[0] for words in executors),
        hosts=tuple(words[1] for words in executors),
        states=StateTable(
            task=held[0].astype(np.int64),
            operator=held[1].astype(np.int64),
            **dict(zip(STATE_METRICS, held[2:], strict=True)),
        ),
        dropped=dropped,
    )


def _stage(words: list[str]) -> StageFacts:
    number, attempt, batch, tasks, reads, writes = map(int, words[:6])
    nodes = words[6:]
    return StageFacts(
        id=number,
        attempt=attempt,
        batch_id=batch,
        tasks=tasks,
        is_first=not reads,
        is_last=not writes,
        has_python="python" in nodes,
        sources=tuple(sorted(int(n[4:]) for n in nodes if n.startswith("scan"))),
        states=tuple(sorted(int(n[5:]) for n in nodes if n.startswith("state"))),
    )
