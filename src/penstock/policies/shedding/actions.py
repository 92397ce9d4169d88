"""Decisions as actions: each says which sink it is for, which node is short and of how much."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bools, Floats
from penstock.policies.actions import Action, Expectation, Move, Shed
from penstock.policies.reasons import Fact, Reason
from penstock.policies.shedding.hysteresis import Settled
from penstock.policies.shedding.keeps import Keeps
from penstock.policies.shedding.moves import Relocation
from penstock.policies.shedding.requirements import at_sinks
from penstock.policies.shedding.situation import Situation
from penstock.telemetry.moments import totals


def move_actions(now: Situation, moves: Relocation) -> list[Action]:
    """A `Move` for each task that leaves because the minima of its node, or else all of its needs, do not fit."""
    snapshot, nodes = now.snapshot, now.snapshot.nodes
    needed, at_full = _per_node(now, now.minimum), _per_node(now, now.demand.base + now.demand.slope)
    actions: list[Action] = []
    for row, target in zip(moves.tasks.tolist(), moves.targets.tolist(), strict=True):
        source, operator = int(now.node[row]), int(snapshot.tasks.operator[row])
        crowded = needed[source] > now.available[source]
        facts: dict[str, Fact] = {
            "needed_cores": float(needed[source] if crowded else at_full[source]),
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
                reason=Reason(code="minima-exceed-node" if crowded else "relieve-shedding", facts=facts),
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
    # One list of all shedders, sources first; -1 stands for no target.
    operator = np.concatenate([sources.operator, graph.source])
    target = np.concatenate([np.full(len(sources), -1), graph.target])
    wanted = np.concatenate([keeps.source[sources.operator], keeps.stream])
    actual = np.concatenate([sources.keep, streams.keep])
    new = np.flatnonzero(_differs(wanted, actual, np.concatenate([sources.known, streams.known])))
    if not len(new):
        return []
    # What reaches an operator is decided by the most accurate sink below it.
    order = np.argsort(settled.accuracy, kind="stable")
    rank = np.empty(len(sinks))
    rank[order] = np.arange(len(sinks))
    decider = order[graph.highest_below(at_sinks(graph, sinks, rank, elsewhere=-1.0)).astype(np.int64)]
    sink = decider[np.where(target < 0, operator, target)]
    because, ids, within_s = _Reasons(now, settled), graph.ids, 2 * snapshot.interval_s
    actions: list[Action] = []
    columns = (c[new].tolist() for c in (operator, target, wanted, sink, wanted > actual))
    for o, t, keep, q, rises in zip(*columns, strict=True):
        to_id = None if t < 0 else ids[t]
        subject = ids[o] if to_id is None else f"{ids[o]}->{to_id}"
        expects = Expectation(metric="keep", subject=subject, value=keep, within_s=within_s)
        reason = because.of(q, rises=rises)
        actions.append(
            Shed(
                operator=ids[o],
                target=to_id,
                keep=keep,
                reason=reason,
                expects=expects,
                goal=ids[int(sinks.operator[q])],
            )
        )
    return actions


_FACTS = ("sink", "accuracy", "min_accuracy", "priority", "current_accuracy", "backlog_factor")


class _Reasons:
    """Why a sink has the accuracy it has; one reason serves all its shedders."""

    def __init__(self, now: Situation, settled: Settled) -> None:
        sinks, operator = now.snapshot.sinks, now.snapshot.sinks.operator
        self._settled, self._nodes = settled, now.snapshot.nodes.ids
        self._by_slots = now.options.by_slots
        # As lists: single numbers come out of arrays ten times more slowly.
        at_full = _per_node(now, now.demand.drain_base + now.demand.drain_slope)
        self._at_full, self._available = at_full.tolist(), now.available.tolist()
        self._stopped_by = settled.stopped_by.tolist()
        ids = [now.graph.ids[o] for o in operator.tolist()]
        columns = (
            settled.accuracy,
            sinks.min_accuracy,
            sinks.priority,
            now.accuracy.current[operator],
            now.accuracy.surge[operator],
        )
        self._facts_of = list(zip(ids, *(c.tolist() for c in columns), strict=True))
        self._made: dict[tuple[int, bool], Reason] = {}

    def of(self, sink: int, *, rises: bool) -> Reason:
        """The reason for shedding that the sink decides about."""
        key = (sink, rises)
        if key not in self._made:
            self._made[key] = Reason(code=self._code(sink, rises), facts=self._facts(sink))
        return self._made[key]

    def _facts(self, sink: int) -> dict[str, Fact]:
        facts: dict[str, Fact] = dict(zip(_FACTS, self._facts_of[sink], strict=True))
        node = self._stopped_by[sink]
        if node >= 0:
            facts["node"] = "all executors" if self._by_slots else self._nodes[node]
            facts["needed_cores"] = self._at_full[node]
            facts["available_cores"] = self._available[node]
        return facts

    def _code(self, sink: int, rises: bool) -> str:
        settled = self._settled
        if rises:
            return "cpu-free"
        if settled.disturbed[sink]:
            return "neighbour-warms-up"
        if settled.lags[sink]:
            return "lag-without-cpu"
        if self._stopped_by[sink] >= 0:
            return "cpu-short"
        # Below its ceiling with nothing in the way, it waits for more room than it needs, to rise without see-saw.
        return "task-at-its-core" if settled.accuracy[sink] >= settled.ceiling[sink] else "held"


def _differs(wanted: Floats, actual: Floats, known: Bools) -> Bools:
    # What is not known to be so is asserted again.
    return np.where(known, np.abs(wanted - actual) > 1e-9, wanted < 1)


def _per_node(now: Situation, cores: Floats) -> Floats:
    placed = now.node >= 0
    return totals(now.node[placed], cores[placed], len(now.available))
