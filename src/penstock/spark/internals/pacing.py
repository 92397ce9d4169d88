"""The pace of a running query: its trigger interval and how much one micro-batch may read."""

import time
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import class_exists, declared_field, execution, jvm

INTERVAL = "pacing interval"
LIMIT = "read limits"
CLEAN_STOP = "clean stop"
PYTHON_LIMIT_CLASS = "org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceReadLimit"

# How long after a clean stop was given up the query may stay idle, should its last wait have begun by then.
RESUME_MS = 30_000

LimitKind = Literal["rows", "files", "bytes"]

# A limit that a source does not understand stops the query, so only known pairs pass.
_LIMITS_OF: dict[str, tuple[LimitKind, ...]] = {
    "FileStreamSource": ("files", "bytes"),
    "KafkaMicroBatchStream": ("rows",),
    "PythonMicroBatchStreamWithAdmissionControl": ("rows",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One input of a query: its place, its class, what it may read per batch, and which limits it takes."""

    index: int
    kind: str
    description: str
    limit: str
    """As `restore_read_limit` takes it; `?` and its class where it could not be made again."""
    accepts: tuple[LimitKind, ...]


class Pacing:
    """The pace of one run of *query*, changed without a restart."""

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        self._spark = spark
        self._query = query
        with reaching(INTERVAL):
            self._execution = execution(query)
        self._trigger: tuple[Any, Any] | None = None
        """Spark's trigger and the field of its interval, which stay for the whole run."""

    def interval_ms(self) -> int:
        """Return the trigger interval; 0 means that batches follow one another at once."""
        with reaching(INTERVAL):
            executor, field = self._interval()
            return int(field.getLong(executor))

    def set_interval_ms(self, interval_ms: int) -> None:
        """Change the trigger interval, from the wait after the next on."""
        if interval_ms < 0:
            raise ValueError(f"negative interval: {interval_ms} ms")
        with reaching(INTERVAL):
            executor, field = self._interval()
            field.setLong(executor, interval_ms)

    def sources(self) -> tuple[Source, ...]:
        """Return the inputs of the query; none before its first micro-batch was planned."""
        with reaching(LIMIT):
            return tuple(
                Source(
                    index=index,
                    kind=stream.getClass().getSimpleName(),
                    description=stream.toString(),
                    limit=_described(limit),
                    accepts=_LIMITS_OF.get(stream.getClass().getSimpleName(), ()),
                )
                for index, (stream, limit) in enumerate(self._streams())
            )

    def set_read_limit(self, kind: LimitKind, count: int, *, source: int = 0) -> None:
        """Let a micro-batch read at most *count* rows, files or bytes of a source, from the next one on."""
        if count < 1:
            raise ValueError(f"a read limit is at least 1, not {count}")
        with reaching(LIMIT):
            chosen = self._source(source)
            if chosen.limit.startswith("?"):
                raise SparkInternalsError(LIMIT, f"a {chosen.limit[1:]} could not be put back, so it stays")
            if kind not in chosen.accepts:
                accepts = ", ".join(chosen.accepts) or "none"
                raise SparkInternalsError(LIMIT, f"{chosen.kind} takes no limit in {kind} (takes: {accepts})")
            self._swap(source, self._limit(chosen, kind, count))

    def restore_read_limit(self, text: str, *, source: int = 0) -> None:
        """Set a limit that `sources` described, from the next micro-batch on."""
        with reaching(LIMIT):
            self._source(source)
            self._swap(source, self._described_limit(text))

    def _source(self, index: int) -> Source:
        known = self.sources()
        if not 0 <= index < len(known):
            raise SparkInternalsError(LIMIT, f"the query has {len(known)} sources, not a number {index}")
        return known[index]

    def _swap(self, source: int, limit: Any) -> None:
        limits = jvm(self._spark).java.util.HashMap()
        for index, (stream, present) in enumerate(self._streams()):
            limits.put(stream, limit if index == source else present)
        getattr(self._execution, "uniqueSources_$eq")(jvm(self._spark).PythonUtils.toScalaMap(limits))

    def _described_limit(self, text: str) -> Any:
        factory = jvm(self._spark).org.apache.spark.sql.connector.read.streaming.ReadLimit
        kind, _, rest = text.partition(":")
        if kind == "python":
            return getattr(jvm(self._spark), PYTHON_LIMIT_CLASS)(rest)
        if kind == "all":
            return factory.allAvailable()
        return getattr(factory, kind)(*(int(number) for number in rest.split(":")))

    def _streams(self) -> list[tuple[Any, Any]]:
        """Return (source, limit) pairs in the order in which the progress lists the sources."""
        sources, limits = self._execution.sources(), self._execution.uniqueSources()
        if sources is None:
            return []
        distinct = sources.distinct()
        found = [(one, limits.get(one)) for one in (distinct.apply(i) for i in range(distinct.size()))]
        return [(one, limit.get()) for one, limit in found if limit.isDefined()]

    def _limit(self, source: Source, kind: LimitKind, count: int) -> Any:
        view = jvm(self._spark)
        if source.kind.startswith("Python"):
            return getattr(view, PYTHON_LIMIT_CLASS)(f'{{"_type":"ReadMaxRows","max_rows":{count}}}')
        factory = view.org.apache.spark.sql.connector.read.streaming.ReadLimit
        return getattr(factory, {"rows": "maxRows", "files": "maxFiles", "bytes": "maxBytes"}[kind])(count)

    def _interval(self) -> tuple[Any, Any]:
        if self._trigger is not None:
            return self._trigger
        executor = self._execution.triggerExecutor()
        if executor is None:
            raise SparkInternalsError(INTERVAL, "the query has not begun yet")
        if executor.getClass().getSimpleName() != "ProcessingTimeExecutor":
            raise SparkInternalsError(
                INTERVAL, f"a {executor.getClass().getSimpleName()} has no interval to change"
            )
        self._trigger = executor, declared_field(executor, "intervalMs")
        return self._trigger


def _described(limit: Any) -> str:
    """Return a limit as a text; one that cannot be made again is told by its class, and not replaced."""
    kind = limit.getClass().getSimpleName()
    match kind:
        case "ReadAllAvailable":
            return "all"
        case "ReadMaxRows":
            return f"maxRows:{limit.maxRows()}"
        case "ReadMaxFiles":
            return f"maxFiles:{limit.maxFiles()}"
        case "ReadMaxBytes":
            return f"maxBytes:{limit.maxBytes()}"
        case "ReadMinRows":
            return f"minRows:{limit.minRows()}:{limit.maxTriggerDelayMs()}"
        case "PythonStreamingSourceReadLimit":
            return f"python:{limit.json()}"
    return f"?{kind}"


def python_limits_reason(spark: SparkSession) -> str | None:
    """Return why sources written in Python take no read limit on this Spark, None if they do."""
    if class_exists(spark, PYTHON_LIMIT_CLASS):
        return None
    return f"Spark {spark.version} has no admission control for sources written in Python"


def stop_cleanly(spark: SparkSession, query: StreamingQuery, *, timeout_s: float = 60.0) -> int:
    """Stop *query* between two micro-batches and return the id of its last, committed one (-1 if none).

    ``query.stop()`` alone cuts the running batch, which a later state repartitioning refuses. Here the
    next trigger is put off first, to a moment after the time-out: whatever happens to the caller, the
    query goes on by itself. If no boundary comes in time, SparkInternalsError says so.
    """
    deadline_s = time.monotonic() + timeout_s
    pacing = Pacing(spark, query)
    # A query that was just started gets its trigger a moment later.
    while execution(query).triggerExecutor() is None and query.isActive and time.monotonic() < deadline_s:
        time.sleep(0.02)
    interval_ms = pacing.interval_ms()
    # Spark triggers at the next multiple of the interval since 1970; the first multiple of a moment that
    # lies ahead is that moment.
    pacing.set_interval_ms(int((time.time() + timeout_s) * 1000) + RESUME_MS)
    # A trigger that has begun still ends its wait by the old interval, at the latest by this moment; the next one is
    # the last. Whoever sleeps later sleeps for the moment that lies ahead.
    settled_s = time.monotonic() + interval_ms / 1000 + 0.05
    try:
        with reaching(CLEAN_STOP):
            while time.monotonic() < deadline_s:
                last = time.monotonic() > settled_s or _far_from_trigger(interval_ms)
                # Between two batches is not enough: the next one may begin before the query hears of the stop.
                committed = _boundary(query) if last and _sleeps(query) else None
                if committed is not None:
                    query.stop()
                    return committed
                if not query.isActive:
                    raise SparkInternalsError(CLEAN_STOP, f"the query ended by itself: {query.exception()}")
                time.sleep(0.02)
        raise SparkInternalsError(CLEAN_STOP, f"no end of a micro-batch within {timeout_s:g} s; it goes on")
    finally:
        if query.isActive:
            pacing.set_interval_ms(interval_ms)


def _boundary(query: StreamingQuery) -> int | None:
    """Return the last committed batch if no batch is running or planned, else None."""
    if query.status["isTriggerActive"]:
        return None
    running = execution(query)
    planned, committed = running.offsetLog().getLatestBatchId(), running.commitLog().getLatestBatchId()
    planned_id = int(planned.get()) if planned.isDefined() else -1
    committed_id = int(committed.get()) if committed.isDefined() else -1
    return committed_id if planned_id == committed_id else None


def _sleeps(query: StreamingQuery) -> bool:
    """Tell whether the thread of the query sleeps until its next trigger."""
    frames = [frame.getMethodName() for frame in execution(query).queryExecutionThread().getStackTrace()]
    return "waitTillTime" in frames and any(name.startswith("sleep") for name in frames[:3])


def _far_from_trigger(interval_ms: int) -> bool:
    """Tell whether the trigger that the wait under way leads to is more than half a second off."""
    return interval_ms > 0 and interval_ms - (time.time() * 1000) % interval_ms > 500
