"""Executors come and go on a cluster whose session sets nothing but the master and memory; every record counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(1500)]

UNTOUCHED = {
    "spark.locality.wait": None,
    "spark.locality.wait.process": None,
    "spark.penstock.touched": None,
}


def driven(folder: Path, scenario: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.spark.stock_driver", scenario, str(folder), *arguments]
    with open(folder / "driver.log", "wb") as log:
        ended = subprocess.run(command, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT, check=False)
    assert ended.returncode == 0, (folder / "driver.log").read_text()[-4000:]
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def assert_as_before(closed: dict[str, Any]) -> None:
    assert closed["ended"], "the pool's thread ended in time"
    assert closed["failed"] == {}
    assert closed["target"] == 3
    assert closed["settings"] == UNTOUCHED


def test_three_two_three_one_with_default_settings(tmp_path: Path) -> None:
    report = driven(tmp_path, "resize", "6")
    for desired, seen in zip((2, 3, 1), report["seen"], strict=True):
        assert seen["executors"] == seen["taking_tasks"] == seen["target"] == desired
        assert seen["elsewhere"] == 0
        assert seen["failed_tasks"] == 0
    assert [len(seen["held"]) for seen in report["seen"]] == [2, 3, 1], "state followed"
    assert_as_before(report["closed"])
    assert report["end"]["exact"], report["end"]


def test_a_stop_at_every_step_leaves_a_sound_application(tmp_path: Path) -> None:
    report = driven(tmp_path, "stops", "6")
    assert len(report["closed"]) == 5
    for step, closed in report["closed"].items():
        assert_as_before(closed)
        left = closed["left"]
        assert left["target"] == left["taking_tasks"], step
        assert left["failed_tasks"] == 0, step
    assert report["end"]["exact"], report["end"]


def test_a_half_decommissioned_executor_is_no_capacity_and_is_replaced(tmp_path: Path) -> None:
    report = driven(tmp_path, "zombie", "3")
    assert report["usable"] == 2
    assert report["after"]["executors"] == report["after"]["taking_tasks"] == 3
    assert_as_before(report["closed"])
    assert report["end"]["exact"], report["end"]


@pytest.mark.slow
def test_capacity_that_never_comes_comes_late_and_in_part(tmp_path: Path) -> None:
    report = driven(tmp_path, "scarce", "6")
    assert [told["came"] for told in report["refusals"]] == [3, 4, 3]
    for told in report["refusals"]:
        assert told["asked"] == 5
        assert told["target"] == told["executors"] == told["taking_tasks"] == told["came"], "taken back"
    assert_as_before(report["closed"])
    assert report["end"]["exact"], report["end"]


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [200, 1000])
def test_many_state_partitions_move(tmp_path: Path, partitions: int) -> None:
    report = driven(tmp_path, "many", str(partitions))
    assert (report["moved"], report["missed"]) == (partitions, 0)
    (seen,) = report["seen"]
    assert seen["executors"] == seen["target"] == 2
    assert seen["elsewhere"] == 0
    assert_as_before(report["closed"])
    assert report["end"]["exact"], report["end"]
