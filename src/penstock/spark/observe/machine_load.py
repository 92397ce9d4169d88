"""What an executor and its host are doing, as seen from a Python task on that executor.

Samples hold running totals; the driver takes the difference of two (`HostLoads`). No agent, no port: a sample is
taken by a worker that runs anyway (`sampling`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

LEAST_S = 0.5
"""Time between two samples whose difference says something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """Totals since the machine or process started, and gauges of the moment."""

    executor: str
    time_s: float
    machine: str
    """The same for all that run on one machine, whatever address they use."""
    cpus: tuple[int, ...]
    """CPUs the executor may run on."""
    busy_s: float
    """Seconds that those CPUs were busy with what does not make way for the executor."""
    own_s: float
    """CPU seconds of the executor's processes: the JVM, its Python workers, and those that ended."""
    load_average: float
    net_in_bytes: float
    net_out_bytes: float
    memory_bytes: float
    memory_used_bytes: float
    """Of the machine; the executor's own share is in `own_memory_bytes`."""
    own_memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """What one executor and its host did between two samples."""

    machine: str
    cpus: int
    own_cpu: float
    """Cores kept busy by the executor."""
    foreign_cpu: float
    """Cores kept busy, on the CPUs the executor may use, by anything that is no executor of ours."""
    load_average: float
    net_in_bytes_per_s: float
    net_out_bytes_per_s: float
    memory_bytes: float
    memory_used_bytes: float


def executor_process() -> psutil.Process:
    """The executor's JVM: the nearest ancestor of this worker that is not Python."""
    process = psutil.Process()
    for ancestor in process.parents():
        if "java" in ancestor.name():
            return ancestor
    return process


def take_sample(executor: str, process: psutil.Process) -> HostSample:
    """The totals of `process` with all its children, and of the machine."""
    cpus = tuple(sorted(process.cpu_affinity())) if hasattr(process, "cpu_affinity") else ()
    times = psutil.cpu_times(percpu=True)
    allowed = [times[i] for i in cpus if i < len(times)] or times
    network, memory = psutil.net_io_counters(nowrap=True), psutil.virtual_memory()
    own_s, own_memory = _tree_totals(process)
    niced = process.nice() > 0
    return HostSample(
        executor=executor,
        time_s=time.time(),
        machine=machine_id(),
        cpus=cpus or tuple(range(len(times))),
        # guest time is part of user time already; idle and iowait are not work; stolen time is somebody's work;
        # what runs at a lower priority than the executor (nice) leaves the CPU to it
        busy_s=sum(t.user + t.nice * niced + t.system + t.irq + t.softirq + t.steal for t in allowed),
        own_s=own_s,
        load_average=os.getloadavg()[0],
        net_in_bytes=network.bytes_recv,
        net_out_bytes=network.bytes_sent,
        memory_bytes=memory.total,
        memory_used_bytes=memory.total - memory.available,
        own_memory_bytes=own_memory,
    )


def _tree_totals(process: psutil.Process) -> tuple[float, float]:
    cpu_s, memory = 0.0, 0.0
    for one in [process, *process.children(recursive=True)]:
        try:
            times = one.cpu_times()
            # what ended children used is booked with the parent that waited for them
            cpu_s += times.user + times.system + times.children_user + times.children_system
            memory += one.memory_info().rss
        except psutil.Error:
            continue  # it ended while we looked
    return cpu_s, memory


@cache
def machine_id() -> str:
    """A name for the machine that does not depend on addresses."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else os.uname().nodename


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoads:
    """The last two samples of each executor, and the loads between them."""

    before: Mapping[str, HostSample]
    now: Mapping[str, HostSample]

    @classmethod
    def none(cls) -> HostLoads:
        """Nothing sampled yet."""
        return cls(before={}, now={})

    def add(self, samples: Iterable[HostSample]) -> HostLoads:
        """With newer samples; older or equally old ones change nothing."""
        before, now = dict(self.before), dict(self.now)
        for sample in sorted(samples, key=lambda s: s.time_s):
            known = now.get(sample.executor)
            if known is not None and sample.time_s <= known.time_s:
                continue
            # Several workers sample within moments of each other: a difference needs some time between.
            if known is None or sample.time_s - known.time_s >= LEAST_S:
                if known is not None:
                    before[sample.executor] = known
                now[sample.executor] = sample
        return HostLoads(before=before, now=now)

    def loads(self) -> dict[str, HostLoad]:
        """What every executor with two samples did between them."""
        rates = {e: self._rates(e) for e in self.now if e in self.before}
        return {e: self._load(e, rates) for e in rates}

    def _rates(self, executor: str) -> tuple[float, float]:
        old, new = self.before[executor], self.now[executor]
        seconds = new.time_s - old.time_s
        # A restarted executor's totals begin again: a negative difference says nothing.
        return max(0.0, (new.own_s - old.own_s) / seconds), max(0.0, (new.busy_s - old.busy_s) / seconds)

    def _load(self, executor: str, rates: Mapping[str, tuple[float, float]]) -> HostLoad:
        old, new = self.before[executor], self.now[executor]
        seconds = new.time_s - old.time_s
        neighbours = [
            e for e in rates if self.now[e].machine == new.machine and set(self.now[e].cpus) & set(new.cpus)
        ]
        ours = sum(rates[e][0] for e in neighbours)
        return HostLoad(
            machine=new.machine,
            cpus=len(new.cpus),
            own_cpu=rates[executor][0],
            foreign_cpu=max(0.0, rates[executor][1] - ours),
            load_average=new.load_average,
            net_in_bytes_per_s=max(0.0, new.net_in_bytes - old.net_in_bytes) / seconds,
            net_out_bytes_per_s=max(0.0, new.net_out_bytes - old.net_out_bytes) / seconds,
            memory_bytes=new.memory_bytes,
            memory_used_bytes=new.own_memory_bytes,
        )
