"""Where the sequence of a constraint ends, and so where Python tasks stamp records.

One that leads to sinks only ends when its results are there: Spark commits a batch as a whole, so the end of the batch
counts. One with further operators behind it ends inside a batch, and records are stamped where it does.
"""

from __future__ import annotations

from penstock.dataflow import Dataflow, OperatorId
from penstock.dataflow.graph import Sequence

STAMPING = ("map", "keyed", "union")
"""Kinds of operators that run in tasks of ours."""


def departure(operator: str) -> str:
    """The name of the stamp of records that leave an operator."""
    return f"{operator} ->"


def arrival(operator: str) -> str:
    """The name of the stamp of records that come to an operator."""
    return f"-> {operator}"


def stamps_of(flow: Dataflow, sequence: Sequence) -> tuple[str, ...]:
    """The stamps with which a sequence ends; none where it ends at sinks, or where no Python runs."""
    last, behind = sequence.operators[-1], _behind(flow, sequence)
    if not behind:
        return ()
    ends = behind if sequence.trailing_stream else (last,)
    if any(flow.operator(end).kind not in STAMPING for end in ends):
        return ()
    return tuple(map(arrival, behind)) if sequence.trailing_stream else (departure(last),)


def measured_elsewhere(flow: Dataflow) -> tuple[str, ...]:
    """Constraints that end inside the dataflow at an operator that cannot stamp: sinks stand for their end."""
    return tuple(
        c.name for c in flow.constraints if _behind(flow, c.sequence) and not stamps_of(flow, c.sequence)
    )


def wanted_stamps(flow: Dataflow) -> frozenset[str]:
    """All stamps that the constraints of a dataflow need."""
    return frozenset(stamp for c in flow.constraints for stamp in stamps_of(flow, c.sequence))


def sinks_after(flow: Dataflow, operator: OperatorId) -> tuple[OperatorId, ...]:
    """The sinks that records of an operator reach."""
    reached, waiting = {operator}, [operator]
    while waiting:
        for stream in flow.downstream(waiting.pop()):
            if stream.target not in reached:
                reached.add(stream.target)
                waiting.append(stream.target)
    return tuple(s.id for s in flow.sinks if s.id in reached)


def _behind(flow: Dataflow, sequence: Sequence) -> tuple[OperatorId, ...]:
    """The operators other than sinks that take what a sequence gives."""
    sinks = {s.id for s in flow.sinks}
    return tuple(s.target for s in flow.downstream(sequence.operators[-1]) if s.target not in sinks)
