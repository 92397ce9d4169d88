"""Values to bytes and back, by their type hints; arrays as raw bytes. No pickle.

A journal may be read by another version, another person, another policy: what comes back is therefore checked
against the type that is asked for, and nothing but plain values can come out of a file. msgspec does the checking, on
structs that are made from the dataclasses; a value says what it is by its place, and an action by its kind.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import threading
import types
import typing
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NewType, TypeVar, Union

import msgspec
import numpy as np

from penstock.dataflow import Function
from penstock.dataflow.graph import Connector
from penstock.dataflow.secrets import masked, masked_text
from penstock.policies.actions import KINDS, Action

T = TypeVar("T")
_ARRAY = 1
_FAST = 1  # zlib level: snapshots are written in every cycle, and read seldom
_SCALARS = (str, int, float, bool, bytes, type(None))
_AS_THEY_ARE = frozenset({*_SCALARS, np.ndarray})
_ORIGIN: dict[type, type[Any]] = {}
"""Struct to the dataclass that it stands for."""
_STORED: dict[type, list[dataclasses.Field[Any]]] = {}


_MODELS: dict[tuple[Any, tuple[str, ...]], Any] = {}
"""Types that msgspec has learnt; `_MAKING` is held while it learns one."""
_MAKING = threading.Lock()


class CodecError(ValueError):
    """A value that cannot be stored, or stored data that is not what its reader expects; says where."""


def pack(hint: Any, value: Any) -> bytes:
    """Compressed bytes of a value of the given type; a `CodecError` if it is not of that type."""
    return zlib.compress(msgspec.msgpack.encode(_struct(hint, value), enc_hook=_encoded), _FAST)


def unpack(hint: type[T], data: bytes) -> T:
    """What `pack` was given; a `CodecError` if the bytes are damaged or do not fit.

    Arrays are of the type they had, writable as they were: compiled code is compiled anew for read-only ones.
    """
    try:
        whole = zlib.decompress(data)
        found = msgspec.msgpack.decode(whole, type=_model(hint), dec_hook=_custom, ext_hook=_decoded)
    except (zlib.error, msgspec.DecodeError, TypeError, ValueError) as problem:
        raise CodecError(f"stored {_name(hint)} cannot be read: {problem}") from problem
    return typing.cast(T, _restored(hint, found))


def to_json(hint: Any, value: Any) -> str:
    """One line of JSON, for small values without arrays."""
    text = msgspec.json.encode(_struct(hint, value), enc_hook=_encoded).decode()
    if from_json(hint, text) != value:
        raise CodecError(f"a {_name(hint)} with infinity, NaN or an array is no JSON")
    return text


def from_json(hint: type[T], text: str) -> T:
    """What `to_json` was given; a `CodecError` if the text does not fit the type."""
    try:
        found = msgspec.json.decode(text, type=_model(hint), dec_hook=_custom)
    except msgspec.DecodeError as problem:
        raise CodecError(f"stored {_name(hint)} cannot be read: {problem}") from problem
    return typing.cast(T, _restored(hint, found))


def _struct(hint: Any, value: Any) -> Any:
    """The value as msgspec knows it, checked against its type."""
    try:
        return msgspec.convert(_plain(value), _model(hint), dec_hook=_custom)
    except (msgspec.ValidationError, TypeError) as problem:
        raise CodecError(f"a {_name(hint)} cannot be stored: {problem}") from problem


def _plain(value: Any) -> Any:
    """The value in dictionaries, tuples, scalars and arrays; what is secret is masked."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, _SCALARS):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Function):
        # One without an importable name is known only while its process lives; what comes back says so when called.
        return value.path or "not-stored:function"
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, Mapping):
        found = {_plain(k): _plain(v) for k, v in value.items()}
        return (
            {**found, "cause": masked_text(found["cause"])} if isinstance(found.get("cause"), str) else found
        )
    if dataclasses.is_dataclass(value):
        fields = {f.name: _field(value, f.name) for f in _stored(type(value))}
        if isinstance(value, Action):
            fields["kind"] = value.kind
        if isinstance(value, Connector):
            fields["options"] = masked(fields["options"])
        return fields
    raise TypeError(
        f"{type(value).__name__} is not one of numbers, text, tuples, mappings, arrays, dataclasses"
    )


def _field(value: Any, name: str) -> Any:
    found = getattr(value, name)
    if type(found) in _AS_THEY_ARE:
        return found
    try:
        return _plain(found)
    except TypeError as problem:
        raise TypeError(f"{type(value).__name__}.{name}: {problem}") from None


def _restored(hint: Any, found: Any) -> Any:
    try:
        return _value(found)
    except (TypeError, ValueError) as problem:
        # Constructors reject nonsense themselves; from a file, that is the file's fault.
        raise CodecError(f"stored {_name(hint)} is not valid: {problem}") from problem


def _value(found: Any) -> Any:
    """The dataclasses that structs stand for, with tuples for lists."""
    kind = _ORIGIN.get(type(found))
    if kind is not None:
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        return kind(**{name: _value(v) for name, v in fields.items() if v is not msgspec.UNSET})
    if isinstance(found, tuple | list):
        return tuple(map(_value, found))
    if isinstance(found, dict):
        return {k: _value(v) for k, v in found.items()}
    return found


def _model(hint: Any) -> Any:
    key = hint, tuple(KINDS)
    if key not in _MODELS:
        with _MAKING:
            model = _made(*key)
            # msgspec learns a type at its first use, and crashes the process if two threads have it do so at once.
            msgspec.msgpack.Decoder(model, dec_hook=_custom, ext_hook=_decoded)
            _MODELS[key] = model
    return _MODELS[key]


@lru_cache(maxsize=4096)
def _made(hint: Any, kinds: tuple[str, ...]) -> Any:
    """The type for msgspec that a type hint stands for; `kinds` of actions may be added to while we run."""
    if isinstance(hint, NewType):
        return _made(hint.__supertype__, kinds)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint in _SCALARS or hint is None or origin is Literal:
        return hint
    if hint is Function:
        return Function
    if hint is Action:
        members: list[Any] = [KINDS[kind] for kind in kinds]
        return Union[tuple(_dataclass(member, kinds) for member in members)]  # noqa: UP007
    if origin is Union or origin is types.UnionType:
        return Union[tuple(_made(a, kinds) for a in args)]  # noqa: UP007
    if hint is np.ndarray or origin is np.ndarray:
        return np.ndarray
    if origin is tuple:
        return tuple[tuple(a if a is Ellipsis else _made(a, kinds) for a in args)]  # type: ignore[misc]
    if origin in (dict, collections.abc.Mapping):
        return dict[tuple(_made(a, kinds) for a in args)]  # type: ignore[misc]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint, kinds)
    raise TypeError(f"{_name(hint)} is not one of numbers, text, tuples, mappings, arrays, dataclasses")


@lru_cache(maxsize=4096)
def _dataclass(kind: type[Any], kinds: tuple[str, ...]) -> type:
    """A struct with the stored fields of a dataclass; one of an action says its kind.

    A field with a default may be missing: a file of the same format may have been written before there was such a
    field.
    """
    hints = typing.get_type_hints(kind)
    fields: list[Any] = []
    for f in _stored(kind):
        made = _made(hints[f.name], kinds)
        has_default = f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
        fields.append((f.name, made | msgspec.UnsetType, msgspec.UNSET) if has_default else (f.name, made))
    told: dict[str, Any] = {"tag_field": "kind", "tag": kind.kind} if issubclass(kind, Action) else {}
    struct = msgspec.defstruct(kind.__name__, fields, kw_only=True, forbid_unknown_fields=True, **told)
    _ORIGIN[struct] = kind
    return struct


def _stored(kind: Any) -> list[dataclasses.Field[Any]]:
    """The fields that make the value: those with `compare=False` are worked out from the others."""
    if kind not in _STORED:
        _STORED[kind] = [f for f in dataclasses.fields(kind) if f.init and f.compare]
    return _STORED[kind]


def _encoded(value: Any) -> Any:
    if isinstance(value, Function):
        return _plain(value)
    if isinstance(value, np.ndarray):
        data = (value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes())
        return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode(data))
    raise TypeError(f"a {type(value).__name__} cannot be stored")


def _decoded(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise ValueError(f"stored bytes of kind {code} are unknown")
    dtype, shape, raw = msgspec.msgpack.decode(data, type=tuple[str, tuple[int, ...], bytes])
    if np.dtype(dtype).hasobject:
        raise ValueError("an array of Python objects cannot be read")
    return np.frombuffer(bytearray(raw), np.dtype(dtype)).reshape(shape)


def _custom(kind: type, value: Any) -> Any:
    """Types that msgspec does not know."""
    if kind is Function and isinstance(value, str):
        return Function(path=value)
    if kind is np.ndarray and isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise ValueError("an array of Python objects cannot be stored")
        return value
    raise ValueError(f"expected {_name(kind)}, found {type(value).__name__}")


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
