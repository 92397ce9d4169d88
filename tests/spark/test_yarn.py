"""On a real YARN, through the front door: an unchanged program gives an executor back, gets one again, counts all."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import penstock_submit
from tests.conftest import REPOSITORY
from tests.spark.streams import wait_for
from tests.spark.yarn import JARS, yarn

pytestmark = [pytest.mark.yarn, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SETTINGS = {
    "spark.submit.deployMode": "client",
    "spark.yarn.jars": f"local:{JARS}/*",  # nodes see the same disk
    "spark.driver.memory": "512m",
    "spark.yarn.am.memory": "256m",
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "6",
    "spark.penstock.interval": "2s",
    "spark.penstock.maxExecutors": "2",
    "spark.penstock.latency": "60s",
    "spark.penstock.ui": "0",
}
WAIT_S = 240.0


class Run:
    """A program under `penstock submit` on YARN, and its page."""

    def __init__(self, folder: Path, conf: Path) -> None:
        settings = {**SETTINGS, "spark.yarn.stagingDir": f"file:{folder / 'staging'}"}
        words = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
        command = [sys.executable, penstock_submit.__file__, "--master", "yarn", *words]
        command += [str(REPOSITORY / "tests/spark/computing_app.py"), str(folder), "200", "1500"]
        env = {**os.environ, "HADOOP_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1"}
        env["PYSPARK_PYTHON"] = sys.executable
        self.err = folder / "err"
        with self.err.open("wb") as err:
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=err, stderr=err)
        found = self.until(
            lambda: re.search(r"page (http://\S+/)\?token=(\S+)", self.err.read_text()), "a page"
        )
        self.url, self.token = found[1], found[2]

    def until(self, look: Any, what: str) -> Any:
        def alive() -> Any:
            assert self.process.poll() is None, self.err.read_text()[-4000:]
            return look()

        return wait_for(alive, timeout_s=WAIT_S, what=what)

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}api/state", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def change(self, **wanted: object) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.url}api/change", json.dumps(wanted).encode(), headers, method="POST"
        )
        urllib.request.urlopen(request, timeout=30).close()

    def executors(self, count: int) -> float:
        """Wait until so many are ready; how long that took."""
        begin_s = time.monotonic()

        def ready() -> bool:
            detail = self.state()["detail"]
            return bool(detail) and [e["state"] for e in detail["executors"]] == ["ready"] * count

        self.until(ready, f"{count} executors")
        return time.monotonic() - begin_s


def test_a_goal_that_is_loose_and_then_tight_gives_an_executor_back_and_gets_one(tmp_path: Path) -> None:
    with yarn() as conf:
        run = Run(tmp_path, conf)
        try:
            run.executors(2)
            down_s = run.executors(1)
            goal = run.until(
                lambda: next((g for g in run.state()["goals"] if g["latency_s"] is not None), None),
                "a latency",
            )
            time.sleep(20)  # what one executor alone does to the latency
            (goal,) = run.state()["goals"]
            run.change(goal=goal["name"], latency_ms=0.75e3 * goal["latency_s"])
            up_s = run.executors(2)
            told = [entry["title"] for entry in run.state()["timeline"]]
            (tmp_path / "stop").touch()
            code = run.process.wait(120)
        finally:
            run.process.kill()
            run.process.wait()
        counted = json.loads((tmp_path / "counted.json").read_text())
        print(
            f"2 to 1 in {down_s:.0f} s; bound 0.75 x {goal['latency_s']:.2f} s; 1 to 2 in {up_s:.0f} s; {counted}"
        )
        print("\n".join(told))
    assert code == 0, run.err.read_text()[-4000:]
    assert counted["counted"] == counted["read"] > 1000
