"""The state of the discrete simulation: flat tables that the compiled kernel reads and writes.

The kernel gets one record, `WORLD`, with the scalars and the addresses of all tables, and reaches a row of a table
as `tasks(w, t)`: a plain pointer, for nothing is counted or copied on the way.

Counters without a note are cumulative. Sums named `x_n, x_1, x_2` (count, Σx, Σx²) are of the interval since the
last observation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

Rows = NDArray[np.void]
World = Any
"""A record of the dtype WORLD, in compiled functions."""

I, F, U = np.int64, np.float64, np.uint64

# How a stream is wired.
FORWARD, SPREAD, KEY, BROADCAST = range(4)

# What happens to a record's constraint clock on a stream, and at an operator.
CARRY, ENTER, LEAVE = 1, 2, 4


def sums(name: str) -> list[tuple[str, type]]:
    """Columns for count, sum and sum of squares of one quantity."""
    return [(f"{name}_n", F), (f"{name}_1", F), (f"{name}_2", F)]


AGENDA = np.dtype([("time", F), ("order", I), ("event", I)])

EVENT = np.dtype(
    [
        ("kind", I),
        ("subject", I),
        ("record", I),
        ("count", I),
        ("target", I),
        ("remote", I),
        ("place", I),
        ("next", I),
    ]
)

NODE = np.dtype(
    [
        ("live", I),
        ("cores", F),
        ("speed", F),
        ("foreign", F),
        ("bandwidth", F),
        ("latency", F),
        ("sending_until", F),
        ("receiving_until", F),
        ("busy", I),  # tasks in service
        ("share", F),  # of a core that each of them has
        (
            "work",
            F,
        ),  # reference core-seconds each task in service would have had since the node was last idle
        ("cpu", F),  # core-seconds, likewise
        ("touched", F),  # when the two were brought up to date
        ("event", I),
        ("busy_task_s", F),
        ("cpu_s", F),
        ("bytes_in", F),
        ("bytes_out", F),
    ]
)

OPERATOR = np.dtype(
    [
        ("base", I),
        ("tasks", I),
        ("first_out", I),
        ("outs", I),
        ("source", I),
        ("sink", I),  # row of its histogram, or -1
        ("windowed", I),
        ("window", F),  # 0: writes by its selectivity
        ("salt", U),
        ("keep", F),
        ("keep_by_key", I),
        ("alternate", I),  # row in `alternates`
    ]
)

ALTERNATE = np.dtype(
    [
        ("cost", F),
        ("cv", F),
        ("kind", I),
        ("selectivity", F),
        *sums("work"),
        ("records_in", F),
        ("records_out", F),
    ]
)

TASK = np.dtype(
    [
        ("operator", I),
        ("index", I),
        ("node", I),
        ("paused", I),
        ("watched", I),  # tell when it is idle (if paused) or empty
        ("listed", I),  # on the ready stack
        ("busy", I),
        ("blocked", I),  # channels that wait for room
        ("lingering", I),  # done, but not ready for the next record because blocked
        ("head", I),
        ("tail", I),
        ("queued", I),
        ("reserved", I),  # queued or on the way here
        ("capacity", I),
        ("waiting_head", I),  # channels that wait for room here
        ("waiting_tail", I),
        ("record", I),
        ("turn", I),
        ("work_done", F),  # the node's `work` at which the service ends
        ("cpu_start", F),
        ("started", F),
        ("own_work", F),
        ("overhead", F),
        ("last_arrival", F),
        ("credit", F),
        ("arrived", F),
        ("processed", F),
        ("emitted", F),
        ("shed", F),
        ("dropped", F),  # of `shed`, those a source read and let go
        ("bytes_in", F),
        ("bytes_out", F),
        ("busy_s", F),
        ("cpu_s", F),
        *sums("service"),
        *sums("gap"),
        *sums("latency"),
        *sums("open"),  # reads since `opened`, of windowed operators
        ("opened", F),
    ]
)

STREAM = np.dtype(
    [
        ("source", I),
        ("target", I),
        ("wiring", I),
        ("base", I),
        ("columns", I),  # channels per sender
        ("channels", I),
        ("deadline", F),
        ("keep", F),
        ("keep_by_key", I),
        ("salt", U),
        ("key_salt", U),
        ("record_bytes", F),
        ("batch_bytes", F),
        ("offered", F),
        ("shed", F),
        ("sent", F),
        ("delivered", F),
        ("bytes", F),
        ("remote_bytes", F),
        *sums("latency"),
        *sums("wait"),
    ]
)

CHANNEL = np.dtype(
    [
        ("stream", I),
        ("source", I),
        ("target", I),
        ("head", I),
        ("tail", I),
        ("count", I),
        ("bytes", F),
        ("event", I),
        ("opened", F),
        ("blocked", I),
        ("next_waiting", I),
        ("on_the_way", I),
        ("last_delivery", F),
        ("records", F),
        ("sent_bytes", F),
    ]
)

RECORD = np.dtype(
    [
        ("born", F),
        ("emitted", F),
        ("queued_at", F),
        ("hash", U),
        ("key", U),
        ("number", I),
        ("feed", I),
        ("stream", I),
        ("next", I),
    ]
)

FEED = np.dtype(
    [
        ("operator", I),
        ("index", I),  # -1: any task
        ("cv", F),
        ("kind", I),
        ("salt", U),
        ("first", I),
        ("count", I),
        ("period", F),
        ("position", I),
        ("cycle_start", F),
        ("time", F),
        ("number", I),
        ("cursor", I),
        ("silent", I),
        ("event", I),
    ]
)

TRACE = np.dtype([("time_s", F), ("kind", I), ("operator", I), ("index", I), ("feed", I), ("number", I)])


CELL = np.dtype([("value", F)])
COUNT = np.dtype([("value", I)])

TABLES = {
    "agenda": AGENDA,
    "events": EVENT,
    "nodes": NODE,
    "serving": COUNT,  # [node, place]: the node's tasks in service, a heap by when their work is done
    "link_latency": CELL,  # [from, to]
    "link_bandwidth": CELL,
    "link_until": CELL,
    "operators": OPERATOR,
    "outs": COUNT,
    "alternates": ALTERNATE,
    "tasks": TASK,
    "cursors": COUNT,  # [task, output]: where a round robin stands
    "streams": STREAM,
    "channels": CHANNEL,
    "records": RECORD,
    "clocks": CELL,  # [record, constraint]: when the record entered the constraint's sequence, or -1
    "feeds": FEED,
    "load_times": CELL,
    "load_rates": CELL,
    "key_share": CELL,
    "key_alias": COUNT,
    "operator_role": COUNT,  # [operator, constraint]
    "stream_role": COUNT,  # [stream, constraint]
    "sink_sums": CELL,  # [sink, power]
    "sink_bins": CELL,  # [sink, bin]
    "constraint_bins": CELL,  # [constraint, bin]
    "ready": COUNT,
    "trace": TRACE,
}

WORLD = np.dtype(
    [
        ("now", F),
        ("sequence", I),  # of events, so that ties have an order
        ("scheduled", I),  # events in the heap
        ("free_event", I),
        ("free_events", I),
        ("free_record", I),
        ("free_records", I),
        ("reserve", I),  # records and events one step may take
        ("ready_tasks", I),
        ("noted", I),  # trace rows written
        ("idle", I),  # the watched task that has stopped
        ("hops", I),
        ("send_s", F),
        ("receive_s", F),
        ("random_spread", I),
        ("batch_spread", I),
        ("key_count", I),
        ("node_rows", I),
        ("places", I),  # columns of `serving`
        ("outputs", I),  # columns of `cursors`
        ("constraints", I),
        ("bins", I),
        ("trace_rows", I),
        *((name, I) for name in TABLES),
    ]
)


def _row_of(name: str) -> Callable[[World, int], Any]:
    """A function of compiled code: the row of a table, by reference."""
    record, size = numba.from_dtype(TABLES[name]), TABLES[name].itemsize
    offset = WORLD.fields[name][1] if WORLD.fields else 0

    @intrinsic
    def row(typing: Any, world: Any, index: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            world, index = arguments
            word = index.type
            place = builder.add(builder.ptrtoint(world, word), word(offset))
            table = builder.load(builder.inttoptr(place, word.as_pointer()))
            address = builder.add(table, builder.mul(index, word(size)))
            return builder.inttoptr(address, context.get_value_type(record))

        return record(world, types.int64), code

    return cast(Callable[[World, int], Any], row)


agenda, events, nodes, serving = map(_row_of, ("agenda", "events", "nodes", "serving"))
link_latency, link_bandwidth, link_until = map(_row_of, ("link_latency", "link_bandwidth", "link_until"))
operators, outs, alternates = map(_row_of, ("operators", "outs", "alternates"))
tasks, cursors, streams, channels = map(_row_of, ("tasks", "cursors", "streams", "channels"))
records, clocks, feeds = map(_row_of, ("records", "clocks", "feeds"))
load_times, load_rates = map(_row_of, ("load_times", "load_rates"))
key_share, key_alias = map(_row_of, ("key_share", "key_alias"))
operator_role, stream_role = map(_row_of, ("operator_role", "stream_role"))
sink_sums, sink_bins, constraint_bins = map(_row_of, ("sink_sums", "sink_bins", "constraint_bins"))
ready, trace = map(_row_of, ("ready", "trace"))


class Tables:
    """The tables as NumPy sees them. Exchanging one for a larger one tells the kernel its new address."""

    def __init__(self, scalars: dict[str, float]) -> None:
        self._world = np.zeros(1, WORLD)
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, value in scalars.items():
            self._world[name] = value

    @property
    def w(self) -> World:
        """What compiled functions are given."""
        return self._world[0]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __setitem__(self, name: str, rows: NDArray[Any]) -> None:
        dtype = TABLES[name] if rows.dtype.fields else TABLES[name]["value"]
        if rows.dtype != dtype or not rows.flags.c_contiguous:
            raise TypeError(f"table '{name}' must be contiguous and of type {dtype}, not {rows.dtype}")
        self._arrays[name] = rows
        self._world[name] = rows.ctypes.data


def chained(rows: Rows, used: int, end: int = -1) -> Rows:
    """The rows, those from `used` on linked into a free list that ends with `end`."""
    rows["next"][used:-1] = np.arange(used + 1, len(rows))
    rows["next"][-1] = end
    return rows


def enlarged(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """The rows and as many zero ones behind them as make `count`."""
    grown = np.zeros((count, *rows.shape[1:]), rows.dtype)
    grown[: len(rows)] = rows
    return grown
