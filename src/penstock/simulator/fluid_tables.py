"""The state of the fluid simulation, in tables like those of the discrete one.

Sums named `x_n, x_1, x_2` (weight, Σx, Σx²) are of the interval since the last observation.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.simulator.layout import Layout, feed_rows, operator_rows, stream_rows
from penstock.simulator.options import SimulationOptions
from penstock.simulator.records import CELL, COUNT, F, I, Schema, Tables, floats, ints, sums
from penstock.telemetry import Sketch

OPERATOR = np.dtype(
    [
        *ints("base", "tasks", "most", "first_out", "outs", "first_in", "ins"),
        *ints("source", "sink", "windowed", "alternate"),
        *floats("keep", "cost", "cs2", "selectivity"),
        ("work", F),  # core-seconds per record, messages included
        *floats("ca2", "ca2_sum"),
        ("inflow", F),  # in this step; so are the next
        *floats("done", "busy", "latency", "wait", "wait2"),
    ]
)

STREAM = np.dtype(
    [
        *ints("source", "target", "wiring"),
        *floats("keep", "deadline", "record_bytes"),
        ("batch", F),  # records that fill a batch
        ("link_s", F),  # latency of links, averaged over pairs of tasks
        ("rate", F),  # copies in this step; before it is over, those that would be sent
        ("last_rate", F),
        ("remote", F),  # share of them that leave their node
        ("accept", F),  # share of what it would carry that its receivers can take
        ("each", F),  # records in a message
        *floats("wait_s", "offered", "shed", "sent", "bytes", "remote_bytes"),
        *sums("latency"),
        *sums("wait"),
    ]
)

NODE = np.dtype(
    [
        *floats("cores", "foreign", "speed", "bandwidth"),
        ("level", F),  # share of a core that a busy task has
        ("first", I),  # of its slots in `by_node`
        ("slots", I),
        *floats("cpu_s", "busy_s", "bytes_in", "bytes_out"),
    ]
)

TASK = np.dtype(
    [
        *ints("operator", "node", "paused", "watched"),
        ("share", F),  # of the operator's records, by key
        *floats("queue", "limit", "inflow"),
        ("before", F),  # inflow of the step before
        ("done", F),  # records processed in the last step
        ("need", F),  # cores
        ("capacity", F),  # records it can process in this step
        ("ready", F),  # of these, the ones there are, as far as is known before the step
        ("wanted", F),  # what it would be sent
        ("accept", F),  # share of that for which it has room
        ("chance", F),  # mean wait that comes from chance, not from backlog
        ("age", F),  # mean age of the records that arrive
        *floats("age_sum", "arrived", "processed", "emitted", "shed", "dropped", "busy_s", "cpu_s"),
        *sums("latency"),
    ]
)

FEED = np.dtype(
    [("operator", I), ("index", I), ("first", I), ("count", I), ("period", F), ("position", I), ("cycle", F)]
)

ALTERNATE = np.dtype([("records_in", F), ("records_out", F)])

SCHEMA = Schema(
    [
        *ints("node_rows", "task_rows", "stream_rows", "operator_rows", "feed_rows", "constraints", "bins"),
        *floats("send_s", "receive_s"),
    ],
    {
        "order": COUNT,  # operators in topological order
        "outs": COUNT,
        "ins": COUNT,
        "by_node": COUNT,  # slots in the order of nodes
        "on_node": CELL,  # [operator, node]: share of what is meant for the operator that goes there
        "leaving": CELL,  # [node, stream]: bytes that leave the node, or the share of them that gets through
        "coming": CELL,  # [node, stream]
        "wishes": CELL,
        "operators": OPERATOR,
        "streams": STREAM,
        "nodes": NODE,
        "tasks": TASK,
        "alternates": ALTERNATE,
        "feeds": FEED,
        "load_times": CELL,
        "load_rates": CELL,
        "in_sequence": COUNT,  # [constraint, operator]
        "last": COUNT,  # operator of each constraint's sequence
        "role": COUNT,  # [stream, constraint], as in the layout
        "constraint_bins": CELL,
        "sink_sums": CELL,
        "sink_bins": CELL,
    },
)

order, outs, ins, by_node = map(SCHEMA.rows, ("order", "outs", "ins", "by_node"))
on_node, leaving, coming, wishes = map(SCHEMA.rows, ("on_node", "leaving", "coming", "wishes"))
operators, streams, nodes, tasks = map(SCHEMA.rows, ("operators", "streams", "nodes", "tasks"))
alternates, feeds, load_times, load_rates = map(
    SCHEMA.rows, ("alternates", "feeds", "load_times", "load_rates")
)
in_sequence, last, role = map(SCHEMA.rows, ("in_sequence", "last", "role"))
constraint_bins, sink_sums, sink_bins = map(SCHEMA.rows, ("constraint_bins", "sink_sums", "sink_bins"))


def flows(layout: Layout, options: SimulationOptions) -> Tables:
    """All tables as they are before the first step; nodes come later."""
    dataflow, declared = layout.dataflow, layout.dataflow.operators
    constraints, bins = dataflow.constraints, len(Sketch.empty().bins)
    t = Tables(
        SCHEMA,
        {
            "task_rows": layout.slots,
            "stream_rows": len(dataflow.streams),
            "operator_rows": len(declared),
            "feed_rows": len(layout.feeds),
            "constraints": len(constraints),
            "bins": bins,
            "send_s": options.send_s,
            "receive_s": options.receive_s,
        },
    )
    t["order"] = layout.order
    t["outs"] = np.array([s for each in layout.outs for s in each], np.int64)
    t["ins"] = np.array([s for each in layout.ins for s in each], np.int64)
    t["wishes"] = np.zeros(len(dataflow.streams))
    t["nodes"], t["by_node"] = np.zeros(0, NODE), np.zeros(0, np.int64)
    t["operators"] = rows = operator_rows(layout, OPERATOR)
    rows["most"], rows["ins"] = layout.maximum, [len(s) for s in layout.ins]
    rows["first_in"] = np.cumsum(rows["ins"]) - rows["ins"]
    rows["ca2"] = options.arrival_cv**2
    t["streams"] = rows = stream_rows(layout, options, STREAM)
    rows["accept"], rows["each"] = 1.0, 1.0
    rows["batch"] = np.maximum(1.0, np.ceil(options.batch_bytes / np.maximum(rows["record_bytes"], 1e-9)))
    t["tasks"] = rows = np.zeros(layout.slots, TASK)
    rows["operator"], rows["node"], rows["accept"] = layout.slot_operator, -1, 1.0
    is_source = t["operators"]["source"][layout.slot_operator] == 1
    rows["limit"] = np.where(is_source, math.inf, float(options.queue_records))
    t["alternates"] = np.zeros(layout.alternates, ALTERNATE)
    t["feeds"], t["load_times"], t["load_rates"] = feed_rows(layout, FEED)
    members = [[o.id in c.sequence.operators for o in declared] for c in constraints]
    t["in_sequence"] = np.array(members, np.int64).reshape(len(constraints), len(declared))
    t["last"] = np.array([dataflow.row[c.sequence.operators[-1]] for c in constraints], np.int64)
    t["role"], t["constraint_bins"] = layout.stream_role, np.zeros((len(constraints), bins))
    t["sink_sums"], t["sink_bins"] = np.zeros((len(dataflow.sinks), 3)), np.zeros((len(dataflow.sinks), bins))
    return t
