"""The executors of a Spark application: which there are, which can take tasks, how many were asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator
from pyspark.sql import SparkSession

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import compiled, context, json_mapper, jvm, lines, text

CAPABILITY = "executors"
DEFAULT_PROFILE = 0
"""Spark's number of the resource profile that executors have unless a program asks for others."""

# `facts`: for each id a line of what the list of executors does not tell. A heartbeat that is being written while it
# is read is left out.
_BACKEND = """
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import org.apache.spark.resource.ResourceProfile;

public Object facts(CoarseGrainedSchedulerBackend backend, String ids, Object receiver) {
    long now = System.currentTimeMillis();
    StringBuilder lines = new StringBuilder();
    String[] each = ids.isEmpty() ? new String[0] : ids.split(",");
    for (int i = 0; i < each.length; i++) {
        String id = each[i];
        lines.append(backend.isExecutorActive(id)).append("\\t");
        try {
            scala.Option seen = receiver == null ? scala.Option.empty()
                : ((org.apache.spark.HeartbeatReceiver) receiver).executorLastSeen().get(id);
            lines.append(seen.isDefined() ? Long.toString(now - ((Long) seen.get()).longValue()) : "");
        } catch (RuntimeException busy) { }
        lines.append("\\n");
    }
    return reply(lines);
}

public Object totals(CoarseGrainedSchedulerBackend backend) {
    StringBuilder lines = new StringBuilder();
    scala.collection.Iterator each = backend.getRequestedTotalExecutors().iterator();
    while (each.hasNext()) {
        scala.Tuple2 pair = (scala.Tuple2) each.next();
        lines.append(((ResourceProfile) pair._1()).id()).append("\\t").append(pair._2()).append("\\n");
    }
    return reply(lines);
}
""".replace("executorLastSeen()", "org$apache$spark$HeartbeatReceiver$$executorLastSeen()")


_LIST = """
public Object executors(
        org.apache.spark.status.AppStatusStore store, com.fasterxml.jackson.databind.ObjectMapper mapper)
        throws Exception {
    return reply(new StringBuilder(mapper.writeValueAsString(store.executorList(true))));
}
"""


class Executor(BaseModel):
    """One executor as the driver knows it (Spark's ExecutorSummary, and what its scheduler says of it)."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    id: str
    host_port: str = Field(alias="hostPort")
    is_active: bool = Field(alias="isActive", default=True)
    cores: int = Field(alias="totalCores", default=1)
    active_tasks: int = Field(alias="activeTasks", default=0)
    completed_tasks: int = Field(alias="completedTasks", default=0)
    failed_tasks: int = Field(alias="failedTasks", default=0)
    task_time_ms: int = Field(alias="totalDuration", default=0)
    gc_time_ms: int = Field(alias="totalGCTime", default=0)
    input_bytes: int = Field(alias="totalInputBytes", default=0)
    shuffle_read_bytes: int = Field(alias="totalShuffleRead", default=0)
    shuffle_write_bytes: int = Field(alias="totalShuffleWrite", default=0)
    storage_memory_bytes: int = Field(alias="maxMemory", default=0)
    storage_memory_used_bytes: int = Field(alias="memoryUsed", default=0)
    is_excluded: bool = Field(alias="isExcluded", default=False)
    """Whether Spark's health tracker gives it no tasks because too many failed there."""
    resource_profile: int = Field(alias="resourceProfileId", default=DEFAULT_PROFILE)
    started_unix_s: float = Field(alias="addTime", default=0.0)
    takes_tasks: bool = True
    """What Spark's scheduler calls active: not on its way out, decommissioned or lost."""
    heartbeat_age_s: float | None = None

    @field_validator("started_unix_s", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fGMT").replace(tzinfo=UTC).timestamp()

    @property
    def host(self) -> str:
        """Return the host alone, as moves and placements name it."""
        return self.host_port.rsplit(":", 1)[0]

    @property
    def has_block_manager(self) -> bool:
        """Tell whether it can hold state: its address has no port until its block manager is up."""
        return ":" in self.host_port


_EXECUTORS = TypeAdapter(tuple[Executor, ...])


class Executors:
    """The executors of *spark*'s application, on any cluster manager that can change their number."""

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            self._context = context(spark)
            self._backend = self._context.schedulerBackend()
            self._view = jvm(spark)
            self._mapper, self._listing = json_mapper(spark), compiled(_LIST)
            self._store = self._context.statusStore()
        self.fixed = fixed_reason(spark)
        """Why the number of executors cannot change (local mode), None if it can."""
        with reaching(CAPABILITY):
            self._jvm = compiled(_BACKEND) if self.fixed is None else None
            self._heartbeats = _heartbeat_receiver(self._context) if self.fixed is None else None
            conf = self._context.conf()
            self.decommissions = conf.get("spark.decommission.enabled", "false") == "true"
            """Whether executors follow a decommissioning to its end; off by default."""

    @property
    def held_by(self) -> str | None:
        """Who else decides how many executors there are, None if nobody does."""
        with reaching(CAPABILITY):
            if self._context.executorAllocationManager().isDefined():
                return "Spark's dynamic allocation (spark.dynamicAllocation.enabled)"
        return None

    def all(self) -> tuple[Executor, ...]:
        """Return all that the driver lists, starting ones too; in local mode the driver, which is its own."""
        with reaching(CAPABILITY):
            found = json.loads(text(self._listing.executors(self._store, self._mapper)))
            found = [one for one in found if one["id"] != "driver" or self.fixed]
            if self._jvm is not None:
                ids = ",".join(one["id"] for one in found)
                told = self._jvm.facts(self._backend, ids, self._heartbeats)
                for one, line in zip(found, lines(told), strict=True):
                    active, age_ms = line.split("\t")
                    one["takes_tasks"] = active == "true"
                    one["heartbeat_age_s"] = int(age_ms) / 1e3 if age_ms else None
            return _EXECUTORS.validate_python(found)

    def list(self) -> tuple[Executor, ...]:
        """Return the executors that can hold state: those whose block manager is up."""
        return tuple(one for one in self.all() if one.has_block_manager)

    def targets(self) -> dict[int, int]:
        """Return how many executors were last requested, by resource profile; empty if never."""
        self._needs_cluster()
        assert self._jvm is not None
        with reaching(CAPABILITY):
            pairs = (line.split("\t") for line in lines(self._jvm.totals(self._backend)))
            return {int(profile): int(count) for profile, count in pairs}

    def target(self) -> int | None:
        """Return the number last requested for the default profile, None if never."""
        return self.targets().get(DEFAULT_PROFILE)

    def request_total(self, count: int) -> bool:
        """Ask for *count* executors of the default profile; True if the request was taken.

        Fewer than now kills none: it only stops replacement. What was requested for other profiles stays.
        """
        if count < 0:
            raise ValueError(f"cannot request {count} executors")
        return self._request({**self.targets(), DEFAULT_PROFILE: count})

    def kill(self, ids: Iterable[str], *, only_idle: bool = False) -> frozenset[str]:
        """Kill executors at once and leave the target as it is; returns those that Spark killed.

        With *only_idle* an executor that runs a task is left alone: Spark looks and kills under one lock. Where
        the target is not lowered before, the cluster manager starts others in their place.
        """
        self._needs_cluster()
        with reaching(CAPABILITY):
            wanted = self._view.PythonUtils.toSeq(list(ids))
            killed = self._backend.killExecutors(wanted, False, False, not only_idle)
            return frozenset(killed.apply(i) for i in range(killed.size()))

    def decommission(self, executor_id: str) -> bool:
        """Let an executor finish its tasks, take no new ones and leave; the target stays as it is.

        Refused where Spark would only half follow: the executor would stay and never get a task again.
        """
        self._needs_cluster()
        if not self.decommissions:
            raise SparkInternalsError(CAPABILITY, "spark.decommission.enabled is false")
        with reaching(CAPABILITY):
            info = self._view.org.apache.spark.scheduler.ExecutorDecommissionInfo(
                "released by penstock", self._view.scala.Option.empty()
            )
            return bool(self._backend.decommissionExecutor(executor_id, info, False, False))

    def _request(self, totals: Mapping[int, int]) -> bool:
        with reaching(CAPABILITY):
            to_map = self._view.PythonUtils.toScalaMap
            return bool(self._backend.requestTotalExecutors(to_map(dict(totals)), to_map({}), to_map({})))

    def _needs_cluster(self) -> None:
        if self.fixed:
            raise SparkInternalsError(CAPABILITY, self.fixed)


def fixed_reason(spark: SparkSession) -> str | None:
    """Return why the number of executors cannot change, None if it can."""
    master = spark.sparkContext.master or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        return f"master {master} has no executors to add or remove"
    backend: Any = context(spark).schedulerBackend()
    if not any(method.getName() == "requestTotalExecutors" for method in backend.getClass().getMethods()):
        return f"{backend.getClass().getSimpleName()} cannot change the number of executors"
    return None


def _heartbeat_receiver(spark_context: Any) -> Any:
    """Return the driver's receiver of heartbeats, which listens for executors; None where it is out of reach."""
    for listener in spark_context.listenerBus().listeners():
        if listener.getClass().getSimpleName() == "HeartbeatReceiver":
            return listener
    return None
