"""What each task of a micro-batch did, from the driver's status store (no web UI needed)."""

import re
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled, context, lines

CAPABILITY = "task metrics"
KEPT_BATCHES = 128
LOOK_BACK_JOBS = 500  # how far into the past a newly attached reader looks
MOST_TASKS = 100_000

_BATCH = re.compile(r"runId = (\S+)\s+batch = (\d+)")

NUMBERS = (
    "stage",
    "stage_attempt",
    "partition",
    "attempt",
    "duration_ms",
    "delay_ms",
    "run_ms",
    "cpu_ns",
    "deserialize_ms",
    "gc_ms",
    "spilled_bytes",
    "input_records",
    "input_bytes",
    "output_records",
    "shuffle_read_local_bytes",
    "shuffle_read_remote_bytes",
    "shuffle_read_records",
    "shuffle_wait_ms",
    "shuffle_write_bytes",
    "shuffle_write_records",
)
"""Columns of a task's line, in the order in which `_STATUS` writes them."""

# A line for each task: executor, host, status, locality, and the numbers.
_STATUS = """
import org.apache.spark.scheduler.DAGScheduler;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.JobData;
import org.apache.spark.status.api.v1.StageData;
import org.apache.spark.status.api.v1.TaskData;
import org.apache.spark.status.api.v1.TaskMetrics;

public Object jobs(DAGScheduler scheduler, AppStatusStore store, int first) {
    StringBuilder lines = new StringBuilder();
    for (int id = first; id < scheduler.numTotalJobs(); id++) {
        JobData job;
        try {
            job = store.job(id);
        } catch (java.util.NoSuchElementException unknown) {
            continue;
        }
        String description = job.description().isDefined() ? (String) job.description().get() : "";
        lines.append(id).append("\\t").append(job.stageIds().mkString(",")).append("\\t")
            .append(description.replaceAll("\\\\s+", " ")).append("\\n");
    }
    return reply(lines);
}

public Object tasks(AppStatusStore store, String stages, int most) {
    StringBuilder lines = new StringBuilder();
    String[] ids = stages.split(",");
    for (int i = 0; i < ids.length; i++) {
        int stage = Integer.parseInt(ids[i]);
        scala.collection.Iterator attempts =
            store.stageData(stage, false, new java.util.ArrayList(), false, new double[0]).iterator();
        while (attempts.hasNext()) {
            int attempt = ((StageData) attempts.next()).attemptId();
            scala.collection.Iterator tasks = store.taskList(stage, attempt, most).iterator();
            while (tasks.hasNext()) append(lines, stage, attempt, (TaskData) tasks.next());
        }
    }
    return reply(lines);
}

private static void append(StringBuilder lines, int stage, int attempt, TaskData task) {
    lines.append(task.executorId()).append("\\t").append(task.host()).append("\\t").append(task.status())
        .append("\\t").append(task.taskLocality()).append("\\t").append(stage).append(" ").append(attempt)
        .append(" ").append(task.partitionId()).append(" ").append(task.attempt())
        .append(" ").append(task.duration().isDefined() ? task.duration().get() : "0")
        .append(" ").append(task.schedulerDelay());
    if (!task.taskMetrics().isDefined()) {
        lines.append(" 0 0 0 0 0 0 0 0 0 0 0 0 0 0\\n");
        return;
    }
    TaskMetrics found = (TaskMetrics) task.taskMetrics().get();
    lines.append(" ").append(found.executorRunTime()).append(" ").append(found.executorCpuTime())
        .append(" ").append(found.executorDeserializeTime()).append(" ").append(found.jvmGcTime())
        .append(" ").append(found.diskBytesSpilled())
        .append(" ").append(found.inputMetrics().recordsRead()).append(" ").append(found.inputMetrics().bytesRead())
        .append(" ").append(found.outputMetrics().recordsWritten())
        .append(" ").append(found.shuffleReadMetrics().localBytesRead())
        .append(" ").append(found.shuffleReadMetrics().remoteBytesRead())
        .append(" ").append(found.shuffleReadMetrics().recordsRead())
        .append(" ").append(found.shuffleReadMetrics().fetchWaitTime())
        .append(" ").append(found.shuffleWriteMetrics().bytesWritten())
        .append(" ").append(found.shuffleWriteMetrics().recordsWritten()).append("\\n");
}
"""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskTable:
    """The tasks of one micro-batch, a column each; row i is the same task in every column.

    Tasks that failed or never ended have zeros where Spark has no metrics; ``status`` tells them apart.
    """

    executor: tuple[str, ...]
    host: tuple[str, ...]
    status: tuple[str, ...]
    locality: tuple[str, ...]
    stage: Ints
    stage_attempt: Ints
    partition: Ints
    attempt: Ints
    duration_ms: Ints
    delay_ms: Ints
    run_ms: Ints
    cpu_ns: Ints
    deserialize_ms: Ints
    gc_ms: Ints
    spilled_bytes: Ints
    input_records: Ints
    input_bytes: Ints
    output_records: Ints
    shuffle_read_local_bytes: Ints
    shuffle_read_remote_bytes: Ints
    shuffle_read_records: Ints
    shuffle_wait_ms: Ints
    shuffle_write_bytes: Ints
    shuffle_write_records: Ints

    def __len__(self) -> int:
        return len(self.executor)

    @property
    def shuffled_bytes(self) -> tuple[int, int]:
        """Bytes read in shuffles, in all and from other executors."""
        remote = int(self.shuffle_read_remote_bytes.sum())
        return int(self.shuffle_read_local_bytes.sum()) + remote, remote


class TaskMetrics:
    """Reads the tasks of micro-batches, for all queries of one application.

    Job ids are consecutive, so each job is looked at once; only the newest batches are remembered. Spark
    itself keeps the last ``spark.ui.retainedJobs``, ``retainedStages`` and ``retainedTasks``.
    """

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            self._jvm, self._store = compiled(_STATUS), context(spark).statusStore()
            self._scheduler = context(spark).dagScheduler()
            self._next_job = max(0, int(self._scheduler.numTotalJobs()) - LOOK_BACK_JOBS)
        self._stages: OrderedDict[tuple[str, int], list[str]] = OrderedDict()

    def batch(self, run_id: str, batch_id: int) -> TaskTable:
        """Return the tasks of a micro-batch, complete once its progress was published; one call for all of them.

        A stage that was retried appears once per attempt. Empty for a batch that ran no job, or that
        ended before this reader came.
        """
        with reaching(CAPABILITY):
            self._poll()
            # A stage whose output several jobs read is theirs all. As a text: Py4J makes lists element by element.
            stages = ",".join(dict.fromkeys(self._stages.get((str(run_id), batch_id), [])))
            return _table(lines(self._jvm.tasks(self._store, stages, MOST_TASKS)) if stages else [])

    def _poll(self) -> None:
        """Sort the stages of all jobs begun since the last look by run and batch."""
        # Jobs reach the store in order: those missing before a known one are forgotten, those after it to come.
        for line in lines(self._jvm.jobs(self._scheduler, self._store, self._next_job)):
            job, ids, about = line.split("\t", 2)
            self._next_job = int(job) + 1
            if batch := _BATCH.search(about):
                stages = self._stages.setdefault((batch[1], int(batch[2])), [])
                # A job over no partitions has no stages.
                stages += filter(None, ids.split(","))
                while len(self._stages) > KEPT_BATCHES:
                    self._stages.popitem(last=False)


def _table(rows: list[str]) -> TaskTable:
    fields = [row.split("\t") for row in rows]
    numbers = np.fromstring(" ".join(f[4] for f in fields), dtype=np.int64, sep=" ")
    executor, host, status, locality, _ = zip(*fields, strict=True) if fields else ((),) * 5
    return TaskTable(
        executor=executor,
        host=host,
        status=status,
        locality=locality,
        **dict(zip(NUMBERS, numbers.reshape(-1, len(NUMBERS)).T, strict=True)),
    )
