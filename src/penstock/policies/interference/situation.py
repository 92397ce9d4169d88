"""One cycle's view: which computations can move, what they will need, and what nodes carry and have room for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.policies.interference.demand import CPU, MEMORY, NETWORK, Capacity, Crowded, costs, offered_rps
from penstock.policies.interference.expectations import Learned, expected_rps, observe, per_record
from penstock.policies.interference.options import MigrationOptions
from penstock.policies.interference.rings import summed
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals

_INDEX_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Situation:
    """Rows of computations are those of `tasks`: stateful tasks that are on a node."""

    snapshot: Snapshot
    capacity: Capacity
    learned: Learned
    tasks: Ints
    """Rows in the snapshot's tasks."""
    node: Ints
    rates: Floats
    """[computation, window]: records per second. Windows are those of the rings, or parts of them."""
    needs: Floats
    """[computation, resource]: cores and bytes per second for a record a second; memory (bytes) at rate 1."""
    state_bytes: Floats
    fixed: Floats
    """[node, resource]: what tasks that stay use."""
    open_to: Bools
    """Nodes that computations may move to."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        learned: Learned,
        options: MigrationOptions,
        *,
        fair_share: float,
        onto: Floats | None = None,
        crowded: Mapping[str, Crowded] | None = None,
    ) -> Situation:
        """The view of a snapshot, with what was known before (`crowded`, see `Capacity.of`).

        `onto` gathers windows (see `expected_rps`).
        """
        tasks, nodes = snapshot.tasks, snapshot.nodes
        capacity = Capacity.of(snapshot, fair_share=fair_share, crowded=crowded)
        stateful = np.array([o.is_stateful for o in snapshot.dataflow.operators], np.bool_)
        rows = np.flatnonzero(stateful[tasks.operator] & (tasks.node >= 0))
        offered, known = offered_rps(snapshot)
        cpu, size = costs(snapshot, capacity.pace)
        learned = observe(
            learned,
            (tasks.operator[rows] << _INDEX_BITS) + tasks.index[rows],
            offered[rows],
            known[rows],
            cpu[rows],
            size[rows],
            step_s=snapshot.step_s,
            season_s=options.season_s,
            mean_steps=options.mean_steps,
            span_s=options.rings.span_s,
        )
        needs = np.zeros((len(rows), 3))
        needs[:, CPU], needs[:, NETWORK] = per_record(learned, tasks.operator[rows], len(stateful))
        classes = options.classes
        of_class = np.array([not classes or m in classes for m in nodes.machines], np.bool_)
        return cls(
            snapshot=snapshot,
            capacity=capacity,
            learned=learned,
            tasks=rows,
            node=tasks.node[rows],
            rates=expected_rps(
                learned, options.rings, season_s=options.season_s, onto=onto, forecasts=options.forecasts
            ),
            needs=needs,
            state_bytes=np.where(np.isfinite(tasks.state_bytes[rows]), tasks.state_bytes[rows], 0.0),
            fixed=_fixed(snapshot, rows),
            open_to=nodes.staying & of_class,
        )

    def loads(self) -> Floats:
        """[node, resource, window]: cores, bytes per second and bytes that will be used."""
        count, windows = len(self.snapshot.nodes), self.rates.shape[1]
        loads = np.repeat(self.fixed[:, :, None], windows, axis=2)
        for resource in (CPU, NETWORK):
            loads[:, resource] += summed(self.rates * self.needs[:, resource, None], self.node, count)
        held = totals(self.node, self.state_bytes, count)
        loads[:, MEMORY] = np.maximum(held, self.snapshot.nodes.memory_used_bytes)[:, None]
        return loads

    def rooms(self, shares: tuple[float, float, float]) -> Floats:
        """[node, resource]: one over what may be used, given the share of each resource that may."""
        capacity = self.capacity
        return np.stack(
            [
                1.0 / (shares[CPU] * capacity.cores),
                1.0 / (shares[NETWORK] * capacity.bandwidth_bytes_per_s),
                1.0 / (shares[MEMORY] * capacity.memory_bytes),
            ],
            axis=1,
        )

    def task_id(self, row: int) -> str:
        """`operator[index]` of a computation."""
        return self.snapshot.task_id(int(self.tasks[row]))


def covering(snapshot: Snapshot, since_s: float | None) -> Snapshot:
    """The snapshot with the interval that its tasks' figures stand for; `since_s`, when there were some last.

    An engine of micro-batches tells of a batch when it has ended. Cycles in which none did are passed over, and what
    the next one tells was done in all that time, not in the last interval alone.
    """
    if since_s is not None:
        span_s = snapshot.time_s - since_s
    else:
        span_s = 0.0 if snapshot.batches is None else float(snapshot.batches.duration_s.sum())
    if span_s < 1.01 * snapshot.interval_s:
        return snapshot
    cpu = snapshot.tasks.cpu * (snapshot.interval_s / span_s)
    return replace(snapshot, interval_s=span_s, tasks=snapshot.tasks.with_columns(cpu=cpu))


def _fixed(snapshot: Snapshot, moving: Ints) -> Floats:
    """[node, resource]: what all other tasks use now."""
    tasks, count = snapshot.tasks, len(snapshot.nodes)
    stays = (tasks.node >= 0) & tasks.known
    stays[moving] = False
    at, fixed = tasks.node[stays], np.zeros((count, 3))
    traffic = np.maximum(tasks.bytes_in, tasks.bytes_out) / max(snapshot.interval_s, 1e-9)
    for resource, use in ((CPU, tasks.cpu), (NETWORK, traffic)):
        fixed[:, resource] = totals(at, np.nan_to_num(use[stays]), count)
    return fixed
