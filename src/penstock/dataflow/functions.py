"""The functions that users give: by object, or by the name from which they are imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from penstock.errors import UserError


class FunctionNotFoundError(UserError, LookupError):
    """A `module:name` that cannot be imported, with what was tried."""


class Function:
    """A user's function: importable as `module:name`, or (lambdas, closures) known only by the object itself.

    Two functions are equal when their paths are, whether or not they have been imported yet, so a dataflow read
    from a file equals the one that wrote it.
    """

    __slots__ = ("_target", "path")

    def __init__(self, target: Callable[..., Any] | None = None, *, path: str | None = None) -> None:
        if target is None and path is None:
            raise ValueError("a function needs a callable or a 'module:name'")
        self._target = target
        self.path = path if path is not None else _importable_path(target)

    @classmethod
    def of(cls, given: Callable[..., Any] | str | Function) -> Function:
        """`given` as a Function, whichever of the three forms it has."""
        if isinstance(given, Function):
            return given
        return cls(path=given) if isinstance(given, str) else cls(given)

    def resolve(self) -> Callable[..., Any]:
        """The callable itself, imported on first use."""
        if self._target is None:
            assert self.path is not None
            self._target = _import(self.path)
        return self._target

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Function):
            return NotImplemented
        return self.path == other.path if self.path or other.path else self._target is other._target

    def __hash__(self) -> int:
        return hash(self.path or id(self._target))

    def __repr__(self) -> str:
        return f"Function({self.path or self._target!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Travels by name where it has one, so that a worker imports it rather than receiving a copy of its code.
        return (_rebuild_function, (None if self.path else self._target, self.path))


def _rebuild_function(target: Callable[..., Any] | None, path: str | None) -> Function:
    return Function(target, path=path)


def _importable_path(target: Callable[..., Any] | None) -> str | None:
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", "")
    if not module or not name or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    if getattr(found, "__spec__", None) is None:  # run, not imported: nobody else can import it
        return None
    # Bound methods and wrappers carry the name of what they wrap: only what the name leads back to counts.
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is target else None


def _import(path: str) -> Callable[..., Any]:
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise FunctionNotFoundError(f"'{path}' is not of the form 'module:name'")
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as problem:  # the user's module may fail in any way while it is imported
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise FunctionNotFoundError(f"cannot import '{path}': {reason}") from problem
    if not callable(found):
        raise FunctionNotFoundError(f"'{path}' is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]  # callable() does not narrow Any
