"""The list of commands: quick to load, each with its help; what users can mend is told without a stack trace."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import penstock
from penstock.cli import app as command_line
from penstock.errors import UserError
from tests.cli.running import penstock as command

HEAVY = {"numpy", "pandas", "pyarrow", "pydantic", "pyspark", "scipy", "numba", "yaml", "matplotlib"}


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, penstock.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not HEAVY & set(loaded.split())


def test_every_command_has_help() -> None:
    shown = command("--help").out
    names = [c.callback.__name__ for c in command_line.app.registered_commands if c.callback]
    for name in [*names, "cluster"]:
        assert name in shown
        assert command(name, "--help").code == 0


def test_every_error_of_ours_is_for_the_user_or_caught_by_us() -> None:
    """An error that leaves the product is a UserError; the others are named here with who catches them."""
    inner = {
        "ColumnsError": "validation makes a Problem of it",
        "_EnoughError": "the YAML reader",
        "CodecError": "the loop and the journal",
        "NotReadyError": "the loop",
        "ReasonError": "raised in tests only",
        "ResultError": "Spark fails the task: the function of the user returned something else than declared",
        "StateError": "Spark fails the task: the state is of another program",
    }
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours, todo = set(), [Exception]
    while todo:
        for kind in todo.pop().__subclasses__():
            if kind not in ours:
                todo.append(kind)
                ours.add(kind)
    strange = {
        kind.__name__
        for kind in ours
        if kind.__module__.startswith("penstock.") and not issubclass(kind, UserError)
    }
    assert strange == set(inner)


def test_public_names_are_all_there() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'atach'"):
        _ = penstock.atach
