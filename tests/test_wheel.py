"""The product alone, as a user installs it: a wheel in a clean environment, with its declared dependencies only.

`make test-wheel` runs these; they need a package index and a few minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = {"highspy", "ortools", "pymetis", "mtkahypar", "matplotlib", "penstock-papers", "vaderSentiment"}

pytestmark = [pytest.mark.wheel, pytest.mark.slow]


@dataclass(frozen=True, slots=True)
class Installed:
    """A clean environment with the wheel, and a folder with the example flows far from the checkout."""

    bin: Path
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    venv.create(folder / "env", with_pip=True)
    bin_ = folder / "env" / "bin"
    (wheel,) = folder.glob("penstock-*.whl")
    subprocess.run([bin_ / "pip", "install", "--quiet", wheel], check=True)
    shutil.copytree(ROOT / "examples" / "flows", folder / "flows")
    return Installed(bin_, folder)


def test_only_declared_dependencies_are_there(installed: Installed) -> None:
    listed = json.loads(installed.run("pip", "list", "--format", "json").stdout)
    names = {each["name"] for each in listed}
    assert "penstock" in names
    assert not {name.lower() for name in names} & {name.lower() for name in EXTRAS}


def test_help(installed: Installed) -> None:
    shown = installed.run("penstock", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "simulate" in shown.stdout


def test_a_simulation(installed: Installed) -> None:
    done = installed.run("penstock", "simulate", "flows/words.yaml", "--for", "30s", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["throughput"] > 0


@pytest.mark.parametrize("name", ["attach", "run", "simulate"])
def test_public_functions_import(installed: Installed, name: str) -> None:
    done = installed.run("python", "-c", f"import penstock; print(penstock.{name}.__module__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("penstock.")


def test_submit_answers(installed: Installed) -> None:
    shown = installed.run("penstock", "submit", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "--latency" in shown.stdout + shown.stderr


def test_every_module_imports_without_extras(installed: Installed) -> None:
    code = (
        "import pkgutil, importlib, penstock\n"
        "for m in pkgutil.walk_packages(penstock.__path__, 'penstock.'):\n"
        "    if not m.name.endswith('__main__'): importlib.import_module(m.name)\n"
    )
    done = installed.run("python", "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["reproduce", "nephele"], "pip install 'penstock[papers]'"),
        (["place", "problem.json", "--policy", "exact"], "pip install 'penstock[solvers]'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_missing_extra_is_told_with_its_remedy(installed: Installed, command: list[str], says: str) -> None:
    write_problem(installed)
    done = installed.run("penstock", *command)
    assert done.returncode == 2, done.stderr
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_placement_needs_no_extra(installed: Installed) -> None:
    write_problem(installed)
    done = installed.run("penstock", "place", "problem.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def write_problem(installed: Installed) -> None:
    problem = {
        "tasks": [{"id": f"t{i}", "load": 1} for i in range(8)],
        "streams": [{"from": f"t{i}", "to": f"t{i + 1}", "rate": 1 + i} for i in range(7)],
        "nodes": [{"id": f"n{i}", "capacity": 3} for i in range(4)],
    }
    (installed.folder / "problem.json").write_text(json.dumps(problem), encoding="utf-8")
