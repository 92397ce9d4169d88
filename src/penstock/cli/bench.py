"""`penstock bench`: runs the scripts of `benchmarks/`, each of which prints its own table."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.output import print_json, print_table
from penstock.errors import InputError, did_you_mean

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"


def bench(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Which one; without a name: the list.")
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENTS]", help="The benchmark's own, after two dashes."),
    ] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Measure side by side with peers, in one run."""
    scripts = benchmark_scripts()
    if name is None:
        about = {key: _summary(path) for key, path in scripts.items()}
        if json:
            print_json({"benchmarks": about})
        else:
            print_table("penstock bench NAME", ["name", "measures"], about.items())
        return
    if name not in scripts:
        raise InputError(f"no benchmark '{name}'{did_you_mean(name, sorted(scripts))}")
    given = [
        *(arguments or []),
        *(["--plot", str(plot)] if plot is not None else []),
        *(["--json"] if json else []),
    ]
    done = subprocess.run([sys.executable, str(scripts[name]), *given], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


def benchmark_scripts() -> dict[str, Path]:
    """Command-line name to script."""
    if not FOLDER.is_dir():
        raise InputError("benchmarks are not installed; run from a checkout of the repository")
    found = (path for path in sorted(FOLDER.glob("*.py")) if not path.name.startswith("_"))
    return {path.stem.replace("_", "-"): path for path in found}


def _summary(path: Path) -> str:
    """The first line of a script's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
