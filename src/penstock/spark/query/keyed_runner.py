"""A keyed operator: a user's stateful function over Spark's own state store.

Spark's per-key Python interfaces cost about a millisecond per key and batch. So keys are gathered in a fixed number of
*buckets* by their hash: the stage before the shuffle packs each bucket's rows into one Arrow message, Spark shuffles
and stores by bucket, and the function is called here for each key of a bucket, on slices of one sorted table. A
bucket's state is one binary value with the states of its keys. It lives in Spark's state store like any other state:
checkpointed, exact, movable with its partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.dataflow.graph import Takes
from penstock.spark.internals.task_controls import current_controls
from penstock.spark.observe.machine_load import stalled_s
from penstock.spark.observe.task_measures import task_measures
from penstock.spark.query.audit import Auditor, Run, audited_share
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.sampling import HASH, WEIGHT, sample_of
from penstock.spark.query.shuffle_messages import CHANNEL, LABEL, PAYLOAD, unpack
from penstock.spark.query.stage_runner import Ends, active_alternate, stamp
from penstock.spark.query.state_codec import StateCodec, States
from penstock.spark.query.user_functions import (
    SOURCE_TIME,
    SOURCE_TIME_TYPE,
    ResultError,
    as_batch,
    as_records,
    conform,
    from_records,
    without_sample,
)

STATE = "keys"
"""Spark's name of the state variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedProgram:
    """What the stage of a keyed operator does."""

    name: str
    operator: str
    takes: Takes
    key: tuple[str, ...]
    alternates: tuple[str, ...]
    default: int
    arriving: pa.Schema
    schema: pa.Schema
    codec: StateCodec
    arrives_at: int
    """Channel of the rows for this operator; others ride along."""
    leaves_by: int
    """Channel of its results."""
    functions: PackedFunctions
    """The function of each alternate, then the score."""
    stamps: Ends = (None, None)
    """As those of a step."""

    def auditor(self, accumulator: Any) -> Auditor:
        """The audits of one task: some keys also go through other alternates."""
        controls = current_controls()
        return Auditor(
            self.operator,
            self.alternates,
            best=self.default,
            active=active_alternate(self.operator, self.alternates, self.default, controls),
            share=audited_share(controls),
            takes=self.takes,
            score=self.functions.unpack()[-1],
            turn=task_measures(self.name, accumulator).partition,
        )

    def fold(
        self, messages: list[Any], stored: bytes | None, accumulator: Any, auditor: Auditor
    ) -> tuple[Any, bytes | None]:
        """(rows that leave as a message, the bucket's new state) of one bucket; None where there are none."""
        measures = task_measures(self.name, accumulator)
        which = auditor.active
        function = self.functions.unpack()[which]
        states = {} if stored is None else self.codec.decode(stored)
        rows = unpack(messages, self.arriving)
        stamp(measures, self.stamps[0], rows)
        began, stalled = time.perf_counter(), stalled_s()
        try:
            out, spent, counts = self._each_key(function, rows, states)
            busy_s, stalled = time.perf_counter() - began, stalled_s() - stalled
            state = self.codec.encode(states) if states else None
        except Exception as error:
            error.add_note(f"in operator '{self.operator}', alternate '{self.alternates[which]}'")
            raise
        per_record = spent / counts
        m2 = float(np.sum(counts * (per_record - spent.sum() / counts.sum()) ** 2))
        tally = measures.tally(self.operator, self.alternates[which])
        tally.add(rows.num_rows, out.num_rows, rows.nbytes, out.nbytes, busy_s, m2, stalled)
        stamp(measures, self.stamps[1], out)
        auditor.audit(auditor.sample(rows, self.key), self._shadow(stored), measures, tally.busy_s)
        return (out.serialize().to_pybytes() if out.num_rows else None), state

    def _shadow(self, stored: bytes | None) -> Run:
        """Runs alternates for keys as they stood before this batch; the states that come of it are thrown away."""

        def run(which: int, rows: pa.RecordBatch) -> pa.RecordBatch:
            states = {} if stored is None else self.codec.decode(stored)
            return self._each_key(self.functions.unpack()[which], rows, states)[0]

        return run

    def _each_key(
        self, function: Callable[..., Any], rows: pa.RecordBatch, states: States
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
        carried = _carried(rows, starts, ends)
        return joined(results, self.takes, self.schema, carried), np.diff(marks), ends - starts

    def _checked(self, state: Any) -> tuple[Any, ...]:
        width = self.codec.width
        if not isinstance(state, tuple) or len(state) != width:
            raise ResultError(
                f"state must be a tuple of {width} values ({self.codec.declared}), not {state!r}"
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
    records = as_records(without_sample(rows))
    return (records[a:b] for a, b in pairs)


def _carried(rows: pa.RecordBatch, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Per key: the latest time, the hash that all its rows have in common (else none), and their mean weight."""
    # Rows of a key are ordered by source time: the last is the latest.
    carried = {SOURCE_TIME: rows.column(SOURCE_TIME).cast(SOURCE_TIME_TYPE).take(pa.array(ends - 1))}
    if rows.schema.get_field_index(HASH) >= 0:
        hashes, weights = sample_of(rows)
        low, high = np.minimum.reduceat(hashes, starts), np.maximum.reduceat(hashes, starts)
        carried[HASH] = pa.array(np.where(low == high, low, np.nan), from_pandas=True)
        carried[WEIGHT] = pa.array(np.add.reduceat(weights, starts) / (ends - starts))
    return carried


def joined(
    results: list[Any], takes: Takes, schema: pa.Schema, carried: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """The results of all keys as one batch; what rows do not carry themselves they have from their key."""
    if takes == "record":
        lists = [[] if r is None else [r] if isinstance(r, dict) else list(r) for r in results]
        counts = [len(part) for part in lists]
        records = [record for part in lists for record in part]
        columns = {name: _repeated(column, counts) for name, column in carried.items()}
        if any(SOURCE_TIME in record for record in records):
            own = pa.array([record.get(SOURCE_TIME) for record in records], SOURCE_TIME_TYPE)
            columns[SOURCE_TIME] = pc.coalesce(own, columns[SOURCE_TIME])
        return from_records(records, schema, columns)
    counts = [0 if r is None else len(r) for r in results]
    parts = [r for r, count in zip(results, counts, strict=True) if count]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if takes == "pandas":
        rows = as_batch(pd.concat(parts, ignore_index=True), schema)
    else:
        tables = [part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part in parts]
        rows = as_batch(pa.concat_tables(tables, promote_options="default"), schema)
    for name, column in carried.items():
        at = rows.schema.get_field_index(name)
        if at < 0:
            rows = rows.append_column(name, _repeated(column, counts))
        elif rows.column(at).null_count:
            own = rows.column(at).cast(column.type)
            rows = rows.set_column(at, name, pc.coalesce(own, _repeated(column, counts)))
    return conform(rows, schema)


def _repeated(column: pa.Array, counts: list[int]) -> pa.Array:
    return column.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


class KeyedProcessor(StatefulProcessor):
    """A keyed program for `transformWithState`, which sees the messages of one label at a time."""

    def __init__(self, program: KeyedProgram, accumulator: Any) -> None:
        self._program, self._accumulator = program, accumulator
        self._auditor: Auditor | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask Spark for the state."""
        self._state = handle.getValueState(STATE, f"{STATE} binary")

    def handleInputRows(self, key: Any, rows: Iterable[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802
        """Fold what is for this operator, pass on the rest."""
        program, mine = self._program, []
        for row in rows:
            if row[CHANNEL] == program.arrives_at:
                mine.append(row[PAYLOAD])
            else:
                yield row
        if not mine:
            return
        self._auditor = self._auditor or program.auditor(self._accumulator)
        stored = self._state.get()
        old = None if stored is None else bytes(stored[0])
        out, new = program.fold(mine, old, self._accumulator, self._auditor)
        if new is not None:
            self._state.update((new,))
        elif stored is not None:
            self._state.clear()
        if out is not None:
            yield Row(**{LABEL: key[0], CHANNEL: program.leaves_by, PAYLOAD: out})

    def close(self) -> None:
        """Nothing to close."""
