"""How rows cross a shuffle: packed in Arrow messages, each in a channel.

A message is one row for Spark: a *label*, by which Spark partitions, the number of a *channel*, which says what the
rows are and where they enter a later stage, and the rows as one Arrow message. Spark moves few large rows instead of
many small ones, and rows for a later shuffle or for a sink ride along unopened, so nothing upstream runs twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.spark.query.record_hash import record_hashes
from penstock.spark.query.sampling import SAMPLE
from penstock.spark.query.user_functions import conform

LABEL, CHANNEL, PAYLOAD = "label", "channel", "payload"
MESSAGE_COLUMNS = f"{LABEL} int, {CHANNEL} int, {PAYLOAD} binary"
MESSAGES = pa.schema([(LABEL, pa.int32()), (CHANNEL, pa.int32()), (PAYLOAD, pa.binary())])
BUCKET_COUNTS = (24, 48, 120, 240, 840)
BUCKET_BYTES = 1 << 20
"""State of a bucket is read and written as a whole: larger ones than this are split, as far as is declared."""

_EVEN = (
    840  # the least common multiple of 1..8; 24 buckets are even over 1, 2, 3, 4, 6, 8, 12 and 24 partitions
)
_SALT = 1 << 32  # no depth of a dataflow, so that buckets and shedding do not go hand in hand


def bucket_count(partitions: int, state_bytes: float = 0.0) -> int:
    """How many buckets the keys of an operator go to, given what its declaration says about size and parallelism.

    Only declared things count, because the number must be the same when a query is started again.
    """
    wanted = max(2 * partitions, state_bytes / BUCKET_BYTES)
    return next((count for count in BUCKET_COUNTS if count >= wanted), BUCKET_COUNTS[-1])


@cache
def partition_labels(partitions: int) -> NDArray[np.int32]:
    """A number for each partition of a shuffle that Spark's hash partitioning sends there."""
    candidates = np.arange(64 * partitions, dtype=np.int32)
    places = spark_hash(candidates) % partitions
    return np.array([candidates[np.argmax(places == i)] for i in range(partitions)], np.int32)


@cache
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
class Channel:
    """Where rows enter beyond a shuffle, and how they are dealt out: by `key`, by the whole record, or all to all."""

    number: int
    schema: pa.Schema
    buckets: int
    key: tuple[str, ...] = ()
    parts: int = 1
    copies: int = 0
    """Partitions beyond the shuffle that all get all rows; 0: each row goes to one."""

    def pack(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as messages. Where a row goes depends on the row alone: a task that runs again sends the same."""
        rows, labels = conform(rows, self.schema), bucket_labels(self.buckets)
        if self.copies:
            return self._addressed(
                [rows.serialize().to_pybytes()] * self.copies, partition_labels(self.copies)
            )
        columns = self.key or [name for name in rows.schema.names if name not in SAMPLE]
        parts = self.buckets if self.key else self.parts
        part = (record_hashes(rows, columns, salt=_SALT) % np.uint64(parts)).astype(np.int64)
        order = np.argsort(part, kind="stable")
        part, rows = part[order], rows.take(pa.array(order))
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        chosen = labels[part[starts]]
        ends = np.append(starts[1:], rows.num_rows)
        messages = [rows.slice(a, b - a).serialize().to_pybytes() for a, b in zip(starts, ends, strict=True)]
        return self._addressed(messages, chosen)

    def _addressed(self, messages: list[bytes], labels: NDArray[np.int32]) -> pa.RecordBatch:
        channel = np.full(len(messages), self.number, np.int32)
        columns = [pa.array(labels), pa.array(channel), pa.array(messages, pa.binary())]
        return pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


def unpack(messages: Iterable[Any], schema: pa.Schema) -> pa.RecordBatch:
    """All rows of the messages (bytes or Arrow scalars), as one batch."""
    buffers = [m.as_buffer() if isinstance(m, pa.Scalar) else pa.py_buffer(m) for m in messages]
    parts = [pa.ipc.read_record_batch(buffer, schema) for buffer in buffers]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
