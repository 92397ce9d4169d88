"""How users' functions reach the workers.

A function of an installed package travels by name and is imported there. Any other (a main program, a flow file, a
module that only this process can find) travels by value, with the globals it uses. Functions that are packed
together share their globals, and a worker unpacks each pack once, so what a function keeps in a global (a
model, a connection) lives as long as the worker.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle as untyped

cloudpickle: Any = untyped  # it has no types

_INSTALLED = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OURS = str(Path(__file__).resolve().parents[3])


@dataclass(frozen=True, slots=True)
class PackedFunctions:
    """Functions, packed."""

    data: bytes
    digest: str

    @classmethod
    def of(cls, functions: Sequence[Callable[..., Any] | None]) -> PackedFunctions:
        """The functions, in this order, ready to travel."""
        with _by_value(_not_installed(functions)):
            data = cloudpickle.dumps(tuple(functions))
        return cls(data, hashlib.sha256(data).hexdigest())

    def unpack(self) -> tuple[Any, ...]:
        """The functions; the same objects each time within one process."""
        if self.digest not in _unpacked:
            _unpacked[self.digest] = tuple(cloudpickle.loads(self.data))
        return _unpacked[self.digest]


_unpacked: dict[str, tuple[Any, ...]] = {}


def _not_installed(functions: Sequence[Callable[..., Any] | None]) -> list[ModuleType]:
    found: dict[str, ModuleType] = {}
    for function in functions:
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        if module is None or module.__name__ == "__main__" or _is_installed(module):
            continue
        package = module.__name__.partition(".")[0]
        found[package] = sys.modules.get(package, module)
    return list(found.values())


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    # What lies beside Penstock is there wherever Penstock is, and workers need Penstock anyway.
    return file is None or str(Path(file).resolve()).startswith((*_INSTALLED, _OURS))


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    registered = []
    try:
        for module in modules:
            if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.register_pickle_by_value(module)
                registered.append(module)
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
