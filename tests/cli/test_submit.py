"""`penstock submit` without Spark: what the program prints, raises and returns is the program's."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import penstock_submit
from penstock.cli.attach import parser as attach_parser
from penstock.cli.submit import NAMES, Wanted, goals_file, steering_of
from penstock.errors import InputError
from penstock.spark.goals import Goals

PROGRAM = """
import sys, os, threading
print(__name__, __file__, sys.argv[1:], sys.path[0] == os.path.dirname(os.path.abspath(__file__)))
print(threading.current_thread() is threading.main_thread())
{end}
"""


def both(
    tmp_path: Path, end: str
) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """The program alone, and under `penstock submit`."""
    app = tmp_path / "app.py"
    app.write_text(PROGRAM.format(end=end))
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    alone = [sys.executable, str(app), "--rate", "2"]
    submit = [sys.executable, penstock_submit.__file__, "--latency", "2s", str(app), "--rate", "2"]
    return tuple(  # type: ignore[return-value]
        subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=120)
        for command in (alone, submit)
    )


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(7)",
        "sys.exit('went wrong')",
        "raise ValueError('a bug')",
        "raise KeyboardInterrupt",
        "x = = 1",
        "os.kill(os.getpid(), 15)",
        "sys.excepthook = lambda *a: print('own hook'); raise ValueError",
        "import atexit; atexit.register(lambda: print('at exit', sys.argv))",
    ],
)
def test_output_errors_and_exit_code_are_the_programs(tmp_path: Path, end: str) -> None:
    alone, submitted = both(tmp_path, end)
    assert submitted.stdout == alone.stdout
    assert submitted.returncode == alone.returncode
    theirs = [line for line in submitted.stderr.splitlines() if not line.startswith("penstock: ")]
    assert theirs == alone.stderr.splitlines()


def test_a_program_that_is_not_there_and_bad_options_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("print('ran')")
    bad = (
        ["nobody.py"],
        ["."],
        [],
        ["--latency", "soon", "app.py"],
        ["--goals", "none.yaml", "app.py"],
        ["--ui", "x", "app.py"],
        ["--latencyy", "2s", "app.py"],
        ["--conf", "spark.a", "app.py"],
        ["--conf", "spark.penstock.latency=soon", "app.py"],
        ["--conf", "spark.penstock.latencyy=2s", "app.py"],
        ["--max-executors", "two", "app.py"],
        ["--mode", "sleep", "app.py"],
    )
    for arguments in bad:
        command = [sys.executable, penstock_submit.__file__, *arguments]
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120
        )
        assert ended.returncode == 2
        assert ended.stdout == ""
        assert ended.stderr.startswith("penstock: ")
        assert ended.stderr.count("\n") == 1


def test_a_dash_dash_before_the_programs_arguments_is_ours(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys; print(sys.argv)")
    command = [sys.executable, "-m", "penstock", "submit", "app.py", "--", "--for", "2m"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True, timeout=120)
    assert ended.stdout == "['app.py', '--for', '2m']\n"


def test_settings_keep_what_the_user_has_set(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import os; print(os.environ['PYSPARK_SUBMIT_ARGS'])")
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.decommission.enabled false\n")
    env = {
        **os.environ,
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.storage.decommission.enabled=false pyspark-shell",
    }
    command = [
        sys.executable,
        penstock_submit.__file__,
        "--master",
        "local[3]",
        "--conf",
        "spark.a.b=c d",
        "app.py",
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=env, check=True, timeout=120
    )
    assert ended.stdout == (
        "--conf spark.python.unix.domain.socket.enabled=true --conf 'spark.a.b=c d' --conf 'spark.master=local[3]'"
        " --conf spark.storage.decommission.enabled=false pyspark-shell\n"
    )
    assert "spark.python.unix.domain.socket.enabled=true" in ended.stderr


def test_the_command_runs_programs_though_the_rest_of_penstock_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys; print('ran', sys.argv); sys.exit(3)")
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    (entry,) = entry_points(group="console_scripts", name="penstock")
    code = f"import sys; from {entry.module} import {entry.attr}; sys.exit({entry.attr}())"
    command = [sys.executable, "-c", code, "submit", "app.py", "a"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False, timeout=120
    )
    assert (ended.stdout, ended.returncode) == ("ran ['app.py', 'a']\n", 3)
    assert ended.stderr.count("broken on purpose") == 1


def test_goals_by_query(tmp_path: Path) -> None:
    file = tmp_path / "goals.yaml"
    file.write_text(
        "latency: 5s\nstatistic: p95\n"
        "queries:\n  orders: {latency: 500ms, statistic: mean, priority: 2}\n  clicks: {min_accuracy: 0.5}\n"
    )
    wanted = Wanted(goals=file)
    assert wanted.goals_of("orders") == Goals(latency_ms=500.0, priority=2)
    assert wanted.goals_of("clicks") == Goals(latency_ms=5000.0, statistic="p95", min_accuracy=0.5)
    assert wanted.goals_of("others") == Goals(latency_ms=5000.0, statistic="p95")
    assert Wanted(goals=file, latency="2s").goals_of("others").latency_ms == 2000.0
    assert Wanted().goals_of("clicks") == Goals()


def test_an_unknown_key_of_the_goals_file_is_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "goals.yaml").write_text("queries: {orders: {latncy: 2s}}")
    with pytest.raises(InputError, match=r"no 'queries.orders.latncy'; did you mean 'latency'\?"):
        goals_file(tmp_path / "goals.yaml")


@pytest.mark.parametrize("text", ["latency: [1]", "queries: {a: {speed: 1}}", "priority: 1", "{", "- 1"])
def test_a_goals_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "goals.yaml").write_text(text)
    with pytest.raises(InputError):
        goals_file(tmp_path / "goals.yaml")


def test_a_latency_of_the_goals_file_that_is_none_is_told_with_file_and_query(tmp_path: Path) -> None:
    file = tmp_path / "goals.yaml"
    file.write_text("queries: {orders: {latency: banana}}")
    with pytest.raises(
        InputError, match=r"goals.yaml: queries.orders.latency: 'banana' is not a length of time"
    ):
        steering_of({"goals": file}, say=print)


@pytest.mark.parametrize("parser", [penstock_submit.parser, attach_parser])
def test_interference_is_asked_for_by_an_option_or_a_setting(
    parser: Callable[[], argparse.ArgumentParser],
) -> None:
    def wanted(*words: str) -> bool:
        return Wanted.model_validate(
            penstock_submit.given(parser().parse_args([*words, "app.py"]))
        ).interference

    assert wanted("--interference")
    assert not wanted()
    assert Wanted.model_validate({NAMES["interference"]: "true"}).interference
    with pytest.raises(InputError, match="interference"):
        steering_of({"interference": "maybe"}, say=print)


def test_steering_refuses_what_it_cannot_do() -> None:
    for given in ({"mode": "sleep"}, {"max_executors": 0}, {"interval": "-1"}, {"latency": "x"}):
        with pytest.raises(InputError):
            steering_of(given, say=print)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("latency", "soon", "'soon'"),
        ("mode", "sleep", "observe, recommend or act, not 'sleep'"),
        ("maxExecutors", "many", "not 'many'"),
        ("interval", "0s", "0s"),
        ("ui", "x", "x"),
        ("goals", "none.yaml", "none.yaml"),
        ("maxExecutor", "3", "did you mean 'maxExecutors'?"),
    ],
)
def test_a_setting_given_by_conf_is_refused_before_anything_starts(key: str, value: str, told: str) -> None:
    with pytest.raises(InputError) as problem:
        steering_of({}, say=print, conf={f"spark.penstock.{key}": value})
    assert f"spark.penstock.{key}" in str(problem.value)
    assert told in str(problem.value)


def test_other_settings_given_by_conf_are_sparks_to_judge() -> None:
    steering_of(
        {}, say=print, conf={"spark.a": "b", "spark.penstock.gateway": "x", "spark.penstock.latency": "2s"}
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a", "file: should have names with values, such as 'latency: 2s', not ['a']"),
        (
            "queries: {orders: 3s}",
            "queries.orders: should have names with values, such as 'latency: 2s', not '3s'",
        ),
        ("latency: [1]", "latency: input should be a valid string, not [1]"),
    ],
)
def test_a_goals_file_of_another_shape_is_refused_in_the_users_words(
    tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "goals.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as problem:
        goals_file(path)
    assert str(problem.value) == f"{path}: {told}"
