"""Drivers without Python under `penstock attach`: seen, unharmed by a killed pilot, every line copied exactly."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from penstock.control import Cycle, SqliteJournal
from penstock.spark.gateway.jar import LISTENER, compiled, write_jar
from tests.conftest import REPOSITORY
from tests.spark.word_count import SPARK_SUBMIT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LONGEST_S = 400.0
SETTINGS = (
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
    "spark.driver.memory=1g",
    "spark.executor.memory=512m",
)


def until(what: Callable[[], object], told: Callable[[], str]) -> None:
    end_s = time.monotonic() + LONGEST_S
    while not what():
        assert time.monotonic() < end_s, told()
        time.sleep(0.2)


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The listener's jar, and that of a driver in Java."""
    folder = tmp_path_factory.mktemp("jars")
    write_jar(folder / "gateway.jar")
    source = (Path(__file__).parent / "Numbers.java").read_text()
    with zipfile.ZipFile(folder / "numbers.jar", "w") as jar:
        for name, code in compiled(source).items():
            jar.writestr(name.replace(".", "/") + ".class", code)
    return folder


class Driver:
    """A process that copies the numbers it is sent, a file every half second: a program in Java."""

    def __init__(self, jars: Path, folder: Path, gateway: Path) -> None:
        self._start(
            gateway, folder, jars, "--class", "penstock.tests.Numbers", str(jars / "numbers.jar"), str(folder)
        )

    def _start(self, gateway: Path, folder: Path, jars: Path, *program: str) -> None:
        self.folder, self.gateway, self.sent = folder, gateway, list[int]()
        (folder / "in").mkdir()
        conf = [*SETTINGS, f"spark.extraListeners={LISTENER}", f"spark.penstock.gateway={gateway}"]
        command = [str(SPARK_SUBMIT), "--master", "local[2]"]
        command += ["--driver-class-path", str(jars / "gateway.jar")]
        command += [word for pair in conf for word in ("--conf", pair)]
        with (folder / "err").open("w") as err:
            self.process = subprocess.Popen(
                [*command, *program],
                stdout=subprocess.DEVNULL,
                stderr=err,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        self._sending = threading.Thread(target=self._send, daemon=True)
        self._sending.start()

    def _send(self) -> None:
        part = self.folder / "part"
        while not (self.folder / "stop").exists() and self.process.poll() is None:
            numbers = range(len(self.sent) // 2, len(self.sent) // 2 + 20)  # half of them came before
            part.write_text("".join(f"{number}\n" for number in numbers))
            part.rename(self.folder / "in" / f"{len(self.sent)}.txt")
            self.sent += numbers
            time.sleep(0.5)

    def copied(self, name: str) -> list[int]:
        """What a query wrote, in order."""
        files = (self.folder / name).glob("part-*")
        return sorted(int(line) for file in files for line in file.read_text().split())

    def err(self) -> str:
        return (self.folder / "err").read_text()

    def ends(self) -> int:
        """Tell it to end, and wait."""
        (self.folder / "stop").touch()
        self._sending.join()
        return self.process.wait(LONGEST_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class ConnectServer(Driver):
    """The same by a Spark Connect server, for a client in a process of its own."""

    def __init__(self, jars: Path, folder: Path, gateway: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        name = "spark.connect.grpc.binding"
        where = ("--conf", f"{name}.address=127.0.0.1", "--conf", f"{name}.port={port}")
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        self._start(gateway, folder, jars, *where, "--class", server, "spark-internal")
        self._client: subprocess.Popen[bytes] | None = None
        try:
            until(lambda: "Spark Connect server started" in self.err(), self.err)
        except AssertionError:
            self.close()
            raise
        command = [sys.executable, "-m", "tests.spark.connect_client", f"sc://127.0.0.1:{port}", str(folder)]
        self._client = subprocess.Popen(command, cwd=REPOSITORY)

    def ends(self) -> int:
        """End the client, then its server."""
        (self.folder / "stop").touch()
        self._sending.join()
        assert self._client is not None
        code = self._client.wait(LONGEST_S)
        self.process.terminate()
        assert self.process.wait(LONGEST_S) == 128 + signal.SIGTERM
        return code

    def close(self) -> None:
        if self._client is not None:
            self._client.kill()
            self._client.wait()
        super().close()


class Pilot:
    """`penstock attach` as a process."""

    def __init__(self, driver: Driver, name: str, *options: str) -> None:
        self.journal, self._err = driver.folder / f"{name}.sqlite", driver.folder / f"{name}.err"
        command = [sys.executable, "-m", "penstock", "attach", "--latency", "2s", "--interval", "2s"]
        with self._err.open("w") as err:
            self.process = subprocess.Popen(
                [*command, *options, "--journal", str(self.journal), str(driver.gateway)],
                stdout=err,
                stderr=err,
            )

    def err(self) -> str:
        return self._err.read_text()

    def cycles(self) -> list[Cycle]:
        if not self.journal.exists():
            return []
        with SqliteJournal(self.journal) as journal:
            return [cycle for run in journal.runs() for cycle in journal.cycles(run.id)]

    def seen(self) -> set[str]:
        """The queries of which batches, a rate and a latency were measured."""
        briefs = [cycle.brief for cycle in self.cycles() if cycle.brief is not None]
        rates = {s.query for brief in briefs for s in brief.sources if s.read_rps}
        latencies = {c.query for brief in briefs for c in brief.constraints if c.latency_s is not None}
        return rates & latencies & {b.query for brief in briefs for b in brief.batches if b.batches}


@contextmanager
def pilot(driver: Driver, name: str, *options: str) -> Iterator[Pilot]:
    made = Pilot(driver, name, *options)
    try:
        until(lambda: made.seen() == {"all", "different"}, lambda: made.err() + driver.err()[-2000:])
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def held_objects(gateway: Path) -> int:
    """How many objects of the driver its gateway holds for those who are connected."""
    port, secret, _ = gateway.read_text().split()
    opened = JavaGateway(gateway_parameters=GatewayParameters(port=int(port), auth_token=secret))
    names = str(opened.java_gateway_server.getGateway().getBindings().keySet().toString())
    opened.close()
    return len(re.findall(r"\bo\d+\b", names))


@pytest.mark.parametrize("kind", [Driver, ConnectServer])
def test_all_queries_are_seen_and_the_driver_goes_on_whatever_becomes_of_the_pilot(
    kind: type[Driver], jars: Path, tmp_path: Path
) -> None:
    with closing(kind(jars, tmp_path, tmp_path / "gateway")) as running:
        until(running.gateway.exists, running.err)
        assert stat.S_IMODE(running.gateway.stat().st_mode) == 0o600
        _refuses_a_wrong_secret(running)

        with pilot(running, "watching", "--mode", "observe") as watching:
            assert held_objects(running.gateway) > 20
            assert not any(cycle.outcomes for cycle in watching.cycles())
        assert watching.process.returncode == -signal.SIGKILL
        copied = {name: len(running.copied(name)) for name in ("all", "different")}
        until(lambda: all(len(running.copied(name)) > n for name, n in copied.items()), running.err)
        assert held_objects(running.gateway) < 20

        with pilot(running, "stopped", "--mode", "act") as stopped:
            stopped.process.terminate()
            assert stopped.process.wait(LONGEST_S) == 0, stopped.err()
        with pilot(running, "last", "--mode", "act") as last:
            assert running.ends() == 0, running.err()
            assert last.process.wait(LONGEST_S) == 0, last.err()
        assert last.err().endswith("penstock: the application has ended\n")
        for one in (watching, stopped, last):
            assert "Traceback" not in one.err()
            assert "only observes" not in one.err()  # whoever was there before has left nothing behind
        assert running.copied("all") == sorted(running.sent)
        assert running.copied("different") == sorted(set(running.sent))
        assert not running.gateway.exists()


def _refuses_a_wrong_secret(running: Driver) -> None:
    port, _, app = running.gateway.read_text().split()
    wrong = running.folder / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text(f"{port} guessed {app}\n")
    command = [sys.executable, "-m", "penstock", "attach", str(wrong)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("penstock: the driver refused the secret in ")
    assert ended.stderr.count("\n") == 1


def test_a_gateway_that_cannot_open_costs_the_driver_one_line(jars: Path, tmp_path: Path) -> None:
    with closing(Driver(jars, tmp_path, tmp_path / "nowhere" / "gateway")) as running:
        until(lambda: running.copied("all"), running.err)
        assert running.ends() == 0, running.err()
    assert running.err().count("penstock: ") == 1
    assert "penstock: no gateway, the application goes on without: " in running.err()
    assert running.copied("all") == sorted(running.sent)
