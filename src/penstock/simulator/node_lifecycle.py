"""The nodes of a simulation over time: acquired, started, disturbed, drained, released, and paid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.policies.reasons import Fact, Reason
from penstock.simulator.cluster import Cluster, Disturbance
from penstock.simulator.engine import Engine
from penstock.simulator.timers import Timers, next_change_s, value_at
from penstock.telemetry import MachineClass


@dataclass(slots=True, kw_only=True)
class Member:
    """A node that is being paid for."""

    id: str
    machine: MachineClass
    started_s: float
    ready: bool
    draining: bool = False
    foreign: float = 0.0
    speed: float = 1.0
    bandwidth_bytes_per_s: float = 0.0

    def paid_until_s(self, now_s: float) -> float:
        """The end of the billing unit that is running."""
        return self.started_s + self.machine.billed_s(now_s - self.started_s)


class Fleet:
    """Node rows, of which released ones are used again."""

    def __init__(
        self, cluster: Cluster, engine: Engine, timers: Timers, when_ready: Callable[[], None]
    ) -> None:
        self._cluster, self._engine, self._timers, self._when_ready = cluster, engine, timers, when_ready
        self._spent = 0.0
        self._numbers = {c.name: 0 for c in cluster.classes}
        self.rows: list[Member | None] = []
        self._capacity = len(cluster.nodes)
        for id_, machine in cluster.nodes.items():
            chosen = cluster.machine(machine)
            assert chosen is not None  # the cluster has checked it
            self._numbers[machine] += 1
            self._add(Member(id=id_, machine=chosen, started_s=0.0, ready=True))

    def row_of(self, node: str) -> int | None:
        """The row of a node id."""
        return next((i for i, m in enumerate(self.rows) if m is not None and m.id == node), None)

    def live(self) -> list[tuple[int, Member]]:
        """Rows and members, in the order of rows."""
        return [(i, m) for i, m in enumerate(self.rows) if m is not None]

    def usable(self) -> list[int]:
        """Rows on which tasks may be put."""
        return [i for i, m in self.live() if m.ready and not m.draining]

    def cost(self, now_s: float) -> float:
        """Money spent since the start, started units in full."""
        return self._spent + sum(m.machine.bill(now_s - m.started_s) for _, m in self.live())

    def refusal(self, machine: MachineClass, count: int) -> Reason | None:
        """Why so many more nodes of a class cannot be had; None if they can."""
        live = self.live()
        most = self._cluster.max_nodes
        if most is not None and len(live) + count > most:
            return Reason(code="max-nodes", facts={"nodes": len(live), "asked": count, "maximum": most})
        same = sum(m.machine.name == machine.name for _, m in live)
        if machine.available is not None and same + count > machine.available:
            facts: dict[str, Fact] = {
                "class": machine.name,
                "nodes": same,
                "asked": count,
                "available": machine.available,
            }
            return Reason(code="class-exhausted", facts=facts)
        return None

    def acquire(self, machine: MachineClass) -> str:
        """Begin to pay for one more node; its id."""
        now = self._engine.now_s
        while True:
            id_ = f"{machine.name}-{self._numbers[machine.name]}"
            self._numbers[machine.name] += 1
            if self.row_of(id_) is None:
                break
        member = Member(id=id_, machine=machine, started_s=now, ready=machine.startup_s == 0)
        self._add(member)
        if not member.ready:
            self._timers.at(now + machine.startup_s, lambda: self._ready(member))
        return id_

    def release(self, row: int) -> None:
        """Stop paying for a node that has no tasks."""
        member = self.rows[row]
        if member is not None:
            self._spent += member.machine.bill(self._engine.now_s - member.started_s)
            self.rows[row] = None

    def _ready(self, member: Member) -> None:
        member.ready = True
        self._when_ready()

    def _add(self, member: Member) -> None:
        row = next((i for i, m in enumerate(self.rows) if m is None), len(self.rows))
        if row == len(self.rows):
            self.rows.append(None)
        if row >= self._capacity:
            self._capacity = 2 * row
        self.rows[row] = member
        self._engine.add_node(row, member.machine, self._capacity)
        self._disturb(row, member)

    def _disturb(self, row: int, member: Member) -> None:
        if self.rows[row] is not member:
            return
        given = self._cluster.disturbances
        what = given.get(member.id) or given.get(member.machine.name) or Disturbance()
        now = self._engine.now_s
        member.foreign = value_at(what.foreign, now, 0.0)
        member.speed = member.machine.speed * max(value_at(what.speed, now, 1.0), 1e-6)
        member.bandwidth_bytes_per_s = member.machine.bandwidth_bytes_per_s * max(
            value_at(what.bandwidth, now, 1.0), 1e-6
        )
        self._engine.disturb(row, member.foreign, member.speed, member.bandwidth_bytes_per_s)
        profiles = (what.foreign, what.speed, what.bandwidth)
        following = min(next_change_s(p, now) for p in profiles)
        if following < float("inf"):
            self._timers.at(following, lambda: self._disturb(row, member))
