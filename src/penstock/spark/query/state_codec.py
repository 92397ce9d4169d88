"""The states of a bucket's keys as bytes for Spark's state store: plain values, and nothing that could run.

State may be any nesting of numbers, texts, bytes, dates, arrays, tuples, lists, sets and dicts. It is written as a
pickle of such values, as earlier versions did, which keeps their types. It is read by an unpickler that makes such
values only: whoever can write to a checkpoint can change numbers, but cannot make a worker run code.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from penstock.spark.query.user_functions import ResultError

States = dict[tuple[Any, ...], tuple[Any, ...]]

_PLAIN = (
    date, datetime, time, timedelta, timezone, Decimal, UUID, np.ndarray, np.generic, np.dtype,
    pd.Timestamp, type(pd.NaT), ZoneInfo, complex,
)  # fmt: skip
_MAKERS = {
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
    ("decimal", "Decimal"),
    ("uuid", "UUID"),
    ("zoneinfo", "ZoneInfo"),
    ("zoneinfo", "ZoneInfo._unpickle"),
    ("builtins", "getattr"),
    ("builtins", "complex"),
    *(("numpy", name) for name in ("dtype", "ndarray")),
    *(
        (f"numpy.{core}.multiarray", name)
        for core in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    ),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("pandas._libs.tslibs.timestamps", "_unpickle_timestamp"),
    ("pandas._libs.tslibs.nattype", "__nat_unpickle"),
}
"""All that a pickle of plain values names; none of it does more than make a value."""


class StateError(RuntimeError):
    """State in the checkpoint that does not fit the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCodec:
    """How the states of one operator are written and read."""

    operator: str
    declared: str
    """Columns of the state, as declared."""
    width: int
    buckets: int

    def encode(self, states: States) -> bytes:
        """The states of a bucket; a ResultError tells of something that is no plain value."""
        out = io.BytesIO()
        _Writer(out, protocol=5).dump((self.buckets, self.declared, states))
        return out.getvalue()

    def decode(self, stored: bytes) -> States:
        """The states that `encode` wrote; a StateError says what is wrong with them."""
        buckets, declared, states = _Reader(stored, self.operator).load()
        if (buckets, declared) != (self.buckets, self.declared):
            raise StateError(
                f"the checkpoint of operator '{self.operator}' has state '{declared}' in {buckets} buckets, its "
                f"declaration now gives '{self.declared}' in {self.buckets}; declare state and parallelism as "
                "before, or start with a new checkpoint"
            )
        return dict(states)


class _Writer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Called for all but Python's own numbers, texts and containers."""
        if not isinstance(value, _PLAIN) and _name(value) not in _MAKERS:
            raise ResultError(
                "state must be made of numbers, texts, bytes, dates, arrays, tuples, lists, sets and dicts, "
                f"not of a {type(value).__name__}"
            )
        return NotImplemented


def _name(value: Any) -> tuple[str, str]:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if name == "ZoneInfo._unpickle":
        return "zoneinfo", name
    return str(module), name


def _attribute(of: Any, name: str) -> Any:
    """In place of `getattr`, by which a pickle reaches what makes a time zone."""
    if of is not ZoneInfo or name != "_unpickle":
        raise StateError(f"a checkpoint asks for '{name}' of '{of}', which is no plain value")
    return ZoneInfo._unpickle  # type: ignore[attr-defined]


class _Reader(pickle.Unpickler):
    def __init__(self, stored: bytes, operator: str) -> None:
        super().__init__(io.BytesIO(stored))
        self._operator = operator

    def find_class(self, module: str, name: str) -> Any:
        """Only what makes a plain value."""
        if (module, name) not in _MAKERS:
            raise StateError(
                f"the checkpoint of operator '{self._operator}' names '{module}.{name}', which is no plain value; "
                "a function kept such an object as state, or a stranger wrote to the checkpoint; start with a new one"
            )
        return _attribute if (module, name) == ("builtins", "getattr") else super().find_class(module, name)
