"""Where everything of a dataflow sits in the simulator's arrays; fixed for a whole run.

Every operator has a block of task slots as large as its maximum parallelism, so that slot = base + index always,
and scaling only changes how many of them take part.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats, Ints
from penstock.dataflow import Dataflow, Load, OperatorId
from penstock.dataflow.connectors import expected_load
from penstock.simulator.discrete_tables import BROADCAST, CARRY, ENTER, FORWARD, KEY, LEAVE, SPREAD
from penstock.simulator.options import SimulationOptions
from penstock.simulator.records import Rows

_WIRINGS = {"forward": FORWARD, "spread": SPREAD, "key": KEY, "broadcast": BROADCAST}

Loads = Mapping[OperatorId, Load | Sequence[Load]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A flow of records into a source: into all its tasks, or into one."""

    operator: int
    index: int | None
    load: Load


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Rows, slots and roles, derived from a dataflow once."""

    dataflow: Dataflow
    base: Ints
    """First slot of each operator."""
    maximum: Ints
    start: Ints
    """Tasks at the start."""
    slots: int
    slot_operator: Ints
    slot_index: Ints
    order: Ints
    """Operator rows in topological order."""
    stream_source: Ints
    stream_target: Ints
    stream_wiring: Ints
    outs: tuple[tuple[int, ...], ...]
    """Streams out of each operator."""
    ins: tuple[tuple[int, ...], ...]
    alternate_base: Ints
    alternates: int
    owned: NDArray[np.bool_]
    """Operators whose tasks own keys or state: they rescale with a pause."""
    feeds: tuple[Feed, ...]
    operator_role: Ints
    """[operator, constraint]: ENTER at the start of service, LEAVE at its end."""
    stream_role: Ints
    """[stream, constraint]: ENTER at emission, CARRY along, LEAVE at consumption."""

    @classmethod
    def of(cls, dataflow: Dataflow, loads: Loads | None = None) -> Layout:
        """The layout of a dataflow whose sources get `loads`, or what their connectors promise."""
        operators, streams, row = dataflow.operators, dataflow.streams, dataflow.row
        maximum = np.array([o.parallelism.maximum for o in operators], np.int64)
        base = np.concatenate([[0], np.cumsum(maximum)[:-1]]).astype(np.int64)
        counts = np.array([len(o.alternates) for o in operators], np.int64)
        operator_role, stream_role = _roles(dataflow)
        return cls(
            dataflow=dataflow,
            base=base,
            maximum=maximum,
            start=np.array([o.parallelism.start for o in operators], np.int64),
            slots=int(maximum.sum()),
            slot_operator=np.repeat(np.arange(len(operators)), maximum),
            slot_index=np.concatenate([np.arange(m) for m in maximum]),
            order=np.array([row[i] for i in dataflow.topological], np.int64),
            stream_source=np.array([row[s.source] for s in streams], np.int64),
            stream_target=np.array([row[s.target] for s in streams], np.int64),
            stream_wiring=np.array([_WIRINGS[s.wiring] for s in streams], np.int64),
            outs=tuple(tuple(j for j, s in enumerate(streams) if s.source == o.id) for o in operators),
            ins=tuple(tuple(j for j, s in enumerate(streams) if s.target == o.id) for o in operators),
            alternate_base=np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64),
            alternates=int(counts.sum()),
            owned=np.array(
                [o.is_stateful or any(s.wiring == "key" for s in dataflow.upstream(o.id)) for o in operators]
            ),
            feeds=_feeds(dataflow, loads or {}),
            operator_role=operator_role,
            stream_role=stream_role,
        )

    def slot(self, operator: int, index: int) -> int:
        """The slot of a task."""
        return int(self.base[operator]) + index


def operator_rows(layout: Layout, columns: np.dtype[np.void]) -> Rows:
    """A row for each operator with what is declared of it; what else a fidelity keeps of it is 0."""
    declared, sinks = layout.dataflow.operators, [o.id for o in layout.dataflow.sinks]
    rows = np.zeros(len(declared), columns)
    rows["base"], rows["tasks"], rows["keep"] = layout.base, layout.start, 1.0
    rows["outs"] = [len(streams) for streams in layout.outs]
    rows["first_out"] = np.cumsum(rows["outs"]) - rows["outs"]
    rows["source"] = [o.kind == "source" for o in declared]
    rows["sink"] = [sinks.index(o.id) if o.kind == "sink" else -1 for o in declared]
    rows["windowed"] = [o.latency == "read-write" for o in declared]
    return rows


def stream_rows(layout: Layout, options: SimulationOptions, columns: np.dtype[np.void]) -> Rows:
    """The same for each stream."""
    operators, streams = layout.dataflow.operators, layout.dataflow.streams
    rows = np.zeros(len(streams), columns)
    rows["source"], rows["target"] = layout.stream_source, layout.stream_target
    rows["wiring"], rows["keep"] = layout.stream_wiring, 1.0
    rows["deadline"] = options.deadline_s
    rows["record_bytes"] = [operators[a].record_bytes for a in layout.stream_source]
    return rows


def feed_rows(layout: Layout, columns: np.dtype[np.void]) -> tuple[Rows, Floats, Floats]:
    """The same for each feed, and the times and rates of all loads, one after the other."""
    rows, loads = np.zeros(len(layout.feeds), columns), [feed.load for feed in layout.feeds]
    rows["operator"] = [feed.operator for feed in layout.feeds]
    rows["index"] = [-1 if feed.index is None else feed.index for feed in layout.feeds]
    rows["count"] = [len(load.times_s) for load in loads]
    rows["first"] = np.cumsum(rows["count"]) - rows["count"]
    rows["period"] = [math.inf if load.period_s is None else load.period_s for load in loads]
    times = np.array([x for load in loads for x in load.times_s], np.float64)
    return rows, times, np.array([x for load in loads for x in load.rates_rps], np.float64)


def salt(seed: int, *names: str) -> np.uint64:
    """Where the chance of something named begins, for this seed."""
    text = "\0".join(names).encode()
    mixed = (seed * 0x9E3779B97F4A7C15 + zlib.crc32(text) * 0xD1342543DE82EF95 + len(text)) & (2**64 - 1)
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    return np.uint64(mixed ^ (mixed >> 31))


def _feeds(dataflow: Dataflow, loads: Loads) -> tuple[Feed, ...]:
    feeds: list[Feed] = []
    unknown = set(loads) - {s.id for s in dataflow.sources}
    if unknown:
        raise ValueError(f"loads are given for what is no source: {', '.join(sorted(unknown))}")
    for source in dataflow.sources:
        load = loads.get(source.id)
        if load is None and source.connector is not None:
            load = expected_load(source.connector)
        if load is None:
            raise ValueError(f"source '{source.id}' has no load; give one in `loads`")
        row = dataflow.row[source.id]
        if isinstance(load, Load):
            feeds.append(Feed(operator=row, index=None, load=load))
        elif (
            len(load) != source.parallelism.start or source.parallelism.minimum != source.parallelism.maximum
        ):
            raise ValueError(
                f"source '{source.id}' has a load per task; it needs a fixed number of tasks, as many"
            )
        else:
            feeds += [Feed(operator=row, index=i, load=each) for i, each in enumerate(load)]
    return tuple(feeds)


def _roles(dataflow: Dataflow) -> tuple[Ints, Ints]:
    count = len(dataflow.constraints)
    operators = np.zeros((len(dataflow.operators), count), np.int64)
    streams = np.zeros((len(dataflow.streams), count), np.int64)
    for c, constraint in enumerate(dataflow.constraints):
        sequence = constraint.sequence
        first, last = sequence.operators[0], sequence.operators[-1]
        inner = set(zip(sequence.operators, sequence.operators[1:], strict=False))
        for j, stream in enumerate(dataflow.streams):
            if (stream.source, stream.target) in inner:
                streams[j, c] |= CARRY
            if sequence.leading_stream and stream.target == first:
                streams[j, c] |= ENTER
            if sequence.trailing_stream and stream.source == last:
                streams[j, c] |= CARRY | LEAVE
        if not sequence.leading_stream:
            operators[dataflow.row[first], c] |= ENTER
        if not sequence.trailing_stream:
            operators[dataflow.row[last], c] |= LEAVE
    return operators, streams


def zipf_shares(keys: int, skew: float) -> NDArray[np.float64]:
    """Share of the records that each of `keys` keys has, most popular first."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    return weights / math.fsum(weights)
