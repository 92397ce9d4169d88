"""The import table of the design: who may import whom, and what policies must not touch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src"
PACKAGE, PAPERS = SOURCES / "penstock", SOURCES / "penstock_papers"

CORE = {"dataflow", "telemetry", "forecast", "policies", "control"}
MAY_IMPORT = {
    "dataflow": set(),
    "telemetry": {"dataflow"},
    "forecast": set(),
    "policies": {"dataflow", "telemetry", "forecast"},
    "control": CORE,
    "spark": CORE,
    "simulator": CORE,
    "testing": {*CORE, "spark"},
    "web": CORE,
    "api": {*CORE, "spark", "simulator", "web", "extensions", "cli"},
    "cli": {*CORE, "spark", "simulator", "web", "extensions", "api"},
    "extensions": set(),
    "arrays": set(),
    "errors": set(),
    "extras": set(),
}
"""The design's table; names of arrays, the errors that users see and the optional libraries are below everything."""
IMPURE = {
    "pyspark",
    "time",
    "logging",
    "pydantic",
    "random",
    "datetime",
    "os",
    "io",
    "subprocess",
    "socket",
    "threading",
}
"""What a policy cannot import: its snapshot is its only clock, and its seed the only chance."""

FILES = sorted(PACKAGE.rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute here"
            assert node.module is not None
            # `from penstock import x` and `from penstock.spark import runtime` name the layer in what they import.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(path: Path) -> str | None:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py") if parts[0] != "__init__.py" else None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_the_right_way(path: Path) -> None:
    layer = layer_of(path)
    if layer is None or layer == "__main__":
        return
    assert layer in MAY_IMPORT, f"'{layer}' is not a layer of the design"
    allowed = MAY_IMPORT[layer] | {layer, "arrays", "errors", "extras"}
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "penstock":
            assert parts[1] in allowed, f"{layer} may not import {name}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if layer_of(p) == "policies"], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_policies_are_pure(path: Path) -> None:
    used = {name.split(".")[0] for name in imports_of(path)}
    assert not used & IMPURE
    assert "np.random.seed" not in path.read_text(encoding="utf-8"), "global randomness"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_product_never_imports_the_papers(path: Path) -> None:
    assert not [name for name in imports_of(path) if name.split(".")[0] == PAPERS.name]


def test_the_papers_have_a_folder_each() -> None:
    folders = {p.name for p in PAPERS.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders == {
        "common", "rivals", "nephele", "neptune", "dynamic_dataflows", "i_scheduler", "quality_of_data"
    }  # fmt: skip
