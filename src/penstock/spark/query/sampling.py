"""Which records shedding keeps: decided by a hash of the record, so a retry, another partitioning or another
batch boundary decides the same.

A record is kept when its 64-bit hash lies below the share to keep, times 2^64: what is kept at 0.4 is part of what
is kept at 0.6. `salt` makes the decisions at one depth of a dataflow independent of those at another, while
streams at the same depth that hash the same key keep the same keys, so what is to be joined still meets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Utility = Callable[[pa.RecordBatch], Any]
"""Says how much each record of a batch matters, 0..1."""

_NULL = np.uint64(0x9E3779B97F4A7C15)
_ORDER = np.uint64(0xD6E8FEB86659FD93)
_POWER = 0x5851F42D4C957F2D  # odd, so that it has an inverse modulo 2^64
_INVERSE = pow(_POWER, -1, 1 << 64)
_LEAST = 1e-9
"""Records of utility 1 are this useless, so that the rule has an answer when even of them too many are there."""


def keep_control(subject: str) -> str:
    """The name of the control with the share to keep of a source, or of a stream `source->target`."""
    return f"keep:{subject}"


def kept(
    batch: pa.RecordBatch,
    share: float,
    *,
    by: Sequence[str] = (),
    salt: int = 0,
    utility: Utility | None = None,
    weight: str | None = None,
) -> pa.RecordBatch:
    """The records of `batch` that a share to keep (0..1) lets pass; at 1 or above the batch itself.

    `by` names the columns to hash, by default all but the weight. With `utility` the least useful records go
    first: a record of utility u is kept with probability min(1, τ / (1 - u)), where τ makes the expected share of
    the batch `share`. Records of utility 1 are lost last; with utilities all alike this is the plain rule. The
    column `weight`, where there is one, is divided by the probability with which its record was kept.
    """
    if share >= 1 or not batch.num_rows:
        return batch
    if share <= 0:
        return batch.slice(0, 0)
    hashes = record_hashes(batch, by or [n for n in batch.schema.names if n != weight], salt=salt)
    chance: float | NDArray[np.float64] = share
    if utility is None:
        mask = hashes < np.uint64(int(share * 2.0**64))
    else:
        useless = np.clip(1.0 - np.asarray(utility(batch), dtype=np.float64), _LEAST, 1.0)
        least = _threshold(useless, share)
        mask = hashes.astype(np.float64) * 2.0**-64 * useless < least
        chance = np.minimum(1.0, least / useless)[mask]
    passed = batch.filter(pa.array(mask))
    at = -1 if weight is None else batch.schema.get_field_index(weight)
    if at < 0:
        return passed
    weights = passed.column(at).to_numpy(zero_copy_only=False) / chance
    return passed.set_column(at, batch.schema.field(at), pa.array(weights, batch.schema.field(at).type))


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


def _threshold(useless: NDArray[np.float64], share: float) -> float:
    """τ with Σ min(1, τ / w) = share · n for w = 1 - utility.

    Sorted by w, the first k records are kept for sure (w ≤ τ) and the others with τ / w:
    k + τ · Σ_{i≥k} 1/wᵢ = share · n, for the one k that fits its own τ.
    """
    w = np.sort(useless)
    target = share * len(w)
    tails = np.cumsum((1.0 / w)[::-1])[::-1]
    # At τ = w[k] the expected count is k + w[k]·tails[k], which grows with k.
    k = int(np.searchsorted(np.arange(len(w)) + w * tails, target))
    return float((target - k) / tails[k])
