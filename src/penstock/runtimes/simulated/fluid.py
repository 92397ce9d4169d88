"""The fluid fidelity: steers the fluid kernel and reads its arrays."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from penstock.runtimes.simulated.draws import owned_shares
from penstock.runtimes.simulated.engine import Floats, Ints, Ledger, Measurement, moments
from penstock.runtimes.simulated.flows import Flows, flows
from penstock.runtimes.simulated.fluid_kernel import NOTHING, run_steps
from penstock.runtimes.simulated.layout import Layout, salt, zipf_shares
from penstock.runtimes.simulated.options import SimulationOptions
from penstock.runtimes.simulated.tables import BROADCAST, FORWARD, KEY
from penstock.telemetry import MachineClass, Moments

MOST_PAIRS = 1_000_000
"""Pairs of tasks beyond which a snapshot does not tell the traffic between them."""
_COUNTERS = (
    "t_arrived", "t_processed", "t_emitted", "t_shed", "t_dropped", "t_busy_s", "t_cpu_s",
    "n_cpu_s", "n_busy_s", "n_bytes_in", "n_bytes_out",
    "s_offered", "s_shed", "s_sent", "s_bytes", "s_remote_bytes", "a_in", "a_out",
)  # fmt: skip


class FluidEngine:
    """Rates and shares in steps of equal length. Implements `Engine`."""

    def __init__(self, layout: Layout, options: SimulationOptions, seed: int) -> None:
        self._layout, self._options, self._seed = layout, options, seed
        self._flows = flows(layout, options)
        self._steps = 0
        self._now_s = self._measured_s = 0.0
        self._at_rest: list[int] = []
        self._moved = True
        self._latency: Floats = np.zeros((0, 0))
        self._seen = {name: getattr(self._flows, name).copy() for name in _COUNTERS}
        for o in range(len(layout.base)):
            self._use(o, 0)
            self._share_keys(o)

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._now_s

    def advance(self, until_s: float) -> int | None:
        """Go on until `until_s`, in whole steps, or until a watched task has come to rest: then its slot."""
        if self._at_rest:
            return self._at_rest.pop(0)
        step, options = self._options.step_s, self._options
        wanted = math.floor(until_s / step + 1e-9)
        while self._steps < wanted:
            self._place_all()
            self._steps += run_steps(
                self._flows, self._steps, wanted - self._steps, step, options.send_s, options.receive_s
            )
            f = self._flows
            empty = np.flatnonzero((f.t_watched == 1) & (f.t_queue + f.t_inflow <= 0))
            if len(empty):
                f.t_watched[empty] = 0
                self._now_s = max(self._now_s, self._steps * step)
                self._at_rest = empty.tolist()
                return self._at_rest.pop(0)
        self._now_s = max(self._now_s, until_s)
        return None

    def add_node(self, node: int, machine: MachineClass, latency_s: Floats, bandwidth_bps: Floats) -> None:
        """Put a machine at a node row; bandwidth between pairs of nodes is not modelled here, that of nodes is."""
        f, count = self._flows, len(latency_s)
        if count > len(f.n_cores):
            more = count - len(f.n_cores)
            grown = {
                name: np.pad(getattr(f, name), (0, more)) for name in Flows._fields if name.startswith("n_")
            }
            grown["on_node"] = np.zeros((len(f.o_base), count))
            self._flows = f = f._replace(**grown)
            f.n_speed[-more:] = 1.0
        f.n_cores[node] = machine.cores
        self._latency = latency_s
        self.disturb(node, foreign=0.0, speed=machine.speed, bandwidth_bps=machine.bandwidth_bps, latency=1.0)
        self._moved = True

    def disturb(
        self, node: int, *, foreign: float, speed: float, bandwidth_bps: float, latency: float
    ) -> None:
        """Change what a node has to give."""
        f = self._flows
        self._moved |= bool(f.n_latency[node] != latency)
        f.n_foreign[node], f.n_speed[node] = foreign, speed
        f.n_bandwidth[node], f.n_latency[node] = bandwidth_bps, latency

    def place(self, slot: int, node: int) -> None:
        """Put a task that is at rest on a node, or (-1) nowhere."""
        self._flows.t_node[slot] = node
        self._moved = True

    def node_of(self, slot: int) -> int:
        """Where a task is."""
        return int(self._flows.t_node[slot])

    def set_tasks(self, operator: int, count: int) -> None:
        """Let the first `count` tasks of an operator take records from now on."""
        self._flows.o_tasks[operator] = count
        self._share_keys(operator)
        self._moved = True

    def hand_over(self, operator: int) -> None:
        """Give queued records to the tasks that own them now."""
        f, base = self._flows, int(self._layout.base[operator])
        block = slice(base, base + int(self._layout.maximum[operator]))
        f.t_queue[block] = f.t_queue[block].sum() * f.t_share[block]

    def pause(self, slot: int) -> None:
        """Stop a task; it is at rest at once."""
        self._flows.t_paused[slot] = 1
        self._at_rest.append(slot)

    def resume(self, slot: int) -> None:
        """Let a paused task go on."""
        self._flows.t_paused[slot] = 0

    def drain(self, slot: int) -> None:
        """Watch for the moment when a task that gets no more records has none left."""
        if self._flows.t_queue[slot] > 0:
            self._flows.t_watched[slot] = 1
        else:
            self._at_rest.append(slot)

    def undrain(self, slot: int) -> None:
        """Forget about draining it."""
        self._flows.t_watched[slot] = 0
        self._at_rest = [s for s in self._at_rest if s != slot]

    def is_empty(self, slot: int) -> bool:
        """Whether a task has nothing more to pass on."""
        return bool(self._flows.t_queue[slot] <= 0)

    def transfer_s(self, source: int, target: int, size_bytes: float) -> float:
        """Seconds that sending so much from node to node takes."""
        if source == target:
            return 0.0
        bandwidth = self._flows.n_bandwidth
        return float(self._latency[source, target] + size_bytes / min(bandwidth[source], bandwidth[target]))

    def set_alternate(self, operator: int, alternate: int) -> None:
        """Let an operator run another alternate."""
        self._use(operator, alternate)

    def set_source_keep(self, operator: int, keep: float) -> None:
        """Let a source keep only a share of what it reads."""
        self._flows.o_keep[operator] = _sizable(keep)

    def set_stream_keep(self, stream: int, keep: float) -> None:
        """Let a stream carry only a share of the records."""
        self._flows.s_keep[stream] = _sizable(keep)

    def set_deadline(self, stream: int, deadline_s: float) -> None:
        """Set the longest wait in a stream's output batches."""
        self._flows.s_deadline[stream] = deadline_s

    def measure(self) -> Measurement:
        """What happened since the last call."""
        f, layout = self._flows, self._layout
        d = {}
        for name in _COUNTERS:
            d[name] = getattr(f, name).copy()
            before, self._seen[name] = self._seen[name], d[name].copy()
            d[name][: len(before)] -= before
        op = layout.slot_operator
        interval_s, self._measured_s = self._now_s - self._measured_s, self._now_s
        arrived, processed = d["t_arrived"], d["t_processed"]
        service = _ratio(d["t_busy_s"], processed)
        gap = _ratio(np.full(layout.slots, interval_s), arrived)
        every = [a for o in layout.dataflow.operators for a in o.alternates]
        cost, cv = np.array([a.cost_s for a in every]), np.array([a.cost_cv for a in every])
        bytes_in, bytes_out = self._bytes(d)
        traffic, warnings = self._traffic(d)
        measured = Measurement(
            arrived=arrived,
            processed=processed,
            emitted=d["t_emitted"],
            shed=d["t_shed"],
            dropped=d["t_dropped"],
            queued=f.t_queue.copy(),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            busy_s=d["t_busy_s"],
            cpu_s=d["t_cpu_s"],
            service_s=Moments.known(processed, service, f.o_cs2[op] * service**2),
            interarrival_s=Moments.known(arrived, gap, f.o_ca2[op] * gap**2),
            latency_s=_taken(f.t_latency),
            node_cpu_s=d["n_cpu_s"],
            node_busy_s=d["n_busy_s"],
            node_bytes_in=d["n_bytes_in"],
            node_bytes_out=d["n_bytes_out"],
            offered=d["s_offered"],
            passed=d["s_offered"] - d["s_shed"],
            sent=d["s_sent"],
            stream_bytes=d["s_bytes"],
            remote_bytes=d["s_remote_bytes"],
            stream_latency_s=_taken(f.s_latency),
            batch_wait_s=_taken(f.s_wait),
            work_s=Moments.known(d["a_in"], cost, (cv * cost) ** 2),
            alternate_in=d["a_in"],
            alternate_out=d["a_out"],
            sink_latency_s=_taken(f.k_sums),
            sink_bins=f.k_bins.copy(),
            constraint_bins=f.c_bins.copy(),
            oldest_s=self._oldest(d, interval_s),
            traffic=traffic,
            warnings=warnings,
        )
        f.k_bins[:] = 0.0
        f.c_bins[:] = 0.0
        return measured

    def ledger(self) -> Ledger:
        """Where every record is; nothing stays in batches or on links, which cost time but hold nothing here."""
        f, op, count = self._flows, self._layout.slot_operator, len(self._layout.base)

        def by_operator(column: Floats) -> Floats:
            return _by(op, column, count)

        nothing = np.zeros(len(f.s_source))
        return Ledger(
            arrived=by_operator(f.t_arrived),
            processed=by_operator(f.t_processed),
            queued=by_operator(f.t_queue),
            in_service=np.zeros(count),
            dropped=by_operator(f.t_dropped),
            emitted=by_operator(f.t_emitted),
            offered=f.s_offered.copy(),
            shed=f.s_shed.copy(),
            sent=f.s_sent.copy(),
            batched=nothing,
            on_the_way=nothing,
            delivered=f.s_sent.copy(),
        )

    def _use(self, operator: int, alternate: int) -> None:
        f, chosen = self._flows, self._layout.dataflow.operators[operator].alternates[alternate]
        f.o_alternate[operator] = self._layout.alternate_base[operator] + alternate
        f.o_cost[operator], f.o_cs2[operator] = chosen.cost_s, chosen.cost_cv**2
        f.o_selectivity[operator] = chosen.selectivity

    def _share_keys(self, operator: int) -> None:
        f, layout, count = self._flows, self._layout, int(self._flows.o_tasks[operator])
        base = int(layout.base[operator])
        share = f.t_share[base : base + int(layout.maximum[operator])]
        share[:] = 0.0
        if self._options.keys and any(layout.stream_wiring[s] == KEY for s in layout.ins[operator]):
            key_salt = salt(self._seed, "key", *layout.dataflow.operators[operator].key)
            owned_shares(zipf_shares(self._options.keys, self._options.key_skew), key_salt, count, share)
        else:
            share[:count] = 1.0 / count

    def _place_all(self) -> None:
        """Bring what depends on the whole placement up to date."""
        if not self._moved:
            return
        self._moved = False
        f, layout = self._flows, self._layout
        nodes = len(f.n_cores)
        placed = np.flatnonzero(f.t_node >= 0)
        by_node = placed[np.argsort(f.t_node[placed], kind="stable")]
        first = np.searchsorted(f.t_node[by_node], np.arange(nodes + 1)).astype(np.int64)
        active = placed[layout.slot_index[placed] < f.o_tasks[layout.slot_operator[placed]]]
        f.on_node[:] = 0.0
        np.add.at(f.on_node, (layout.slot_operator[active], f.t_node[active]), f.t_share[active])
        self._flows = f = f._replace(by_node=by_node, node_first=first)
        latency = self._latency * np.maximum.outer(f.n_latency, f.n_latency)
        np.fill_diagonal(latency, 0.0)
        if not latency.any():
            return
        even = np.zeros_like(f.on_node)
        np.add.at(
            even,
            (layout.slot_operator[active], f.t_node[active]),
            1.0 / f.o_tasks[layout.slot_operator[active]],
        )
        for s, (a, b) in enumerate(zip(layout.stream_source, layout.stream_target, strict=True)):
            if layout.stream_wiring[s] == FORWARD:
                senders = np.arange(f.o_tasks[a])
                to = f.t_node[layout.base[b] + senders % f.o_tasks[b]]
                f.s_link_s[s] = latency[f.t_node[layout.base[a] + senders], to].mean()
            else:
                f.s_link_s[s] = even[a] @ latency @ f.on_node[b]

    def _oldest(self, since: dict[str, Floats], interval_s: float) -> Floats:
        op, count = self._layout.slot_operator, len(self._layout.base)
        queued = _by(op, self._flows.t_queue, count)
        read = _by(op, since["t_processed"] + since["t_dropped"], count)
        return _ratio(queued, read) * interval_s

    def _bytes(self, since: dict[str, Floats]) -> tuple[Floats, Floats]:
        layout, count = self._layout, len(self._layout.base)
        into = _by(layout.stream_target, since["s_bytes"], count)
        out = _by(layout.stream_source, since["s_bytes"], count)
        op = layout.slot_operator
        arrived, emitted = (
            _by(op, since["t_arrived"], count),
            _by(op, since["t_emitted"], count),
        )
        return (
            since["t_arrived"] * _ratio(into, arrived)[op],
            since["t_emitted"] * _ratio(out, emitted)[op],
        )

    def _traffic(self, since: dict[str, Floats]) -> tuple[tuple[Ints, Ints, Floats, Floats], tuple[str, ...]]:
        f, layout = self._flows, self._layout
        none = np.zeros(0, np.int64)
        pairs = [
            f.o_tasks[a] * (1 if wiring == FORWARD else f.o_tasks[b])
            for a, b, wiring in zip(
                layout.stream_source, layout.stream_target, layout.stream_wiring, strict=True
            )
        ]
        if not self._options.traffic or not pairs:
            return (none, none, np.zeros(0), np.zeros(0)), ()
        if sum(pairs) > MOST_PAIRS:
            warning = f"traffic between {sum(pairs)} pairs of tasks is more than a snapshot tells"
            return (none, none, np.zeros(0), np.zeros(0)), (warning,)
        rows: list[tuple[Ints, Ints, Floats, Floats]] = []
        for s, (a, b) in enumerate(zip(layout.stream_source, layout.stream_target, strict=True)):
            senders = layout.base[a] + np.arange(f.o_tasks[a])
            receivers = layout.base[b] + np.arange(f.o_tasks[b])
            passed = 1.0 - (since["s_shed"][s] / since["s_offered"][s] if since["s_offered"][s] > 0 else 0.0)
            amount = since["t_emitted"][senders] * passed
            if layout.stream_wiring[s] == FORWARD:
                source, target, records = senders, receivers[np.arange(len(senders)) % len(receivers)], amount
            else:
                even = layout.stream_wiring[s] != KEY
                share = np.full(len(receivers), 1.0 / len(receivers)) if even else f.t_share[receivers]
                share = np.ones(len(receivers)) if layout.stream_wiring[s] == BROADCAST else share
                source, target = np.repeat(senders, len(receivers)), np.tile(receivers, len(senders))
                records = np.outer(amount, share).ravel()
            used = records > 0
            rows.append((source[used], target[used], records[used], records[used] * f.s_record_bytes[s]))
        source, target, records, size = (np.concatenate(column) for column in zip(*rows, strict=True))
        return (source, target, records, size), ()


def _sizable(keep: float) -> float:
    """A share to keep, none where it is too small to compute with."""
    return keep if keep >= NOTHING else 0.0


def _by(group: Ints, column: Floats, count: int) -> Floats:
    return np.bincount(group, column, count).astype(np.float64)


def _ratio(a: NDArray[np.float64], b: NDArray[np.float64]) -> Floats:
    return np.where(b > 0, a / np.where(b > 0, b, 1.0), 0.0)


def _taken(sums: Floats) -> Moments:
    taken = moments(*sums.T)
    sums[:] = 0.0
    return taken
