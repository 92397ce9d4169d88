"""The fluid fidelity: steers the fluid kernel and reads its arrays."""

from __future__ import annotations

import math

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.simulator.cluster import Link
from penstock.simulator.discrete_tables import BROADCAST, FORWARD, KEY
from penstock.simulator.draws import owned_shares
from penstock.simulator.fluid_kernel import NOTHING, run_steps
from penstock.simulator.fluid_tables import flows
from penstock.simulator.layout import Layout, salt, zipf_shares
from penstock.simulator.measurement import Counters, Measurement, moments, summed_by, taken
from penstock.simulator.options import SimulationOptions
from penstock.simulator.records import enlarged
from penstock.telemetry import MachineClass, Moments

MOST_PAIRS = 1_000_000
"""Pairs of tasks beyond which a snapshot does not tell the traffic between them."""


class FluidEngine:
    """Rates and shares in steps of equal length."""

    def __init__(self, layout: Layout, link: Link, options: SimulationOptions, seed: int) -> None:
        self._layout, self._options, self._seed, self._link_s = layout, options, seed, link.latency_s
        self._t = t = flows(layout, options)
        self._tasks, self._operators, self._streams = t["tasks"], t["operators"], t["streams"]
        self._steps = 0
        self._now_s = self._measured_s = 0.0
        self._at_rest: list[int] = []
        self._moved = True
        self._counters = Counters()
        for o in range(len(layout.base)):
            self._use(o, 0)
            self._share_keys(o)

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._now_s

    @property
    def covered_s(self) -> float:
        """The end of the last step."""
        return self._steps * self._options.step_s

    def advance(self, until_s: float) -> int | None:
        """Go on until `until_s`, in whole steps, or until a watched task has come to rest: then its slot."""
        if self._at_rest:
            return self._at_rest.pop(0)
        step = self._options.step_s
        wanted = math.floor(until_s / step + 1e-9)
        while self._steps < wanted:
            self._place_all()
            self._steps += run_steps(self._t.w, self._steps, wanted - self._steps, step)
            empty = np.flatnonzero(
                (self._tasks["watched"] == 1) & (self._tasks["queue"] + self._tasks["inflow"] <= 0)
            )
            if len(empty):
                self._tasks["watched"][empty] = 0
                self._now_s = max(self._now_s, self._steps * step)
                self._at_rest = empty.tolist()
                return self._at_rest.pop(0)
        self._now_s = max(self._now_s, until_s)
        return None

    def add_node(self, node: int, machine: MachineClass, count: int) -> None:
        """Put a machine at a node row, of `count`; of bandwidths only those of nodes are modelled here."""
        t = self._t
        if count > len(t["nodes"]):
            before = len(t["nodes"])
            t["nodes"], t.w["node_rows"] = enlarged(t["nodes"], count), count
            t["nodes"]["speed"][before:] = 1.0
            t["on_node"] = np.zeros((len(self._operators), count))
            t["leaving"], t["coming"] = np.zeros((2, count, len(self._streams)))
        t["nodes"]["cores"][node] = machine.cores
        self.disturb(node, 0.0, machine.speed, machine.bandwidth_bytes_per_s)
        self._moved = True

    def disturb(self, node: int, foreign: float, speed: float, bandwidth_bytes_per_s: float) -> None:
        """Change what a node has to give."""
        row = self._t["nodes"][node]
        row["foreign"], row["speed"], row["bandwidth"] = foreign, speed, bandwidth_bytes_per_s

    def place(self, slot: int, node: int) -> None:
        """Put a task that is at rest on a node, or (-1) nowhere."""
        self._tasks["node"][slot] = node
        self._moved = True

    def set_tasks(self, operator: int, count: int) -> None:
        """Let the first `count` tasks of an operator take records from now on."""
        self._operators["tasks"][operator] = count
        self._share_keys(operator)
        self._moved = True

    def hand_over(self, operator: int) -> None:
        """Give queued records to the tasks that own them now."""
        base = int(self._layout.base[operator])
        block = slice(base, base + int(self._layout.maximum[operator]))
        self._tasks["queue"][block] = self._tasks["queue"][block].sum() * self._tasks["share"][block]

    def pause(self, slot: int) -> None:
        """Stop a task; it is at rest at once."""
        self._tasks["paused"][slot] = 1
        self._at_rest.append(slot)

    def resume(self, slot: int) -> None:
        """Let a paused task go on."""
        self._tasks["paused"][slot] = 0

    def drain(self, slot: int) -> None:
        """Watch for the moment when a task that gets no more records has none left."""
        if self._tasks["queue"][slot] > 0:
            self._tasks["watched"][slot] = 1
        else:
            self._at_rest.append(slot)

    def undrain(self, slot: int) -> None:
        """Forget about draining it."""
        self._tasks["watched"][slot] = 0
        self._at_rest = [s for s in self._at_rest if s != slot]

    def is_empty(self, slot: int) -> bool:
        """Whether a task has nothing more to pass on."""
        return bool(self._tasks["queue"][slot] <= 0)

    def transfer_s(self, source: int, target: int, size_bytes: float) -> float:
        """Seconds that sending so much from node to node takes."""
        if source == target:
            return 0.0
        bandwidth = self._t["nodes"]["bandwidth"]
        return float(self._link_s + size_bytes / min(bandwidth[source], bandwidth[target]))

    def set_alternate(self, operator: int, alternate: int) -> None:
        """Let an operator run another alternate."""
        self._use(operator, alternate)

    def set_source_keep(self, operator: int, keep: float) -> None:
        """Let a source keep only a share of what it reads."""
        self._operators["keep"][operator] = _sizable(keep)

    def set_stream_keep(self, stream: int, keep: float) -> None:
        """Let a stream carry only a share of the records."""
        self._streams["keep"][stream] = _sizable(keep)

    def set_deadline(self, stream: int, deadline_s: float) -> None:
        """Set the longest wait in a stream's output batches."""
        self._streams["deadline"][stream] = deadline_s

    def measure(self) -> Measurement:
        """What happened since the last call."""
        t, layout = self._t, self._layout
        d = self._counters.grown({name: t[name] for name in ("tasks", "nodes", "streams", "alternates")})
        op = layout.slot_operator
        interval_s, self._measured_s = self.covered_s - self._measured_s, self.covered_s
        arrived, processed = d["arrived"], d["processed"]
        service = _ratio(d["busy_s"], processed)
        gap = _ratio(np.full(layout.slots, interval_s), arrived)
        every = [a for o in layout.dataflow.operators for a in o.alternates]
        cost, cv = np.array([a.cost_s for a in every]), np.array([a.cost_cv for a in every])
        bytes_in, bytes_out = self._bytes(d)
        traffic, warnings = self._traffic(d)
        measured = Measurement(
            **d,
            queued=self._tasks["queue"].copy(),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            service_s=Moments.known(processed, service, self._operators["cs2"][op] * service**2),
            interarrival_s=Moments.known(arrived, gap, self._operators["ca2"][op] * gap**2),
            latency_s=taken(self._tasks, "latency"),
            stream_latency_s=taken(self._streams, "latency"),
            batch_wait_s=taken(self._streams, "wait"),
            work_s=Moments.known(d["alternate_in"], cost, (cv * cost) ** 2),
            sink_latency_s=moments(*t["sink_sums"].T),
            sink_bins=t["sink_bins"].copy(),
            constraint_bins=t["constraint_bins"].copy(),
            oldest_s=self._oldest(d, interval_s),
            traffic=traffic,
            warnings=warnings,
        )
        for name in ("sink_sums", "sink_bins", "constraint_bins"):
            t[name][:] = 0.0
        return measured

    def _use(self, operator: int, alternate: int) -> None:
        chosen = self._layout.dataflow.operators[operator].alternates[alternate]
        self._operators["alternate"][operator] = self._layout.alternate_base[operator] + alternate
        self._operators["cost"][operator], self._operators["cs2"][operator] = chosen.cost_s, chosen.cost_cv**2
        self._operators["selectivity"][operator] = chosen.selectivity

    def _share_keys(self, operator: int) -> None:
        layout, count = self._layout, int(self._operators["tasks"][operator])
        base = int(layout.base[operator])
        share = self._tasks["share"][base : base + int(layout.maximum[operator])]
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
        layout, nodes, at = self._layout, self._t["nodes"], self._tasks["node"]
        placed = np.flatnonzero(at >= 0)
        self._t["by_node"] = by_node = placed[np.argsort(at[placed], kind="stable")]
        first = np.searchsorted(at[by_node], np.arange(len(nodes) + 1))
        nodes["first"], nodes["slots"] = first[:-1], np.diff(first)
        count = self._operators["tasks"]
        active = placed[layout.slot_index[placed] < count[layout.slot_operator[placed]]]
        where = (layout.slot_operator[active], at[active])
        on_node = self._t["on_node"]
        on_node[:] = 0.0
        np.add.at(on_node, where, self._tasks["share"][active])
        if not self._link_s:
            return
        latency = np.full((len(nodes), len(nodes)), self._link_s)
        np.fill_diagonal(latency, 0.0)
        even = np.zeros_like(on_node)
        np.add.at(even, where, 1.0 / count[layout.slot_operator[active]])
        for s, (a, b) in enumerate(zip(layout.stream_source, layout.stream_target, strict=True)):
            if layout.stream_wiring[s] == FORWARD:
                senders = np.arange(count[a])
                to = at[layout.base[b] + senders % count[b]]
                self._streams["link_s"][s] = latency[at[layout.base[a] + senders], to].mean()
            else:
                self._streams["link_s"][s] = even[a] @ latency @ on_node[b]

    def _oldest(self, since: dict[str, Floats], interval_s: float) -> Floats:
        op, count = self._layout.slot_operator, len(self._layout.base)
        queued = summed_by(op, self._tasks["queue"], count)
        read = summed_by(op, since["processed"] + since["dropped"], count)
        return _ratio(queued, read) * interval_s

    def _bytes(self, since: dict[str, Floats]) -> tuple[Floats, Floats]:
        layout, count = self._layout, len(self._layout.base)
        into = summed_by(layout.stream_target, since["stream_bytes"], count)
        out = summed_by(layout.stream_source, since["stream_bytes"], count)
        op = layout.slot_operator
        arrived, emitted = (
            summed_by(op, since["arrived"], count),
            summed_by(op, since["emitted"], count),
        )
        return (
            since["arrived"] * _ratio(into, arrived)[op],
            since["emitted"] * _ratio(out, emitted)[op],
        )

    def _traffic(self, since: dict[str, Floats]) -> tuple[tuple[Ints, Ints, Floats, Floats], tuple[str, ...]]:
        layout = self._layout
        none = np.zeros(0, np.int64)
        pairs = [
            self._operators["tasks"][a] * (1 if wiring == FORWARD else self._operators["tasks"][b])
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
            senders = layout.base[a] + np.arange(self._operators["tasks"][a])
            receivers = layout.base[b] + np.arange(self._operators["tasks"][b])
            offered, shed = since["offered"][s], since["stream_shed"][s]
            amount = since["emitted"][senders] * (1.0 - (shed / offered if offered > 0 else 0.0))
            if layout.stream_wiring[s] == FORWARD:
                source, target, records = senders, receivers[np.arange(len(senders)) % len(receivers)], amount
            else:
                even = layout.stream_wiring[s] != KEY
                share = (
                    np.full(len(receivers), 1.0 / len(receivers)) if even else self._tasks["share"][receivers]
                )
                share = np.ones(len(receivers)) if layout.stream_wiring[s] == BROADCAST else share
                source, target = np.repeat(senders, len(receivers)), np.tile(receivers, len(senders))
                records = np.outer(amount, share).ravel()
            used = records > 0
            rows.append(
                (source[used], target[used], records[used], records[used] * self._streams["record_bytes"][s])
            )
        source, target, records, size = (np.concatenate(column) for column in zip(*rows, strict=True))
        return (source, target, records, size), ()


def _sizable(keep: float) -> float:
    """A share to keep, none where it is too small to compute with."""
    return keep if keep >= NOTHING else 0.0


def _ratio(a: Floats, b: Floats) -> Floats:
    return np.where(b > 0, a / np.where(b > 0, b, 1.0), 0.0)
