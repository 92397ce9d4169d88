"""The probe says what this Spark can do, and why not, and never raises."""

import pyspark
from pyspark.sql import SparkSession

from penstock.spark.internals.capabilities import probe


def unavailable(spark: SparkSession) -> set[str]:
    return {one.name for one in probe(spark).missing()}


def missing_in_this_version() -> set[str]:
    return {"python read limits", "state repartition"} if pyspark.__version__.startswith("4.1") else set()


def test_local_mode_lacks_executors_only(local_spark: SparkSession) -> None:
    assert unavailable(local_spark) == {"executors"} | missing_in_this_version()
    assert "local[2]" in (probe(local_spark).executors.unavailable or "")


def test_a_cluster_has_everything(cluster_spark: SparkSession) -> None:
    assert unavailable(cluster_spark) == missing_in_this_version()


def test_what_is_no_session_has_nothing() -> None:
    found = probe(object())  # type: ignore[arg-type]  # as a Spark Connect session, it has no JVM
    assert len(found.missing()) == len(list(found))
    assert all(one.unavailable for one in found)
