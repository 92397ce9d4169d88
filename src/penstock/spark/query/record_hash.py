"""A well-mixed 64-bit hash of records: equal values hash alike, whatever batch, order or array they are in.

Checkpoints depend on it (buckets of keyed state, which records were kept): what it gives must never change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_ORDER = np.uint64(0xD6E8FEB86659FD93)
_POWER = 0x5851F42D4C957F2D  # odd, so that it has an inverse modulo 2^64
_INVERSE = pow(_POWER, -1, 1 << 64)


def record_hashes(batch: pa.RecordBatch, by: Sequence[str] = (), *, salt: int = 0) -> Hashes:
    """A well-mixed 64-bit hash of each record's columns `by` (default: all, in the order of their names)."""
    columns = sorted(by) if by else sorted(batch.schema.names)
    total = np.full(batch.num_rows, _mixed(np.array([salt], np.uint64))[0])
    for name in columns:
        total = _mixed(total * _ORDER + column_hashes(batch.column(name)))
    return total


def column_hashes(column: pa.Array) -> Hashes:
    """A 64-bit hash of each value; equal values of a type have equal hashes, whatever array they are in."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column_hashes(column.dictionary_decode())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _bytes_hashes(column)
    elif pa.types.is_struct(kind):
        hashes = record_hashes(pa.RecordBatch.from_struct_array(pc.fill_null(column, _blank(kind))))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        hashes = _list_hashes(column)
    elif (bits := _bits(column)) is not None:
        hashes = _mixed(bits)
    else:
        return column_hashes(column.cast(pa.string()))
    if column.null_count:
        hashes = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _bits(column: pa.Array) -> Hashes | None:
    """Fixed-width values as 64-bit words; None for types without such a form."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        column = column.cast(pa.int64(), safe=False)
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        wide = values.astype(np.float64) + 0.0  # -0.0 and 0.0 are equal and must hash alike
        wide[np.isnan(wide)] = np.nan  # so must all the NaNs
        values = wide.view(np.int64)
    return np.asarray(values).astype(np.int64).view(np.uint64)


def _bytes_hashes(column: pa.Array) -> Hashes:
    """Σ (byte + 1)·Pⁱ modulo 2^64 over each value's bytes, mixed with its length.

    One running sum over all bytes gives every value's sum as a difference, moved to power 0 by P⁻ˢ.
    """
    offsets, data = _offsets(column), column.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    raw = np.frombuffer(data, np.uint8, last - first, first) if last > first else np.zeros(0, np.uint8)
    sums = np.zeros(last - first + 1, np.uint64)
    np.cumsum((raw.astype(np.uint64) + np.uint64(1)) * _powers(_POWER, last - first), out=sums[1:])
    return _sequence_hashes(sums, offsets - first)


def _list_hashes(column: pa.Array) -> Hashes:
    offsets = _offsets(column)
    first, last = int(offsets[0]), int(offsets[-1])
    if pa.types.is_map(column.type):
        items = pa.RecordBatch.from_arrays([column.keys, column.items], names=["key", "value"])
        inner = record_hashes(items.slice(first, last - first))
    else:
        inner = column_hashes(column.values.slice(first, last - first))
    sums = np.zeros(last - first + 1, np.uint64)
    np.cumsum(inner * _powers(_POWER, last - first), out=sums[1:])
    return _sequence_hashes(sums, offsets - first)


def _sequence_hashes(sums: Hashes, offsets: NDArray[np.int64]) -> Hashes:
    starts, ends = offsets[:-1], offsets[1:]
    inverse = _powers(_INVERSE, len(sums))
    return _mixed((sums[ends] - sums[starts]) * inverse[starts] + _mixed((ends - starts).astype(np.uint64)))


def _offsets(column: pa.Array) -> NDArray[np.int64]:
    wide = pa.types.is_large_list(column.type)
    dtype = np.int64 if wide else np.int32
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, dtype, len(column) + 1, column.offset * dtype().itemsize).astype(np.int64)


_POWERS: dict[int, Hashes] = {}


def _powers(base: int, count: int) -> Hashes:
    """1, base, base², …, modulo 2^64; the longest table asked for so far is kept."""
    known = _POWERS.get(base)
    if known is None or len(known) < count:
        size = max(1024, 1 << max(count - 1, 1).bit_length())
        known = np.full(size, base, np.uint64)
        known[0] = 1
        known = _POWERS[base] = np.multiply.accumulate(known)
    return known[:count]


def _blank(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar({field.name: None for field in kind}, type=kind)
