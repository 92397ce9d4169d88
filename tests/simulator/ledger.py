"""Where every record of a simulation has gone since its start, read from the engine's own tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.simulator import SimulatedRuntime
from penstock.simulator.agenda import DELIVERY
from penstock.simulator.discrete import DiscreteEngine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ledger:
    """Per operator and per stream the sums must come out even."""

    arrived: Floats
    processed: Floats
    queued: Floats
    in_service: Floats
    dropped: Floats
    emitted: Floats
    offered: Floats
    shed: Floats
    sent: Floats
    batched: Floats
    on_the_way: Floats
    delivered: Floats
    held: float | None = None
    """Records that the simulator holds in memory, counted independently; None where it holds none."""


def ledger_of(runtime: SimulatedRuntime) -> Ledger:
    """The ledger now. In the fluid fidelity nothing stays in batches or on links, which cost time but hold nothing."""
    engine = runtime._engine
    t, discrete = engine._t, isinstance(engine, DiscreteEngine)
    tasks, streams = t["tasks"], t["streams"]

    def by_operator(column: str) -> Floats:
        return _summed_by(tasks["operator"], tasks[column], len(t["operators"]))

    batched = on_the_way = np.zeros(len(streams))
    held = None
    if discrete:
        coming = (t["events"]["kind"] == DELIVERY) & (t["events"]["place"] >= 0)
        of_stream = t["channels"]["stream"][t["events"]["subject"][coming]]
        on_the_way = _summed_by(of_stream, t["events"]["count"][coming], len(streams))
        batched = _summed_by(t["channels"]["stream"], t["channels"]["count"], len(streams))
        held = float(len(t["records"]) - t.w["free_records"])
    return Ledger(
        **{name: by_operator(name) for name in ("arrived", "processed", "dropped", "emitted")},
        queued=by_operator("queued" if discrete else "queue"),
        in_service=by_operator("busy") if discrete else np.zeros(len(t["operators"])),
        **{name: streams[name].copy() for name in ("offered", "shed", "sent")},
        batched=batched,
        on_the_way=on_the_way,
        delivered=streams["delivered" if discrete else "sent"].copy(),
        held=held,
    )


def _summed_by(group: np.ndarray, column: np.ndarray, count: int) -> Floats:
    return np.bincount(group, column, count).astype(np.float64)
