"""Libraries that only some commands need: imported when first used; a missing one is told with its extra."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from penstock.errors import UserError

EXTRA_OF = {
    "highspy": "solvers",
    "matplotlib": "plots",
    "mtkahypar": "papers",
    "pymetis": "solvers",
}
"""Library to the extra of `pyproject.toml` that brings it."""


class MissingExtraError(UserError, ImportError):
    """A library that is not installed, with the command that installs it."""

    def __init__(self, library: str) -> None:
        extra = EXTRA_OF[library]
        super().__init__(f"this needs {library}, which is not installed: pip install 'penstock[{extra}]'")


class _Optional:
    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        require(self._module.partition(".")[0])
        return getattr(import_module(self._module), name)


def optional(module: str) -> Any:
    """The module, imported when one of its names is first asked for; a MissingExtraError when it is not there."""
    return _Optional(module)


def require(*libraries: str) -> None:
    """Raise a MissingExtraError unless all of them are installed; cheaper than to find out half-way."""
    for library in libraries:
        if find_spec(library) is None:
            raise MissingExtraError(library)
