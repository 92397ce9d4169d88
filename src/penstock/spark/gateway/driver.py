"""A driver in another process, reached through the gateway that its listener opened."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, java_import
from py4j.protocol import Py4JAuthenticationError, Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors.exceptions.captured import install_exception_handler

from penstock.errors import UserError

IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.sql.api.python.*",
    "scala.Tuple2",
)
"""Names that PySpark expects in its view of the JVM."""
STARTING_S = 30.0
"""How long a driver whose context is being made is waited for."""


class GatewayError(UserError):
    """A driver that cannot be reached, and why."""


def driver_context(path: Path) -> SparkContext:
    """PySpark's context for the driver whose gateway file is *path*; it becomes that of this process.

    A `GatewayError` says why it cannot be. Nothing in the driver changes.
    """
    port, secret, app = _read(path)
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(
            address="127.0.0.1", port=port, auth_token=secret, auto_convert=True
        )
    )
    try:
        context = _found(gateway)
        version = str(context.version())
    except Py4JAuthenticationError:
        raise GatewayError(
            f"the driver refused the secret in '{path}': the file is not the one that it wrote"
        ) from None
    except (Py4JError, OSError):
        raise GatewayError(
            f"nobody answers on port {port} that '{path}' names: application {app} has ended"
        ) from None
    if int(version.partition(".")[0]) < 4:
        raise GatewayError(f"the driver is Spark {version}; Penstock needs Spark 4, which is Scala 2.13")
    return _adopted(gateway, context)


def is_running(context: SparkContext) -> bool:
    """Tell whether the application is still there."""
    try:
        return not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _read(path: Path) -> tuple[int, str, str]:
    """(port, secret, application). Whoever can read the file can run code in the driver, so only its owner may."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe would be waited for
    except OSError as problem:
        raise GatewayError(f"cannot read '{path}': {problem.strerror}") from problem
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        os.close(file)
        raise GatewayError(f"'{path}' is no gateway file of a driver")
    with open(file, encoding="utf-8", errors="replace") as opened:
        if found.st_uid != os.getuid():
            raise GatewayError(f"'{path}' is not yours: the gateway is for the user who runs the driver")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise GatewayError(
                f"others can read '{path}' (mode {stat.S_IMODE(found.st_mode):o}), and with it run code in the driver; "
                "restart the driver, which writes a new one"
            )
        words = opened.read(4096).split()
    if len(words) != 3 or not words[0].isdigit() or not 0 < int(words[0]) < 65536:
        raise GatewayError(f"'{path}' is no gateway file of a driver")
    return int(words[0]), words[1], words[2]


def _found(gateway: JavaGateway) -> Any:
    """The driver's context, waited for while its constructor runs."""
    end_s = time.monotonic() + STARTING_S
    while (context := gateway.entry_point.context()) is None:
        if time.monotonic() > end_s:
            raise GatewayError("the driver has no Spark context")
        time.sleep(0.2)
    return context


def _adopted(gateway: JavaGateway, context: Any) -> SparkContext:
    """Made without its constructor, which would start another context, and servers of its own."""
    for name in IMPORTS:
        java_import(gateway.jvm, name)
    sc = SparkContext.__new__(SparkContext)
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
    sc._jsc = gateway.jvm.JavaSparkContext(context)
    sc._conf = SparkConf(_jconf=context.conf())
    sc.master, sc.appName = context.master(), context.appName()
    SparkContext._active_spark_context = sc
    install_exception_handler()
    return sc
