"""Bad input of every kind: exit 2, one clear message on standard error, nothing on standard output, no stack trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import Ran, penstock
from tests.dataflow.bad_inputs import BAD_INPUTS, VALID, BadInput

PROBLEM = {
    "tasks": [{"id": "a", "load": 1}, {"id": "b", "load": 1}],
    "streams": [{"from": "a", "to": "b", "rate": 1}],
    "nodes": [{"id": "n", "capacity": 2}],
}


def refused(ran: Ran, fragment: str) -> None:
    assert ran.code == 2, ran
    assert not ran.out
    # A terminal wraps lines: compare without the breaks.
    assert "".join(fragment.split()) in "".join(ran.err.split()), ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("bad", BAD_INPUTS, ids=lambda b: b.name)
def test_bad_dataflow_files(bad: BadInput, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(bad.text, encoding="utf-8")
    refused(penstock("simulate", str(path), "--json"), bad.expected)


@pytest.fixture
def flow(tmp_path: Path) -> str:
    path = tmp_path / "flow.yaml"
    path.write_text(VALID, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--policy", "nephelee"], "did you mean 'nephele'?"),
        (["--policy", "nephele,nephele"], "named twice"),
        (["--policy", "nephele", "--set", "nephele.wait_shre=1"], "did you mean 'wait_share'?"),
        (["--policy", "nephele", "--set", "nephele.wait_share=much"], "unable to parse"),
        (["--policy", "nephele", "--set", "wait_share"], "POLICY.OPTION=VALUE"),
        (["--set", "nephele.wait_share=0.3"], "not among those chosen"),
        (["--for", "soon"], "is not a length of time"),
        (["--for", "-5s"], "is not a length of time"),
        (["--for", "0"], "must be positive"),
        (["--rate-trace", "nowhere.csv"], "cannot read rate trace"),
        (["--time-scale", "0"], "scales must be positive"),
        (["--rate-scale", "nan"], "scales must be positive"),
        (["--fidelity", "perfect"], "--fidelity is discrete or fluid"),
        (["--nodes", "0"], "--nodes"),
        (["--seed", "-1"], "--seed"),
        (["--interval", "0"], "--interval"),
        (["--nodes", "8", "--max-nodes", "4"], "--max-nodes 4 is less than --nodes 8"),
        (["--no-such-option"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options(flow: str, arguments: list[str], fragment: str) -> None:
    refused(penstock("simulate", flow, *arguments), fragment)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("timestamp;value\n", "header 'timestamp,value'"),
        ("timestamp,value\n", "has no rows"),
        ("timestamp,value\n2020-01-01,1\n2020-01-01,2\n", "must increase"),
        ("timestamp,value\n0,-5\n", "line 2"),
        ("timestamp,value\n0,nan\n", "line 2"),
        ("timestamp,value\n0,1\nsoon,2\n", "line 3"),
        ("timestamp,value\n0,1,2\n", "line 2"),
    ],
)
def test_bad_rate_traces(flow: str, tmp_path: Path, text: str, fragment: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text, encoding="utf-8")
    refused(penstock("simulate", flow, "--rate-trace", str(trace)), fragment)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["simulate", "nowhere.yaml"], "nowhere.yaml"),
        (["simulate", "primetestre"], "did you mean 'primetester'?"),
        (["run", "primetester", "--master", "local[1]", "--cluster", "2"], "exclude each other"),
        (["run", "primetester", "--policy", "elastic"], "did you mean 'elasticity'?"),
        (["run", "primetester", "--machine", "c7g.larg"], "did you mean 'c7g.large'?"),
        (["explain", "--journal", "nowhere.sqlite"], "there is no journal"),
        (["place"], "either a PROBLEM file or --benchmark"),
        (["place", "nowhere.json"], "cannot read 'nowhere.json'"),
        (["place", "--benchmark", "ring"], "no benchmark 'ring'"),
        (["place", "--benchmark", "star", "--tasks", "7"], "even number of tasks"),
        (["place", "--benchmark", "star", "--policy", "best"], "no placement policy 'best'"),
        (["place", "--benchmark", "star", "--cluster", "huge"], "no cluster 'huge'"),
        (["bench", "nothing"], "no benchmark 'nothing'"),
        (["reproduce", "nobody"], "no paper 'nobody'"),
        (["plan", "primetester", "--rate", "many"], "--rate takes N or SOURCE=N"),
        (["plan", "primetester", "--rate", "5", "--policy", "bst"], "did you mean 'best'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_commands(
    arguments: list[str], fragment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(penstock(*arguments), fragment)


def test_a_journal_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_text("this is no database, but long enough to be looked at\n" * 50)
    refused(penstock("explain", "--journal", str(path)), "journal")


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        ({"nodes": [{"id": "n", "capacity": 1}]}, "tasks need 2"),
        ({"nodes": []}, "nodes"),
        ({"tasks": [{"id": "a", "load": -1}, {"id": "b", "load": 1}]}, "load"),
        ({"streams": [{"from": "a", "to": "c", "rate": 1}]}, "c"),
        ({"extra": 1}, "extra"),
    ],
)
def test_bad_placement_problems(change: dict[str, object], fragment: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM | change), encoding="utf-8")
    refused(penstock("place", str(path)), fragment)


def test_a_python_file_with_an_error_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "flow.py"
    path.write_text("import penstock\n\nflow = penstock.flow('x'\n", encoding="utf-8")
    refused(penstock("simulate", str(path)), "flow.py:3")


def test_the_installed_command_refuses_alike(tmp_path: Path) -> None:
    """Once for real, through the operating system: exit code and streams are those of the process."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "simulate", str(tmp_path / "none.yaml"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    refused(Ran(done.returncode, done.stdout, done.stderr), "none.yaml")
