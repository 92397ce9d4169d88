"""Changing the number of state partitions of a stopped query."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import context, jvm

CAPABILITY = "state repartition"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


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


def state_provider(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the class of the state store that the newest batch of a checkpoint was planned with, None if unknown."""
    view = jvm(spark)
    folder = view.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets")
    files = folder.getFileSystem(context(spark).hadoopConfiguration())
    if not files.exists(folder):
        return None
    batches = [one.getPath() for one in files.listStatus(folder) if one.getPath().getName().isdigit()]
    if not batches:
        return None
    stream = files.open(max(batches, key=lambda path: int(path.getName())))
    try:
        text = str(view.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
    # The first line is the version of the file, the second describes the batch.
    provider = json.loads(text.split("\n")[1]).get("conf", {}).get(PROVIDER)
    return None if provider is None else str(provider)
