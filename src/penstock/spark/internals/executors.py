"""The executors of a Spark application: list, request, kill, decommission."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pyspark.sql import SparkSession

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import JsonReader, context, jvm

CAPABILITY = "executors"


class Executor(BaseModel):
    """One executor as the driver knows it (Spark's ExecutorSummary)."""

    model_config = ConfigDict(frozen=True)

    id: str
    host_port: str = Field(alias="hostPort")
    is_active: bool = Field(alias="isActive")
    cores: int = Field(alias="totalCores")
    active_tasks: int = Field(alias="activeTasks")
    completed_tasks: int = Field(alias="completedTasks")
    failed_tasks: int = Field(alias="failedTasks")
    task_time_ms: int = Field(alias="totalDuration")
    gc_time_ms: int = Field(alias="totalGCTime")
    input_bytes: int = Field(alias="totalInputBytes")
    shuffle_read_bytes: int = Field(alias="totalShuffleRead")
    shuffle_write_bytes: int = Field(alias="totalShuffleWrite")
    storage_memory_bytes: int = Field(alias="maxMemory")
    storage_memory_used_bytes: int = Field(alias="memoryUsed")

    @property
    def host(self) -> str:
        """Return the host alone, as moves and placements name it."""
        return self.host_port.rsplit(":", 1)[0]


_EXECUTORS = TypeAdapter(list[Executor])


class Executors:
    """The executors of *spark*'s application, on any cluster manager that can change their number."""

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            self._context = context(spark)
            self._backend = self._context.schedulerBackend()
            self._view = jvm(spark)
            self._reader = JsonReader(spark)
            self._store = self._context.statusStore()
            self._nothing = self._view.PythonUtils.toScalaMap({})
        self.unavailable = fixed_reason(spark)

    def list(self) -> tuple[Executor, ...]:
        """Return the executors that can run tasks; in local mode the driver, which is its own."""
        with reaching(CAPABILITY):
            found = _EXECUTORS.validate_json(self._reader.text(self._store.executorList(True)))
        # An executor's address has no port until its block manager is up: it cannot hold state before.
        return tuple(
            one for one in found if (one.id != "driver" or self.unavailable) and ":" in one.host_port
        )

    def target(self) -> int | None:
        """Return the number of executors last requested of the cluster manager, None if never."""
        self._needs_cluster()
        with reaching(CAPABILITY):
            requested = (
                self._backend.getRequestedTotalExecutors().values().toSeq()
            )  # one per resource profile
            counts = [int(requested.apply(i)) for i in range(requested.size())]
        return sum(counts) if counts else None

    def request_total(self, count: int) -> bool:
        """Ask for *count* executors in all; True if the request was taken. Fewer than now kills none."""
        self._needs_cluster()
        if count < 0:
            raise ValueError(f"cannot request {count} executors")
        with reaching(CAPABILITY):
            return bool(self._context.requestTotalExecutors(count, 0, self._nothing))

    def kill(self, ids: Iterable[str]) -> bool:
        """Kill executors at once and lower the target by as many; False if Spark knows none of them."""
        self._seed_total()
        with reaching(CAPABILITY):
            return bool(self._context.killExecutors(self._view.PythonUtils.toSeq(list(ids))))

    def decommission(self, executor_id: str) -> bool:
        """Let an executor finish its tasks, take no new ones and leave; lowers the target by one.

        Needs ``spark.decommission.enabled=true``.
        """
        self._seed_total()
        with reaching(CAPABILITY):
            info = self._view.org.apache.spark.scheduler.ExecutorDecommissionInfo(
                "released by penstock", self._view.scala.Option.empty()
            )
            return bool(self._backend.decommissionExecutor(executor_id, info, True, False))

    def _seed_total(self) -> None:
        """Tell Spark the present total once: otherwise its first kill starts counting down from zero."""
        if self.target() is None:
            self.request_total(len(self.list()))

    def _needs_cluster(self) -> None:
        if self.unavailable:
            raise SparkInternalsError(CAPABILITY, self.unavailable)


def fixed_reason(spark: SparkSession) -> str | None:
    """Return why the number of executors cannot change, None if it can."""
    master = spark.sparkContext.master or ""
    if master.startswith("local"):
        return f"master {master} has no executors to add or remove"
    backend: Any = context(spark).schedulerBackend()
    if not any(method.getName() == "requestTotalExecutors" for method in backend.getClass().getMethods()):
        return f"{backend.getClass().getSimpleName()} cannot change the number of executors"
    return None
