"""The executors of the application as nodes, and what they have cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from penstock.spark.internals.executors import Executor
from penstock.spark.observe.machine_load import HostLoad
from penstock.telemetry import MachineClass, Nodes
from penstock.telemetry.executor_speed import ExecutorSpeeds


class ExecutorNodes:
    """Remembers how long each executor was there; those that are gone stay in the bill."""

    def __init__(self, machine: MachineClass) -> None:
        self.machine = machine
        self._there_s: dict[str, float] = {}

    def table(
        self,
        executors: Sequence[Executor],
        loads: Mapping[str, HostLoad],
        *,
        starting: Collection[str] = (),
        draining: Collection[str] = (),
        speeds: ExecutorSpeeds | None = None,
        now_s: float,
        interval_s: float,
    ) -> Nodes:
        """The executors that are there now, after another `interval_s`."""
        for executor in executors:
            self._there_s[executor.id] = self._there_s.get(executor.id, 0.0) + interval_s
        count, machine = len(executors), self.machine
        there_s = [self._there_s[e.id] for e in executors]
        seen = [loads.get(e.id) for e in executors]
        ids = [e.id for e in executors]
        slowness, judged = (speeds or ExecutorSpeeds.nothing()).slowness(ids)
        return Nodes.blank(
            count,
            ids=tuple(ids),
            hosts=tuple(e.host for e in executors),
            machines=(machine.name,) * count,
            cores=[float(e.cores) for e in executors],
            speed=machine.speed / slowness,
            speed_known=judged,
            own_cpu=[s.own_cpu if s else 0.0 for s in seen],
            foreign_cpu=[s.foreign_cpu if s else 0.0 for s in seen],
            load_average=[s.load_average if s else 0.0 for s in seen],
            memory_bytes=[
                s.memory_bytes if s else float(e.storage_memory_bytes)
                for s, e in zip(seen, executors, strict=True)
            ],
            memory_used_bytes=[
                s.memory_used_bytes if s else float(e.storage_memory_used_bytes)
                for s, e in zip(seen, executors, strict=True)
            ],
            bandwidth_bytes_per_s=[
                s.nic_bytes_per_s if s and s.nic_bytes_per_s else machine.bandwidth_bytes_per_s for s in seen
            ],
            net_in_bytes_per_s=[s.net_in_bytes_per_s if s else 0.0 for s in seen],
            net_out_bytes_per_s=[s.net_out_bytes_per_s if s else 0.0 for s in seen],
            price_per_hour=machine.price_per_hour,
            started_s=[now_s - seconds for seconds in there_s],
            paid_until_s=[now_s - seconds + machine.billed_s(seconds) for seconds in there_s],
            ready=[e.id not in starting for e in executors],
            draining=[e.id in draining for e in executors],
            known=[s is not None for s in seen],
        )

    @property
    def executor_seconds(self) -> float:
        """Time that executors were there, added up over all of them."""
        return sum(self._there_s.values())

    @property
    def cost(self) -> float:
        """What they cost since the start."""
        return sum(self.machine.bill(seconds) for seconds in self._there_s.values())
