"""The state of the fluid simulation: arrays by slot (t_), operator (o_), stream (s_), node (n_), feed (f_),
constraint (c_) and sink (k_). What has three columns holds weights, Σ and Σ² since the last measurement.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from penstock.runtimes.simulated.layout import Layout
from penstock.runtimes.simulated.options import SimulationOptions
from penstock.telemetry import Sketch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Flows(NamedTuple):
    """Everything the fluid kernel reads and writes."""

    order: Ints
    """Operators in topological order."""
    out_first: Ints
    outs: Ints
    """Streams out of operator o: `outs[out_first[o]:out_first[o + 1]]`."""
    by_node: Ints
    node_first: Ints
    """Slots on node n: `by_node[node_first[n]:node_first[n + 1]]`."""
    on_node: Floats
    """[operator, node]: share of what is meant for the operator that goes to its tasks on the node."""

    o_base: Ints
    o_tasks: Ints
    o_most: Ints
    o_sink: Ints
    o_source: Ints
    o_windowed: Ints
    o_keep: Floats
    o_alternate: Ints
    o_cost: Floats
    o_cs2: Floats
    o_selectivity: Floats
    o_work: Floats
    """Core-seconds per record, messages included."""
    o_ca2: Floats
    o_ca2_sum: Floats
    o_inflow: Floats
    o_accept: Floats
    """Share of what is meant for an operator that its fullest task can take."""
    o_done: Floats
    o_busy: Floats
    o_latency: Floats
    o_wait: Floats
    o_wait2: Floats

    s_source: Ints
    s_target: Ints
    s_wiring: Ints
    s_keep: Floats
    s_deadline: Floats
    s_record_bytes: Floats
    s_batch: Floats
    """Records that fill a batch."""
    s_link_s: Floats
    """Latency of links, averaged over pairs of tasks."""
    s_rate: Floats
    """Copies sent in the last step; `s_remote`: the share of them that left their node."""
    s_remote: Floats
    s_each: Floats
    """Records in a message."""
    s_wait_s: Floats
    s_offered: Floats
    s_shed: Floats
    s_sent: Floats
    s_bytes: Floats
    s_remote_bytes: Floats
    s_latency: Floats
    s_wait: Floats

    n_cores: Floats
    n_foreign: Floats
    n_speed: Floats
    n_bandwidth: Floats
    n_latency: Floats
    n_level: Floats
    """Share of a core that a busy task has."""
    n_out: Floats
    n_in: Floats
    n_local: Floats
    n_cpu_s: Floats
    n_busy_s: Floats
    n_bytes_in: Floats
    n_bytes_out: Floats

    t_operator: Ints
    t_node: Ints
    t_paused: Ints
    t_watched: Ints
    t_share: Floats
    """Share of the operator's records, by key."""
    t_queue: Floats
    t_limit: Floats
    t_inflow: Floats
    t_before: Floats
    """Inflow of the step before."""
    t_capacity: Floats
    """Records it can process in this step."""
    t_ready: Floats
    """Of these, the ones there are to process, as far as is known before the step."""
    t_wanted: Floats
    """What it would be sent if nothing held its senders back."""
    t_accept: Floats
    t_chance: Floats
    """Mean wait that comes from chance, not from backlog."""
    t_age: Floats
    """Mean age of the records that arrive."""
    t_age_sum: Floats
    t_arrived: Floats
    t_processed: Floats
    t_emitted: Floats
    t_shed: Floats
    t_dropped: Floats
    t_busy_s: Floats
    t_cpu_s: Floats
    t_latency: Floats

    a_in: Floats
    """Records by alternate."""
    a_out: Floats

    f_operator: Ints
    f_index: Ints
    f_first: Ints
    f_count: Ints
    f_period: Floats
    f_position: Ints
    f_cycle: Floats
    load_times: Floats
    load_rates: Floats

    c_operator: Ints
    """[constraint, operator]: 1 where the operator is in the sequence."""
    c_last: Ints
    c_role: Ints
    """[stream, constraint], as in the layout."""
    c_bins: Floats
    k_sums: Floats
    k_bins: Floats


def flows(layout: Layout, options: SimulationOptions) -> Flows:
    """All arrays as they are before the first step; nodes come later."""
    dataflow = layout.dataflow
    operators, streams, feeds = dataflow.operators, dataflow.streams, layout.feeds
    counts = {"o": len(operators), "s": len(streams), "t": layout.slots, "n": 0, "a": layout.alternates}
    arrays: dict[str, NDArray[Any]] = {
        name: np.zeros(counts[name[0]], np.int64 if kind == Ints else np.float64)
        for name, kind in get_type_hints(Flows).items()
        if name[1] == "_" and name[0] in counts
    }
    sinks = [o.id for o in dataflow.sinks]
    is_source = np.array([o.kind == "source" for o in operators])
    firsts = np.cumsum([0, *(len(f.load.times_s) for f in feeds)])
    bytes_each = np.array([operators[a].record_bytes for a in layout.stream_source], np.float64)
    constraints, bins = dataflow.constraints, len(Sketch.empty().bins)
    arrays |= {
        "order": layout.order,
        "out_first": np.cumsum([0, *map(len, layout.outs)]),
        "outs": np.array([s for each in layout.outs for s in each], np.int64),
        "by_node": np.zeros(0, np.int64),
        "node_first": np.zeros(1, np.int64),
        "on_node": np.zeros((len(operators), 0)),
        "o_base": layout.base,
        "o_tasks": layout.start.copy(),
        "o_most": layout.maximum,
        "o_sink": np.array([sinks.index(o.id) if o.kind == "sink" else -1 for o in operators]),
        "o_source": is_source.astype(np.int64),
        "o_windowed": np.array([o.latency == "read-write" for o in operators], np.int64),
        "o_keep": np.ones(len(operators)),
        "o_ca2": np.full(len(operators), options.arrival_cv**2),
        "o_accept": np.ones(len(operators)),
        "s_source": layout.stream_source,
        "s_target": layout.stream_target,
        "s_wiring": layout.stream_wiring,
        "s_keep": np.ones(len(streams)),
        "s_deadline": np.array([options.deadlines_s.get(s.id, options.deadline_s) for s in streams]),
        "s_record_bytes": bytes_each,
        "s_batch": np.maximum(1.0, np.ceil(options.batch_bytes / np.maximum(bytes_each, 1e-9))),
        "s_each": np.ones(len(streams)),
        "s_latency": np.zeros((len(streams), 3)),
        "s_wait": np.zeros((len(streams), 3)),
        "t_operator": layout.slot_operator,
        "t_node": np.full(layout.slots, -1),
        "t_limit": np.where(is_source[layout.slot_operator], math.inf, float(options.queue_records)),
        "t_latency": np.zeros((layout.slots, 3)),
        "f_operator": np.array([f.operator for f in feeds], np.int64),
        "f_index": np.array([-1 if f.index is None else f.index for f in feeds], np.int64),
        "f_first": firsts[:-1],
        "f_count": np.diff(firsts),
        "f_period": np.array([math.inf if f.load.period_s is None else f.load.period_s for f in feeds]),
        "f_position": np.zeros(len(feeds), np.int64),
        "f_cycle": np.zeros(len(feeds)),
        "load_times": np.array([t for f in feeds for t in f.load.times_s]),
        "load_rates": np.array([r for f in feeds for r in f.load.rates_rps]),
        "c_operator": np.array(
            [[o.id in c.sequence.operators for o in operators] for c in constraints], np.int64
        ).reshape(len(constraints), len(operators)),
        "c_last": np.array([dataflow.row[c.sequence.operators[-1]] for c in constraints], np.int64),
        "c_role": layout.stream_role,
        "c_bins": np.zeros((len(constraints), bins)),
        "k_sums": np.zeros((len(sinks), 3)),
        "k_bins": np.zeros((len(sinks), bins)),
    }
    return Flows(**arrays)
