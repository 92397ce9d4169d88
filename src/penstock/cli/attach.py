"""`penstock attach`: steer a driver of any language from a process beside it."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import penstock_submit
from penstock.cli.submit import steering_of

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_S = 0.5


def attach(arguments: Sequence[str]) -> None:
    """Control the application until it ends or a signal comes; with `--jar`, write the listener's jar."""
    options = parser().parse_args(arguments)
    if (options.file is None) == (options.jar is None):
        parser().error("give the gateway file of a driver, or --jar FILE")
    if options.jar is not None:
        _write_jar(Path(options.jar))
        return
    steering = steering_of(penstock_submit.given(options), say=penstock_submit.say)
    logging.getLogger().addHandler(logging.NullHandler())  # Py4J writes stack traces when a driver ends
    from penstock.spark.gateway.driver import driver_context

    context = driver_context(Path(options.file))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_until_ended, args=(context, stop), name="penstock-driver", daemon=True).start()
    steering(stop)


def parser() -> argparse.ArgumentParser:
    """The options: those of `penstock submit` that say what is wanted."""
    made = penstock_submit.Parser(
        prog="penstock attach",
        usage="penstock attach [OPTIONS] FILE",
        description="Control the queries of a driver in any language, a Spark Connect or SQL server, from a process "
        "of the same user beside it.",
        epilog="""examples:
  penstock attach --jar gateway.jar       once; then start the driver with
    --driver-class-path gateway.jar --conf spark.extraListeners=penstock.GatewayListener
    --conf spark.penstock.gateway=/run/user/1000/orders
  penstock attach --latency 2s /run/user/1000/orders

Whoever can read that file can run code in the driver.""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    penstock_submit.add_goals(made)
    made.add_argument("--jar", metavar="FILE", help="Write the jar that opens the gateway in a driver.")
    made.add_argument("file", nargs="?", metavar="FILE", help="The file that the driver's gateway wrote.")
    return made


def _write_jar(path: Path) -> None:
    from penstock.spark.gateway.jar import LISTENER, write_jar

    write_jar(path)
    print(f"--driver-class-path {path.absolute()} --conf spark.extraListeners={LISTENER}")
    print("the options of spark-submit for a driver with a gateway", file=sys.stderr)


def _until_ended(context: SparkContext, stop: threading.Event) -> None:
    from penstock.spark.gateway.driver import is_running

    while not stop.wait(LOOK_S):
        if not is_running(context):
            penstock_submit.say("the application has ended")
            stop.set()
