"""Looks at an executor and its host, taken by the Python workers that run there anyway."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from psutil import Process

from penstock.spark.observe.machine_load import HostSample, executor_process, take_sample

SAMPLE_EVERY_S = 2.0
"""Time between two looks at an executor's host, each 10 ms of CPU on a machine with a few hundred processes."""


class Sampler:
    """Looks at the host for all workers of an executor, beside the tasks: a look goes through all processes there are.

    Workers know of each other by the time of a file in the executor's own folder, which Spark removes at its end.
    """

    def __init__(self) -> None:
        self._next_s = 0.0
        self._sample: HostSample | None = None

    def start_if_due(self) -> None:
        """Begin a look unless one was taken a moment ago."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + SAMPLE_EVERY_S
        with suppress(OSError):
            if self._is_my_turn():
                threading.Thread(target=self._look, name="penstock-host-sample", daemon=True).start()

    def taken(self) -> HostSample | None:
        """The sample, if one was finished since the last call."""
        sample, self._sample = self._sample, None
        return sample

    def _is_my_turn(self) -> bool:
        folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        if not folder:
            return True
        mark = Path(folder) / "penstock-host-sample"
        if mark.exists() and time.time() - mark.stat().st_mtime < SAMPLE_EVERY_S:
            return False
        mark.touch()
        return True

    def _look(self) -> None:
        with suppress(Exception):
            self._sample = take_sample(executor_id(), _executor())


SAMPLER = Sampler()


@cache
def _executor() -> Process:
    return executor_process()


@cache
def executor_id() -> str:
    """The id of this worker's executor, which Spark gives its JVM as an argument; `driver` in local mode."""
    with suppress(Exception):
        arguments = _executor().cmdline()
        if "--executor-id" in arguments:
            return str(arguments[arguments.index("--executor-id") + 1])
    return "driver"
