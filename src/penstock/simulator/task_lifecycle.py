"""The tasks of a simulation over time: placed, scaled, moved, drained.

Level-triggered: what is wanted is kept, and everything that changes (a task at rest, a node ready) asks again what
is still to do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from penstock.simulator.engine import Engine
from penstock.simulator.layout import Layout
from penstock.simulator.node_lifecycle import Fleet
from penstock.simulator.options import SimulationOptions
from penstock.simulator.timers import Timers


class Crew:
    """How many tasks each operator has, and where they are."""

    def __init__(
        self, layout: Layout, options: SimulationOptions, engine: Engine, fleet: Fleet, timers: Timers
    ) -> None:
        self._layout, self._options = layout, options
        self._engine, self._fleet, self._timers = engine, fleet, timers
        self.count = layout.start.copy()
        """Tasks that take records now, by operator."""
        self.wanted = layout.start.copy()
        self.destination: dict[int, str] = {}
        """Slot to the id of the node where it should be, while it is not there."""
        self._starting: set[int] = set()
        self._resting: dict[int, set[int]] = {}
        """Operators that rescale with a pause, and their slots that are still busy."""
        self._pausing: set[int] = set()
        self._travelling: set[int] = set()
        self.draining: set[int] = set()
        self._on_row: dict[int, set[int]] = {}
        self.rows = np.full(layout.slots, -1)
        """Node row of every slot, -1 where there is no task."""

    def deploy(self, placement: Mapping[str, str] | None) -> None:
        """Put the first tasks on nodes: as given, or in turn."""
        rows, turn = self._fleet.usable(), 0
        given = dict(placement or {})
        for o, operator in enumerate(self._layout.dataflow.operators):
            for i in range(int(self.count[o])):
                name = f"{operator.id}[{i}]"
                if placement is None:
                    row = rows[turn % len(rows)]
                    turn += 1
                else:
                    node = given.pop(name, None)
                    found = None if node is None else self._fleet.row_of(node)
                    if found is None:
                        raise ValueError(f"the placement puts task {name} on no node of the cluster: {node}")
                    row = found
                self._put(self._layout.slot(o, i), row)
        if given:
            raise ValueError(f"the placement names tasks that do not exist: {', '.join(sorted(given))}")

    def scale(self, operator: int, count: int) -> None:
        """Want so many tasks."""
        self.wanted[operator] = count
        self._rescale(operator)

    def send(self, slot: int, node: str) -> None:
        """Want a task on a node."""
        self.destination[slot] = node
        self._depart(slot)

    def settled(self, operator: int) -> bool:
        """Whether an operator has what it wants, and nothing left over from getting there."""
        first = int(self._layout.base[operator])
        block = range(first, first + int(self._layout.maximum[operator]))
        return (
            self.count[operator] == self.wanted[operator]
            and operator not in self._starting
            and operator not in self._resting
            and self.draining.isdisjoint(block)
        )

    def moving(self, slot: int) -> bool:
        """Whether a task takes no records because it, or its whole operator, is being moved."""
        return (
            slot in self._pausing
            or slot in self._travelling
            or int(self._layout.slot_operator[slot]) in self._resting
        )

    def moving_slots(self) -> NDArray[np.bool_]:
        """The same for every slot."""
        moving = np.isin(self._layout.slot_operator, list(self._resting))
        moving[[*self._pausing, *self._travelling]] = True
        return moving

    def on(self, row: int) -> frozenset[int]:
        """Slots on a node."""
        return frozenset(self._on_row.get(row, ()))

    def row(self, slot: int) -> int:
        """The node row of a task, or -1."""
        return int(self.rows[slot])

    def state_bytes(self, operator: int) -> float:
        """Size of one task's state: the whole is what was declared for the first tasks."""
        state = self._layout.dataflow.operators[operator].state
        if state is None:
            return 0.0
        return state.bytes_per_task * float(self._layout.start[operator]) / float(self.count[operator])

    def retry(self) -> None:
        """Look again at everything that waits for a node."""
        for slot in sorted(self.destination):
            self._depart(slot)
        self.evacuate()

    def at_rest(self, slot: int) -> None:
        """Go on with what a task was stopped for."""
        operator = int(self._layout.slot_operator[slot])
        if slot in self._pausing:
            self._pausing.discard(slot)
            self._travel(slot)
        elif operator in self._resting:
            waiting = self._resting[operator]
            waiting.discard(slot)
            if not waiting:
                self._timers.at(
                    self._engine.now_s + self._rescale_s(operator), lambda: self._rescaled(operator)
                )
        elif slot in self.draining:
            if self._engine.is_empty(slot):
                self.draining.discard(slot)
                self._put(slot, -1)
                self.evacuate()
                self._rescale(operator)
            else:
                self._engine.drain(slot)

    def _put(self, slot: int, row: int) -> None:
        self._on_row.get(self.row(slot), set()).discard(slot)
        self.rows[slot] = row
        if row >= 0:
            self._on_row.setdefault(row, set()).add(slot)
        self._engine.place(slot, row)

    def _emptiest(self, avoid: int = -1) -> int | None:
        """The usable node with the fewest tasks per core, the first such."""
        rows = [r for r in self._fleet.usable() if r != avoid]

        def crowd(row: int) -> tuple[float, int]:
            member = self._fleet.rows[row]
            cores = max(member.machine.cores - member.foreign, 0.01) if member is not None else math.inf
            coming = 0 if member is None else sum(node == member.id for node in self.destination.values())
            return (len(self._on_row.get(row, ())) + coming) / cores, row

        return min(rows, key=crowd) if rows else None

    # Scaling

    def _rescale(self, operator: int) -> None:
        have, want = int(self.count[operator]), int(self.wanted[operator])
        slots = range(self._layout.slot(operator, 0), self._layout.slot(operator, max(have, want)))
        if have == want or operator in self._starting or operator in self._resting:
            return
        if any(s in self._pausing or s in self._travelling for s in slots):
            return  # when the move is over, this is asked again
        if want > have and self._options.task_startup_s > 0:
            self._starting.add(operator)
            self._timers.at(
                self._engine.now_s + self._options.task_startup_s, lambda: self._started(operator)
            )
        else:
            self._change(operator)

    def _started(self, operator: int) -> None:
        self._starting.discard(operator)
        if not any(s in self._pausing or s in self._travelling for s in self._slots(operator)):
            self._change(operator)

    def _slots(self, operator: int) -> range:
        return range(self._layout.slot(operator, 0), self._layout.slot(operator, int(self.count[operator])))

    def _change(self, operator: int) -> None:
        if self.count[operator] == self.wanted[operator]:
            return
        if self._layout.owned[operator]:
            slots = set(self._slots(operator))
            self._resting[operator] = slots
            for slot in sorted(slots):
                self._engine.pause(slot)
        else:
            self._resize(operator)

    def _resize(self, operator: int) -> None:
        have, want = int(self.count[operator]), int(self.wanted[operator])
        for index in range(have, want):
            slot = self._layout.slot(operator, index)
            if slot in self.draining:
                self.draining.discard(slot)
                self._engine.undrain(slot)
            else:
                row = self._emptiest()
                # With no usable node at all, a task joins its first sibling.
                self._put(slot, row if row is not None else self.row(self._layout.slot(operator, 0)))
        self.count[operator] = want
        self._engine.set_tasks(operator, want)
        for index in range(want, have):
            slot = self._layout.slot(operator, index)
            self.destination.pop(slot, None)
            self.draining.add(slot)
            self._engine.drain(slot)

    def _rescale_s(self, operator: int) -> float:
        size = self.state_bytes(operator)
        rows = {self.row(s) for s in self._slots(operator)}
        members = [self._fleet.rows[r] for r in rows]
        slowest = min((m.bandwidth_bytes_per_s for m in members if m is not None), default=math.inf)
        return self._options.move_s + size / slowest

    def _rescaled(self, operator: int) -> None:
        before = list(self._slots(operator))
        self._resize(operator)
        self._engine.hand_over(operator)
        del self._resting[operator]
        for slot in sorted({*before, *self._slots(operator)}):
            self._engine.resume(slot)
        self._after_change(operator)

    def _after_change(self, operator: int) -> None:
        self._rescale(operator)
        for slot in self._slots(operator):
            if slot in self.destination:
                self._depart(slot)
        self.evacuate()

    # Moving

    def _depart(self, slot: int) -> None:
        operator = int(self._layout.slot_operator[slot])
        row = self._fleet.row_of(self.destination[slot])
        member = None if row is None else self._fleet.rows[row]
        if row is None or row == self.row(slot):
            del self.destination[slot]
        elif (
            member is not None
            and member.ready
            and slot not in self._pausing
            and slot not in self._travelling
            and operator not in self._resting
        ):
            self._pausing.add(slot)
            self._engine.pause(slot)

    def _travel(self, slot: int) -> None:
        node = self.destination.get(slot)
        row = None if node is None else self._fleet.row_of(node)
        self._travelling.add(slot)
        took = 0.0
        if row is not None:
            size = self.state_bytes(int(self._layout.slot_operator[slot]))
            took = self._options.move_s + self._engine.transfer_s(self.row(slot), row, size)
        self._timers.at(self._engine.now_s + took, lambda: self._arrive(slot, node))

    def _arrive(self, slot: int, node: str | None) -> None:
        self._travelling.discard(slot)
        row = None if node is None else self._fleet.row_of(node)
        if row is not None:
            self._put(slot, row)
        self._engine.resume(slot)
        if self.destination.get(slot) == node:
            self.destination.pop(slot, None)
        self._after_change(int(self._layout.slot_operator[slot]))

    def evacuate(self) -> None:
        """Send tasks away from nodes that are to be released, and release those that are empty."""
        for row, member in self._fleet.live():
            if not member.draining:
                continue
            here = self.on(row)
            if not here:
                self._fleet.release(row)
                continue
            for slot in sorted(here - self.draining):
                goal = self.destination.get(slot)
                if goal is not None and goal != member.id:
                    continue
                refuge = self._emptiest(avoid=row)
                target = None if refuge is None else self._fleet.rows[refuge]
                if target is not None:
                    self.send(slot, target.id)
