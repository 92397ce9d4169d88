"""The state of the discrete simulation: flat tables that the compiled kernel reads and writes.

Counters without a note are cumulative. Sums named `x_n, x_1, x_2` (count, Σx, Σx²) are of the interval since the
last observation.
"""

from __future__ import annotations

import numpy as np

from penstock.simulator.records import CELL, COUNT, F, I, Schema, U, floats, ints, sums

# How a stream is wired.
FORWARD, SPREAD, KEY, BROADCAST = range(4)

# What happens to a record's constraint clock on a stream, and at an operator.
CARRY, ENTER, LEAVE = 1, 2, 4


AGENDA = np.dtype([("time", F), ("order", I), ("event", I)])

EVENT = np.dtype(ints("kind", "subject", "record", "count", "target", "remote", "place", "next"))

NODE = np.dtype(
    [
        ("live", I),
        *floats("cores", "speed", "foreign", "bandwidth", "sending_until", "receiving_until"),
        ("busy", I),  # tasks in service
        ("share", F),  # of a core that each of them has
        (
            "work",
            F,
        ),  # core-seconds (reference) that each task in service would have had since the node was idle
        ("cpu", F),  # core-seconds, likewise
        ("touched", F),  # when the two were brought up to date
        ("event", I),
        *floats("busy_s", "cpu_s", "bytes_in", "bytes_out"),
    ]
)

OPERATOR = np.dtype(
    [
        *ints("base", "tasks", "first_out", "outs", "source"),
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
        *floats("cost", "cv"),
        ("kind", I),
        ("selectivity", F),
        *sums("work"),
        *floats("records_in", "records_out"),
    ]
)

TASK = np.dtype(
    [
        *ints("operator", "index", "node", "paused"),
        ("watched", I),  # tell when it is idle (if paused) or empty
        ("listed", I),  # on the ready stack
        ("busy", I),
        ("blocked", I),  # channels that wait for room
        ("lingering", I),  # done, but not ready for the next record because blocked
        *ints("head", "tail", "queued"),
        ("reserved", I),  # queued or on the way here
        ("capacity", I),
        ("waiting_head", I),  # channels that wait for room here
        *ints("waiting_tail", "record", "turn"),
        ("work_done", F),  # the node's `work` at which the service ends
        *floats("cpu_start", "started", "own_work", "overhead", "last_arrival", "credit"),
        *floats("arrived", "processed", "emitted", "shed"),
        ("dropped", F),  # of `shed`, those a source read and let go
        *floats("bytes_in", "bytes_out", "busy_s", "cpu_s"),
        *sums("service"),
        *sums("gap"),
        *sums("latency"),
        *sums("open"),  # reads since `opened`, of windowed operators
        ("opened", F),
    ]
)

STREAM = np.dtype(
    [
        *ints("source", "target", "wiring"),
        ("side", I),  # a broadcast beside other inputs: its records are read, and nothing is written for them
        ("base", I),
        ("columns", I),  # channels per sender
        ("channels", I),
        *floats("deadline", "keep"),
        ("redraws", I),  # the key decides from here on, instead of what decided before
        ("sample_salt", U),
        ("salt", U),
        ("key_salt", U),
        *floats("record_bytes", "batch_bytes"),
        *floats("offered", "shed", "sent", "delivered", "bytes", "remote_bytes"),
        *sums("latency"),
        *sums("wait"),
    ]
)

CHANNEL = np.dtype(
    [
        *ints("stream", "source", "target", "head", "tail", "count"),
        ("bytes", F),
        ("event", I),
        ("opened", F),
        *ints("blocked", "next_waiting", "on_the_way"),
        *floats("last_delivery", "records", "sent_bytes"),
    ]
)

RECORD = np.dtype(
    [
        *floats("born", "emitted", "queued_at"),
        ("hash", U),
        ("key", U),
        ("sample", F),  # uniform below `keep`: decides whether shedders let it pass
        ("keep", F),  # product of the keep-probabilities on its way
        *ints("number", "feed", "stream", "next"),
    ]
)

FEED = np.dtype(
    [
        ("operator", I),
        ("index", I),  # -1: any task
        ("cv", F),
        ("kind", I),
        ("salt", U),
        *ints("first", "count"),
        ("period", F),
        ("position", I),
        *floats("cycle_start", "time"),
        *ints("number", "cursor", "silent", "event"),
    ]
)

TRACE = np.dtype([("time_s", F), ("kind", I), ("operator", I), ("index", I), ("feed", I), ("number", I)])


TABLES = {
    "agenda": AGENDA,
    "events": EVENT,
    "nodes": NODE,
    "serving": COUNT,  # [node, place]: the node's tasks in service, a heap by when their work is done
    "link_until": CELL,  # [from, to]
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
        *ints("free_event", "free_events", "free_record", "free_records"),
        ("reserve", I),  # records and events one step may take
        ("ready_tasks", I),
        ("noted", I),  # trace rows written
        ("idle", I),  # the watched task that has stopped
        *floats("send_s", "receive_s", "link_latency", "link_bandwidth"),
        *ints("random_spread", "batch_spread", "key_count", "node_rows"),
        ("places", I),  # columns of `serving`
        ("outputs", I),  # columns of `cursors`
        *ints("constraints", "bins", "trace_rows"),
    ],
    TABLES,
)

agenda, events, nodes, serving = map(SCHEMA.rows, ("agenda", "events", "nodes", "serving"))
link_until = SCHEMA.rows("link_until")
operators, outs, alternates = map(SCHEMA.rows, ("operators", "outs", "alternates"))
tasks, cursors, streams, channels = map(SCHEMA.rows, ("tasks", "cursors", "streams", "channels"))
records, clocks, feeds = map(SCHEMA.rows, ("records", "clocks", "feeds"))
load_times, load_rates = map(SCHEMA.rows, ("load_times", "load_rates"))
key_share, key_alias = map(SCHEMA.rows, ("key_share", "key_alias"))
operator_role, stream_role = map(SCHEMA.rows, ("operator_role", "stream_role"))
sink_sums, sink_bins, constraint_bins = map(SCHEMA.rows, ("sink_sums", "sink_bins", "constraint_bins"))
ready, trace = map(SCHEMA.rows, ("ready", "trace"))
