"""Stages of a dataflow: which operators run on which side of which shuffle.

Native operators cut a dataflow into parts, each from its entries (sources, results of native operators) to the streams
that leave it. Within a part, stage 0 lies before the first shuffle, stage n beyond the n-th. An operator runs in every
stage in which rows reach it, so a union waits for nothing. What reads a broadcast runs in one stage only: all its
inputs are shuffled to where the broadcast arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.dataflow.graph import Dataflow, OperatorId, Stream

ENTRIES = ("source", "transform")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """A part of the dataflow between entries and results, with the stages of its operators and shuffles."""

    streams: tuple[Stream, ...]
    """All that flows within it; in declared order."""
    results: frozenset[str]
    """Streams that leave it."""
    runs_in: dict[OperatorId, frozenset[int]]
    """Stages in which an operator's rows come out."""
    shuffles: dict[str, int] = field(default_factory=dict)
    """Stage beyond each shuffled stream, and (by id) of each keyed operator."""

    @property
    def last(self) -> int:
        """The stage of the results."""
        return max(self.shuffles.values(), default=0)

    @classmethod
    def of(cls, dataflow: Dataflow, results: list[Stream]) -> Stages:
        """Everything upstream of `results`, as far as the nearest entries."""
        wanted, todo = {stream.id for stream in results}, [stream.source for stream in results]
        while todo:
            id_ = todo.pop()
            if dataflow.operator(id_).kind not in ENTRIES:
                new = [s for s in dataflow.upstream(id_) if s.id not in wanted]
                wanted.update(s.id for s in new)
                todo.extend(s.source for s in new)
        streams = tuple(s for s in dataflow.streams if s.id in wanted)
        inside = {s.source for s in streams}
        runs_in: dict[OperatorId, frozenset[int]] = {}
        shuffles: dict[str, int] = {}
        keyed = 0
        for id_ in dataflow.topological:
            arriving = [s for s in streams if s.target == id_]
            kind = dataflow.operator(id_).kind
            if kind == "keyed" and id_ in inside:
                # Each has a stage of its own, in order: Spark's stateful operators are then ours, one for one.
                keyed = 1 + max(keyed, *(max(runs_in[s.source]) for s in arriving))
                runs_in[id_], shuffles[id_] = frozenset({keyed}), keyed
            elif kind in ENTRIES and id_ in inside:
                runs_in[id_] = frozenset({0})
            elif any(s.wiring == "broadcast" for s in arriving):
                stage = 1 + max(max(runs_in[s.source]) for s in arriving)
                shuffles |= dict.fromkeys((s.id for s in arriving), stage)
                if id_ in inside:
                    runs_in[id_] = frozenset({stage})
            else:
                stages: set[int] = set()
                for stream in arriving:
                    if stream.wiring == "forward" or kind in ENTRIES:
                        stages |= runs_in[stream.source]
                    else:
                        shuffles[stream.id] = max(runs_in[stream.source]) + 1
                        stages.add(shuffles[stream.id])
                if id_ in inside:
                    runs_in[id_] = frozenset(stages)
        return cls(
            streams=streams, results=frozenset(s.id for s in results), runs_in=runs_in, shuffles=shuffles
        )
