"""The one way functions of the simulator are compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from penstock.telemetry import sketch

FunctionT = TypeVar("FunctionT", bound=Callable[..., object])

_HERE = Path(__file__).parent
_NAMES = (
    "agenda",
    "channels",
    "compiled",
    "discrete_kernel",
    "discrete_tables",
    "draws",
    "fluid_kernel",
    "fluid_limits",
    "fluid_tables",
    "microbatch_kernel",
    "processors",
    "records",
)
_SOURCES = (
    *(_HERE / f"{name}.py" for name in _NAMES),
    Path(sketch.__file__),
)  # its constants are compiled in
_STAMP = hashlib.sha256(b"".join(p.read_bytes() for p in _SOURCES)).hexdigest()


def compiled(function: FunctionT) -> FunctionT:
    """The function as machine code, cached on disk, with IEEE arithmetic in the order written."""
    dispatcher: Any = numba.njit(cache=True, error_model="numpy")(function)
    # Numba's cache notices a change of the function's own file, not of the files of functions it calls.
    # One stamp over all of them makes any change count.
    cache_file = getattr(dispatcher._cache, "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = _STAMP
    return cast(FunctionT, dispatcher)
