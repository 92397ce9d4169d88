"""The import table of the design: who may import whom, and what policies must not touch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "penstock"

MAY_IMPORT = {
    "dataflow": set(),
    "telemetry": {"dataflow"},
    "forecast": set(),
    "policies": {"dataflow", "telemetry", "forecast"},
    "control": {"dataflow", "telemetry", "forecast", "policies"},
    "runtimes": {"dataflow", "telemetry", "forecast", "policies", "control"},
    "workloads": {"dataflow"},
    "experiments": {
        "dataflow",
        "telemetry",
        "forecast",
        "policies",
        "control",
        "runtimes",
        "workloads",
        "testing",
    },
    "testing": {"dataflow", "telemetry", "forecast", "policies", "control"},
    "cli": {
        "dataflow",
        "telemetry",
        "forecast",
        "policies",
        "control",
        "runtimes",
        "workloads",
        "experiments",
    },
}
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
            # `from penstock import x` and `from penstock.runtimes import spark` name the layer in what they import.
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
    allowed = MAY_IMPORT[layer] | {layer}
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "penstock":
            assert parts[1] in allowed, f"{layer} may not import {name}"
            if layer == "runtimes" and parts[1] == "runtimes":
                own = path.relative_to(PACKAGE).parts[1].removesuffix(".py")
                assert own == "__init__" or parts[2] == own, f"runtimes never import each other: {name}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if layer_of(p) == "policies"], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_policies_are_pure(path: Path) -> None:
    used = {name.split(".")[0] for name in imports_of(path)}
    assert not used & IMPURE
    assert "np.random.seed" not in path.read_text(encoding="utf-8"), "global randomness"
