"""Changing the number of state partitions of a stopped query."""

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.spark.internals.errors import SparkInternalsError, reaching

CAPABILITY = "state repartition"


def repartition_reason(spark: SparkSession) -> str | None:
    """Return why state cannot be repartitioned on this Spark, None if it can."""
    if hasattr(spark, "_streamingCheckpointManager"):
        return None
    return f"Spark {spark.version} cannot change the number of state partitions of a checkpoint"


def repartition_state(spark: SparkSession, checkpoint: str | Path, partitions: int) -> None:
    """Rewrite the state in *checkpoint* to *partitions*; the query then starts with as many.

    Needs RocksDB state and a last batch that was committed (`pacing.stop_cleanly`). It adds one batch id.
    Spark's own shuffle setting no longer counts: the number comes from the checkpoint.
    """
    if partitions < 1:
        raise ValueError(f"at least one state partition, not {partitions}")
    reason = repartition_reason(spark)
    if reason:
        raise SparkInternalsError(CAPABILITY, reason)
    with reaching(CAPABILITY):
        spark._streamingCheckpointManager.repartition(str(checkpoint), partitions)
