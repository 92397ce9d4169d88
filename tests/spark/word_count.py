"""Spark's own streaming word count, unmodified from its distribution: what it is fed, and a process that runs it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

EXAMPLE = (
    Path(pyspark.__file__).parent / "examples/src/main/python/sql/streaming/structured_network_wordcount.py"
)
SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
LINES = ("to be or not to be", "that is the question", "to be")
LONGEST_S = 300.0


@contextmanager
def fed(lines: Sequence[str] = LINES, *, every_s: float = 0.0) -> Iterator[int]:
    """A port from which everybody who connects gets the lines, one `every_s`, and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_ones: list[socket.socket] = []

        def tell(connection: socket.socket) -> None:
            try:
                for line in lines:
                    connection.sendall(f"{line}\n".encode())
                    time.sleep(every_s)
            except OSError:
                return  # whoever listened has gone

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                open_ones.append(connection)
                threading.Thread(target=tell, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        for connection in open_ones:
            connection.close()


def counts_of(lines: Sequence[str]) -> dict[str, int]:
    return dict(Counter(word for line in lines for word in line.split()))


def last_counts(text: str) -> dict[str, int]:
    """The counts of the newest batch on the console."""
    table = text.rpartition("Batch:")[2]
    return {word: int(n) for word, n in re.findall(r"^\|\s*(\S+)\|\s*(\d+)\|$", table, re.MULTILINE)}


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run of the word count left behind."""

    counts: dict[str, int]
    code: int
    err: str


def run(
    command: Sequence[str],
    folder: Path,
    *,
    conf: str,
    lines: Sequence[str] = LINES,
    until: str = "",
    end: signal.Signals = signal.SIGTERM,
    look: Callable[[str], None] = lambda err: None,
) -> Ended:
    """Run until the counts are complete (and standard error has `until`), looking on, then end it with a signal."""
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    env["PYSPARK_SUBMIT_ARGS"] = f"{conf} pyspark-shell"
    out, err = folder / "out", folder / "err"
    with out.open("w") as o, err.open("w") as e:
        process = subprocess.Popen(command, stdout=o, stderr=e, env=env, cwd=folder)
        try:
            end_s = time.monotonic() + LONGEST_S
            while time.monotonic() < end_s and process.poll() is None:
                look(err.read_text())
                if last_counts(out.read_text()) == counts_of(lines) and until in err.read_text():
                    break
                time.sleep(0.3)
            process.send_signal(end)
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    return Ended(last_counts(out.read_text()), process.returncode, err.read_text())
