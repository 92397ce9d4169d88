"""A real CPU hog beside one of two pinned executors: state partitions leave its host, and results stay exact."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "benchmarks" / "interference_live.py"


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.live
def test_partitions_leave_a_hogged_host() -> None:
    # A process of its own: it has a cluster whose workers are pinned, and a process holds one Spark at a time.
    command = [sys.executable, str(SCRIPT), "--json", "--only-steered"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=400)
    found = json.loads(done.stdout[done.stdout.index("{") :])["steered"]
    calm, hogged = "127.0.0.2", "127.0.0.3"
    before, after = found["placed_before"], found["placed_after"]
    assert sum(after.values()) == sum(before.values()) == 10
    assert after.get(hogged, 0) < before[hogged], found
    assert after[calm] > before[calm], found
    assert any(status == "applied" for _, _, status in found["moves"])
    assert found["exact"], "nothing lost, nothing twice"
