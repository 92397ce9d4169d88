"""The controls of a query in its checkpoint: written before they take effect, so a batch that runs again has its own.

After a crash Spark runs the last planned batch again. It must see the controls that it had the first time, not those
that were meant for a later batch. The file `penstock/controls.json` of the checkpoint holds the last generations of
control values, each with the batch from which it counts.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import context, execution, jvm
from penstock.spark.internals.task_controls import ControlDocument, Values

CAPABILITY = "controls"
FILE = "penstock/controls.json"
KEPT = 8
"""Generations that are kept. A batch that runs again is the last planned one, so two would nearly always do."""


class ControlLog(BaseModel):
    """Generations of control values, oldest first: `(batch, values)` counts from that batch on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = 0
    generations: tuple[tuple[int, dict[str, Any]], ...] = ()

    def at(self, batch_id: int) -> dict[str, Any]:
        """The values that hold in a batch."""
        held = [values for batch, values in self.generations if batch <= batch_id]
        return held[-1] if held else {}

    def changed(self, document: ControlDocument) -> ControlLog:
        """With what a new document says from its batch on."""
        earlier = [g for g in self.generations if g[0] < document.effective_batch]
        current = (document.effective_batch, dict(document.current))
        return ControlLog(version=document.version, generations=(*earlier[-KEPT + 1 :], current))

    def resumed(self, last_batch: int) -> ControlDocument:
        """The document for a query that starts again after `last_batch` was planned; that one keeps its values."""
        newest = self.generations[-1][1] if self.generations else {}
        return ControlDocument(
            version=self.version,
            effective_batch=last_batch + 1,
            current=newest,
            previous=self.at(last_batch),
        )


def checkpoint_of(query: StreamingQuery) -> str:
    """Where a running query keeps its checkpoint."""
    with reaching(CAPABILITY):
        return str(execution(query).resolvedCheckpointRoot())


def write_log(query: StreamingQuery, log: ControlLog) -> None:
    """Put the log into the query's checkpoint, by the file manager that Spark uses there: all of it or nothing."""
    with reaching(CAPABILITY):
        running = execution(query)
        gateway = SparkContext._gateway
        if gateway is None:
            raise SparkInternalsError(CAPABILITY, "Spark has been stopped")
        path = gateway.jvm.org.apache.hadoop.fs.Path(running.resolvedCheckpointRoot(), FILE)
        manager = running.offsetLog().fileManager()
        if not manager.exists(path.getParent()):
            manager.mkdirs(path.getParent())
        out = manager.createAtomic(path, True)
        try:
            out.write(bytearray(log.model_dump_json().encode()))
            out.close()
        except Exception:
            out.cancel()
            raise


def read_log(spark: SparkSession, checkpoint: str) -> ControlLog | None:
    """The log of a checkpoint; None where there is none. `SparkInternalsError` for one that cannot be read."""
    with reaching(CAPABILITY):
        view = jvm(spark)
        path = view.org.apache.hadoop.fs.Path(checkpoint, FILE)
        files = path.getFileSystem(context(spark).hadoopConfiguration())
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            text = view.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
    try:
        return ControlLog.model_validate_json(text)
    except (ValidationError, json.JSONDecodeError) as problem:
        cause = f"{checkpoint}/{FILE} is no log of controls: {problem}"
        raise SparkInternalsError(CAPABILITY, cause) from problem


def last_planned_batch(spark: SparkSession, checkpoint: str) -> int:
    """The newest batch in the offset log of a checkpoint, -1 where there is none."""
    with reaching(CAPABILITY):
        view = jvm(spark)
        folder = view.org.apache.hadoop.fs.Path(checkpoint, "offsets")
        files = folder.getFileSystem(context(spark).hadoopConfiguration())
        if not files.exists(folder):
            return -1
        names = [status.getPath().getName() for status in files.listStatus(folder)]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def resumed_controls(spark: SparkSession, checkpoint: str, values: Values) -> ControlDocument:
    """What a query on this checkpoint starts with: `values` if it is new, else what its batches had and its newest."""
    log = read_log(spark, checkpoint)
    if log is None:
        return ControlDocument(version=1, current=values)
    document = log.resumed(last_planned_batch(spark, checkpoint))
    return document.changed(values, from_batch=document.effective_batch) if values else document
