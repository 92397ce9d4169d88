"""Spark's own word count, unmodified, under `penstock submit`: the same counts and the same end, whatever is broken."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import penstock_submit

pytestmark = pytest.mark.spark

EXAMPLE = (
    Path(pyspark.__file__).parent / "examples/src/main/python/sql/streaming/structured_network_wordcount.py"
)
LINES = ["to be or not to be", "that is the question", "to be"]
COUNTS = {"to": 3, "be": 3, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1}
LONGEST_S = 240.0


@pytest.fixture
def words() -> Iterator[int]:
    """A port from which everybody who connects gets the lines, and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_ones: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                open_ones.append(connection)
                connection.sendall("".join(f"{line}\n" for line in LINES).encode())

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        for connection in open_ones:
            connection.close()


def last_counts(text: str) -> dict[str, int]:
    """The counts of the newest batch on the console."""
    table = text.rpartition("Batch:")[2]
    return {word: int(n) for word, n in re.findall(r"^\|\s*(\S+)\|\s*(\d+)\|$", table, re.MULTILINE)}


def finished(command: list[str], folder: Path, until: str = "") -> tuple[dict[str, int], int, str]:
    """Run until the counts are complete (and standard error has `until`), then end it politely."""
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": CONF}
    out, err = folder / "out", folder / "err"
    with out.open("w") as o, err.open("w") as e:
        process = subprocess.Popen(command, stdout=o, stderr=e, env=env, cwd=folder)
        try:
            end_s = time.monotonic() + LONGEST_S
            while time.monotonic() < end_s and process.poll() is None:
                if last_counts(out.read_text()) == COUNTS and until in err.read_text():
                    break
                time.sleep(0.3)
            look(err.read_text())
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    return last_counts(out.read_text()), process.returncode, err.read_text()


CONF = "--master local[2] --conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false pyspark-shell"
PAGES: list[str] = []


def look(err: str) -> None:
    """Note what the page of the run, if it has one, answers while it runs."""
    found = re.search(r"page (http://127\.0\.0\.1:\d+/)", err)
    if found is not None:
        for path in ("", "api/state", "metrics"):
            with urllib.request.urlopen(found[1] + path, timeout=30) as answer:
                PAGES.append(answer.read().decode())


def submitted(words: int, *options: str) -> list[str]:
    return [sys.executable, penstock_submit.__file__, *options, str(EXAMPLE), "127.0.0.1", str(words)]


def test_sparks_word_count_is_the_same_under_control(words: int, tmp_path: Path) -> None:
    plain = finished([sys.executable, str(EXAMPLE), "127.0.0.1", str(words)], tmp_path)
    PAGES.clear()
    options = ("--latency", "30s", "--interval", "1s", "--ui", "0")
    counts, code, err = finished(submitted(words, *options), tmp_path, until="controls the queries")
    assert plain[0] == counts == COUNTS
    assert plain[1] == code == -signal.SIGTERM
    assert "mode act" in err
    page, state, metrics = PAGES
    assert "<title>Penstock" in page
    assert '"live":true' in state
    assert "penstock_cycles_total" in metrics


def test_a_penstock_that_cannot_be_imported_only_warns(words: int, tmp_path: Path) -> None:
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import penstock_submit; penstock_submit.main()"
    )
    command = [sys.executable, "-c", code, str(EXAMPLE), "127.0.0.1", str(words)]
    counts, ended, err = finished(command, tmp_path)
    assert (counts, ended) == (COUNTS, -signal.SIGTERM)
    assert err.count("broken on purpose") == 1


def test_a_taken_port_and_an_unreadable_journal_only_warn(words: int, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("this is no journal")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ("--ui", str(taken.getsockname()[1]), "--journal", "journal", "--interval", "1s")
        counts, ended, err = finished(submitted(words, *options), tmp_path, until="controls the queries")
    assert (counts, ended) == (COUNTS, -signal.SIGTERM)
    assert err.count("going on without it") == 1
    assert err.count("the journal is kept in memory only") == 1
