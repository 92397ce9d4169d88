"""The tables of the discrete simulation at time 0, made from a layout."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow import Dataflow, Operator
from penstock.simulator import discrete_tables as tb
from penstock.simulator.agenda import ARRIVAL, new_event, schedule
from penstock.simulator.cluster import Link
from penstock.simulator.discrete_kernel import next_arrival
from penstock.simulator.discrete_tables import BROADCAST, FORWARD
from penstock.simulator.draws import distribution
from penstock.simulator.layout import Layout, feed_rows, operator_rows, salt, stream_rows, zipf_shares
from penstock.simulator.options import SimulationOptions
from penstock.simulator.records import Rows, Tables, chained
from penstock.telemetry import Sketch

MOST_CHANNELS = 20_000_000
BINS = len(Sketch.empty().bins)
UNBOUNDED = 1 << 60


def tables(layout: Layout, link: Link, options: SimulationOptions, seed: int) -> Tables:
    """All tables as they are before the first record; nodes come later."""
    reserve, constraints, sinks = (
        _most_per_step(layout),
        len(layout.dataflow.constraints),
        len(layout.dataflow.sinks),
    )
    rows, outputs = max(1024, 4 * reserve), max([1, *map(len, layout.outs)])
    t = Tables(
        tb.SCHEMA,
        {
            "free_events": rows,
            "free_records": rows,
            "reserve": reserve,
            "send_s": options.send_s,
            "receive_s": options.receive_s,
            "link_latency": link.latency_s,
            "link_bandwidth": link.bandwidth_bytes_per_s,
            "random_spread": options.spread == "random",
            "batch_spread": options.spread == "batches",
            "key_count": options.keys,
            "outputs": outputs,
            "constraints": constraints,
            "bins": BINS,
        },
    )
    t["agenda"] = np.zeros(rows, tb.AGENDA)
    t["events"], t["records"] = (
        chained(np.zeros(rows, tb.EVENT), 0),
        chained(np.zeros(rows, tb.RECORD), 0),
    )
    t["clocks"] = np.full((rows, constraints), -1.0)
    t["nodes"], t["serving"] = np.zeros(0, tb.NODE), np.zeros((0, 4), np.int64)
    t["operators"], t["alternates"] = _operators(layout, options, seed), _alternates(layout)
    t["outs"] = np.array([s for each in layout.outs for s in each], np.int64)
    t["tasks"] = _tasks(layout, options)
    t["cursors"] = np.repeat(layout.slot_index[:, None], outputs, axis=1)
    t["streams"], t["channels"] = _streams(layout, options, seed)
    t["feeds"], t["load_times"], t["load_rates"] = _feeds(layout, options, seed)
    t["key_share"], t["key_alias"] = _alias_table(zipf_shares(options.keys, options.key_skew))
    t["operator_role"], t["stream_role"] = layout.operator_role, layout.stream_role
    t["sink_sums"], t["sink_bins"] = np.zeros((sinks, 3)), np.zeros((sinks, BINS))
    t["constraint_bins"] = np.zeros((constraints, BINS))
    t["ready"], t["trace"] = np.zeros(layout.slots + 1, np.int64), np.zeros(0, tb.TRACE)
    feeds = t["feeds"]
    for f in range(len(feeds)):
        feeds["event"][f] = new_event(t.w, ARRIVAL, f)
        due = next_arrival(t.w, f)
        if due < math.inf:
            schedule(t.w, int(feeds["event"][f]), due)
    return t


def _most_per_step(layout: Layout) -> int:
    """Records (and messages, and trace rows) that one record's completion can make."""
    most = 0
    for o, operator in enumerate(layout.dataflow.operators):
        copies = sum(
            int(layout.maximum[layout.stream_target[s]]) if layout.stream_wiring[s] == BROADCAST else 1
            for s in layout.outs[o]
        )
        most = max(most, (math.ceil(max(a.selectivity for a in operator.alternates)) + 1) * (copies + 1))
    return most + 64


def _operators(layout: Layout, options: SimulationOptions, seed: int) -> Rows:
    rows, declared = operator_rows(layout, tb.OPERATOR), layout.dataflow.operators
    rows["alternate"] = layout.alternate_base
    rows["window"] = [options.windows_s.get(o.id, 0.0) for o in declared]
    rows["salt"] = [salt(seed, "operator", o.id) for o in declared]
    rows["keep_by_key"] = [bool(o.keep_by) for o in declared]
    rows["sample_salt"] = salt(seed, "sample")  # one for all sources: joins meet
    return rows


def _alternates(layout: Layout) -> Rows:
    every = [a for o in layout.dataflow.operators for a in o.alternates]
    rows = np.zeros(len(every), tb.ALTERNATE)
    rows["cost"], rows["cv"] = [a.cost_s for a in every], [a.cost_cv for a in every]
    rows["kind"], rows["selectivity"] = (
        [distribution(a.cost_cv) for a in every],
        [a.selectivity for a in every],
    )
    return rows


def _tasks(layout: Layout, options: SimulationOptions) -> Rows:
    rows = np.zeros(layout.slots, tb.TASK)
    rows["operator"], rows["index"] = layout.slot_operator, layout.slot_index
    for name in ("node", "head", "tail", "waiting_head", "waiting_tail", "record", "last_arrival"):
        rows[name] = -1
    is_source = np.array([o.kind == "source" for o in layout.dataflow.operators])
    rows["capacity"] = np.where(is_source[layout.slot_operator], UNBOUNDED, options.queue_records)
    return rows


def _streams(layout: Layout, options: SimulationOptions, seed: int) -> tuple[Rows, Rows]:
    declared, operators = layout.dataflow.streams, layout.dataflow.operators
    rows = stream_rows(layout, options, tb.STREAM)
    rows["batch_bytes"] = options.batch_bytes
    for j, stream in enumerate(declared):
        inputs = layout.dataflow.upstream(stream.target)
        rows["side"][j] = stream.wiring == "broadcast" and any(i.wiring != "broadcast" for i in inputs)
    rows["columns"] = np.where(
        layout.stream_wiring == FORWARD, 1, layout.maximum[layout.stream_target] if len(declared) else 1
    )
    rows["channels"] = rows["columns"] * layout.maximum[layout.stream_source]
    rows["base"] = np.cumsum(rows["channels"]) - rows["channels"]
    total = int(rows["channels"].sum())
    if total > MOST_CHANNELS:
        raise ValueError(
            f"{total} channels between tasks are more than the {MOST_CHANNELS} a discrete simulation holds; "
            "lower the maximum parallelism or use the fluid fidelity"
        )
    channels = np.zeros(total, tb.CHANNEL)
    for j, stream in enumerate(declared):
        source, target = operators[layout.stream_source[j]], operators[layout.stream_target[j]]
        rows["redraws"][j], rows["sample_salt"][j] = _redraw(layout.dataflow, source, seed)
        rows["salt"][j] = salt(seed, "stream", stream.id)
        # Operators keyed by the same columns give a record to the same task number: joins meet.
        rows["key_salt"][j] = salt(seed, "key", *target.key)
        mine = slice(rows["base"][j], rows["base"][j] + rows["channels"][j])
        channels["stream"][mine] = j
        channels["source"][mine] = layout.base[layout.stream_source[j]] + np.arange(
            rows["channels"][j]
        ) // max(1, rows["columns"][j])
    for name in ("event", "head", "tail", "next_waiting", "last_delivery", "target"):
        channels[name] = -1
    return rows, channels


def _redraw(dataflow: Dataflow, operator: Operator, seed: int) -> tuple[bool, np.uint64]:
    """Whether what leaves an operator is decided by a draw of its own, and the salt of that draw.

    After the whole record decided, it is the draw that sources which are kept by a key have too, so joins meet. After
    other columns it is an independent one.
    """
    columns = dataflow.keep_by(operator.id) if operator.kind != "source" else ()
    before = {dataflow.kept_by[s.source] for s in dataflow.upstream(operator.id)}
    return bool(columns), salt(seed, "sample", *(() if before == {()} else columns))


def _feeds(
    layout: Layout, options: SimulationOptions, seed: int
) -> tuple[Rows, NDArray[np.float64], NDArray[np.float64]]:
    rows, times, rates = feed_rows(layout, tb.FEED)
    rows["cv"], rows["kind"] = options.arrival_cv, distribution(options.arrival_cv)
    names = [layout.dataflow.operators[feed.operator].id for feed in layout.feeds]
    rows["salt"] = [salt(seed, "feed", n, str(i)) for n, i in zip(names, rows["index"], strict=True)]
    rows["silent"] = [feed.load.peak_rps == 0 for feed in layout.feeds]
    return rows, times, rates


def _alias_table(shares: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Walker's alias table (Vose 1991): column k holds key k up to `share[k]` and `alias[k]` above it."""
    count = len(shares)
    share, alias = shares * count, np.arange(count)
    small = [k for k in range(count) if share[k] < 1]
    large = [k for k in range(count) if share[k] >= 1]
    while small and large:
        k, big = small.pop(), large[-1]
        alias[k] = big
        share[big] -= 1 - share[k]
        if share[big] < 1:
            small.append(large.pop())
    return np.minimum(share, 1.0), alias
