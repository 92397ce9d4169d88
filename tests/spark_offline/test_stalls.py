"""Time in which others had the CPU."""

import os
import subprocess
import sys
import threading
import time

import pytest

from penstock.spark.observe import stalled_time as stalls

BUSY = "import os; os.sched_setaffinity(0, {%d}); print('ready', flush=True)\nwhile True: pass"


def test_a_thread_that_sleeps_is_not_stalled_and_one_that_shares_a_cpu_is(monkeypatch):
    if not os.path.exists(stalls.SCHEDSTAT):
        pytest.skip("this system does not tell")
    cpu, found = min(os.sched_getaffinity(0)), {}

    def work() -> None:
        monkeypatch.setattr(stalls, "_opened", None)  # as in a new worker: this thread's figures
        os.sched_setaffinity(0, {cpu})
        before = stalls.stalled_s()
        time.sleep(0.2)
        found["asleep"] = stalls.stalled_s() - before
        end_s = time.thread_time() + 0.2
        while time.thread_time() < end_s:
            pass
        found["at work"] = stalls.stalled_s() - before - found["asleep"]

    with subprocess.Popen([sys.executable, "-c", BUSY % cpu], stdout=subprocess.PIPE) as neighbour:
        try:
            assert neighbour.stdout is not None
            assert neighbour.stdout.readline().strip() == b"ready"
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        finally:
            neighbour.kill()
    assert found["at work"] > 0.05  # two share the CPU evenly: 0.2 s, more or less
    assert found["asleep"] < 0.1


def test_where_the_system_does_not_tell_there_is_none(monkeypatch):
    monkeypatch.setattr(stalls, "SCHEDSTAT", "/nowhere")
    monkeypatch.setattr(stalls, "_opened", None)
    assert stalls.stalled_s() == 0
