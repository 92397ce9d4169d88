"""Decisions as actions: each says which sink it is for, which node is short and of how much."""

from __future__ import annotations

import numpy as np

from penstock.policies.proposal import Action, Expectation, Fact, Move, Reason, Shed
from penstock.policies.shedding.graph import Floats
from penstock.policies.shedding.keeps import Keeps
from penstock.policies.shedding.moves import Relocation
from penstock.policies.shedding.restrictions import at_sinks
from penstock.policies.shedding.settling import Settled
from penstock.policies.shedding.situation import Situation
from penstock.telemetry.moments import totals
from penstock.telemetry.snapshot import Bools


def move_actions(now: Situation, moves: Relocation) -> list[Action]:
    """A `Move` for each task that leaves because the minima of its node do not fit."""
    snapshot, nodes = now.snapshot, now.snapshot.nodes
    needed = _per_node(now, now.minimum)
    actions: list[Action] = []
    for row, target in zip(moves.tasks.tolist(), moves.targets.tolist(), strict=True):
        source, operator = int(now.node[row]), int(snapshot.tasks.operator[row])
        facts: dict[str, Fact] = {
            "needed_cores": float(needed[source]),
            "available_cores": float(now.available[source]),
            "task_cores": float(now.minimum[row]),
            "priority": int(now.restrictions.priority[operator]),
        }
        actions.append(
            Move(
                operator=now.id_of(operator),
                index=int(snapshot.tasks.index[row]),
                source=nodes.ids[source],
                target=nodes.ids[target],
                reason=Reason(code="minima-exceed-node", facts=facts),
                expects=Expectation(
                    metric="node",
                    subject=snapshot.task_id(row),
                    value=float(target),
                    within_s=now.options.warmup_s,
                ),
            )
        )
    return actions


def shed_actions(now: Situation, keeps: Keeps, settled: Settled) -> list[Action]:
    """A `Shed` for each source and stream whose keep-probability is not the wanted one."""
    snapshot, graph, sinks = now.snapshot, now.graph, now.snapshot.sinks
    sources, streams = snapshot.sources, snapshot.streams
    wanted = keeps.source[sources.operator]
    changes: list[tuple[int, int | None, float, float]] = [
        (int(sources.operator[i]), None, float(wanted[i]), float(sources.keep[i]))
        for i in np.flatnonzero(_differs(wanted, sources.keep, sources.known))
    ]
    changes += [
        (int(graph.source[i]), int(graph.target[i]), float(keeps.stream[i]), float(streams.keep[i]))
        for i in np.flatnonzero(_differs(keeps.stream, streams.keep, streams.known))
    ]
    if not changes:
        return []
    # What reaches an operator is decided by the most accurate sink below it.
    order = np.argsort(settled.accuracy, kind="stable")
    rank = np.empty(len(sinks))
    rank[order] = np.arange(len(sinks))
    decider = order[graph.highest_below(at_sinks(graph, sinks, rank, elsewhere=-1.0)).astype(np.int64)]
    at_full = _per_node(now, now.demand.drain_base + now.demand.drain_slope)
    actions: list[Action] = []
    for operator, target, keep, actual in changes:
        below = operator if target is None else target
        shed = Shed(
            operator=now.id_of(operator),
            target=None if target is None else now.id_of(target),
            keep=keep,
            reason=_reason(now, settled, int(decider[below]), below, at_full, rises=keep > actual),
        )
        actions.append(_expecting(shed, now.snapshot.interval_s))
    return actions


def _reason(
    now: Situation, settled: Settled, sink: int, operator: int, at_full: Floats, *, rises: bool
) -> Reason:
    snapshot = now.snapshot
    accuracy, node = float(settled.accuracy[sink]), int(settled.stopped_by[sink])
    facts: dict[str, Fact] = {
        "sink": now.id_of(int(snapshot.sinks.operator[sink])),
        "accuracy": accuracy,
        "min_accuracy": float(snapshot.sinks.min_accuracy[sink]),
        "priority": int(snapshot.sinks.priority[sink]),
        "current_accuracy": float(now.accuracy.current[operator]),
        "backlog_factor": float(now.accuracy.surge[operator]),
    }
    if node >= 0:
        facts |= {
            "node": snapshot.nodes.ids[node],
            "needed_cores": float(at_full[node]),
            "available_cores": float(now.available[node]),
        }
    if rises:
        return Reason(code="cpu-free", facts=facts)
    if settled.disturbed[sink]:
        return Reason(code="neighbour-warms-up", facts=facts)
    if node >= 0:
        return Reason(code="cpu-short", facts=facts)
    # Below its ceiling with nothing in the way, the sink waits for more room than it has to rise without see-saw.
    return Reason(code="task-at-its-core" if accuracy >= settled.ceiling[sink] else "held", facts=facts)


def _expecting(shed: Shed, within_s: float) -> Shed:
    expects = Expectation(metric="keep", subject=shed.subject, value=shed.keep, within_s=2 * within_s)
    return Shed(
        operator=shed.operator, target=shed.target, keep=shed.keep, reason=shed.reason, expects=expects
    )


def _differs(wanted: Floats, actual: Floats, known: Bools) -> Bools:
    # What is not known to be so is asserted again.
    return np.where(known, np.abs(wanted - actual) > 1e-9, wanted < 1)


def _per_node(now: Situation, cores: Floats) -> Floats:
    placed = now.node >= 0
    return totals(now.node[placed], cores[placed], len(now.available))
