"""A process in a control group computes no faster than it may."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from penstock.spark.cluster.cpu_limit import CpuLimit, CpuLimitError


def test_a_busy_process_gets_its_share_and_no_more() -> None:
    try:
        limit = CpuLimit(f"penstock-test-{os.getpid()}", 0.3)
    except CpuLimitError as error:
        pytest.skip(str(error))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        limit.add(busy.pid)
        process = psutil.Process(busy.pid)
        before, since_s = process.cpu_times().user, time.monotonic()
        time.sleep(1.5)
        share = (process.cpu_times().user - before) / (time.monotonic() - since_s)
        assert 0.05 < share < 0.4
    finally:
        busy.kill()
        busy.wait(10)
        limit.close()
