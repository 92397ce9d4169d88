"""`linear`, `diamond` and `star`: the micro-benchmarks of placement, as dataflows that run.

The shapes and sizes are those of `i-scheduler.txt`, section 6.1: every task of an operator sends to every task of
the next (wiring `spread`), and every operator costs the same per record. A record carries a `trace` that each
operator on its way mixes with its own number, so that what arrives proves which way it came.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.dataflow import Connector, Dataflow, FlowBuilder, Load, Output, constant, flow
from penstock.dataflow.connectors import discard, replay

COLUMNS = "id long, trace long"
COST_S = 0.001
MODULUS = (1 << 31) - 1
"""A prime: `mixed` stays within 62 bits."""


def numbered(start: int, stop: int) -> pa.RecordBatch:
    """Records `start` to `stop`, with an empty trace."""
    ids = np.arange(start, stop, dtype=np.int64)
    return pa.RecordBatch.from_pydict({"id": ids, "trace": np.zeros_like(ids)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """What every operator does: mixes its number into the trace of each record, `rounds` times."""

    number: int
    rounds: int = 1

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with new traces."""
        ids, trace = batch.column("id").to_numpy(), batch.column("trace").to_numpy()
        for _ in range(self.rounds):
            trace = mixed(trace, ids, self.number)
        return batch.set_column(batch.schema.get_field_index("trace"), "trace", pa.array(trace))


def mixed(trace: np.ndarray, ids: np.ndarray, number: int) -> np.ndarray:
    """The next trace: a linear congruence, so that order and number of hops both show."""
    return np.asarray((trace * 48_271 + ids % MODULUS + number + 1) % MODULUS, dtype=np.int64)


def linear(
    *, tasks: int = 10, load: Load | None = None, rounds: int = 1, sink: Connector | None = None
) -> Dataflow:
    """`tasks` / 2 operators of two tasks in a row; the first is the source, the last the sink."""
    if tasks < 6 or tasks % 2:
        raise ValueError(f"linear has an even number of tasks, at least 6: {tasks}")
    app = flow("linear")
    stream = _source(app, "op0", 2, load)
    for number in range(1, tasks // 2 - 1):
        stream = _hop(stream, number, 2, rounds)
    _sink(app, f"op{tasks // 2 - 1}", [stream], 2, sink)
    return app.build()


def diamond(
    *, tasks: int = 10, load: Load | None = None, rounds: int = 1, sink: Connector | None = None
) -> Dataflow:
    """A source and a sink of four tasks, and between them (`tasks` - 8) / 2 operators of two, side by side."""
    if tasks < 10 or tasks % 2:
        raise ValueError(f"diamond has an even number of tasks, at least 10: {tasks}")
    app = flow("diamond")
    source, middle = _source(app, "op0", 4, load), (tasks - 8) // 2
    sides = [_hop(source, number, 2, rounds) for number in range(1, middle + 1)]
    _sink(app, f"op{middle + 1}", sides, 4, sink)
    return app.build()


def star(
    *, tasks: int = 10, load: Load | None = None, rounds: int = 1, sink: Connector | None = None
) -> Dataflow:
    """A centre of four tasks, and around it (`tasks` - 4) / 2 operators of two: sources and sinks by turns.

    The load is that of every source; a given sink is used for every one of them.
    """
    if tasks < 8 or tasks % 2:
        raise ValueError(f"star has an even number of tasks, at least 8: {tasks}")
    app = flow("star")
    around = range(1, (tasks - 4) // 2 + 1)
    sources = [_source(app, f"op{number}", 2, load) for number in around if number % 2]
    centre = app.map(
        "op0",
        Hop(number=0, rounds=rounds),
        inputs=[source.wired("spread") for source in sources],
        schema=COLUMNS,
        parallelism=4,
        cost_s=COST_S,
        record_bytes=16,
    )
    for number in around:
        if not number % 2:
            _sink(app, f"op{number}", [centre], 2, sink)
    return app.build()


def _source(app: FlowBuilder, name: str, tasks: int, load: Load | None) -> Output:
    connector = replay(
        generator=numbered, load=load if load is not None else constant(100), schema=COLUMNS, partitions=tasks
    )
    return app.source(name, connector, parallelism=tasks, cost_s=COST_S, record_bytes=16, keep_by=("id",))


def _hop(stream: Output, number: int, tasks: int, rounds: int) -> Output:
    return stream.map(
        f"op{number}",
        Hop(number=number, rounds=rounds),
        schema=COLUMNS,
        wiring="spread",
        parallelism=tasks,
        cost_s=COST_S,
        record_bytes=16,
    )


def _sink(app: FlowBuilder, name: str, inputs: list[Output], tasks: int, sink: Connector | None) -> None:
    connector = sink if sink is not None else discard()
    app.sink(
        name,
        connector,
        inputs=[stream.wired("spread") for stream in inputs],
        parallelism=tasks,
        cost_s=COST_S,
    )
