"""A hog beside one of three executors of an attached native count with stock settings: its partitions leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "benchmarks" / "interference_attached.py"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1300),
    pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root"),
]


def found(*words: str) -> dict[str, Any]:
    # A process of its own: a session that shares a JVM with another one inherits its settings.
    command = [sys.executable, str(SCRIPT), "--way", "penstock", "--query", "count", "--rows", "900", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1200, check=False)
    assert done.stdout, "it ended without a result"
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def test_partitions_leave_a_hogged_executor_and_come_back() -> None:
    seen = found()
    assert seen["told"]["tasks"] >= 33, "three of the source, thirty with state"
    assert seen["told"]["listener_ms"] == seen["told"]["spark_ms"] > 0
    quiet, hogged, after = (seen["placed"][phase] for phase in ("quiet", "hogged", "after"))
    victim = max(quiet, key=int)
    assert hogged[victim] < quiet[victim], seen["moves"]
    assert after[victim] > hogged[victim], seen["moves"]
    assert seen["exact"], "each record counted once whatever moved"


def test_nothing_moves_in_an_undisturbed_minute() -> None:
    seen = found("--control", "1")
    assert seen["moves"] == []
    assert seen["exact"]
