"""What each task of a micro-batch did, from the driver's status store (no web UI needed)."""

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pyspark.sql import SparkSession

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import JsonReader, compiled, context, lines

CAPABILITY = "task metrics"
KEPT_BATCHES = 128
LOOK_BACK_JOBS = 500  # how far into the past a newly attached reader looks
MOST_TASKS = 100_000

_BATCH = re.compile(r"runId = (\S+)\s+batch = (\d+)")

_STATUS = """
import org.apache.spark.scheduler.DAGScheduler;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.JobData;
import org.apache.spark.status.api.v1.StageData;

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

public String shuffled(AppStatusStore store, String stages) {
    String[] ids = stages.split(",");
    long local = 0, remote = 0;
    for (int i = 0; i < ids.length; i++) {
        scala.collection.Iterator attempts = store.stageData(
            Integer.parseInt(ids[i]), false, new java.util.ArrayList(), false, new double[0]).iterator();
        while (attempts.hasNext()) {
            StageData attempt = (StageData) attempts.next();
            local += attempt.shuffleLocalBytesRead();
            remote += attempt.shuffleRemoteBytesRead();
        }
    }
    return local + " " + remote;
}
"""

Ints = npt.NDArray[np.int64]


class _Input(BaseModel):
    bytes_read: int = Field(alias="bytesRead")
    records_read: int = Field(alias="recordsRead")


class _Output(BaseModel):
    records_written: int = Field(alias="recordsWritten")


class _ShuffleRead(BaseModel):
    local_bytes: int = Field(alias="localBytesRead")
    remote_bytes: int = Field(alias="remoteBytesRead")
    records: int = Field(alias="recordsRead")
    wait_ms: int = Field(alias="fetchWaitTime")


class _ShuffleWrite(BaseModel):
    bytes_written: int = Field(alias="bytesWritten")
    records: int = Field(alias="recordsWritten")


class _Metrics(BaseModel):
    run_ms: int = Field(alias="executorRunTime")
    cpu_ns: int = Field(alias="executorCpuTime")
    deserialize_ms: int = Field(alias="executorDeserializeTime")
    gc_ms: int = Field(alias="jvmGcTime")
    spilled_bytes: int = Field(alias="diskBytesSpilled")
    input: _Input = Field(alias="inputMetrics")
    output: _Output = Field(alias="outputMetrics")
    shuffle_read: _ShuffleRead = Field(alias="shuffleReadMetrics")
    shuffle_write: _ShuffleWrite = Field(alias="shuffleWriteMetrics")


class _Task(BaseModel):
    model_config = ConfigDict(frozen=True)

    task_id: int = Field(alias="taskId")
    attempt: int
    partition: int = Field(alias="partitionId")
    executor: str = Field(alias="executorId")
    host: str
    status: str
    locality: str = Field(alias="taskLocality")
    duration_ms: int = Field(alias="duration", default=0)
    delay_ms: int = Field(alias="schedulerDelay", default=0)
    metrics: _Metrics | None = Field(alias="taskMetrics", default=None)


_TASKS = TypeAdapter(list[_Task])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskTable:
    """The tasks of one micro-batch, a column each; row i is the same task in every column.

    Tasks that failed or never ended have zeros where Spark has no metrics; ``status`` tells them apart.
    """

    job: Ints
    stage: Ints
    stage_attempt: Ints
    partition: Ints
    attempt: Ints
    executor: tuple[str, ...]
    host: tuple[str, ...]
    status: tuple[str, ...]
    locality: tuple[str, ...]
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


class TaskMetrics:
    """Reads the tasks of micro-batches, for all queries of one application.

    Job ids are consecutive, so each job is looked at once; only the newest batches are remembered. Spark
    itself keeps the last ``spark.ui.retainedJobs``, ``retainedStages`` and ``retainedTasks``.
    """

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            self._reader, self._jvm = JsonReader(spark), compiled(_STATUS)
            self._store = context(spark).statusStore()
            self._tracker = spark.sparkContext._jsc.statusTracker()
            self._scheduler = context(spark).dagScheduler()
            self._next_job = max(0, int(self._scheduler.numTotalJobs()) - LOOK_BACK_JOBS)
        self._stages: OrderedDict[tuple[str, int], list[tuple[int, int]]] = OrderedDict()

    def batch(self, run_id: str, batch_id: int) -> TaskTable:
        """Return the tasks of a micro-batch, complete once its progress was published.

        A stage that was retried appears once per attempt. Empty for a batch that ran no job, or that
        ended before this reader came.
        """
        with reaching(CAPABILITY):
            self._poll()
            rows = [
                (job, stage, attempt, task)
                for job, stage in self._stages.get((str(run_id), batch_id), [])
                for attempt in range(self._attempts(stage))
                for task in _TASKS.validate_json(
                    self._reader.text(self._store.taskList(stage, attempt, MOST_TASKS))
                )
            ]
        return _table(rows)

    def shuffled(self, run_id: str, batch_id: int) -> tuple[int, int]:
        """Return the bytes that a micro-batch read in shuffles, in all and from other executors.

        What the tasks' own figures add up to, in two calls instead of a document of every task.
        """
        with reaching(CAPABILITY):
            self._poll()
            stages = self._stages.get((str(run_id), batch_id))
            if not stages:
                return 0, 0
            # As a text: Py4J makes a Java list with a call for each element.
            ids = ",".join(str(stage) for _, stage in stages)
            local, remote = map(int, self._jvm.shuffled(self._store, ids).split())
        return local + remote, remote

    def _poll(self) -> None:
        """Sort the stages of all jobs begun since the last look by run and batch."""
        # Jobs reach the store in order: those missing before a known one are forgotten, those after it to come.
        for line in lines(self._jvm.jobs(self._scheduler, self._store, self._next_job)):
            job, ids, about = line.split("\t", 2)
            self._next_job = int(job) + 1
            if batch := _BATCH.search(about):
                stages = self._stages.setdefault((batch[1], int(batch[2])), [])
                # A job over no partitions has no stages.
                stages += [(int(job), int(stage)) for stage in filter(None, ids.split(","))]
                while len(self._stages) > KEPT_BATCHES:
                    self._stages.popitem(last=False)

    def _attempts(self, stage: int) -> int:
        """Return how often the stage was tried, 0 if it was skipped."""
        info = self._tracker.getStageInfo(stage)
        return int(info.currentAttemptId()) + 1 if info is not None and info.submissionTime() > 0 else 0


def _table(rows: list[tuple[int, int, int, _Task]]) -> TaskTable:
    def column(values: Any) -> Ints:
        return np.fromiter(values, dtype=np.int64, count=len(rows))

    tasks = [task for _, _, _, task in rows]
    metrics = [task.metrics or _NO_METRICS for task in tasks]
    return TaskTable(
        job=column(job for job, _, _, _ in rows),
        stage=column(stage for _, stage, _, _ in rows),
        stage_attempt=column(attempt for _, _, attempt, _ in rows),
        partition=column(task.partition for task in tasks),
        attempt=column(task.attempt for task in tasks),
        executor=tuple(task.executor for task in tasks),
        host=tuple(task.host for task in tasks),
        status=tuple(task.status for task in tasks),
        locality=tuple(task.locality for task in tasks),
        duration_ms=column(task.duration_ms for task in tasks),
        delay_ms=column(task.delay_ms for task in tasks),
        run_ms=column(one.run_ms for one in metrics),
        cpu_ns=column(one.cpu_ns for one in metrics),
        deserialize_ms=column(one.deserialize_ms for one in metrics),
        gc_ms=column(one.gc_ms for one in metrics),
        spilled_bytes=column(one.spilled_bytes for one in metrics),
        input_records=column(one.input.records_read for one in metrics),
        input_bytes=column(one.input.bytes_read for one in metrics),
        output_records=column(one.output.records_written for one in metrics),
        shuffle_read_local_bytes=column(one.shuffle_read.local_bytes for one in metrics),
        shuffle_read_remote_bytes=column(one.shuffle_read.remote_bytes for one in metrics),
        shuffle_read_records=column(one.shuffle_read.records for one in metrics),
        shuffle_wait_ms=column(one.shuffle_read.wait_ms for one in metrics),
        shuffle_write_bytes=column(one.shuffle_write.bytes_written for one in metrics),
        shuffle_write_records=column(one.shuffle_write.records for one in metrics),
    )


_NO_METRICS = _Metrics.model_validate(
    {
        "executorRunTime": 0,
        "executorCpuTime": 0,
        "executorDeserializeTime": 0,
        "jvmGcTime": 0,
        "diskBytesSpilled": 0,
        "inputMetrics": {"bytesRead": 0, "recordsRead": 0},
        "outputMetrics": {"recordsWritten": 0},
        "shuffleReadMetrics": {
            "localBytesRead": 0,
            "remoteBytesRead": 0,
            "recordsRead": 0,
            "fetchWaitTime": 0,
        },
        "shuffleWriteMetrics": {"bytesWritten": 0, "recordsWritten": 0},
    }
)
