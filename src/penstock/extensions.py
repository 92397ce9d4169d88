"""What other installed packages add to the command line, found by entry point (`penstock.extensions`).

An extension is tables of names, each with the `module:attribute` it stands for: nothing is imported before it is asked
for. `penstock_papers` is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

Names = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Names that a package adds, by where they can be used."""

    workloads: Names = field(default_factory=dict)
    """Functions that make a dataflow."""
    policies: Names = field(default_factory=dict)
    """Policies for the loop."""
    solvers: Names = field(default_factory=dict)
    """Ways to place tasks."""
    instances: Names = field(default_factory=dict)
    """Placement problems: functions of the number of tasks and the kind of cluster."""
    deciders: Names = field(default_factory=dict)
    """Ways to plan a deployment."""
    papers: Names = field(default_factory=dict)
    """Reproductions."""


@cache
def installed() -> Extension:
    """All extensions of this environment as one."""
    tables: dict[str, dict[str, str]] = {f.name: {} for f in fields(Extension)}
    for entry in entry_points(group="penstock.extensions"):
        extension = entry.load()
        for name, table in tables.items():
            table.update(getattr(extension, name))
    return Extension(**tables)


def load(reference: str) -> Any:
    """What `module:attribute` stands for."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)
