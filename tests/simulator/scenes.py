"""Small dataflows and clusters, plans in one line, and traces that can be asked about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.control.plan import Outcome, Plan, Planned
from penstock.dataflow import Dataflow, Load, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.policies.actions import Action
from penstock.policies.reasons import Reason
from penstock.simulator import Cluster, Link, SimulatedRuntime
from penstock.telemetry import MachineClass, Moments
from tests.simulator.ledger import Ledger

WHY = Reason(code="test")


def machine(cores: int = 4, **given: Any) -> MachineClass:
    return MachineClass(name="node", cores=cores, **given)


def cluster(nodes: int = 1, cores: int = 4, *, link: Link | None = None, **given: Any) -> Cluster:
    return Cluster.of(machine(cores, **given), nodes, link=link)


def single_queue(rate_rps: float, cost_s: float, cost_cv: float = 1.0, load: Load | None = None) -> Dataflow:
    """A source that costs nothing and one server."""
    queue = flow("queue")
    source = queue.source("source", replay(load=load or constant(rate_rps)))
    source.sink("server", discard(), cost_s=cost_s, cost_cv=cost_cv)
    return queue.build()


def pipeline(rate_rps: float = 500.0, *, bytes_per_task: float = 0.0) -> Dataflow:
    """source -> work (spread, 1..6) -> count (keyed, 1..6) -> out, with constraints on mean and percentile."""
    from penstock.dataflow import State

    p = flow("pipeline")
    source = p.source("source", replay(load=constant(rate_rps)))
    work = source.map("work", cost_s=0.004, parallelism=(1, 6, 3), wiring="spread")
    state = State(schema="n long", bytes_per_task=bytes_per_task)
    count = work.keyed("count", key="k", state=state, cost_s=0.002, parallelism=(1, 6, 2))
    count.sink("out", discard())
    p.constrain("-> work -> count", mean_ms=100, window_s=5, name="mean")
    p.constrain("work -> count ->", p95_ms=100, window_s=5, name="tail")
    return p.build()


def act(runtime: SimulatedRuntime, *actions: Action) -> tuple[Outcome, ...]:
    """Apply a plan of the given actions now."""
    planned = tuple(Planned(action=a, policy="test") for a in actions)
    return runtime.apply(Plan(time_s=runtime.now_s, actions=planned))


def trace_of(runtime: SimulatedRuntime) -> list[NDArray[np.void]]:
    """A list that fills with all trace rows from now on."""
    rows: list[NDArray[np.void]] = []
    runtime.subscribe(rows.append)
    return rows


def assert_even(ledger: Ledger, dataflow: Dataflow, *, rel: float = 0.0) -> None:
    """In = out + shed + queued: for every operator, for every stream, and for the memory of the simulator."""
    tolerance = rel * max(1.0, float(ledger.arrived.max()))

    def same(left: Any, right: Any, what: str) -> None:
        assert np.all(np.abs(np.asarray(left) - np.asarray(right)) <= tolerance), f"{what}: {left} != {right}"

    same(ledger.arrived, ledger.processed + ledger.queued + ledger.in_service + ledger.dropped, "operators")
    same(ledger.sent, ledger.delivered + ledger.batched + ledger.on_the_way, "streams")
    row = dataflow.row
    for j, stream in enumerate(dataflow.streams):
        same(ledger.offered[j], ledger.emitted[row[stream.source]], f"offered on {stream.id}")
        if stream.wiring != "broadcast":
            same(ledger.sent[j], ledger.offered[j] - ledger.shed[j], f"kept on {stream.id}")
    for operator in dataflow.operators:
        if operator.kind != "source":
            into = [j for j, s in enumerate(dataflow.streams) if s.target == operator.id]
            same(ledger.delivered[into].sum(), ledger.arrived[row[operator.id]], f"into {operator.id}")
    if ledger.held is not None:
        alive = ledger.queued.sum() + ledger.in_service.sum() + ledger.batched.sum() + ledger.on_the_way.sum()
        same(ledger.held, alive, "records in memory")


def as_bytes(value: Any) -> bytes:
    """Everything in a snapshot, to the last bit."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, Moments) or (is_dataclass(value) and not isinstance(value, type)):
        return b"".join(as_bytes(getattr(value, f.name)) for f in fields(value) if f.name != "dataflow")
    if isinstance(value, tuple):
        return b"".join(as_bytes(v) for v in value)
    return repr(value).encode()


def rows_of(trace: Iterable[NDArray[np.void]], kind: int, operator: int) -> NDArray[np.void]:
    """Trace rows of one kind at one operator, in order of time."""
    rows = np.concatenate(list(trace))
    return rows[(rows["kind"] == kind) & (rows["operator"] == operator)]
