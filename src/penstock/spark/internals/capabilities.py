"""Which levers and gauges this Spark offers, and why not the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from pyspark.sql import SparkSession

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.executors import fixed_reason
from penstock.spark.internals.gateway import jvm
from penstock.spark.internals.pacing import python_limits_reason
from penstock.spark.internals.repartition import repartition_reason
from penstock.spark.internals.running import standing_reader
from penstock.spark.internals.shuffles import Shuffles
from penstock.spark.internals.state import readings
from penstock.spark.internals.tasks import recorder

RUNTIME = "org.apache.spark.sql.execution.streaming.runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One lever or gauge: available, or the reason why it is not."""

    name: str
    unavailable: str | None = None

    @property
    def available(self) -> bool:
        """Tell whether it can be used."""
        return self.unavailable is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What Penstock can do on one Spark application."""

    controls: Capability
    state_moves: Capability
    executors: Capability
    pacing_interval: Capability
    read_limits: Capability
    python_read_limits: Capability
    task_metrics: Capability
    running_batch: Capability
    shuffle_matrix: Capability
    state_repartition: Capability

    def missing(self) -> tuple[Capability, ...]:
        """Return the capabilities that are not available, each with its reason."""
        return tuple(one for one in self if not one.available)

    def __iter__(self) -> Iterator[Capability]:
        return (getattr(self, field.name) for field in fields(self))


def probe(spark: SparkSession) -> Capabilities:
    """Return what this Spark offers; looks and changes nothing, never raises, takes 0.1 to 1 s once."""
    checks: dict[str, Callable[[SparkSession], str | None]] = {
        "controls": lambda spark: _lacks(
            spark,
            f"{RUNTIME}.StreamExecution",
            "sparkSessionForStream",
            "awaitProgressLock",
            "offsetLog",
            "getLatestExecutionContext",
        ),
        "state_moves": _lacks_state_moves,
        "executors": fixed_reason,
        "pacing_interval": lambda spark: _lacks(spark, f"{RUNTIME}.ProcessingTimeExecutor", "intervalMs"),
        "read_limits": lambda spark: _lacks(spark, f"{RUNTIME}.StreamExecution", "uniqueSources_$eq"),
        "python_read_limits": python_limits_reason,
        "task_metrics": _lacks_task_metrics,
        "running_batch": _lacks_running_batch,
        "shuffle_matrix": _lacks_shuffle_matrix,
        "state_repartition": repartition_reason,
    }
    return Capabilities(**{name: _capability(name, check, spark) for name, check in checks.items()})


def _capability(name: str, check: Callable[[SparkSession], str | None], spark: SparkSession) -> Capability:
    words = name.replace("_", " ")
    try:
        with reaching(words):
            jvm(spark)  # what is no session has nothing, whatever else runs in this process
            return Capability(name=words, unavailable=check(spark))
    except SparkInternalsError as error:
        return Capability(name=words, unavailable=error.reason)
    except Exception as error:  # a probe must not stop what it was asked for
        return Capability(name=words, unavailable=f"{type(error).__name__}: {error}")


def _lacks(spark: SparkSession, class_name: str, *members: str) -> str | None:
    """Return which of *members* the class lacks as method or field, None if it has them all."""
    cls = jvm(spark).java.lang.Class.forName(class_name)
    have = {member.getName() for member in [*cls.getMethods(), *cls.getDeclaredFields()]}
    missing = [member for member in members if member not in have]
    return f"{class_name} of Spark {spark.version} has no {', '.join(missing)}" if missing else None


def _lacks_state_moves(spark: SparkSession) -> str | None:
    readings()  # finds the classes of state and their methods or raises
    coordinator = spark._jsparkSession.streams().stateStoreCoordinator()
    return _lacks(spark, coordinator.getClass().getName(), "getLocation", "reportActiveInstance")


def _lacks_shuffle_matrix(spark: SparkSession) -> str | None:
    Shuffles(spark)  # finds the tracker or raises
    return None


def _lacks_running_batch(spark: SparkSession) -> str | None:
    standing_reader()  # compiles against this Spark's classes or raises
    return None


def _lacks_task_metrics(spark: SparkSession) -> str | None:
    recorder()  # compiles against this Spark's classes or raises
    return None
