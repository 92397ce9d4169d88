"""The simulated executors of micro-batch queries: who is there, who comes and goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.simulator import microbatch_kernel as kernel
from penstock.simulator.microbatch_model import Executors
from penstock.telemetry import MachineClass, Nodes

NEVER = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """An executor whose coming and going is known beforehand, as in a run that is played again."""

    ready_s: float = 0.0
    gone_s: float = NEVER


@dataclass(slots=True)
class Member:
    """One executor over its life."""

    id: str
    asked_s: float
    ready_s: float
    gone_s: float = NEVER
    draining: bool = False

    def present(self, now_s: float) -> bool:
        """Whether it was asked for and is not gone."""
        return self.asked_s <= now_s < self.gone_s


class Fleet:
    """All executors there ever were, by number."""

    def __init__(self, model: Executors, machine: MachineClass, lives: Sequence[Life], seed: int) -> None:
        self.model, self.machine, self._seed = model, machine, seed
        self.members = [
            Member(f"executor-{i}", max(0.0, life.ready_s), max(0.0, life.ready_s), life.gone_s)
            for i, life in enumerate(lives)
        ]
        warm_s = np.array([model.cold_s if m.ready_s <= 0 else 0.0 for m in self.members])
        self.tables = self._tables(np.zeros(0), warm_s, np.zeros(0))

    def refresh(self) -> None:
        """Tables anew after a change of members; what slots are busy with stays."""
        before = self.tables
        self.tables = self._tables(before.slot_free, before.warm_s, before.busy_s)

    def _tables(self, slot_free: Floats, warm_s: Floats, busy_s: Floats) -> kernel.Executors:
        count, cores = len(self.members), self.model.cores
        return kernel.Executors(
            slot_free=_lengthened(slot_free, count * cores),
            slot_executor=np.repeat(np.arange(count), cores),
            from_s=np.array([m.ready_s for m in self.members], np.float64),
            gone_s=np.array([m.gone_s for m in self.members], np.float64),
            warm_s=_lengthened(warm_s, count),
            busy_s=_lengthened(busy_s, count),
            speed=self.machine.speed,
            wait_s=self.model.locality_wait_s,
            cold_s=self.model.cold_s,
            cold_factor=self.model.cold_factor,
        )

    def there(self, now_s: float) -> list[int]:
        """The numbers of those that are there, starting or draining ones included."""
        return [i for i, m in enumerate(self.members) if m.present(now_s)]

    def staying(self, now_s: float) -> list[int]:
        """The numbers of those that are there and not about to go."""
        return [i for i in self.there(now_s) if not self.members[i].draining]

    def seconds(self, from_s: float, until_s: float) -> float:
        """Executor-seconds of a stretch of time."""
        return sum(max(0.0, min(until_s, m.gone_s) - max(from_s, m.asked_s)) for m in self.members)

    def grow(self, count: int, now_s: float) -> None:
        """Ask for so many more; those that are asked for together come together."""
        first = len(self.members)
        chance = np.random.default_rng((self._seed, first)).uniform(-1.0, 1.0)
        factor = 1.0 + self.model.startup_cv * math.sqrt(3.0) * chance
        ready_s = now_s + self.model.startup_s * max(factor, 0.1)
        self.members += [Member(f"executor-{first + i}", now_s, ready_s) for i in range(count)]
        self.refresh()

    def kill_oldest(self, now_s: float) -> tuple[int, float] | None:
        """Its number, and the seconds of work that are cut short; the cluster manager replaces it."""
        victim = next((i for i in self.there(now_s) if self.members[i].ready_s <= now_s), None)
        if victim is None:
            return None
        self.members[victim].gone_s = now_s
        cores = self.model.cores
        cut_s = float(self.tables.slot_free[victim * cores : (victim + 1) * cores].max()) - now_s
        self.grow(1, now_s)
        return victim, cut_s

    def nodes(self, live: Ints, now_s: float, interval_s: float) -> Nodes:
        """What a snapshot says of those with the given numbers."""
        members = [self.members[i] for i in live]
        ids = tuple(m.id for m in members)
        return Nodes.blank(
            len(live),
            ids=ids,
            hosts=ids,
            machines=(self.machine.name,) * len(live),
            cores=float(self.model.cores),
            speed=self.machine.speed,
            own_cpu=self.tables.busy_s[live] / interval_s,
            memory_bytes=self.machine.memory_bytes,
            price_per_hour=self.machine.price_per_hour,
            started_s=[m.asked_s for m in members],
            ready=[m.ready_s <= now_s for m in members],
            draining=[m.draining for m in members],
            known=True,
        )


def _lengthened(column: Floats, count: int) -> Floats:
    return np.concatenate([column, np.zeros(count - len(column))])
