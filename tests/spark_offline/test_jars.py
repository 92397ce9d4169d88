"""Jars from Maven Central: what happens between processes, without the network."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.spark.cluster import jars

IVY_DOUBLE = """\
#!{python}
import pathlib, sys, time
home = pathlib.Path(sys.argv[0]).parent
busy = home / "busy"
if busy.exists():
    sys.exit("another Ivy fills the cache")
busy.touch()
time.sleep(0.2)
pathlib.Path(sys.argv[sys.argv.index("-cachepath") + 1]).write_text("a.jar:b.jar")
busy.unlink()
"""


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Ivy that fails when two of them run at the same time, as the real one may on an empty cache."""
    command = tmp_path / "java"
    command.write_text(IVY_DOUBLE.format(python=sys.executable))
    command.chmod(0o700)
    monkeypatch.setattr(jars, "find_java", lambda: SimpleNamespace(command=str(command)))
    monkeypatch.setattr(jars, "IVY", tmp_path / "new" / "ivy")


@pytest.mark.usefixtures("ivy")
def test_ivys_fill_the_cache_one_after_the_other() -> None:
    coordinates = [f"group:artifact:{n}" for n in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(jars.resolve.__wrapped__, coordinates))
    assert found == [(Path("a.jar"), Path("b.jar"))] * 3
