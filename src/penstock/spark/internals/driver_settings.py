"""Settings on the driver of a running application: they live exactly as long as what they describe."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.spark.internals.errors import reaching
from penstock.spark.internals.gateway import compiled, context

CAPABILITY = "driver settings"

_SETTINGS = """
import org.apache.spark.SparkConf;

public String get(SparkConf conf, String key) {
    return conf.contains(key) ? conf.get(key) : null;
}

public boolean swap(SparkConf conf, String key, String before, String after) {
    synchronized (conf) {
        String now = get(conf, key);
        if (before == null ? now != null : !before.equals(now)) return false;
        if (after == null) conf.remove(key); else conf.set(key, after);
        return true;
    }
}

public long uptime() {
    return System.nanoTime() / 1000000L;
}
"""


class DriverSettings:
    """The live SparkConf of *spark*'s driver, shared by all its sessions and by every pilot that reaches it."""

    def __init__(self, spark: SparkSession) -> None:
        with reaching(CAPABILITY):
            self._conf = context(spark).conf()
            self._jvm = compiled(_SETTINGS)

    def get(self, key: str) -> str | None:
        """Return the value, None if it is not set."""
        with reaching(CAPABILITY):
            value = self._jvm.get(self._conf, key)
            return None if value is None else str(value)

    def put(self, key: str, value: str | None) -> None:
        """Set the value; None removes it."""
        with reaching(CAPABILITY):
            if value is None:
                self._conf.remove(key)
            else:
                self._conf.set(key, value)

    def swap(self, key: str, before: str | None, after: str | None) -> bool:
        """Set *after* only if the value is *before*; one of several pilots that swap at once succeeds."""
        with reaching(CAPABILITY):
            return bool(self._jvm.swap(self._conf, key, before, after))

    def uptime_s(self) -> float:
        """Return a time that never steps and is the same for every pilot of this driver."""
        with reaching(CAPABILITY):
            return int(self._jvm.uptime()) / 1e3
