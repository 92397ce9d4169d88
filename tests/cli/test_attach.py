"""`penstock attach` without Spark: what it refuses, each in one line, with exit code 2."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.spark.gateway.driver import GatewayError, driver_context


def gateway_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "gateway"
    path.write_text(text)
    path.chmod(mode)
    return path


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o602])
def test_a_file_that_others_can_reach_is_refused_before_its_port_is_tried(tmp_path: Path, mode: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        path = gateway_file(tmp_path, f"{server.getsockname()[1]} secret app-1\n", mode)
        with pytest.raises(GatewayError, match=rf"others can read .*\(mode {mode:o}\)"):
            driver_context(path)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = gateway_file(tmp_path, f"{unused_port()} secret app-1\n")
    os.chown(path, 65534, -1)
    with pytest.raises(GatewayError, match="is not yours"):
        driver_context(path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(gateway_file(tmp_path, f"{unused_port()} secret app-1\n"))
    with pytest.raises(GatewayError, match="cannot read"):
        driver_context(tmp_path / "link")


@pytest.mark.parametrize("text", ["", "80", "x y z", "0 s a", "70000 s a", "1 2 3 4", "\x00\x01"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(GatewayError, match="is no gateway file"):
        driver_context(gateway_file(tmp_path, text))


@pytest.mark.parametrize("made", [os.mkdir, os.mkfifo])
def test_a_folder_and_a_pipe_are_refused(tmp_path: Path, made: Callable[[Path, int], None]) -> None:
    made(tmp_path / "it", 0o600)
    with pytest.raises(GatewayError, match="is no gateway file"):
        driver_context(tmp_path / "it")


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    dead = gateway_file(tmp_path, f"{unused_port()} secret app-1\n")
    bad = {
        "nobody answers on port": [str(dead)],
        "No such file": ["none"],
        "give the gateway file of a driver": [],
        "or --jar FILE": ["--jar", "x.jar", str(dead)],
        "not a length of time": ["--latency", "soon", str(dead)],
        "--mode": ["--mode", "sleep", str(dead)],
        "--nodes": ["--nodes", "3", str(dead)],
    }
    for told, arguments in bad.items():
        command = [sys.executable, "-m", "penstock", "attach", *arguments]
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120
        )
        assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
        assert told in ended.stderr
        assert ended.stderr.startswith("penstock: ")
        assert ended.stderr.count("\n") == 1
