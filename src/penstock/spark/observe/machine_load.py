"""What an executor and its host are doing, as seen by the Python workers that run there anyway.

Samples hold running totals; the driver takes the difference of two (`HostWatch`). No agent, no port.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from penstock.spark.observe.task_measures import TaskRecord

LEAST_S = 0.5
"""Time between two samples whose difference says something."""
SAMPLE_EVERY_S = 2.0
"""Time between two looks at an executor's host, each 10 ms of CPU on a machine with a few hundred processes."""
STALE_S = 30.0
"""A host that has not been looked at for this long is unknown."""
BESIDE_S = 30.0
"""Time over which CPU beside operators is averaged: a batch's work is told at its end, its CPU was used before."""
SCHEDSTAT = "/proc/thread-self/schedstat"
"""Linux: nanoseconds on a CPU, nanoseconds waiting for one, number of turns."""
CGROUPS = Path("/sys/fs/cgroup")
INTERFACES = Path("/sys/class/net")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """Totals since the machine or process started, and gauges of the moment."""

    executor: str
    time_s: float
    machine: str
    """The same for all that run on one machine, whatever address they use."""
    cpus: tuple[int, ...]
    """CPUs the executor may run on."""
    quota_cores: float | None = None
    """Cores that the executor's control group may use at a time; None: no limit."""
    busy_s: float
    """Seconds that those CPUs were busy with what does not make way for the executor."""
    own_s: float
    """CPU seconds of the executor's processes: the JVM, its Python workers, and those that ended."""
    load_average: float
    net_in_bytes: float
    net_out_bytes: float
    """Of the interfaces that lead off the machine."""
    nic_bytes_per_s: float | None = None
    """Bytes per second those interfaces carry by their own account; None: they do not tell."""
    memory_bytes: float
    memory_used_bytes: float
    """Of the machine; the executor's own share is in `own_memory_bytes`."""
    own_memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """What one executor and its host did between two samples."""

    machine: str
    cpus: float
    """Cores of the host that the executor may use: its CPUs, or what its control group is limited to."""
    own_cpu: float
    """Cores kept busy by the executor."""
    foreign_cpu: float
    """Cores kept busy, on the CPUs the executor may use, by anything that is no executor of ours."""
    load_average: float
    net_in_bytes_per_s: float
    net_out_bytes_per_s: float
    """Of the whole host: executors on it share them."""
    nic_bytes_per_s: float | None
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
    memory = psutil.virtual_memory()
    own_s, own_memory = _tree_totals(process)
    niced = process.nice() > 0
    names, nic_bytes_per_s = network_interfaces()
    counters = psutil.net_io_counters(pernic=True, nowrap=True)
    network = [counters[name] for name in names if name in counters]
    return HostSample(
        executor=executor,
        time_s=time.time(),
        machine=machine_id(),
        cpus=cpus or tuple(range(len(times))),
        quota_cores=cgroup_cores(process.pid),
        # guest time is part of user time already; idle and iowait are not work; stolen time is somebody's work;
        # what runs at a lower priority than the executor (nice) leaves the CPU to it
        busy_s=sum(t.user + t.nice * niced + t.system + t.irq + t.softirq + t.steal for t in allowed),
        own_s=own_s,
        load_average=os.getloadavg()[0],
        net_in_bytes=sum(n.bytes_recv for n in network),
        net_out_bytes=sum(n.bytes_sent for n in network),
        nic_bytes_per_s=nic_bytes_per_s,
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


def network_interfaces(root: Path = INTERFACES) -> tuple[tuple[str, ...], float | None]:
    """(interfaces that lead off the machine, bytes per second they carry together, None where one does not tell).

    Bridges, tunnels and loopback carry what a device carries too, or never leave. Without a device (in a container)
    all but loopback count, and their nominal speed says nothing.
    """
    names = sorted(p.name for p in root.iterdir()) if root.is_dir() else []
    devices = [n for n in names if (root / n / "device").exists() and _read(root / n / "operstate") == "up"]
    if not devices:
        return tuple(n for n in names if n != "lo"), None
    speeds = [_read(root / n / "speed") for n in devices]
    known = [float(s) for s in speeds if s.isdigit() and int(s) > 0]
    return tuple(devices), sum(known) * 1e6 / 8 if len(known) == len(devices) else None


def cgroup_cores(pid: int, root: Path = CGROUPS, processes: Path = Path("/proc")) -> float | None:
    """Cores that a process's control groups, one within the other, let it use at a time; None: no limit."""
    limits = []
    for line in _read(processes / str(pid) / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        unified = not controllers
        if not unified and "cpu" not in controllers.split(","):
            continue
        top = root if unified else root / controllers
        for folder in (top / path.strip("/"), *(top / path.strip("/")).parents):
            text = _read(folder / "cpu.max") if unified else _legacy_limit(folder)
            quota, _, period = text.partition(" ")
            if quota.isdigit() and period.isdigit() and int(period):
                limits.append(int(quota) / int(period))
            if folder == top:
                break
    return min(limits, default=None)


def _legacy_limit(folder: Path) -> str:
    return f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class Sampler:
    """Looks at the host for all workers of an executor, beside the tasks: a look goes through all processes there are.

    Workers know of each other by the time of a file in the executor's own folder, which Spark removes at its end.
    """

    def __init__(self) -> None:
        self._next_s = 0.0
        self._sample: HostSample | None = None

    def start_if_due(self) -> None:
        """Begin a look unless one was taken a moment ago."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + SAMPLE_EVERY_S
        with suppress(OSError):
            if self._is_my_turn():
                threading.Thread(target=self._look, name="penstock-host-sample", daemon=True).start()

    def taken(self) -> HostSample | None:
        """The sample, if one was finished since the last call."""
        sample, self._sample = self._sample, None
        return sample

    def _is_my_turn(self) -> bool:
        folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        if not folder:
            return True
        mark = Path(folder) / "penstock-host-sample"
        if mark.exists() and time.time() - mark.stat().st_mtime < SAMPLE_EVERY_S:
            return False
        mark.touch()
        return True

    def _look(self) -> None:
        with suppress(Exception):
            self._sample = take_sample(executor_id(), _executor())


SAMPLER = Sampler()


@cache
def _executor() -> psutil.Process:
    return executor_process()


@cache
def executor_id() -> str:
    """The id of this worker's executor, which Spark gives its JVM as an argument; `driver` in local mode."""
    with suppress(Exception):
        arguments = _executor().cmdline()
        if "--executor-id" in arguments:
            return str(arguments[arguments.index("--executor-id") + 1])
    return "driver"


_opened: tuple[int, int] | None = None


def stalled_s() -> float:
    """Seconds, since this thread began, that it waited for a CPU; always 0 where the system does not tell.

    A task on Spark holds its core from its beginning to its end, also while it waits for an answer from elsewhere.
    Held time less this is what it would hold on a machine of its own. Costs 1.5 µs.
    """
    global _opened  # a worker is forked from a process that may have asked before
    try:
        if _opened is None or _opened[0] != os.getpid():
            _opened = os.getpid(), os.open(SCHEDSTAT, os.O_RDONLY)
        return int(os.pread(_opened[1], 100, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


@dataclass(slots=True)
class _Seen:
    """The last two samples of an executor, and when the newer one reached the driver."""

    now: HostSample
    received_s: float
    history: list[tuple[float, float, float]]
    """(time, CPU-seconds of the executor, core-seconds of its operators by then), oldest first."""
    before: HostSample | None = None

    def rate(self, column: str) -> float:
        """Growth of a total per second. A restarted executor's totals begin again: a fall says nothing."""
        assert self.before is not None
        grown = getattr(self.now, column) - getattr(self.before, column)
        return float(max(0.0, grown) / (self.now.time_s - self.before.time_s))


class HostWatch:
    """Loads of hosts by the samples that tasks take; queries that share executors share it."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._held_s: defaultdict[str, float] = defaultdict(float)
        """Core-seconds of operators so far, per executor."""

    def note(self, records: Iterable[TaskRecord], now_s: float) -> None:
        """Take in what tasks did and saw."""
        samples = []
        for record in records:
            self._held_s[record.executor] += sum(o.busy_s - o.stalled_s for o in record.operators)
            if record.sample is not None:
                samples.append(record.sample)
        for sample in sorted(samples, key=lambda s: s.time_s):
            self._add(sample, now_s)

    def _add(self, sample: HostSample, now_s: float) -> None:
        step = sample.time_s, sample.own_s, self._held_s[sample.executor]
        known = self._seen.get(sample.executor)
        if known is None or sample.time_s < known.now.time_s - STALE_S:  # new, or its clock was set back
            self._seen[sample.executor] = _Seen(now=sample, received_s=now_s, history=[step])
        # Several workers sample within moments of each other: a difference needs some time between.
        elif sample.time_s - known.now.time_s >= LEAST_S:
            known.before, known.now, known.received_s = known.now, sample, now_s
            known.history.append(step)
            while len(known.history) > 2 and known.history[1][0] <= sample.time_s - BESIDE_S:
                del known.history[0]

    def loads(self, now_s: float) -> dict[str, HostLoad]:
        """What every executor with two samples did between them; those not heard of for a while are left out."""
        fresh = {
            e: s
            for e, s in self._seen.items()
            if s.before is not None and 0 <= now_s - s.received_s <= STALE_S
        }
        return {e: _load(seen, fresh.values()) for e, seen in fresh.items()}

    def beside(self, executor: str) -> float:
        """Cores that an executor used beside its operators, in the last half minute: Spark's own work."""
        known = self._seen.get(executor)
        history = known.history if known is not None else []
        seconds = history[-1][0] - history[0][0] if history else 0.0
        # A restarted executor's totals begin again: that step says nothing.
        own_s = sum(max(0.0, later[1] - earlier[1]) for earlier, later in pairwise(history))
        return max(0.0, own_s - (history[-1][2] - history[0][2])) / seconds if seconds > 0 else 0.0


def _load(seen: _Seen, all_seen: Iterable[_Seen]) -> HostLoad:
    new = seen.now
    ours = sum(
        other.rate("own_s")
        for other in all_seen
        if other.now.machine == new.machine and set(other.now.cpus) & set(new.cpus)
    )
    cores = float(len(new.cpus))
    return HostLoad(
        machine=new.machine,
        cpus=cores if new.quota_cores is None else min(cores, new.quota_cores),
        own_cpu=seen.rate("own_s"),
        foreign_cpu=max(0.0, seen.rate("busy_s") - ours),
        load_average=new.load_average,
        net_in_bytes_per_s=seen.rate("net_in_bytes"),
        net_out_bytes_per_s=seen.rate("net_out_bytes"),
        nic_bytes_per_s=new.nic_bytes_per_s,
        memory_bytes=new.memory_bytes,
        memory_used_bytes=new.own_memory_bytes,
    )
