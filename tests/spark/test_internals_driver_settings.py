"""Settings of a running driver: read, set, removed, and taken by one of several."""

import time

from pyspark.sql import SparkSession

from penstock.spark.act.lease import Lease
from penstock.spark.act.touched import Touched
from penstock.spark.internals.driver_settings import DriverSettings

KEY = "spark.penstock.test"


def test_settings_are_read_set_and_removed(local_spark: SparkSession) -> None:
    settings = DriverSettings(local_spark)
    assert settings.get(KEY) is None
    settings.put(KEY, "1")
    assert DriverSettings(local_spark.newSession()).get(KEY) == "1", "every session sees it"
    settings.put(KEY, None)
    assert settings.get(KEY) is None


def test_a_swap_needs_the_value_before(local_spark: SparkSession) -> None:
    settings = DriverSettings(local_spark)
    assert settings.swap(KEY, None, "a")
    assert not settings.swap(KEY, None, "b")
    assert not settings.swap(KEY, "b", "c")
    assert settings.swap(KEY, "a", None)
    assert settings.get(KEY) is None


def test_uptime_passes(local_spark: SparkSession) -> None:
    settings = DriverSettings(local_spark)
    before_s = settings.uptime_s()
    time.sleep(0.05)
    assert settings.uptime_s() > before_s


def test_lease_and_notes_live_on_the_driver(local_spark: SparkSession) -> None:
    first = Lease(DriverSettings(local_spark), interval_s=5)
    second = Lease(DriverSettings(local_spark), interval_s=5)
    assert first.hold() is None
    holder = second.hold()
    assert holder is not None
    assert holder.owner == first.owner
    first.release()
    touched = Touched(DriverSettings(local_spark))
    touched.note("executors", 3)
    assert Touched(DriverSettings(local_spark)).pending() == {"executors": 3}
    touched.forget("executors")
