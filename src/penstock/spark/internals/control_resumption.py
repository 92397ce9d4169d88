"""A query that starts again: the batch that runs once more has the controls it had, whoever starts the query.

After a kill of the driver, or a stop in the middle of a batch, Spark runs the last planned batch again as soon as the
program starts its query. Nobody steers yet at that moment. So Spark is listened to: it says that a query starts before
that query has planned anything, and waits for the answer. What comes after that batch is untouched until somebody
steers again.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar
from weakref import WeakSet

from py4j.java_gateway import JavaObject
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from penstock.spark.internals.active_queries import ActiveQueries
from penstock.spark.internals.control_log import checkpoint_of, last_planned_batch, read_log, write_log
from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import execution, jvm
from penstock.spark.internals.task_controls import CONTROLS_KEY, ControlDocument

LOG = logging.getLogger(__name__)

CAPABILITY = "controls"

_listening: WeakSet[SparkSession] = WeakSet()


def resume_controls(spark: SparkSession) -> None:
    """From now on, queries that *spark* starts have the controls of their checkpoint in the batch that runs again."""
    if spark in _listening:
        return
    _listening.add(spark)
    try:
        with reaching(CAPABILITY):
            ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
            wrapper = jvm(spark).org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
            spark.streams._jsqm.addListener(wrapper(_Starts(spark)))
    except SparkInternalsError as problem:  # the program goes on without, and says so once
        LOG.warning("a batch that runs again after a restart will keep everything: %s", problem)


class _Starts:
    """Spark's listener of queries, as Py4J wants it. Only starts matter; the rest comes and is left alone."""

    def __init__(self, spark: SparkSession) -> None:
        self._queries = ActiveQueries(spark)

    def onQueryStarted(self, event: JavaObject) -> None:  # noqa: N802  # Spark's name
        run = str(event.runId())
        try:
            self._take_up(run)
        except Exception as problem:  # a fault of ours never stops a query
            LOG.warning("the controls of run %s could not be taken up again: %s", run, problem)

    def onQueryProgress(self, event: JavaObject) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryIdle(self, event: JavaObject) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: JavaObject) -> None:  # noqa: N802
        """Nothing to do."""

    def _take_up(self, run: str) -> None:
        found = next((query for query in self._queries.list() if query.run_id == run), None)
        opened = self._queries.open(found) if found is not None else None
        if opened is None:
            return
        session, query = opened
        conf = execution(query).sparkSessionForStream().conf()
        if conf.get(CONTROLS_KEY, ""):  # started by Penstock, which knows how it goes on
            return
        checkpoint = checkpoint_of(query)
        log = read_log(session, checkpoint)
        if log is None:
            return
        last = last_planned_batch(session, checkpoint)
        document = ControlDocument(version=log.version + 1, effective_batch=last + 1, previous=log.at(last))
        if log.at(last + 1):
            write_log(query, log.changed(document))
        conf.set(CONTROLS_KEY, document.encode())

    class Java:
        implements: ClassVar[list[Any]] = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
