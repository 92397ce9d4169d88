"""Several applications as one dataflow, and back: what shares machines is decided about together."""

from __future__ import annotations

from dataclasses import replace

from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.graph import Constraint, Dataflow, OperatorId, Stream


def together(*flows: Dataflow, name: str | None = None) -> Dataflow:
    """One dataflow with all operators of the given ones, each called `flow.operator`.

    >>> from penstock.dataflow import Operator
    >>> a = Dataflow("a", (Operator(id=OperatorId("in"), kind="source"),))
    >>> [o.id for o in together(a, replace(a, name="b")).operators]
    ['a.in', 'b.in']
    """
    names = [flow.name for flow in flows]
    if not flows or len(set(names)) < len(names):
        message = f"applications that share machines need names of their own; given: {', '.join(names)}"
        raise DataflowError([Problem(place="name", message=message)])
    if any(flow.goals != flows[0].goals for flow in flows):
        message = f"{', '.join(names)} declare different goals; applications that share machines have one set"
        raise DataflowError([Problem(place="goals", message=message)])
    parts = [_prefixed(flow) for flow in flows]
    return Dataflow(
        name or "-".join(names),
        operators=tuple(o for part in parts for o in part.operators),
        streams=tuple(s for part in parts for s in part.streams),
        constraints=tuple(c for part in parts for c in part.constraints),
        goals=flows[0].goals,
    )


def applications(dataflow: Dataflow) -> tuple[Dataflow, ...]:
    """The connected parts of a dataflow, in the order of their first operators, with the same operator ids."""
    leader = {o.id: o.id for o in dataflow.operators}

    def find(id_: OperatorId) -> OperatorId:
        while leader[id_] != id_:
            id_ = leader[id_]
        return id_

    for stream in dataflow.streams:
        leader[find(stream.target)] = find(stream.source)
    parts: dict[OperatorId, list[OperatorId]] = {}
    for operator in dataflow.operators:
        parts.setdefault(find(operator.id), []).append(operator.id)
    return tuple(_part(dataflow, frozenset(ids)) for ids in parts.values())


def _part(dataflow: Dataflow, ids: frozenset[OperatorId]) -> Dataflow:
    operators = tuple(o for o in dataflow.operators if o.id in ids)
    first, _, rest = operators[0].id.partition(".")
    named = bool(rest) and all(o.id.startswith(f"{first}.") for o in operators)
    return replace(
        dataflow,
        name=first if named else operators[0].id,
        operators=operators,
        streams=tuple(s for s in dataflow.streams if s.source in ids),
        constraints=tuple(c for c in dataflow.constraints if c.sequence.operators[0] in ids),
    )


def _prefixed(flow: Dataflow) -> Dataflow:
    def called(id_: OperatorId) -> OperatorId:
        return OperatorId(f"{flow.name}.{id_}")

    def constraint(one: Constraint) -> Constraint:
        sequence = replace(one.sequence, operators=tuple(map(called, one.sequence.operators)))
        return replace(one, name=f"{flow.name}.{one.name}", sequence=sequence)

    return replace(
        flow,
        operators=tuple(replace(o, id=called(o.id)) for o in flow.operators),
        streams=tuple(
            Stream(source=called(s.source), target=called(s.target), wiring=s.wiring) for s in flow.streams
        ),
        constraints=tuple(map(constraint, flow.constraints)),
    )
