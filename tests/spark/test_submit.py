"""Spark's own word count, unmodified, under `penstock submit`: the same counts and the same end, whatever is broken."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import penstock_submit
from penstock.spark.cluster.loopback import LoopbackCluster
from tests.spark.word_count import EXAMPLE, LINES, SPARK_SUBMIT, Ended, counts_of, fed, run

pytestmark = pytest.mark.spark

LOCAL = "--master local[2] --conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false"


class Watch:
    """What the page and the metrics of a run say while it runs."""

    def __init__(self) -> None:
        self.states: list[dict[str, Any]] = []
        self.metrics: list[dict[str, float]] = []
        self.page = ""
        self._last_s = 0.0

    def __call__(self, err: str) -> None:
        found = re.search(r"page (http://127\.0\.0\.1:\d+/)", err)
        if found is None or time.monotonic() - self._last_s < 1.0:
            return
        self._last_s = time.monotonic()
        page, state, metrics = (_get(found[1] + path) for path in ("", "api/state", "metrics"))
        self.page = page
        self.states.append(json.loads(state))
        samples = [s for family in text_string_to_metric_families(metrics) for s in family.samples]
        self.metrics.append({s.name: s.value for s in samples if s.labels.get("state") in (None, "ready")})


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.fixture
def words() -> Iterator[int]:
    with fed() as port:
        yield port


def submitted(words: int, *options: str) -> list[str]:
    return [sys.executable, penstock_submit.__file__, *options, str(EXAMPLE), "127.0.0.1", str(words)]


def alone(words: int) -> list[str]:
    return [sys.executable, str(EXAMPLE), "127.0.0.1", str(words)]


def broken(words: int, folder: Path) -> list[str]:
    """Under a Penstock that cannot be imported."""
    (folder / "penstock").mkdir()
    (folder / "penstock" / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import penstock_submit; penstock_submit.main()"
    return [sys.executable, "-c", code, str(EXAMPLE), "127.0.0.1", str(words)]


def same(one: Ended, other: Ended) -> bool:
    return one.counts == other.counts == counts_of(LINES) and one.code == other.code


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_sparks_word_count_is_the_same_under_control(words: int, tmp_path: Path, end: signal.Signals) -> None:
    plain = run(alone(words), tmp_path, conf=LOCAL, end=end)
    watch = Watch()
    options = ("--latency", "30s", "--interval", "1s", "--ui", "0")
    ended = run(submitted(words, *options), tmp_path, conf=LOCAL, end=end, until="page http", look=watch)
    assert same(ended, plain), ended.err
    assert ended.code == -end
    assert "mode act" in ended.err
    assert "<title>Penstock" in watch.page
    assert watch.states[-1]["live"]
    assert watch.metrics[-1]["penstock_cycles_total"] >= 1


def test_a_penstock_that_cannot_be_imported_only_warns(words: int, tmp_path: Path) -> None:
    ended = run(broken(words, tmp_path), tmp_path, conf=LOCAL)
    assert (ended.counts, ended.code) == (counts_of(LINES), -signal.SIGTERM)
    assert ended.err.count("broken on purpose") == 1


@pytest.mark.parametrize("conf", [LOCAL], ids=["local"])
def test_a_taken_port_and_an_unreadable_journal_only_warn(words: int, tmp_path: Path, conf: str) -> None:
    (tmp_path / "journal").write_text("this is no journal")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ("--ui", str(taken.getsockname()[1]), "--journal", "journal", "--interval", "1s")
        ended = run(submitted(words, *options), tmp_path, conf=conf, until="controls the queries")
    assert (ended.counts, ended.code) == (counts_of(LINES), -signal.SIGTERM)
    assert ended.err.count("going on without it") == 1
    assert ended.err.count("the journal is kept in memory only") == 1


def test_under_spark_submit_settings_are_the_options(words: int, tmp_path: Path) -> None:
    before = [str(SPARK_SUBMIT), *LOCAL.split()]
    plain = run([*before, *alone(words)[1:]], tmp_path, conf="")
    ours = ("latency=30s", "interval=1s", "mode=recommend", "ui=0", "latncy=1s")
    settings = [word for pair in ours for word in ("--conf", f"spark.penstock.{pair}")]
    watch = Watch()
    command = [*before, *settings, *submitted(words)[1:]]
    ended = run(command, tmp_path, conf="", until="page http", look=watch)
    assert same(ended, plain), ended.err
    assert "mode recommend" in ended.err
    assert "no setting 'spark.penstock.latncy'; did you mean 'latency'?" in ended.err
    assert watch.states[-1]["live"]
    assert watch.states[-1]["mode"] == "recommend"


@pytest.mark.parametrize("end", ["sys.exit(7)", "raise ValueError('a bug')"])
def test_under_spark_submit_the_exit_code_is_the_programs(tmp_path: Path, end: str) -> None:
    (tmp_path / "app.py").write_text(f"import sys\nprint(sys.argv[1:])\n{end}\n")
    commands = [
        [str(SPARK_SUBMIT), *script, str(tmp_path / "app.py"), "--rate", "2"]
        for script in ([], [penstock_submit.__file__])
    ]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    plain, ended = (
        subprocess.run(c, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
        for c in commands
    )
    assert (ended.returncode, ended.stdout) == (plain.returncode, plain.stdout)
    assert ended.stderr.count("a bug") == plain.stderr.count("a bug")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LoopbackCluster]:
    with LoopbackCluster(workers=3, cores=1, memory="1g") as found:
        yield found


@pytest.mark.cluster
@pytest.mark.slow
def test_on_a_cluster_counts_are_the_same_the_goal_is_held_and_the_page_lives(
    cluster: LoopbackCluster, tmp_path: Path
) -> None:
    """Spark's default settings, 200 state partitions; a minute of lines, and what they count."""
    conf = f"--master {cluster.master_url} --conf spark.executor.memory=512m"
    lines = LINES * 200
    with fed(lines, every_s=0.1) as words:
        plain = run(alone(words), tmp_path, conf=conf, lines=lines)
        watch = Watch()
        options = ("--latency", "30s", "--ui", "0")
        ended = run(submitted(words, *options), tmp_path, conf=conf, lines=lines, look=watch)
    assert plain.counts == ended.counts == counts_of(lines), ended.err
    assert plain.code == ended.code == -signal.SIGTERM
    told = [m for m in watch.metrics if "penstock_goal_held" in m]
    held = [m["penstock_goal_held"] for m in told]
    print("executors", [m["penstock_executors"] for m in told])
    print("latency", [round(m["penstock_goal_latency_seconds"], 1) for m in told])
    print("held", sum(held), "of", len(held), "looks")
    print("cycles", watch.metrics[-1]["penstock_cycles_total"])
    print("timeline", [e["title"] for e in watch.states[-1]["timeline"]])
    assert len(told) >= 10, ended.err
    assert sum(held) >= 0.95 * len(held)
    assert watch.metrics[-1]["penstock_cycles_total"] > told[0]["penstock_cycles_total"]
    assert watch.states[-1]["detail"]["executors"]


@pytest.mark.cluster
@pytest.mark.slow
def test_on_a_cluster_a_broken_penstock_only_warns(cluster: LoopbackCluster, tmp_path: Path) -> None:
    conf = f"--master {cluster.master_url} --conf spark.executor.memory=512m"
    with fed() as words:
        ended = run(broken(words, tmp_path), tmp_path, conf=conf)
        assert (ended.counts, ended.code) == (counts_of(LINES), -signal.SIGTERM)
        test_a_taken_port_and_an_unreadable_journal_only_warn(words, tmp_path, conf)
