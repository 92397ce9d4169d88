"""Actions carried out on a simulation, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.arrays import Floats, Ints
from penstock.control.plan import Outcome, Status
from penstock.dataflow import Dataflow
from penstock.policies.actions import Acquire, Action, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.reasons import Fact, Reason
from penstock.simulator.cluster import Cluster
from penstock.simulator.engine import Engine
from penstock.simulator.layout import Layout
from penstock.simulator.node_lifecycle import Fleet
from penstock.simulator.observation import Controls
from penstock.simulator.task_lifecycle import Crew

Verdict = tuple[Status, Reason | None]
_APPLIED: Verdict = ("applied", None)


@dataclass(frozen=True, slots=True)
class _Deferred:
    action: Action
    asked_s: float
    verdict: Callable[[], Verdict]


class Actuator:
    """Turns actions into wishes of fleet and crew, and follows those that take time."""

    def __init__(
        self,
        dataflow: Dataflow,
        cluster: Cluster,
        layout: Layout,
        engine: Engine,
        fleet: Fleet,
        crew: Crew,
        controls: Controls,
    ) -> None:
        self._dataflow, self._cluster, self._layout = dataflow, cluster, layout
        self._engine, self._fleet, self._crew, self._controls = engine, fleet, crew, controls
        self._streams = {s.id: i for i, s in enumerate(dataflow.streams)}
        self._deferred: list[_Deferred] = []

    def act(self, action: Action) -> Outcome:
        """Begin one action, and finish it if that takes no time."""
        verdict = self._begin(action)
        status, reason = verdict() if callable(verdict) else verdict
        if callable(verdict) and status == "deferred":
            # Asserted again: the earlier one is under way for the same end.
            self._deferred = [d for d in self._deferred if d.action != action or isinstance(action, Acquire)]
            self._deferred.append(_Deferred(action, self._engine.now_s, verdict))
        return Outcome(action=action, status=status, reason=reason)

    def decided(self) -> tuple[Outcome, ...]:
        """Outcomes of deferred actions that are no longer under way."""
        waiting, outcomes = [], []
        for each in self._deferred:
            status, reason = each.verdict()
            if status == "deferred":
                waiting.append(each)
            else:
                took_s = self._engine.now_s - each.asked_s
                outcomes.append(Outcome(action=each.action, status=status, reason=reason, took_s=took_s))
        self._deferred = waiting
        return tuple(outcomes)

    def _begin(self, action: Action) -> Verdict | Callable[[], Verdict]:
        match action:
            case Scale(operator=None):
                return self._scale_nodes(action)
            case Scale():
                return self._scale(action)
            case Move():
                return self._move(action)
            case Shed():
                return self._shed(action)
            case Switch():
                return self._switch(action)
            case Pace():
                return self._pace(action)
            case Acquire():
                return self._acquire(action.machine, action.count)
            case Release():
                return self._release([action.node])
            case _:
                return _blocked("unknown-action", kind=type(action).__name__)

    def _scale(self, action: Scale) -> Verdict | Callable[[], Verdict]:
        row = self._dataflow.row.get(action.operator) if action.operator is not None else None
        if row is None:
            return _blocked("no-such-operator", operator=action.operator)
        bounds = self._dataflow.operators[row].parallelism
        if not max(1, bounds.minimum) <= action.target <= bounds.maximum:
            return _blocked(
                "out-of-bounds", target=action.target, minimum=bounds.minimum, maximum=bounds.maximum
            )
        if self._crew.wanted[row] == action.target and self._crew.settled(row):
            return "held", Reason(code="already-so", facts={"tasks": action.target})
        self._crew.scale(row, action.target)

        def verdict() -> Verdict:
            if self._crew.wanted[row] != action.target:
                return "failed", Reason(code="superseded", facts={"target": int(self._crew.wanted[row])})
            if self._crew.settled(row):
                return _APPLIED
            return _deferred("tasks-changing", tasks=int(self._crew.count[row]), target=action.target)

        return verdict

    def _move(self, action: Move) -> Verdict | Callable[[], Verdict]:
        row = self._dataflow.row.get(action.operator)
        if row is None:
            return _blocked("no-such-operator", operator=action.operator)
        if not 0 <= action.index < int(self._crew.count[row]):
            return _blocked("no-such-task", task=action.subject, tasks=int(self._crew.count[row]))
        target = self._fleet.row_of(action.target)
        if target is None:
            return _blocked("no-such-node", node=action.target)
        member = self._fleet.rows[target]
        if member is not None and member.draining:
            return _blocked("node-draining", node=action.target)
        slot = self._layout.slot(row, action.index)
        if self._crew.row(slot) == target and slot not in self._crew.destination:
            return "held", Reason(code="already-so", facts={"node": action.target})
        if self._crew.destination.get(slot) != action.target:
            self._crew.send(slot, action.target)

        def verdict() -> Verdict:
            there = self._fleet.row_of(action.target)
            if there is None or action.index >= self._crew.count[row]:
                gone = action.target if there is None else action.subject
                return "failed", Reason(code="vanished", facts={"what": gone})
            if slot in self._crew.destination or self._crew.moving(slot):
                wanted = self._crew.destination.get(slot, action.target)
                if wanted != action.target:
                    return "failed", Reason(code="superseded", facts={"target": wanted})
                return _deferred("moving", node=action.target)
            return _APPLIED if self._crew.row(slot) == there else ("failed", Reason(code="superseded"))

        return verdict

    def _shed(self, action: Shed) -> Verdict:
        controls, engine = self._controls, self._engine
        if action.target is not None:
            stream = self._streams.get(action.subject)
            if stream is None:
                return _blocked("no-such-stream", stream=action.subject)
            return _set(controls.stream_keep, stream, action.keep, engine.set_stream_keep, keep=action.keep)
        row = self._dataflow.row.get(action.operator)
        if row is None or self._dataflow.operators[row].kind != "source":
            return _blocked("no-such-source", operator=action.operator)
        return _set(controls.source_keep, row, action.keep, engine.set_source_keep, keep=action.keep)

    def _switch(self, action: Switch) -> Verdict:
        row = self._dataflow.row.get(action.operator)
        if row is None:
            return _blocked("no-such-operator", operator=action.operator)
        try:
            index = self._dataflow.operators[row].alternate_index(action.target)
        except KeyError:
            return _blocked("no-such-alternate", operator=action.operator, alternate=action.target)
        active, switch = self._controls.alternate, self._engine.set_alternate
        return _set(active, row, index, switch, alternate=action.target)

    def _pace(self, action: Pace) -> Verdict:
        if action.stream is None:
            return _blocked("no-batches", runtime="simulated")
        stream = self._streams.get(action.stream)
        if stream is None:
            return _blocked("no-such-stream", stream=action.stream)
        deadlines, pace = self._controls.deadline_s, self._engine.set_deadline
        return _set(deadlines, stream, action.deadline_s, pace, deadline_s=action.deadline_s)

    def _scale_nodes(self, action: Scale) -> Verdict | Callable[[], Verdict]:
        """More nodes of the first class; fewer: the youngest go first."""
        kept = [m for _, m in self._fleet.live() if not m.draining]
        if len(kept) == action.target:
            return "held", Reason(code="already-so", facts={"nodes": action.target})
        if action.target > len(kept):
            return self._acquire(self._cluster.classes[0].name, action.target - len(kept))
        youngest = sorted(kept, key=lambda m: m.started_s)[action.target :]
        return self._release([m.id for m in youngest])

    def _acquire(self, name: str, count: int) -> Verdict | Callable[[], Verdict]:
        machine = self._cluster.machine(name)
        if machine is None:
            return _blocked("no-such-class", machine=name)
        refusal = self._fleet.refusal(machine, count)
        if refusal is not None:
            return "blocked", refusal
        ids = [self._fleet.acquire(machine) for _ in range(count)]

        def verdict() -> Verdict:
            rows = [self._fleet.row_of(i) for i in ids]
            members = [None if r is None else self._fleet.rows[r] for r in rows]
            starting = sum(m is not None and not m.ready for m in members)
            return _deferred("node-starting", nodes=starting) if starting else _APPLIED

        return verdict

    def _release(self, ids: list[str]) -> Verdict | Callable[[], Verdict]:
        members = []
        for id_ in ids:
            row = self._fleet.row_of(id_)
            member = None if row is None else self._fleet.rows[row]
            if member is None:
                return _blocked("no-such-node", node=id_)
            members.append(member)
        staying = [m for _, m in self._fleet.live() if m.ready and not m.draining and m.id not in ids]
        if not staying:
            return _blocked("last-node", node=ids[0])
        for member in members:
            member.draining = True
        self._crew.evacuate()

        def verdict() -> Verdict:
            left = sum(self._fleet.row_of(i) is not None for i in ids)
            return _deferred("draining", nodes=left) if left else _APPLIED

        return verdict


def _set(
    settings: Floats | Ints, row: int, value: float, tell: Callable[[int, Any], None], **fact: Fact
) -> Verdict:
    """Note a setting and tell the engine, unless it is so already."""
    if settings[row] == value:
        return "held", Reason(code="already-so", facts=fact)
    settings[row] = value
    tell(row, value)
    return _APPLIED


def _blocked(code: str, **facts: Fact) -> Verdict:
    return "blocked", Reason(code=code, facts=facts)


def _deferred(code: str, **facts: Fact) -> Verdict:
    return "deferred", Reason(code=code, facts=facts)
