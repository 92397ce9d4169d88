"""What computations ask for, whether they get it or not, and what nodes have to give.

A computation on a crowded node receives less than is sent to it: senders are held back. Judged by what arrived, it
would look small exactly where it suffers. So the rate of a computation is what its senders were offered, followed from
the sources along the streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Bools, Floats
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals

CPU, NETWORK, MEMORY = 0, 1, 2
LEAST_SHARE = 0.02
"""A node always has a little to give, or nothing there could be compared."""
LEAST_WANTED = 0.05
"""Share of a node's time that tasks must want for it to be judged by them."""
STILL = 0.5
"""Share of the foreign load there was that must be left for a node to count as crowded as it was."""
SLOW = 1.1
"""Records must cost this many times more on a node than elsewhere for the node to be called slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowded:
    """What tasks on a node were seen to get of its cores, beside whom."""

    share: float
    """Of the time in which they wanted a core, 0..1."""
    foreign_cpu: float
    """Cores that others used then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Capacity:
    """What each node has for us, less what others on its host use."""

    cores: Floats
    bandwidth_bytes_per_s: Floats
    """Infinite where it is not known."""
    memory_bytes: Floats
    foreign_cpu: Floats
    """Share of the node's cores that others use, 0..1."""
    foreign_network: Floats
    """Share of its bandwidth, 0..1."""
    pace: Floats
    """How many times more core time records take there than on a usual node, at least 1."""
    slowness: Floats
    """How many times longer tasks take there than they would alone on a usual node, at least 1."""
    crowded: Mapping[str, Crowded]
    """Nodes on which tasks had to wait for a core, for the next look."""

    @classmethod
    def of(
        cls, snapshot: Snapshot, *, fair_share: float, crowded: Mapping[str, Crowded] | None = None
    ) -> Capacity:
        """The capacity that a snapshot shows. Foreign load leaves at least a `fair_share` of the cores.

        `crowded`, as of the last look: a node that was emptied for its foreign load has no task any more to show it.
        """
        nodes = snapshot.nodes
        cores = np.where(nodes.cores > 0, nodes.cores, 1.0)
        foreign = np.where(nodes.known, _clean(nodes.foreign_cpu), 0.0)
        share, now_crowded = _remembering(snapshot, foreign, cores, crowded or {})
        pace = _pace(snapshot)
        slowness = np.maximum(pace, 1.0 / share)
        left = np.clip(cores - foreign, max(fair_share, LEAST_SHARE) * cores, cores)
        bandwidth = np.where(nodes.bandwidth_bytes_per_s > 0, nodes.bandwidth_bytes_per_s, np.inf)
        others = np.where(nodes.known, _foreign_network(snapshot), 0.0)
        free = np.maximum(bandwidth - others, LEAST_SHARE * bandwidth)
        return cls(
            cores=np.minimum(left, cores / slowness),
            bandwidth_bytes_per_s=free,
            memory_bytes=np.where(nodes.memory_bytes > 0, _clean(nodes.memory_bytes), np.inf),
            foreign_cpu=np.clip(foreign / cores, 0.0, 1.0),
            foreign_network=np.clip(others / bandwidth, 0.0, 1.0),
            pace=pace,
            slowness=slowness,
            crowded=now_crowded,
        )


def offered_rps(snapshot: Snapshot) -> tuple[Floats, Bools]:
    """(per task, records per second that are meant for it; whether that was measured)."""
    flow, tasks, view = snapshot.dataflow, snapshot.tasks, snapshot.by_operator
    interval_s = max(snapshot.interval_s, 1e-9)
    arrived = np.where(tasks.known, _clean(tasks.arrived), 0.0)
    offered = arrived / interval_s
    order, starts = tasks.rows_by_operator
    for id_ in flow.topological:
        row, incoming = flow.row[id_], flow.upstream(id_)
        mine = order[starts[row] : starts[row + 1]] if row + 1 < len(starts) else order[:0]
        if not incoming or not len(mine):
            continue
        whole, single = 0.0, np.zeros(len(mine))
        for stream in incoming:
            above = flow.row[stream.source]
            theirs = order[starts[above] : starts[above + 1]]
            keep = float(snapshot.streams.keep[flow.streams.index(stream)])
            sent = offered[theirs] * float(view.selectivity[above]) * keep
            if stream.wiring == "forward" and len(theirs) >= len(mine):
                single += totals(np.arange(len(theirs)) % len(mine), sent, len(mine))
            else:
                whole += float(sent.sum()) * (len(mine) if stream.wiring == "broadcast" else 1)
        measured = float(arrived[mine].sum()) / interval_s
        if single.any() and not whole:
            offered[mine] = single
        elif measured > 0 and whole + single.sum() > 0:
            # Keys and round robins are held back together: all tasks miss the same share.
            offered[mine] *= (whole + float(single.sum())) / measured
    # A task that ran on nothing took time all the same: it counts as one record.
    idle = tasks.known & (tasks.busy_s > 0) & (offered * interval_s < 1.0)
    offered = np.where(idle, 1.0 / interval_s, offered)
    return offered, tasks.known & np.isfinite(offered)


def costs(snapshot: Snapshot, slowness: Floats) -> tuple[Floats, Floats]:
    """(core-seconds, bytes) that each task spent on a record; NaN where it had none.

    Time measured on a slow node is taken back to what the record costs elsewhere. Bytes in and out share a cable in
    opposite directions: the larger counts.
    """
    tasks = snapshot.tasks
    done = np.where(tasks.known, _clean(tasks.processed), 0.0)
    some = np.where(done > 0, done, np.where(tasks.known & (tasks.busy_s > 0), 1.0, np.nan))
    placed = tasks.node >= 0
    slow = np.ones(len(tasks))
    slow[placed] = slowness[tasks.node[placed]]
    cpu = _clean(tasks.cpu) * snapshot.interval_s / some / slow
    size = np.maximum(_clean(tasks.bytes_in), _clean(tasks.bytes_out)) / some
    return cpu, size


def node_slowness(snapshot: Snapshot) -> Floats:
    """[node]: core time of all records there over that of the same records at the pace of the other nodes.

    Where computations of one operator take longer on one node than on the rest, the node is to blame: somebody else
    uses it, or it is a slower machine. The pace of an operator is the median over nodes, each with its own mean.
    """
    tasks, count = snapshot.tasks, len(snapshot.nodes)
    good = tasks.known & (tasks.node >= 0) & (tasks.processed > 0) & (tasks.cpu > 0)
    rows = np.flatnonzero(good)
    if not len(rows) or count < 2:
        return np.ones(count)
    operators = len(snapshot.dataflow.operators)
    pair = tasks.operator[rows] * count + tasks.node[rows]
    spent = totals(pair, tasks.cpu[rows] * snapshot.interval_s, operators * count).reshape(operators, count)
    done = totals(pair, tasks.processed[rows], operators * count).reshape(operators, count)
    there = done > 0
    pace = np.where(there, spent / np.where(there, done, 1.0), np.nan)
    usual = np.zeros(operators)
    several = there.sum(axis=1) > 1
    if several.any():
        # Of two nodes the faster one is the measure: the slower is the one in trouble.
        usual[several] = np.nanquantile(pace[several], 0.5, axis=1, method="lower")
    expected = (done * usual[:, None])[several].sum(axis=0)
    slow = spent[several].sum(axis=0) / np.where(expected > 0, expected, 1.0)
    return np.where((expected > 0) & (slow > SLOW), slow, 1.0)


def _pace(snapshot: Snapshot) -> Floats:
    """[node]: how many times more core time records take there, at least 1.

    Where telemetry compared the nodes over many batches that is it: one interval of a few noisy tasks says less.
    """
    nodes = snapshot.nodes
    if not nodes.speed_known.any():
        return node_slowness(snapshot)
    judged = nodes.speed_known & (nodes.speed > 0)
    usual = float(np.median(nodes.speed[judged])) if judged.any() else 1.0
    slow = usual / np.where(judged, nodes.speed, usual)
    return np.where(slow > SLOW, slow, 1.0)


def obtained_share(snapshot: Snapshot, cores: Floats) -> tuple[Floats, Bools]:
    """[node]: of the time in which tasks there wanted a core, the share in which they had one; whether that is known.

    A crowd of our own on too few cores is left out: what is missing then is no fault of the node. Tasks that want next
    to nothing get it in one slice on the busiest machine, and say nothing about it.
    """
    tasks, count, interval_s = snapshot.tasks, len(snapshot.nodes), max(snapshot.interval_s, 1e-9)
    rows = np.flatnonzero(tasks.known & (tasks.node >= 0) & (tasks.busy_s > 0) & (tasks.cpu >= 0))
    wanted = totals(tasks.node[rows], tasks.busy_s[rows], count)
    had = totals(tasks.node[rows], tasks.cpu[rows] * interval_s, count)
    judged = wanted > LEAST_WANTED * interval_s * cores
    crowd = np.maximum(wanted / (interval_s * cores), 1.0)
    share = np.where(judged, had / np.where(wanted > 0, wanted, 1.0) * crowd, 1.0)
    return np.where(share * SLOW < 1.0, np.maximum(share, LEAST_SHARE), 1.0), judged


def _remembering(
    snapshot: Snapshot, foreign: Floats, cores: Floats, crowded: Mapping[str, Crowded]
) -> tuple[Floats, dict[str, Crowded]]:
    """(obtained share of each node, the crowded ones), with what was known of nodes that show nothing any more."""
    nodes = snapshot.nodes
    share, judged = obtained_share(snapshot, cores)
    after = {}
    for id_, before in crowded.items():
        row = nodes.row.get(id_)
        if row is not None and judged[row]:
            # Measured on few tasks, it varies: believed at once where it is worse, by halves where it is better.
            between = 0.5 * (before.share + share[row])
            share[row] = min(share[row], between if between * SLOW < 1.0 else 1.0)
        elif row is not None and foreign[row] > STILL * before.foreign_cpu:
            share[row], after[id_] = before.share, before
    for row in np.flatnonzero(judged & (share < 1.0)).tolist():
        after[nodes.ids[row]] = Crowded(share=float(share[row]), foreign_cpu=float(foreign[row]))
    return share, after


def _foreign_network(snapshot: Snapshot) -> Floats:
    """Bytes per second that a host carries beyond those of our tasks on it."""
    nodes, tasks = snapshot.nodes, snapshot.tasks
    placed = (tasks.node >= 0) & tasks.known
    at, interval_s = tasks.node[placed], max(snapshot.interval_s, 1e-9)
    seen = []
    for host, own in (
        (nodes.net_in_bytes_per_s, tasks.bytes_in),
        (nodes.net_out_bytes_per_s, tasks.bytes_out),
    ):
        ours = totals(at, _clean(own)[placed], len(nodes)) / interval_s
        seen.append(np.clip(_clean(host) - ours, 0.0, None))
    return np.maximum(seen[0], seen[1])


def _clean(values: Floats) -> Floats:
    return np.where(np.isfinite(values) & (values > 0), values, 0.0)
