"""From what an engine measured to the snapshot that policies see."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats
from penstock.dataflow import Constraint
from penstock.simulator.layout import Layout, salt
from penstock.simulator.measurement import Measurement
from penstock.simulator.node_lifecycle import Fleet
from penstock.simulator.task_lifecycle import Crew
from penstock.telemetry import (
    Alternates,
    Constraints,
    MachineClass,
    Moments,
    Nodes,
    Operators,
    Sinks,
    Sketch,
    Snapshot,
    Sources,
    Streams,
    Tasks,
    Traffic,
)

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Controls:
    """What the runtime was last told to do with records."""

    alternate: NDArray[np.int64]
    source_keep: Floats
    stream_keep: Floats
    deadline_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Latencies:
    """Latencies of one interval: of operators, of streams, and of single records by constraint."""

    time_s: float
    operators: Moments
    streams: Moments
    bins: Floats


class Observer:
    """Makes snapshots, and remembers what constraints with a longer window need."""

    def __init__(self, layout: Layout, classes: tuple[MachineClass, ...], seed: int) -> None:
        self._layout, self._classes, self._seed = layout, classes, seed
        self._recent: deque[_Latencies] = deque()
        self._window_s = max((c.window_s for c in layout.dataflow.constraints), default=0.0)
        self._count = 0

    def snapshot(
        self,
        measured: Measurement,
        *,
        time_s: float,
        interval_s: float,
        fleet: Fleet,
        crew: Crew,
        controls: Controls,
    ) -> Snapshot:
        """The facts of the interval that ends now."""
        layout = self._layout
        self._count += 1
        present = np.flatnonzero(crew.rows >= 0)
        tasks = _tasks(layout, crew, fleet, measured, present, interval_s)
        position = np.full(layout.slots, -1)
        position[present] = np.arange(len(present))
        source, target, records, size = measured.traffic
        known = (position[source] >= 0) & (position[target] >= 0)
        return Snapshot(
            time_s=time_s,
            interval_s=interval_s,
            dataflow=layout.dataflow,
            nodes=_nodes(fleet, measured, time_s, interval_s),
            operators=Operators(
                parallelism=crew.count.copy(),
                alternate=controls.alternate.copy(),
                elastic=np.array(
                    [o.parallelism.minimum < o.parallelism.maximum for o in layout.dataflow.operators]
                ),
            ),
            alternates=_alternates(layout, measured),
            tasks=tasks,
            streams=Streams(
                records=measured.sent,
                shed=measured.offered - measured.passed,
                bytes=measured.stream_bytes,
                remote_bytes=measured.remote_bytes,
                latency_s=measured.stream_latency_s,
                batch_wait_s=measured.batch_wait_s,
                deadline_s=controls.deadline_s.copy(),
                keep=controls.stream_keep.copy(),
                known=np.ones(len(layout.dataflow.streams), np.bool_),
            ),
            sources=self._sources(measured, controls, interval_s),
            sinks=self._sinks(measured),
            constraints=self._constraints(measured, time_s),
            traffic=Traffic(
                from_task=position[source[known]],
                to_task=position[target[known]],
                records_rps=records[known] / interval_s,
                bytes_per_s=size[known] / interval_s,
            ),
            classes=self._classes,
            cost=fleet.cost(time_s),
            seed=int(salt(self._seed, "snapshot", str(self._count)) >> np.uint64(1)),
            warnings=measured.warnings,
        )

    def _by_operator(self, column: Floats) -> Floats:
        return np.bincount(self._layout.slot_operator, column, len(self._layout.base)).astype(np.float64)

    def _sources(self, measured: Measurement, controls: Controls, interval_s: float) -> Sources:
        dataflow = self._layout.dataflow
        rows = np.array([dataflow.row[o.id] for o in dataflow.sources], np.int64)
        read = self._by_operator(measured.processed + measured.dropped)
        return Sources.blank(
            len(rows),
            operator=rows,
            produced_rps=self._by_operator(measured.arrived)[rows] / interval_s,
            read_rps=read[rows] / interval_s,
            backlog_records=self._by_operator(measured.queued)[rows],
            oldest_s=measured.oldest_s[rows],
            keep=controls.source_keep[rows],
            backlog_known=True,
            known=True,
        )

    def _sinks(self, measured: Measurement) -> Sinks:
        dataflow = self._layout.dataflow
        rows = np.array([dataflow.row[o.id] for o in dataflow.sinks], np.int64)
        processed = self._by_operator(measured.processed)[rows]
        return Sinks(
            operator=rows,
            priority=np.array([o.priority for o in dataflow.sinks], np.int64),
            min_accuracy=np.array([o.min_accuracy for o in dataflow.sinks], np.float64),
            records=processed,
            accuracy=self._accuracy(measured)[rows],
            latency_s=measured.sink_latency_s,
            sketch=tuple(Sketch(bins) for bins in measured.sink_bins),
            known=measured.sink_latency_s.count > 0,
        )

    def _accuracy(self, measured: Measurement) -> Floats:
        """Current accuracy (cAc) of each operator: the share of the input that is to count there, late or not.

        cAc(t) = lAc(t) · min over upstream of cAc (quality-of-data.txt). The paper's lAc is what came in over what
        upstream had for it in the interval, so that what waits counts as lost and is not counted when it comes;
        here lAc is what shedding let pass of what went by: at a source of what it read, at a stream of what it was
        given. Added up over time that is what a count at the sinks gives.
        """
        layout = self._layout
        processed = self._by_operator(measured.processed)
        read = processed + self._by_operator(measured.dropped)
        accuracy = np.ones(len(layout.base))
        for o in layout.order:
            if not layout.ins[o]:
                accuracy[o] = processed[o] / read[o] if read[o] > 0 else 1.0
                continue
            accuracy[o] = min(
                accuracy[layout.stream_source[s]]
                * (measured.passed[s] / measured.offered[s] if measured.offered[s] > 0 else 1.0)
                for s in layout.ins[o]
            )
        return accuracy

    def _constraints(self, measured: Measurement, time_s: float) -> Constraints:
        layout = self._layout
        self._recent.append(
            _Latencies(
                time_s,
                measured.latency_s.grouped(layout.slot_operator, len(layout.base)),
                measured.stream_latency_s,
                measured.constraint_bins,
            )
        )
        while self._recent and self._recent[0].time_s <= time_s - self._window_s:
            self._recent.popleft()
        found = [self._latency_s(c, i, time_s) for i, c in enumerate(layout.dataflow.constraints)]
        return Constraints.blank(
            len(found),
            bound_s=[c.bound_ms / 1000 for c in layout.dataflow.constraints],
            latency_s=[0.0 if f is None else f for f in found],
            known=[f is not None for f in found],
        )

    def _latency_s(self, constraint: Constraint, row: int, time_s: float) -> float | None:
        """The constrained statistic over the window.

        A mean is the sum of mean latencies along the sequence (nephele.txt, section II-D), a percentile is that of
        single records, each with its own clock.
        """
        recent = [r for r in self._recent if r.time_s > time_s - constraint.window_s] or [self._recent[-1]]
        if constraint.statistic != "mean":
            bins = np.sum([r.bins[row] for r in recent], axis=0)
            return Sketch(bins).quantile(_QUANTILES[constraint.statistic])
        operators, streams = recent[0].operators, recent[0].streams
        for later in recent[1:]:
            operators, streams = operators.merge(later.operators), streams.merge(later.streams)
        layout, sequence = self._layout, constraint.sequence
        path = [layout.dataflow.row[o] for o in sequence.operators]
        parts = [operators.take(np.array([o])) for o in path]
        hops = [[s for s in layout.outs[a] if layout.stream_target[s] == b] for a, b in pairwise(path)]
        hops += [list(layout.ins[path[0]])] if sequence.leading_stream else []
        hops += [list(layout.outs[path[-1]])] if sequence.trailing_stream else []
        parts += [streams.take(np.array(h)).grouped(np.zeros(len(h), np.int64), 1) for h in hops]
        if any(p.count[0] == 0 for p in parts):
            return None
        return float(sum(p.mean[0] for p in parts))


def _nodes(fleet: Fleet, measured: Measurement, time_s: float, interval_s: float) -> Nodes:
    live = fleet.live()
    rows, members = np.array([r for r, _ in live], np.int64), [m for _, m in live]
    foreign = np.array([m.foreign for m in members])
    # Others' traffic shows as on a machine: in the counters of its interface, not as a narrower cable.
    cable = np.array([m.machine.bandwidth_bytes_per_s for m in members])
    others = np.clip(cable - np.array([m.bandwidth_bytes_per_s for m in members]), 0.0, None)
    ids = tuple(m.id for m in members)
    return Nodes.blank(
        len(live),
        ids=ids,
        hosts=ids,
        machines=tuple(m.machine.name for m in members),
        cores=[m.machine.cores for m in members],
        speed=[m.speed for m in members],
        own_cpu=measured.node_cpu_s[rows] / interval_s,
        foreign_cpu=foreign,
        load_average=measured.node_busy_s[rows] / interval_s + foreign,
        memory_bytes=[m.machine.memory_bytes for m in members],
        bandwidth_bytes_per_s=cable,
        net_in_bytes_per_s=measured.node_bytes_in[rows] / interval_s + others,
        net_out_bytes_per_s=measured.node_bytes_out[rows] / interval_s + others,
        price_per_hour=[m.machine.price_per_hour for m in members],
        started_s=[m.started_s for m in members],
        paid_until_s=[m.paid_until_s(time_s) for m in members],
        ready=[m.ready for m in members],
        draining=[m.draining for m in members],
        known=True,
    )


def _alternates(layout: Layout, measured: Measurement) -> Alternates:
    operators = layout.dataflow.operators
    return Alternates.blank(
        layout.alternates,
        operator=np.repeat(np.arange(len(operators)), [len(o.alternates) for o in operators]),
        index=np.concatenate([np.arange(len(o.alternates)) for o in operators]),
        service_s=measured.work_s,
        records_in=measured.alternate_in,
        records_out=measured.alternate_out,
    )


def _tasks(
    layout: Layout,
    crew: Crew,
    fleet: Fleet,
    measured: Measurement,
    present: NDArray[np.int64],
    interval_s: float,
) -> Tasks:
    shown = np.full(len(fleet.rows), -1)
    shown[[row for row, _ in fleet.live()]] = np.arange(len(fleet.live()))
    state = np.array([crew.state_bytes(o) for o in range(len(layout.base))])
    return Tasks.blank(
        len(present),
        operator=layout.slot_operator[present],
        index=layout.slot_index[present],
        node=shown[crew.rows[present]],
        arrived=measured.arrived[present],
        processed=measured.processed[present],
        emitted=measured.emitted[present],
        shed=measured.shed[present],
        queued=measured.queued[present],
        bytes_in=measured.bytes_in[present],
        bytes_out=measured.bytes_out[present],
        busy_s=measured.busy_s[present],
        cpu=measured.cpu_s[present] / interval_s,
        service_s=measured.service_s.take(present),
        interarrival_s=measured.interarrival_s.take(present),
        latency_s=measured.latency_s.take(present),
        state_bytes=state[layout.slot_operator[present]],
        state_known=True,
        moving=crew.moving_slots()[present],
        known=np.ones(len(present), np.bool_),
    )
