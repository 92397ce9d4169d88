"""Where a query stands right now: the batch under way, its offsets, how many of its tasks have ended.

Progress reports tell of batches that have ended. While a batch runs there is no new one, for minutes if need be; what
is here is live all the time.
"""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled, context, execution, lines

CAPABILITY = "running batch"

# A line for the query, then one for each source: class, description, read limit and three offsets, as JSON.
_STANDING = """
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecutionContext;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecutionContext;
import org.apache.spark.sql.execution.streaming.runtime.StreamProgress;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.JobData;

public Object standing(MicroBatchExecution execution, AppStatusStore store) {
    StringBuilder lines = new StringBuilder();
    StreamExecutionContext now = execution.getLatestExecutionContext();
    boolean planned = now instanceof MicroBatchExecutionContext
        && ((MicroBatchExecutionContext) now).isCurrentBatchConstructed();
    long begun = now == null ? -1 : now.currentTriggerStartTimestamp();
    long tasks = 0, ended = 0;
    if (planned) {
        String group = execution.runId().toString();
        java.util.List running = new java.util.ArrayList();
        running.add(org.apache.spark.JobExecutionStatus.RUNNING);
        scala.collection.Iterator jobs = store.jobsList(running).iterator();
        while (jobs.hasNext()) {
            JobData job = (JobData) jobs.next();
            if (job.jobGroup().isDefined() && group.equals(job.jobGroup().get())) {
                tasks += job.numTasks() - job.numSkippedTasks();
                ended += job.numCompletedTasks();
            }
        }
    }
    lines.append(System.currentTimeMillis()).append("\\t").append(execution.isActive()).append("\\t")
        .append(execution.status().isTriggerActive()).append("\\t").append(planned).append("\\t")
        .append(now == null ? -1 : now.batchId()).append("\\t").append(begun).append("\\t")
        .append(tasks).append("\\t").append(ended).append("\\n");
    if (now == null || execution.sources() == null) return reply(lines);
    scala.collection.Iterator sources = ((scala.collection.SeqOps) execution.sources().distinct()).iterator();
    while (sources.hasNext()) {
        SparkDataStream source = (SparkDataStream) sources.next();
        scala.Option limit = execution.uniqueSources().get(source);
        lines.append(source.getClass().getSimpleName()).append("\\t")
            .append(source.toString().replaceAll("\\\\s+", " ")).append("\\t")
            .append(limit.isDefined() ? limit.get().getClass().getSimpleName() : "").append("\\t")
            .append(offset(now.startOffsets(), source)).append("\\t")
            .append(offset(now.endOffsets(), source)).append("\\t")
            .append(offset(now.latestOffsets(), source)).append("\\n");
    }
    return reply(lines);
}

private static String offset(StreamProgress offsets, SparkDataStream source) {
    scala.Option found = offsets.get(source);
    if (!found.isDefined() || found.get() == null) return "";
    String json = ((org.apache.spark.sql.connector.read.streaming.Offset) found.get()).json();
    return json == null ? "" : json.replaceAll("\\\\s+", " ");
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStanding:
    """One source: its class, what it calls itself, and where the newest planned batch begins and ends in it."""

    kind: str
    description: str
    limit: str
    """Class of its read limit; `ReadAllAvailable` where a batch takes all there is."""
    start: Any = None
    end: Any = None
    latest: Any = None
    """What the source had when the trigger under way, or the last one, asked it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a query stands."""

    wall_s: float
    """The driver's clock when it was asked, in seconds since 1970."""
    active: bool
    triggered: bool
    """Whether a trigger is under way: sources are asked, a batch is planned or runs."""
    planned: bool
    """Whether a batch is planned: it runs, or is about to."""
    batch: int
    """The newest batch, planned or to be planned; -1 before the first trigger."""
    triggered_wall_s: float | None
    """When the trigger under way, or the last one, began."""
    tasks: int
    tasks_ended: int
    """Of the jobs of the batch that run now."""
    sources: tuple[SourceStanding, ...]


class Standings:
    """Reads where one run of *query* stands: one call, about a millisecond."""

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        with reaching(CAPABILITY):
            self._execution, self._store = execution(query), context(spark).statusStore()
            self._jvm = standing_reader()

    def read(self) -> Standing:
        """Return where it stands now."""
        with reaching(CAPABILITY):
            head, *sources = lines(self._jvm.standing(self._execution, self._store))
            wall, active, triggered, planned, batch, begun, tasks, ended = head.split("\t")
            return Standing(
                wall_s=int(wall) / 1e3,
                active=active == "true",
                triggered=triggered == "true",
                planned=planned == "true",
                batch=int(batch),
                triggered_wall_s=int(begun) / 1e3 if int(begun) > 0 else None,
                tasks=int(tasks),
                tasks_ended=int(ended),
                sources=tuple(_source(line) for line in sources),
            )


def standing_reader() -> Any:
    """Return the reader in the driver's JVM; fails where this Spark lacks what it needs."""
    return compiled(_STANDING)


def _source(line: str) -> SourceStanding:
    kind, description, limit, start, end, latest = line.split("\t")
    return SourceStanding(
        kind=kind,
        description=description,
        limit=limit,
        start=_offset(start),
        end=_offset(end),
        latest=_offset(latest),
    )


def _offset(text: str) -> Any:
    """Return an offset as its source wrote it: JSON where it is, else the text; None where there is none."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
