"""Changing the number of state partitions of a stopped query."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import context, jvm

CAPABILITY = "state repartition"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"


def repartition_reason(spark: SparkSession) -> str | None:
    """Return why state cannot be repartitioned on this Spark, None if it can."""
    if hasattr(spark, "_streamingCheckpointManager"):
        return None
    return f"Spark {spark.version} cannot change the number of state partitions of a checkpoint"


def repartition_state(spark: SparkSession, checkpoint: str | Path, partitions: int) -> None:
    """Rewrite the state in *checkpoint* to *partitions*; the query then starts with as many.

    Needs RocksDB state and a last batch that was committed (`pacing.stop_cleanly`). It adds one batch id.
    Spark's own shuffle setting no longer counts: the number comes from the checkpoint. With another state store
    Spark refuses only after it has written a batch that the query then cannot start from, so it is refused here.
    """
    if partitions < 1:
        raise ValueError(f"at least one state partition, not {partitions}")
    reason = repartition_reason(spark)
    if reason:
        raise SparkInternalsError(CAPABILITY, reason)
    with reaching(CAPABILITY):
        provider = state_provider(spark, str(checkpoint))
        if provider is not None and "RocksDB" not in provider:
            raise SparkInternalsError(CAPABILITY, f"needs RocksDB state, the checkpoint has {provider}")
        spark._streamingCheckpointManager.repartition(str(checkpoint), partitions)


def stop_state_stores(spark: SparkSession) -> None:
    """Close all state stores of a local session, and the upkeep that writes their files; they open again if needed."""
    with reaching(CAPABILITY):
        jvm(spark).org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def finish_repartition(spark: SparkSession, checkpoint: str | Path) -> int | None:
    """Bring a repartitioning to its end that was cut short by a kill or a fault; to how many, None if none was.

    Spark starts no query on such a checkpoint, and the only way out that it offers is the same number once more.
    """
    if repartition_reason(spark):
        return None
    with reaching(CAPABILITY):
        planned, committed = (_batches(spark, f"{checkpoint}/{log}") for log in ("offsets", "commits"))
        if not committed or max(planned) == max(committed):
            return None
        before, now = (_settings(spark, planned[max(log)]).get(PARTITIONS) for log in (committed, planned))
        if now is None or now == before:  # a batch that was cut short: the query runs it again
            return None
        spark._streamingCheckpointManager.repartition(str(checkpoint), int(now))
        return int(now)


def state_provider(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the class of the state store that the newest batch of a checkpoint was planned with, None if unknown."""
    batches = _batches(spark, f"{checkpoint}/offsets")
    provider = _settings(spark, batches[max(batches)]).get(PROVIDER) if batches else None
    return None if provider is None else str(provider)


def _batches(spark: SparkSession, folder: str) -> dict[int, Any]:
    """Return the files of a checkpoint's log by batch."""
    path = jvm(spark).org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(context(spark).hadoopConfiguration())
    if not files.exists(path):
        return {}
    found = [one.getPath() for one in files.listStatus(path)]
    return {int(one.getName()): one for one in found if one.getName().isdigit()}


def _settings(spark: SparkSession, path: Any) -> dict[str, Any]:
    """Return the settings with which a batch was planned, from its file in the offset log."""
    stream = path.getFileSystem(context(spark).hadoopConfiguration()).open(path)
    try:
        text = str(jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
    # The first line is the version of the file, the second describes the batch.
    found: dict[str, Any] = json.loads(text.split("\n")[1]).get("conf", {})
    return found
