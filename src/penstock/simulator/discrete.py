"""The discrete fidelity: steers the compiled kernel and reads its tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats
from penstock.simulator import channels as ch
from penstock.simulator import discrete_tables as tb
from penstock.simulator.agenda import FINISH, new_event
from penstock.simulator.cluster import Link
from penstock.simulator.discrete_kernel import IDLE, SHORT, TRACED, advance
from penstock.simulator.initial_state import tables
from penstock.simulator.layout import Layout
from penstock.simulator.measurement import Counters, Measurement, moments, taken
from penstock.simulator.options import SimulationOptions
from penstock.simulator.processors import disturb
from penstock.simulator.records import chained, enlarged
from penstock.telemetry import MachineClass

Subscriber = Callable[[NDArray[np.void]], None]
"""Given rows of `tables.TRACE`, oldest first, every row once."""

_TRACE_ROWS = 65_536


class DiscreteEngine:
    """Every record is an event."""

    def __init__(self, layout: Layout, link: Link, options: SimulationOptions, seed: int) -> None:
        self._layout, self._options = layout, options
        self._t = tables(layout, link, options, seed)
        self._subscribers: list[Subscriber] = []
        self._counters = Counters()
        self._seen_traffic = np.zeros((2, len(self._t["channels"]) if options.traffic else 0))

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return float(self._t.w["now"])

    @property
    def covered_s(self) -> float:
        """The same: there are no steps."""
        return self.now_s

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell everything that happens to records, from now on."""
        self._subscribers.append(subscriber)
        if not len(self._t["trace"]):
            rows = max(_TRACE_ROWS, 2 * int(self._t.w["reserve"]))
            self._t["trace"] = np.zeros(rows, tb.TRACE)
            self._t.w["trace_rows"] = rows

    def advance(self, until_s: float) -> int | None:
        """Go on until `until_s`, or until a watched task has come to rest: then its slot."""
        while True:
            code = advance(self._t.w, until_s)
            if code == SHORT:
                self._grow("record" if self._t.w["free_records"] < self._t.w["reserve"] else "event")
                continue
            self._publish()
            if code == IDLE:
                return int(self._t.w["idle"])
            if code != TRACED:
                return None

    def add_node(self, node: int, machine: MachineClass, count: int) -> None:
        """Put a machine at a node row, of `count` that there are or will be."""
        t = self._t
        if count > len(t["nodes"]):
            until = np.zeros((count, count))
            before = len(t["nodes"])
            if before:
                until[:before, :before] = t["link_until"]
            t["nodes"], t["serving"] = enlarged(t["nodes"], count), enlarged(t["serving"], count)
            t["link_until"], t.w["node_rows"], t.w["places"] = until, count, t["serving"].shape[1]
        row = t["nodes"][node]
        if not row["live"]:
            self._make_room(1)
            row["event"] = new_event(t.w, FINISH, node)
        row["live"], row["cores"], row["touched"] = 1, machine.cores, self.now_s
        self.disturb(node, 0.0, machine.speed, machine.bandwidth_bytes_per_s)

    def disturb(self, node: int, foreign: float, speed: float, bandwidth_bytes_per_s: float) -> None:
        """Change what a node has to give."""
        self._t["nodes"][node]["bandwidth"] = bandwidth_bytes_per_s
        disturb(self._t.w, node, foreign, speed)

    def place(self, slot: int, node: int) -> None:
        """Put a task that is at rest on a node, or (-1) nowhere."""
        tasks = self._t["tasks"]
        tasks["node"][slot] = node
        if node < 0:
            # Should it start again, its first record is no arrival after a long gap, nor ends an old window.
            tasks["last_arrival"][slot] = -1.0
            for name in ("open_n", "open_1", "open_2"):
                tasks[name][slot] = 0.0
        here = int(np.count_nonzero(tasks["node"] == node)) if node >= 0 else 0
        serving = self._t["serving"]
        if here > serving.shape[1]:
            wider = np.zeros((len(serving), 2 * here), np.int64)
            wider[:, : serving.shape[1]] = serving
            self._t["serving"], self._t.w["places"] = wider, 2 * here

    def set_tasks(self, operator: int, count: int) -> None:
        """Let the first `count` tasks of an operator take records from now on."""
        t = self._t
        if t["operators"]["tasks"][operator] == count:
            return
        for s in self._layout.ins[operator]:
            self._make_room(int(t["streams"]["channels"][s]))
            ch.flush_stream(t.w, s)
            # What a sender has on its way is not overtaken by what it sends to a new owner.
            rows = t["streams"][s]
            mine = slice(int(rows["base"]), int(rows["base"] + rows["channels"]))
            last = t["channels"]["last_delivery"][mine].reshape(-1, int(rows["columns"]))
            t["channels"]["last_delivery"][mine] = np.repeat(last.max(axis=1), last.shape[1])
        t["operators"]["tasks"][operator] = count

    def hand_over(self, operator: int) -> None:
        """Give queued records to the tasks that own them now; all tasks of the operator must be at rest."""
        self._make_room(sum(int(self._t["streams"]["channels"][s]) for s in self._layout.ins[operator]))
        ch.hand_over(self._t.w, operator, int(self._layout.maximum[operator]))

    def pause(self, slot: int) -> None:
        """Stop a task after the record it is busy with, and watch for that."""
        task = self._t["tasks"][slot]
        task["paused"], task["watched"] = 1, 1
        ch.make_ready(self._t.w, slot)

    def resume(self, slot: int) -> None:
        """Let a paused task go on."""
        self._t["tasks"]["paused"][slot] = 0
        ch.make_ready(self._t.w, slot)

    def drain(self, slot: int) -> None:
        """Watch for the moment when a task that gets no more records has none left."""
        self._t["tasks"]["watched"][slot] = 1
        ch.make_ready(self._t.w, slot)

    def undrain(self, slot: int) -> None:
        """Forget about draining it."""
        self._t["tasks"]["watched"][slot] = 0

    def is_empty(self, slot: int) -> bool:
        """Whether a task at rest has nothing more to pass on; open batches are sent."""
        self._make_room(self._layout.slots)
        return ch.flush_task(self._t.w, slot) and int(self._t["tasks"]["reserved"][slot]) == 0

    def transfer_s(self, source: int, target: int, size_bytes: float) -> float:
        """Seconds that sending so much from node to node takes, if it begins now."""
        return ch.transfer_s(self._t.w, source, target, size_bytes)

    def set_alternate(self, operator: int, alternate: int) -> None:
        """Let an operator run another alternate, from the next record on."""
        self._t["operators"]["alternate"][operator] = self._layout.alternate_base[operator] + alternate

    def set_source_keep(self, operator: int, keep: float) -> None:
        """Let a source keep only a share of what it reads."""
        self._t["operators"]["keep"][operator] = keep

    def set_stream_keep(self, stream: int, keep: float) -> None:
        """Let a stream carry only a share of the records."""
        self._t["streams"]["keep"][stream] = keep

    def set_deadline(self, stream: int, deadline_s: float) -> None:
        """Set the longest wait in a stream's output batches."""
        self._make_room(int(self._t["streams"]["channels"][stream]))
        ch.set_deadline(self._t.w, stream, deadline_s)

    def measure(self) -> Measurement:
        """What happened since the last call."""
        t = self._t
        tables = self._up_to_now()
        measured = Measurement(
            **self._counters.grown(tables),
            bytes_in=self._counters.since("tasks", "bytes_in", tables),
            bytes_out=self._counters.since("tasks", "bytes_out", tables),
            queued=tables["tasks"]["queued"].astype(np.float64),
            service_s=taken(t["tasks"], "service"),
            interarrival_s=taken(t["tasks"], "gap"),
            latency_s=taken(t["tasks"], "latency"),
            stream_latency_s=taken(t["streams"], "latency"),
            batch_wait_s=taken(t["streams"], "wait"),
            work_s=taken(t["alternates"], "work"),
            sink_latency_s=moments(*t["sink_sums"].T),
            sink_bins=t["sink_bins"].copy(),
            constraint_bins=t["constraint_bins"].copy(),
            oldest_s=self._oldest(),
            traffic=self._traffic(),
            warnings=(),
        )
        for each in (t["sink_sums"], t["sink_bins"], t["constraint_bins"]):
            each[:] = 0.0
        return measured

    def _up_to_now(self) -> dict[str, NDArray[np.void]]:
        """The cumulative counters with services that are under way counted up to now, on copies.

        The originals are brought up to date by events only, so observing never changes what happens next.
        """
        t = self._t
        tasks, nodes = t["tasks"].copy(), t["nodes"].copy()
        passed = np.where(nodes["busy"] > 0, self.now_s - nodes["touched"], 0.0)
        cpu = nodes["cpu"] + passed * nodes["share"]
        nodes["busy_s"] += passed * nodes["busy"]
        nodes["cpu_s"] += passed * nodes["busy"] * nodes["share"]
        busy = tasks["busy"] == 1
        tasks["busy_s"][busy] += self.now_s - tasks["started"][busy]
        tasks["cpu_s"][busy] += cpu[tasks["node"][busy]] - tasks["cpu_start"][busy]
        return {"tasks": tasks, "nodes": nodes, "streams": t["streams"], "alternates": t["alternates"]}

    def _oldest(self) -> Floats:
        t = self._t
        waiting = (t["tasks"]["queued"] > 0) & (t["operators"]["source"][t["tasks"]["operator"]] == 1)
        oldest = np.zeros(len(t["operators"]))
        ages = self.now_s - t["records"]["born"][t["tasks"]["head"][waiting]]
        np.maximum.at(oldest, t["tasks"]["operator"][waiting], ages)
        return oldest

    def _traffic(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]:
        if not self._options.traffic:
            none = np.zeros(0, np.int64)
            return none, none, np.zeros(0), np.zeros(0)
        channels = self._t["channels"]
        now = np.stack([channels["records"], channels["sent_bytes"]])
        since = now - self._seen_traffic
        self._seen_traffic = now
        used = np.flatnonzero(since[0])
        return channels["source"][used], channels["target"][used], since[0][used], since[1][used]

    def _publish(self) -> None:
        noted = int(self._t.w["noted"])
        if noted:
            rows = self._t["trace"][:noted].copy()
            for subscriber in self._subscribers:
                subscriber(rows)
            self._t.w["noted"] = 0

    def _make_room(self, count: int) -> None:
        while self._t.w["free_events"] < count + self._t.w["reserve"]:
            self._grow("event")

    def _grow(self, what: str) -> None:
        """Twice the records or events there were."""
        t, name = self._t, f"{what}s"
        used = len(t[name])
        t[name] = chained(enlarged(t[name], 2 * used), used, int(t.w[f"free_{what}"]))
        t.w[f"free_{what}"] = used
        t.w[f"free_{name}"] += used
        beside = "clocks" if what == "record" else "agenda"
        t[beside] = enlarged(t[beside], 2 * used)
