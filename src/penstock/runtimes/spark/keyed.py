"""The keyed host: a user's stateful function over Spark's own state store.

Spark's per-key Python interfaces cost about a millisecond per key and batch. So keys are gathered in a fixed number of
*buckets* by their hash: the host before the shuffle packs each bucket's rows into one Arrow message, Spark shuffles
and stores by bucket, and the function is called here for each key of a bucket, on slices of one sorted table. A
bucket's state is one binary value with the states of its keys. It lives in Spark's state store like any other state:
checkpointed, exact, movable with its partition.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.dataflow.model import Takes
from penstock.runtimes.spark.forms import (
    SOURCE_TIME,
    SOURCE_TIME_TYPE,
    ResultError,
    as_batch,
    as_records,
    conform,
    from_records,
)
from penstock.runtimes.spark.host import alternate_control
from penstock.runtimes.spark.internals.task_controls import current_controls
from penstock.runtimes.spark.keep import record_hashes
from penstock.runtimes.spark.measures import task_measures
from penstock.runtimes.spark.shipping import Shipment

BUCKET, PAYLOAD = "bucket", "payload"
PACKED_COLUMNS = f"{BUCKET} int, {PAYLOAD} binary"
PACKED_SCHEMA = pa.schema([(BUCKET, pa.int32()), (PAYLOAD, pa.binary())])
BUCKET_COUNTS = (24, 48, 120, 240, 840)
BUCKET_BYTES = 1 << 20
"""State of a bucket is read and written as a whole: larger ones than this are split, as far as is declared."""

_EVEN = (
    840  # the least common multiple of 1..8; 24 buckets are even over 1, 2, 3, 4, 6, 8, 12 and 24 partitions
)
_SALT = 1 << 32  # no depth of a dataflow, so that buckets and shedding do not go hand in hand

Times = NDArray[np.int64]


def bucket_count(partitions: int, state_bytes: float = 0.0) -> int:
    """How many buckets the keys of an operator go to, given what its declaration says about size and parallelism.

    Only declared things count, because the number must be the same when a query is started again.
    """
    wanted = max(2 * partitions, state_bytes / BUCKET_BYTES)
    return next((count for count in BUCKET_COUNTS if count >= wanted), BUCKET_COUNTS[-1])


def bucket_labels(count: int) -> NDArray[np.int32]:
    """A number for each bucket that Spark's hash partitioning sends to partition `bucket % p`.

    For every p that divides 840, so that buckets are spread evenly over any usual number of partitions.
    """
    candidates = np.arange(64 * _EVEN, dtype=np.int32)
    places = spark_hash(candidates) % _EVEN
    return np.array([candidates[np.argmax(places == bucket % _EVEN)] for bucket in range(count)], np.int32)


def spark_hash(values: NDArray[np.int32]) -> NDArray[np.int64]:
    """Spark's hash of an int column (Murmur3, seed 42), by which it partitions."""

    def rotated(x: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
        return (x << np.uint32(by)) | (x >> np.uint32(32 - by))

    k = rotated(values.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    h = rotated(np.uint32(42) ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    h ^= np.uint32(4)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (h ^ (h >> np.uint32(16))).view(np.int32).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Rows leave a host as one message per bucket."""

    targets: frozenset[str]
    schema: pa.Schema
    key: tuple[str, ...]
    labels: NDArray[np.int32]

    def emit(self, leaving: list[tuple[str, pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
        """(bucket, message) rows."""
        for _, batch in leaving:
            rows = conform(batch, self.schema)
            buckets = record_hashes(rows, self.key, salt=_SALT) % np.uint64(len(self.labels))
            order = np.argsort(buckets, kind="stable")
            ordered, rows = buckets[order], rows.take(pa.array(order))
            starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] + np.uint64(1)))
            ends = np.append(starts[1:], len(ordered))
            messages = [
                rows.slice(a, b - a).serialize().to_pybytes() for a, b in zip(starts, ends, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(
                [pa.array(self.labels[ordered[starts]]), pa.array(messages, pa.binary())],
                schema=PACKED_SCHEMA,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """Rows enter a host from the messages of a keyed operator."""

    schema: pa.Schema

    def read(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """All rows of the messages, as one batch."""
        return (_unpacked(batch.column(PAYLOAD), self.schema),)


def _unpacked(messages: Iterable[Any], schema: pa.Schema) -> pa.RecordBatch:
    parts = [pa.ipc.read_record_batch(pa.py_buffer(_bytes(message)), schema) for message in messages]
    return pa.concat_batches(parts) if len(parts) != 1 else parts[0]


def _bytes(message: Any) -> Any:
    return message.as_buffer() if isinstance(message, pa.Scalar) else message


class StateError(RuntimeError):
    """State in the checkpoint that does not fit the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedProgram:
    """What the host of a keyed operator does."""

    name: str
    operator: str
    takes: Takes
    key: tuple[str, ...]
    alternates: tuple[str, ...]
    default: int
    arriving: pa.Schema
    schema: pa.Schema
    state: str
    """Columns of the state, as declared."""
    state_width: int
    shipment: Shipment
    """The function of each alternate."""

    def fold(self, messages: list[Any], stored: bytes | None, accumulator: Any) -> tuple[Any, bytes | None]:
        """(rows that leave as a message, the bucket's new state) of one bucket; None where there are none."""
        measures = task_measures(self.name, accumulator)
        wanted = current_controls().get(alternate_control(self.operator))
        which = self.alternates.index(wanted) if wanted in self.alternates else self.default
        function = self.shipment.unpack()[which]
        states = self._restored(stored)
        rows = _unpacked(messages, self.arriving)
        began = time.perf_counter()
        try:
            out, spent, counts = self._each_key(function, rows, states)
        except Exception as error:
            error.add_note(f"in operator '{self.operator}', alternate '{self.alternates[which]}'")
            raise
        busy_s = time.perf_counter() - began
        per_record = spent / counts
        m2 = float(np.sum(counts * (per_record - spent.sum() / counts.sum()) ** 2))
        tally = measures.tally(self.operator, self.alternates[which])
        tally.add(rows.num_rows, out.num_rows, rows.nbytes, out.nbytes, busy_s, m2)
        state = pickle.dumps((self.state, states), protocol=5) if states else None
        return (out.serialize().to_pybytes() if out.num_rows else None), state

    def _restored(self, stored: bytes | None) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        if stored is None:
            return {}
        columns, states = pickle.loads(stored)
        if columns != self.state:
            raise StateError(
                f"the checkpoint has state '{columns}' for operator '{self.operator}', which now declares "
                f"'{self.state}'; start it with a new checkpoint, or declare the old columns"
            )
        return dict(states)

    def _each_key(
        self, function: Callable[..., Any], rows: pa.RecordBatch, states: dict[Any, Any]
    ) -> tuple[pa.RecordBatch, NDArray[np.float64], NDArray[np.int64]]:
        keys, rows, starts, ends = grouped(rows, self.key)
        slices = _slices(rows, self.takes, starts, ends)
        results = []
        marks = [time.perf_counter()]
        for key, part in zip(keys, slices, strict=True):
            result, state = function(key, part, states.get(key))
            results.append(result)
            if state is None:
                states.pop(key, None)
            else:
                states[key] = self._checked(state)
            marks.append(time.perf_counter())
        times = rows.column(SOURCE_TIME).cast(SOURCE_TIME_TYPE).view(pa.int64())
        # Rows of a key are ordered by source time: the last is the latest.
        latest = times.take(pa.array(ends - 1))
        return joined(results, self.takes, self.schema, latest), np.diff(marks), ends - starts

    def _checked(self, state: Any) -> tuple[Any, ...]:
        if not isinstance(state, tuple) or len(state) != self.state_width:
            raise ResultError(
                f"state must be a tuple of {self.state_width} values ({self.state}), not {state!r}"
            )
        return tuple(v.item() if isinstance(v, np.generic) else v for v in state)


def grouped(
    rows: pa.RecordBatch, key: tuple[str, ...]
) -> tuple[list[tuple[Any, ...]], pa.RecordBatch, NDArray[np.int64], NDArray[np.int64]]:
    """(keys, rows sorted by key and then source time, where each key's rows start, where they end)."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in key:
        encoded = pc.dictionary_encode(rows.column(name), null_encoding="encode")
        column = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Made dense again after every column, the product of two counts cannot overflow.
        codes = np.unique(codes * len(encoded.dictionary) + column, return_inverse=True)[1]
    times = pc.fill_null(
        rows.column(SOURCE_TIME).cast(SOURCE_TIME_TYPE).view(pa.int64()), np.iinfo(np.int64).min
    )
    order = np.lexsort((times.to_numpy(), codes))
    ordered = codes[order]
    rows = rows.take(pa.array(order))
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ends = np.append(starts[1:], len(ordered))
    firsts = pa.array(starts)
    keys = list(zip(*(rows.column(name).take(firsts).to_pylist() for name in key), strict=True))
    return keys, rows, starts, ends


def _slices(
    rows: pa.RecordBatch, takes: Takes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> Iterator[Any]:
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    if takes == "arrow":
        return (rows.slice(a, b - a) for a, b in pairs)
    if takes == "pandas":
        frame = rows.to_pandas()
        return (frame.iloc[a:b] for a, b in pairs)
    records = as_records(rows)
    return (records[a:b] for a, b in pairs)


def joined(results: list[Any], takes: Takes, schema: pa.Schema, latest: pa.Array) -> pa.RecordBatch:
    """The results of all keys as one batch; rows without a source time get the latest of their key."""
    if takes == "record":
        lists = [[] if r is None else [r] if isinstance(r, dict) else list(r) for r in results]
        records = [record for part in lists for record in part]
        times = latest.take(pa.array(np.repeat(np.arange(len(lists)), [len(part) for part in lists])))
        if any(SOURCE_TIME in record for record in records):
            own = pa.array([record.get(SOURCE_TIME) for record in records], SOURCE_TIME_TYPE)
            return from_records(records, schema, pc.coalesce(own, times.view(SOURCE_TIME_TYPE)))
        return from_records(records, schema, times.view(SOURCE_TIME_TYPE))
    parts = []
    for i, result in enumerate(results):
        if result is None or not len(result):
            continue
        part = as_batch(result, schema)
        if SOURCE_TIME not in part.schema.names:
            part = part.append_column(SOURCE_TIME, pa.repeat(latest[i], part.num_rows).view(SOURCE_TIME_TYPE))
        parts.append(conform(part, schema))
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema)


def stateful_function(program: KeyedProgram, accumulator: Any) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for `applyInPandasWithState`, which sees one bucket at a time."""

    def fold(key: tuple[int], frames: Iterable[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        messages = [message for frame in frames for message in frame[PAYLOAD]]
        if not messages:
            return
        stored = state.get[0] if state.exists else None
        out, new = program.fold(messages, stored, accumulator)
        if new is not None:
            state.update((new,))
        elif state.exists:
            state.remove()
        if out is not None:
            yield pd.DataFrame({BUCKET: [int(key[0])], PAYLOAD: [out]})

    fold.__name__ = program.operator
    return fold
