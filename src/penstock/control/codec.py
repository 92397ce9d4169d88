"""Values to JSON and back, by their type hints; arrays travel beside the text as raw bytes. No pickle.

A journal may be read by another version, another person, another policy: what comes back is therefore checked
against the type that is asked for, and nothing but plain values can come out of a file.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import struct
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, NewType, TypeVar, Union

import numpy as np

from penstock.dataflow import Function

T = TypeVar("T")
_SCALARS = (str, int, float, bool)
_HEADER = struct.Struct("<4sI")
_MAGIC = b"pnk1"
_ALIGN = 16
_FAST = 1  # zlib level: snapshots are written in every cycle, and read seldom


class CodecError(ValueError):
    """A value that cannot be stored, or stored data that is not what its reader expects; says where."""


class _Codec(NamedTuple):
    encode: Callable[[Any, list[Any] | None], Any]
    decode: Callable[[Any, list[Any]], Any]


def to_json(hint: Any, value: Any) -> str:
    """One line of strict JSON; arrays stand in it as lists."""
    return json.dumps(_codec(hint).encode(value, None), separators=(",", ":"), allow_nan=False)


def from_json(hint: type[T], text: str) -> T:
    """What `to_json` was given; a `CodecError` if the text does not fit the type."""
    return _decoded(hint, _parsed(text), [])


def pack(hint: Any, value: Any) -> bytes:
    """Compressed bytes: JSON, then the arrays it refers to by number."""
    arrays: list[Any] = []
    document = json.dumps(_codec(hint).encode(value, arrays), separators=(",", ":"), allow_nan=False)
    text = document.encode()
    parts = [_HEADER.pack(_MAGIC, len(text)), text]
    size = _HEADER.size + len(text)
    for array in arrays:
        data = np.ascontiguousarray(array).tobytes()
        parts += [bytes(-size % _ALIGN), data]
        size += -size % _ALIGN + len(data)
    return zlib.compress(b"".join(parts), _FAST)


def unpack(hint: type[T], data: bytes) -> T:
    """What `pack` was given; a `CodecError` if the bytes are damaged or do not fit.

    Arrays are of the type they had, writable as they were: compiled code is compiled anew for read-only ones.
    """
    try:
        whole = bytearray(zlib.decompress(data))
        magic, length = _HEADER.unpack_from(whole)
    except (zlib.error, struct.error) as problem:
        raise CodecError(f"stored bytes are damaged: {problem}") from problem
    if magic != _MAGIC:
        raise CodecError(f"stored bytes start with {magic!r}, not {_MAGIC!r}")
    end = _HEADER.size + length
    return _decoded(hint, _parsed(whole[_HEADER.size : end]), [whole, end])


def _parsed(text: str | bytearray) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise CodecError(f"stored text is not JSON: {problem}") from problem


def _decoded(hint: type[T], document: Any, source: list[Any]) -> T:
    try:
        return typing.cast(T, _codec(hint).decode(document, source))
    except CodecError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as problem:
        # Constructors reject nonsense themselves; from a file, that is the file's fault.
        raise CodecError(f"stored {_name(hint)} is not valid: {problem}") from problem


def _codec(hint: Any) -> _Codec:
    return _cached(hint)


@cache
def _cached(hint: Any) -> _Codec:
    if isinstance(hint, NewType):
        return _codec(hint.__supertype__)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _Codec(_encode_any, _decode_any)
    if hint is None or hint is type(None) or hint in _SCALARS:
        return _scalar(type(None) if hint is None else hint)
    if hint is Function:
        return _FUNCTION
    if origin is Literal:
        return _literal(args)
    if origin is Union or origin is types.UnionType:
        return _union(args)
    if hint is np.ndarray or origin is np.ndarray:
        return _Codec(_encode_array, _decode_array)
    if origin is tuple or hint is tuple:
        return _tuple(args or (Any, ...))
    if origin in (dict, collections.abc.Mapping) or hint is dict:
        return _mapping(*(args or (str, Any)))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint)
    raise CodecError(
        f"a {_name(hint)} cannot be stored: give it as numbers, text, tuples, mappings or arrays"
    )


def _scalar(kind: type) -> _Codec:
    accepted = (int, float) if kind is float else kind
    made: Callable[[Any], Any] = float if kind is float else lambda value: value

    def encode(value: Any, arrays: list[Any] | None) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind in (int, float)):
            raise CodecError(f"expected {_name(kind)}, found {value!r}")
        return _finite(value)

    def decode(data: Any, source: list[Any]) -> Any:
        value: Any = _number(data)
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind in (int, float)):
            raise CodecError(f"expected {_name(kind)}, found {data!r}")
        return made(value)

    return _Codec(encode, decode)


def _finite(value: Any) -> Any:
    # JSON has no infinity and no NaN.
    return {"$float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _number(data: Any) -> Any:
    return float(str(data["$float"])) if isinstance(data, dict) and "$float" in data else data


def _literal(choices: tuple[Any, ...]) -> _Codec:
    def check(value: Any, _: object) -> Any:
        if value not in choices:
            raise CodecError(f"expected one of {', '.join(map(str, choices))}, found {value!r}")
        return value

    return _Codec(check, check)


def _union(members: tuple[Any, ...]) -> _Codec:
    """Scalars as they are; of everything else one member, or several dataclasses told apart by their name."""
    scalars = tuple(m for m in members if m in _SCALARS)
    rest = [m for m in members if m is not type(None) and m not in _SCALARS]
    named = {_name(m): m for m in rest}
    if len(rest) > 1 and not all(dataclasses.is_dataclass(m) for m in rest):
        raise CodecError(f"cannot tell the members of {' | '.join(named)} apart in a file")
    optional = type(None) in members

    def is_scalar(value: Any) -> bool:
        if isinstance(value, bool):
            return bool in scalars
        return isinstance(value, scalars) or (float in scalars and isinstance(value, int))

    def encode(value: Any, arrays: list[Any] | None) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if (value is None and optional) or is_scalar(value):
            return _finite(value)
        if not rest:
            raise CodecError(f"expected {' | '.join(map(_name, members))}, found {value!r}")
        if len(rest) == 1:
            return _codec(rest[0]).encode(value, arrays)
        name = type(value).__name__
        return {"$": name, **_codec(named[name]).encode(value, arrays)}

    def decode(data: Any, source: list[Any]) -> Any:
        value = _number(data)
        if (value is None and optional) or is_scalar(value):
            return value
        if not rest:
            raise CodecError(f"expected {' | '.join(map(_name, members))}, found {data!r}")
        if len(rest) == 1:
            return _codec(rest[0]).decode(data, source)
        return _codec(named[data["$"]]).decode({k: v for k, v in data.items() if k != "$"}, source)

    return _Codec(encode, decode)


def _tuple(args: tuple[Any, ...]) -> _Codec:
    if args[-1] is Ellipsis:
        item = _codec(args[0])
        if item.encode is _PLAIN_TEXT:  # ids of a hundred thousand tasks need not be looked at one by one
            return _Codec(lambda value, _: list(value), lambda data, _: _texts(data))
        return _Codec(
            lambda value, arrays: [item.encode(v, arrays) for v in value],
            lambda data, source: tuple(item.decode(d, source) for d in data),
        )
    items = [_codec(a) for a in args]

    def encode(value: Any, arrays: list[Any] | None) -> Any:
        return [c.encode(v, arrays) for c, v in zip(items, value, strict=True)]

    def decode(data: Any, source: list[Any]) -> Any:
        return tuple(c.decode(d, source) for c, d in zip(items, data, strict=True))

    return _Codec(encode, decode)


def _texts(data: Any) -> tuple[str, ...]:
    if not isinstance(data, list) or any(type(d) is not str for d in data):
        raise CodecError("expected a list of text")
    return tuple(data)


def _mapping(key: Any, item: Any) -> _Codec:
    keys, items = _codec(key), _codec(item)
    text = key is str or (isinstance(key, NewType) and key.__supertype__ is str)

    def encode(value: Mapping[Any, Any], arrays: list[Any] | None) -> Any:
        pairs = [(keys.encode(k, arrays), items.encode(v, arrays)) for k, v in value.items()]
        return dict(pairs) if text else [list(pair) for pair in pairs]

    def decode(data: Any, source: list[Any]) -> Any:
        pairs = data.items() if text else data
        return {keys.decode(k, source): items.decode(v, source) for k, v in pairs}

    return _Codec(encode, decode)


def _dataclass(kind: type[Any]) -> _Codec:
    """Fields by name. Those that are no part of the value (`compare=False`) are left out; subclasses are named."""
    hints = typing.get_type_hints(kind)
    stored = {f.name: f for f in dataclasses.fields(kind) if f.init and f.compare}
    codecs: dict[str, _Codec] = {}  # filled on first use: a type may refer to itself

    def codec_of(name: str) -> _Codec:
        if name not in codecs:
            codecs[name] = _codec(hints[name])
        return codecs[name]

    def encode(value: Any, arrays: list[Any] | None) -> Any:
        if type(value) is not kind:
            if isinstance(value, kind):
                return {"$": type(value).__name__, **_codec(type(value)).encode(value, arrays)}
            raise CodecError(f"expected {kind.__name__}, found {value!r}")
        out = {}
        for name in stored:
            try:
                out[name] = codec_of(name).encode(getattr(value, name), arrays)
            except CodecError as problem:
                raise CodecError(f"{kind.__name__}.{name}: {problem}") from None
        return out

    def decode(data: Any, source: list[Any]) -> Any:
        if not isinstance(data, dict):
            raise CodecError(f"expected {kind.__name__}, found {data!r}")
        if "$" in data:
            actual = _subclasses(kind).get(data["$"])
            if actual is None:
                raise CodecError(f"no {kind.__name__} is called {data['$']!r}")
            return _codec(actual).decode({k: v for k, v in data.items() if k != "$"}, source)
        if unknown := data.keys() - stored.keys():
            raise CodecError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
        fields = {}
        for name, item in data.items():
            try:
                fields[name] = codec_of(name).decode(item, source)
            except CodecError as problem:
                raise CodecError(f"{kind.__name__}.{name}: {problem}") from None
        return kind(**fields)

    return _Codec(encode, decode)


def _subclasses(kind: type[Any]) -> dict[str, type[Any]]:
    # A slotted dataclass is made twice, and the later one is the real one: later entries replace earlier ones.
    found = {c.__name__: c for c in kind.__subclasses__()}
    for child in tuple(found.values()):
        found.update(_subclasses(child))
    return found


def _encode_array(value: Any, arrays: list[Any] | None) -> Any:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise CodecError("an array of Python objects cannot be stored")
    if arrays is None:
        items = [_finite(v) for v in array.ravel().tolist()]
        return {"dtype": array.dtype.str, "shape": list(array.shape), "items": items}
    arrays.append(array)
    return {"dtype": array.dtype.str, "shape": list(array.shape)}


def _decode_array(data: Any, source: list[Any]) -> Any:
    dtype, shape = np.dtype(data["dtype"]), tuple(data["shape"])
    if dtype.hasobject:
        raise CodecError("an array of Python objects cannot be read")
    if "items" in data:
        return np.array([_number(v) for v in data["items"]], dtype).reshape(shape)
    whole, end = source
    start = end + -end % _ALIGN
    count = math.prod(shape)
    source[1] = start + count * dtype.itemsize
    if source[1] > len(whole):
        raise CodecError("stored bytes end too early")
    return np.frombuffer(whole, dtype, count, start).reshape(shape)


def _encode_any(value: Any, arrays: list[Any] | None) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, _SCALARS):
        return _finite(value)
    if isinstance(value, tuple):
        return [_encode_any(v, arrays) for v in value]
    if isinstance(value, Mapping) and all(isinstance(k, str) for k in value):
        return {"$map": {k: _encode_any(v, arrays) for k, v in value.items()}}
    if isinstance(value, np.ndarray):
        return {"$array": _encode_array(value, arrays)}
    raise CodecError(f"a {type(value).__name__} in an undeclared place cannot be stored; declare its type")


def _decode_any(data: Any, source: list[Any]) -> Any:
    if isinstance(data, list):
        return tuple(_decode_any(d, source) for d in data)
    if isinstance(data, dict) and "$map" in data:
        return {k: _decode_any(v, source) for k, v in data["$map"].items()}
    if isinstance(data, dict) and "$array" in data:
        return _decode_array(data["$array"], source)
    return _number(data)


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)


# A function that has no importable name is known only while its process lives; what comes back says so when called.
_FUNCTION = _Codec(
    lambda value, _: value.path or "not-stored:function", lambda data, _: Function(path=str(data))
)
_PLAIN_TEXT = _codec(str).encode
