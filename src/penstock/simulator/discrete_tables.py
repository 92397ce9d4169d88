"""The state of the discrete simulation: flat tables that the compiled kernel reads and writes.

Counters without a note are cumulative. Sums named `x_n, x_1, x_2` (count, Σx, Σx²) are of the interval since the
last observation.
"""

from __future__ import annotations

import numpy as np

from penstock.simulator.records import CELL, COUNT, F, I, Schema, U, sums

# How a stream is wired.
FORWARD, SPREAD, KEY, BROADCAST = range(4)

# What happens to a record's constraint clock on a stream, and at an operator.
CARRY, ENTER, LEAVE = 1, 2, 4


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
        ("sample_salt", U),
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
        ("side", I),  # a broadcast beside other inputs: its records are read, and nothing is written for them
        ("base", I),
        ("columns", I),  # channels per sender
        ("channels", I),
        ("deadline", F),
        ("keep", F),
        ("redraws", I),  # the key decides from here on, instead of what decided before
        ("sample_salt", U),
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
        ("sample", F),  # uniform below `keep`: decides whether shedders let it pass
        ("keep", F),  # product of the keep-probabilities on its way
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

SCHEMA = Schema(
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
    ],
    TABLES,
)

agenda, events, nodes, serving = map(SCHEMA.rows, ("agenda", "events", "nodes", "serving"))
link_latency, link_bandwidth, link_until = map(SCHEMA.rows, ("link_latency", "link_bandwidth", "link_until"))
operators, outs, alternates = map(SCHEMA.rows, ("operators", "outs", "alternates"))
tasks, cursors, streams, channels = map(SCHEMA.rows, ("tasks", "cursors", "streams", "channels"))
records, clocks, feeds = map(SCHEMA.rows, ("records", "clocks", "feeds"))
load_times, load_rates = map(SCHEMA.rows, ("load_times", "load_rates"))
key_share, key_alias = map(SCHEMA.rows, ("key_share", "key_alias"))
operator_role, stream_role = map(SCHEMA.rows, ("operator_role", "stream_role"))
sink_sums, sink_bins, constraint_bins = map(SCHEMA.rows, ("sink_sums", "sink_bins", "constraint_bins"))
ready, trace = map(SCHEMA.rows, ("ready", "trace"))
