"""Control values of a running query, from the driver's side (`task_controls` is the other).

What is promised: after ``set_controls`` returns a document, every Python task of micro-batch
``effective_batch`` and later sees the new values and every task before it the old ones. This holds
for map and reduce stages, mapInArrow and mapInPandas, applyInPandasWithState,
transformWithStateInPandas, every action inside ``foreachBatch``, retried tasks and stages.

Where it does not hold: code that runs on the driver has no task, so the body of ``foreachBatch`` asks
``controls_at`` instead, and a Python data source's ``latestOffset`` and ``partitions`` see nothing.

The document is in the query's checkpoint (`control_log`) before it takes effect. A query restarted from
its checkpoint begins without values: start it inside ``seeded`` with ``resumed_controls``, and the batch
that runs again has the values it had.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from py4j.clientserver import ClientServer
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.control_log import ControlLog, checkpoint_of, read_log, write_log
from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import execution
from penstock.spark.internals.task_controls import CONTROLS_KEY, ControlDocument, Values

CAPABILITY = "controls"
LOCK_WAIT_MS = 250
TRIES = 4
"""Batches that may be planned while the document is written to the checkpoint."""
ANSWER_S = 30.0
"""How long a change may take before it is given up; a query that stands still holds nobody else up."""

# The lock below belongs to the JVM thread behind one Python thread. A thread of our own never gets the
# KeyboardInterrupt that could part lock and unlock and leave the user's query waiting for ever.
_logs: dict[str, ControlLog] = {}
"""By run id, what this process has written; used by the one thread below."""
_WRITER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-controls")


def set_controls(query: StreamingQuery, values: Values) -> ControlDocument:
    """Merge *values* into the query's controls and return the document, with its effective batch.

    The effective batch is the first that Spark has not begun to plan. While Spark is planning one for
    longer than ``LOCK_WAIT_MS`` (a slow ``latestOffset``), it is the one after that. Costs 5 to 25 ms.
    """
    try:
        return _WRITER.submit(_write, query, dict(values)).result(ANSWER_S)
    except TimeoutError as late:
        raise SparkInternalsError(CAPABILITY, f"no answer from Spark within {ANSWER_S:g} s") from late


def set_control(query: StreamingQuery, key: str, value: Any) -> ControlDocument:
    """Set one control of *query*; see `set_controls`."""
    return set_controls(query, {key: value})


def get_controls(query: StreamingQuery) -> ControlDocument:
    """Return the control document of *query* as Spark holds it; an empty one when none was set."""
    with reaching(CAPABILITY):
        return _read(execution(query).sparkSessionForStream().conf())


def get_control(query: StreamingQuery, key: str) -> Any:
    """Return the newest value of one control of *query*, or None."""
    return get_controls(query).current.get(key)


def controls_at(session: SparkSession, batch_id: int) -> Values:
    """Return the values of micro-batch *batch_id* inside ``foreachBatch``, from the batch's own session."""
    with reaching(CAPABILITY):
        text = session.conf.get(CONTROLS_KEY, None)
        return ControlDocument.decode(text).at(batch_id) if text else ControlDocument().current


@contextmanager
def seeded(spark: SparkSession, document: ControlDocument) -> Iterator[None]:
    """Let every query started inside begin with *document*, already in its first micro-batch."""
    before = spark.conf.get(CONTROLS_KEY, None)
    spark.conf.set(CONTROLS_KEY, document.encode())
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(CONTROLS_KEY)
        else:
            spark.conf.set(CONTROLS_KEY, before)


def newest_batch(query: StreamingQuery) -> int:
    """Return the id of the newest micro-batch that Spark has planned, -1 before the first.

    The offset log is the truth; with asynchronous progress tracking it lags, the context does not.
    """
    running = execution(query)
    logged = running.offsetLog().getLatestBatchId()
    newest = int(logged.get()) if logged.isDefined() else -1
    state = running.getLatestExecutionContext()
    return max(newest, int(state.batchId()) if state.isCurrentBatchConstructed() else -1)


def _write(query: StreamingQuery, values: Values) -> ControlDocument:
    with reaching(CAPABILITY):
        if not query.isActive:
            raise SparkInternalsError(CAPABILITY, f"query {query.name or query.id} is not running")
        conf = execution(query).sparkSessionForStream().conf()
        log = _logs.get(query.runId) or _known_log(query)
        for ahead in range(1, TRIES + 1):
            document = _read(conf).changed(values, from_batch=newest_batch(query) + ahead)
            changed = log.changed(document)
            # Outside the lock: a slow checkpoint store must not hold up the user's query.
            write_log(query, changed)
            with _planning_paused(query) as paused:
                if newest_batch(query) + (1 if paused else 2) <= document.effective_batch:
                    conf.set(CONTROLS_KEY, document.encode())
                    _logs[query.runId] = changed
                    return document
        write_log(query, log)
        raise SparkInternalsError(CAPABILITY, "batches are planned faster than the checkpoint store writes")


def _known_log(query: StreamingQuery) -> ControlLog:
    """The log of a query that this process has not changed yet: from its checkpoint, else from its session."""
    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    log = read_log(session, checkpoint_of(query)) if session is not None else None
    held = get_controls(query)
    return log or ControlLog(
        version=held.version,
        generations=((0, dict(held.previous)), (held.effective_batch, dict(held.current))),
    )


def _read(conf: Any) -> ControlDocument:
    text = conf.get(CONTROLS_KEY, "")
    return ControlDocument.decode(text) if text else ControlDocument()


@contextmanager
def _planning_paused(query: StreamingQuery) -> Iterator[bool]:
    """Hold the lock under which Spark plans a batch, as ``processAllAvailable`` does; False if it is busy."""
    gateway = SparkContext._gateway
    if not isinstance(gateway, ClientServer):  # without pinned threads, unlock could reach another JVM thread
        yield False
        return
    lock = execution(query).awaitProgressLock()
    held = lock.tryLock(LOCK_WAIT_MS, gateway.jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
    try:
        yield held
    finally:
        if held:
            lock.unlock()
