"""What the partitions of a query's operators did, from Spark's own task metrics: for any query, in any language.

A stage with a stateful operator is that operator's: its tasks are the state partitions. Where it holds several, each
has the share of the time that its updates, removals and commits took. Of the stages without state those that read a
source are the source's; of the rest those before the first state belong to the source too, those after it to the sink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.dataflow import Dataflow, OperatorId
from penstock.spark.internals.tasks import StageFacts, TaskTable
from penstock.telemetry import Moments, Nodes, Tasks

INDEX_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NativeTasks:
    """Sums over tasks: a row for each partition of each operator, sorted by both."""

    operator: Ints
    """Row in the dataflow."""
    index: Ints
    executor: tuple[str, ...]
    """Where it ran last."""
    ran: Floats
    """How many tasks."""
    records_in: Floats
    records_out: Floats
    bytes_in: Floats
    remote_bytes: Floats
    """Of `bytes_in`, those from other hosts."""
    bytes_out: Floats
    busy_s: Floats
    """For which a slot was held."""
    cpu_s: Floats
    """Of the JVM's threads: without Python workers."""
    gc_s: Floats
    spilled_bytes: Floats
    state_rows: Floats
    """At the end of the last task; 0 for an operator without state, as is `state_bytes`."""
    state_bytes: Floats

    def __len__(self) -> int:
        return len(self.operator)


COUNTS = tuple(
    f.name for f in fields(NativeTasks) if f.type == "Floats" and f.name not in ("state_rows", "state_bytes")
)


class NativeReader:
    """Sorts tasks by operator and partition."""

    def __init__(self, flow: Dataflow, state_operators: Mapping[int, OperatorId]) -> None:
        self._flow = flow
        self._states = {number: flow.row[id_] for number, id_ in state_operators.items() if id_ in flow.row}
        self._sources = [flow.row[s.id] for s in flow.sources]
        self._sink = flow.row[flow.sinks[0].id] if flow.sinks else len(flow.operators) - 1

    def kinds(self, table: TaskTable) -> list[str]:
        """What each task is one of: tasks of a kind are alike but for their records and their executor."""
        first = min((s.id for s in table.stages if s.states), default=None)
        # A stage by its place among those of its operator: several stages may belong to one.
        names, seen = list[str](), dict[int, int]()
        for stage in table.stages:
            operator = self._operator(stage, first)
            seen[operator] = seen.get(operator, -1) + 1
            names.append(f"{self._flow.operators[operator].id}#{seen[operator]}")
        return [names[row] for row in table.stage_row.tolist()]

    def read(self, tables: Sequence[TaskTable], scale: float = 1.0) -> NativeTasks:
        """All tasks of some batches added up, counts times `scale`; state as the last task left it."""
        parts = [self._rows(table) for table in tables if len(table)]
        columns = {f.name: _joined([p[f.name] for p in parts]) for f in fields(NativeTasks)}
        code = (columns["operator"].astype(np.int64) << INDEX_BITS) + columns["index"].astype(np.int64)
        codes, row = np.unique(code, return_inverse=True)
        last = np.zeros(len(codes), np.int64)
        np.maximum.at(last, row, np.arange(len(row)))
        held = np.flatnonzero(columns["state_rows"] >= 0)
        state = np.full(len(codes), -1, np.int64)
        np.maximum.at(state, row[held], held)
        sums: dict[str, Any] = {name: scale * np.bincount(row, columns[name], len(codes)) for name in COUNTS}
        return NativeTasks(
            operator=codes >> INDEX_BITS,
            index=codes & ((1 << INDEX_BITS) - 1),
            executor=tuple(str(columns["executor"][i]) for i in last.tolist()),
            state_rows=np.where(state >= 0, columns["state_rows"][state], 0.0) if len(row) else np.zeros(0),
            state_bytes=np.where(state >= 0, columns["state_bytes"][state], 0.0) if len(row) else np.zeros(0),
            **sums,
        )

    def _operator(self, stage: StageFacts, first_state: int | None) -> int:
        """The row of the operator that a stage belongs to; of several with state, of the one nearest the source."""
        mine = [number for number in stage.states if number in self._states]
        if mine:
            return self._states[max(mine)]
        known = [n for n in stage.sources if n < len(self._sources)]
        if known:
            return self._sources[known[0]]
        before = stage.id < first_state if first_state is not None else not stage.is_last
        return self._sources[0] if before and self._sources else self._sink

    def _rows(self, table: TaskTable) -> dict[str, Any]:
        """A row for each task, and for each further stateful operator in it."""
        stage_row = table.stage_row
        first = min((s.id for s in table.stages if s.states), default=None)
        operator = np.array([self._operator(s, first) for s in table.stages], np.int64)[stage_row]
        writes = np.array([not s.is_last for s in table.stages], np.bool_)[stage_row]
        good = table.succeeded
        shuffled = table.shuffle_read_local_bytes + table.shuffle_read_remote_bytes
        reads = shuffled + table.shuffle_read_records > 0
        rows: dict[str, Any] = {
            "operator": operator,
            "index": table.partition,
            "executor": np.array(table.executor, dtype=object),
            "ran": np.ones(len(table)),
            "records_in": np.where(reads, table.shuffle_read_records, table.input_records) * good,
            "records_out": np.where(writes, table.shuffle_write_records, table.output_records) * good,
            "bytes_in": np.where(reads, shuffled, table.input_bytes),
            "remote_bytes": table.shuffle_read_remote_bytes,
            "bytes_out": table.shuffle_write_bytes + table.output_bytes,
            "busy_s": (table.run_ms + table.deserialize_ms) / 1e3,
            "cpu_s": table.cpu_ns / 1e9,
            "gc_s": table.gc_ms / 1e3,
            "spilled_bytes": table.spilled_bytes,
            "state_rows": np.full(len(table), -1.0),
            "state_bytes": np.zeros(len(table)),
        }
        return self._with_states(table, rows, writes, good)

    def _with_states(
        self, table: TaskTable, rows: dict[str, Any], writes: Bools, good: Bools
    ) -> dict[str, Any]:
        states = table.states
        known = np.array([int(n) in self._states for n in states.operator.tolist()], np.bool_)
        known &= good[states.task] if len(known) else known
        if not known.any():
            return rows
        # Spark counts stateful operators from the sink back: in a task the data passes the higher numbers first.
        order = np.flatnonzero(known)[np.lexsort((-states.operator[known], states.task[known]))]
        task = states.task[order]
        begins = np.concatenate([[True], task[1:] != task[:-1]])
        ends = np.concatenate([begins[1:], [True]])
        spent = (states.update_ms + states.remove_ms + states.commit_ms)[order]
        many = np.bincount(task, minlength=len(table))[task]
        total = np.bincount(task, spent, len(table))[task]
        share = np.where(total > 0, spent / np.where(total > 0, total, 1.0), 1.0 / many)
        emitted = states.emitted[order]
        came = np.where(begins, rows["records_in"][task], np.concatenate([[0.0], emitted[:-1]]))
        left = np.where(ends & writes[task], rows["records_out"][task], emitted)
        own = {name: column[task] for name, column in rows.items()}
        for name in ("busy_s", "cpu_s", "gc_s", "spilled_bytes"):
            own[name] = own[name] * share
        own["operator"] = np.array([self._states[int(n)] for n in states.operator[order]], np.int64)
        own["records_in"], own["records_out"] = came, left
        for name, there in (("bytes_in", begins), ("remote_bytes", begins), ("bytes_out", ends)):
            own[name] = np.where(there, own[name], 0.0)
        own["state_rows"] = states.rows[order]
        own["state_bytes"] = _state_bytes(table)[order]
        stateless = np.ones(len(table), np.bool_)
        stateless[task] = False
        return {name: _joined([rows[name][stateless], own[name]]) for name in rows}


class NativeTable:
    """Puts what Spark's tasks did into the table of a snapshot; remembers the state that each partition had last."""

    def __init__(self, flow: Dataflow) -> None:
        self._stateful = np.array([o.is_stateful for o in flow.operators], np.bool_)
        self._held: dict[int, tuple[float, float]] = {}

    def filled(
        self, base: Tasks, native: NativeTasks | None, nodes: Nodes, interval_s: float, *, figures: bool
    ) -> Tasks:
        """`base` with state, and with all other figures of operators of which it has none if `figures` says so."""
        if native is not None:
            self._held |= {
                code: (rows, size)
                for code, rows, size in zip(
                    _codes(native.operator, native.index).tolist(),
                    native.state_rows.tolist(),
                    native.state_bytes.tolist(),
                    strict=True,
                )
                if self._stateful[code >> INDEX_BITS]
            }
        if native is not None and figures:
            base = _overlaid(base, native, self._stateful, nodes, interval_s)
        codes = _codes(base.operator, base.index).tolist()
        held = [self._held.get(code) for code in codes]
        return base.with_columns(
            state_rows=np.array([h[0] if h else 0.0 for h in held]),
            state_bytes=np.array([h[1] if h else 0.0 for h in held]),
            state_known=np.array([h is not None for h in held], np.bool_),
        )


def _codes(operator: Ints, index: Ints) -> Ints:
    return (operator.astype(np.int64) << INDEX_BITS) + index.astype(np.int64)


def _overlaid(base: Tasks, native: NativeTasks, stateful: Bools, nodes: Nodes, interval_s: float) -> Tasks:
    """`base` and the rows of operators that have state, or of which nobody else tells anything."""
    told = np.zeros(len(stateful), np.bool_)
    told[base.operator[base.known]] = True
    mine = np.flatnonzero(stateful[native.operator] | ~told[native.operator])
    there, codes = _codes(base.operator, base.index), _codes(native.operator[mine], native.index[mine])
    every = np.union1d(there, codes)
    old, new = np.searchsorted(every, there), np.searchsorted(every, codes)
    node = np.full(len(every), -1)
    node[new] = [nodes.row.get(native.executor[i], -1) for i in mine.tolist()]
    placed = base.node >= 0
    node[old[placed]] = base.node[placed]  # where the state is, rather than where it last ran

    def column(before: Floats | Bools, now: Floats | Bools) -> Any:
        whole = np.zeros(len(every), before.dtype)
        whole[old] = before
        whole[new] = now[mine]
        return whole

    records = native.records_in
    seconds = native.busy_s / np.maximum(records, 1.0)
    service = Moments(
        column(base.service_s.count, records),
        column(base.service_s.mean, seconds),
        column(base.service_s.m2, np.zeros(len(native))),
    )
    some = np.ones(len(native), np.bool_)
    return Tasks.blank(
        len(every),
        operator=every >> INDEX_BITS,
        index=every & ((1 << INDEX_BITS) - 1),
        node=node,
        arrived=column(base.arrived, records),
        processed=column(base.processed, records),
        emitted=column(base.emitted, native.records_out),
        shed=column(base.shed, np.zeros(len(native))),
        bytes_in=column(base.bytes_in, native.bytes_in),
        bytes_out=column(base.bytes_out, native.bytes_out),
        busy_s=column(base.busy_s, native.busy_s),
        # A core of Spark's is held also while a task waits.
        cpu=column(base.cpu, native.busy_s / interval_s),
        service_s=service,
        latency_s=service,
        remote_bytes=column(base.remote_bytes, native.remote_bytes),
        gc_s=column(base.gc_s, native.gc_s),
        spilled_bytes=column(base.spilled_bytes, native.spilled_bytes),
        runtime_known=column(base.runtime_known, some),
        moving=column(base.moving, _at(base.moving, there, _codes(native.operator, native.index))),
        known=column(base.known, some),
    )


def _at(values: Bools, codes: Ints, wanted: Ints) -> Bools:
    """The value at each wanted code, False where there is none."""
    return np.isin(wanted, codes[values])


def _state_bytes(table: TaskTable) -> Floats:
    """What a copy of each partition takes: the version in use, or RocksDB's files, or else what it takes in memory."""
    states = table.states
    return np.where(
        states.version_bytes > 0,
        states.version_bytes,
        np.where(states.sst_bytes > 0, states.sst_bytes, states.memory_bytes),
    )


def _joined(columns: Sequence[Any]) -> Any:
    return np.concatenate(columns) if columns else np.zeros(0)
