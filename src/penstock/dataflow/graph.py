"""What a user declares: operators, their alternates, the streams between them, and the goals.

Everything here is an inert, frozen value. The same `Dataflow` is run on Spark, simulated, drawn and
compared in a test; `dataflow.builder` is the comfortable way to make one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NewType, get_args

from penstock.dataflow.checks import Amount, Columns, Id, Names, Positive, Share, TaskCount, Text, ValueShare
from penstock.dataflow.functions import Function as Function
from penstock.dataflow.functions import FunctionNotFoundError as FunctionNotFoundError
from penstock.dataflow.load import Load
from penstock.dataflow.secrets import masked

OperatorId = NewType("OperatorId", str)

Kind = Literal["source", "map", "keyed", "transform", "union", "sink"]
Wiring = Literal["forward", "spread", "key", "broadcast"]
Takes = Literal["arrow", "pandas", "record"]
LatencyKind = Literal["read-ready", "read-write"]
Statistic = Literal["mean", "p50", "p95", "p99"]
Remedy = Literal["move", "switch", "scale", "shed"]

STATISTICS: tuple[Statistic, ...] = get_args(Statistic)
CHEAPEST_FIRST: tuple[Remedy, ...] = ("move", "switch", "scale", "shed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternate:
    """One implementation of an operator.

    `value` is its quality relative to the best one (1). `cost_s`, `cost_cv` and `selectivity` are what the user
    believes; a running dataflow measures them. The simulator and the first deployment plan have only these.
    """

    name: Id = "default"
    """What reports and plans call it."""
    function: Function | None = None
    """What it does; without one the dataflow can be simulated, not run."""
    value: ValueShare = 1.0
    """Quality beside the best one's, which is 1."""
    cost_s: Amount = 0.0
    """Seconds of a reference core per record."""
    cost_cv: Amount = 1.0
    """Coefficient of variation of the time per record (0 = always the same, 1 = exponential)."""
    selectivity: Amount = 1.0
    """Records out per record in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How many tasks an operator may have; equal bounds make it inelastic."""

    minimum: TaskCount = 1
    """Fewest tasks."""
    maximum: TaskCount = 1
    """Most tasks."""
    initial: int | None = None
    """Tasks to deploy with; None: the minimum."""

    @property
    def start(self) -> int:
        """The number of tasks to deploy with."""
        return self.minimum if self.initial is None else self.initial


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a keyed operator remembers for each key."""

    schema: Columns
    """Columns as Spark writes them, e.g. `count long, total double`."""
    bytes_per_task: Amount = 0.0
    """Expected size of one task's state, for planning a move before it can be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """Where a source's records come from or a sink's records go; `dataflow.connectors` has a maker for each kind."""

    kind: str
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    function: Function | None = None
    schema: Columns | None = None
    load: Load | None = None
    dataframe: Any = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash((self.kind, tuple(sorted(self.options.items())), self.function, self.schema))

    def __repr__(self) -> str:
        function, schema = self.function, self.schema
        return f"Connector(kind={self.kind!r}, options={masked(self.options)}, {function=}, {schema=})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A vertex of the dataflow: one or more alternates that do the same work."""

    id: OperatorId
    kind: Kind
    """What it does with records."""
    alternates: tuple[Alternate, ...] = (Alternate(),)
    """Implementations that do the same work; only map and keyed may have several, of which one runs."""
    parallelism: Parallelism = Parallelism()
    """Tasks: a number, `[minimum, maximum]`, `[minimum, maximum, initial]`, or these by name."""
    takes: Takes = "arrow"
    """What a `map` or `keyed` function is given: Arrow batches, pandas frames, or one record at a time."""
    schema: Columns | None = None
    """Columns that leave the operator; None: the same that came in."""
    key: Names = ()
    """Columns by which records find their task: those of keyed operators, or of inputs wired by key."""
    state: State | None = None
    """What a keyed operator remembers for each key: columns, or columns and the expected size."""
    connector: Connector | None = None
    """Where the records of a source come from, or those of a sink go."""
    latency: LatencyKind = "read-ready"
    """How its latency is measured: `read-ready`, of each record; `read-write`, from each read to the next write."""
    record_bytes: Amount = 100.0
    """Expected size of a record that leaves the operator."""
    keep_by: Names = ()
    """Columns whose hash decides which records shedding keeps; empty: the whole record."""
    utility: Function | None = None
    """Says how much each record matters (0..1), for semantic shedding."""
    score: Function | None = None
    """Says what an alternate's output is worth beside that of the best one: `score(best_output, output)`, 0..1."""
    weight: Text | None = None
    """Sources only: a column that records get, 1 / the probability with which shedding kept them."""
    priority: int = 0
    """Sinks only: larger matters more."""
    min_accuracy: Share = 0.0
    """Sinks only: share of the input that must count for the result, 0..1."""

    @property
    def is_stateful(self) -> bool:
        """Whether moving a task means moving its state."""
        return self.state is not None

    @property
    def best(self) -> Alternate:
        """The alternate of the highest value, the first such."""
        return max(self.alternates, key=lambda a: a.value)

    def alternate_index(self, name: str) -> int:
        """The position of the alternate called `name`."""
        for i, alternate in enumerate(self.alternates):
            if alternate.name == name:
                return i
        known = ", ".join(a.name for a in self.alternates)
        raise KeyError(f"operator '{self.id}' has no alternate '{name}'; it has {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An edge: records of `source` reach `target`, spread over its tasks as `wiring` says."""

    source: OperatorId
    target: OperatorId
    wiring: Wiring = "forward"

    @property
    def id(self) -> str:
        """`source->target`, unique in a dataflow."""
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """A connected run of operators; its ends may also include the stream before or after."""

    operators: tuple[OperatorId, ...]
    leading_stream: bool = False
    trailing_stream: bool = False

    @classmethod
    def parse(cls, text: str) -> Sequence:
        """The sequence written as `a -> b`, with a leading or trailing arrow for the stream at that end.

        >>> Sequence.parse("-> filter -> sentiment").operators
        ('filter', 'sentiment')
        """
        parts = [part.strip() for part in text.split("->")]
        leading, trailing = len(parts) > 1 and not parts[0], len(parts) > 1 and not parts[-1]
        inner = parts[leading : len(parts) - trailing]
        if not inner or not all(inner):
            raise ValueError(f"sequence {text!r} is empty or has an arrow without an operator between")
        return cls(
            operators=tuple(OperatorId(p) for p in inner), leading_stream=leading, trailing_stream=trailing
        )

    def __str__(self) -> str:
        inner = " -> ".join(self.operators)
        return ("-> " if self.leading_stream else "") + inner + (" ->" if self.trailing_stream else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A bound on the latency of a sequence: `statistic` over any `window_s` stays at or below `bound_ms`."""

    name: Text
    sequence: Sequence
    bound_ms: Positive
    window_s: Positive = 10.0
    statistic: Statistic = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What the whole dataflow must respect beside its constraints and sinks."""

    budget_per_hour: Positive | None = None
    """Most that nodes may cost, in the currency of the price list."""
    throughput: Share = 0.8
    """Relative throughput to keep, 0..1 (the dynamic-dataflow constraint)."""
    throughput_tolerance: Share = 0.05
    """How far below that throughput still counts as held."""
    remedies: tuple[Remedy, ...] = CHEAPEST_FIRST
    """Which remedy is tried first; earlier ones win over later ones."""


@dataclass(frozen=True)
class Dataflow:
    """The declared graph. Several applications that share machines are one dataflow with several components."""

    name: str
    operators: tuple[Operator, ...] = ()
    streams: tuple[Stream, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    goals: Goals = Goals()

    @cached_property
    def row(self) -> Mapping[OperatorId, int]:
        """Operator id to its position in `operators`, the row it has in every snapshot."""
        return {operator.id: i for i, operator in enumerate(self.operators)}

    def operator(self, id: str) -> Operator:  # noqa: A002  # the word of the vocabulary
        """The operator called `id`."""
        try:
            return self.operators[self.row[OperatorId(id)]]
        except KeyError:
            known = ", ".join(o.id for o in self.operators)
            raise KeyError(f"dataflow '{self.name}' has no operator '{id}'; it has {known}") from None

    @cached_property
    def sources(self) -> tuple[Operator, ...]:
        """Operators where records enter."""
        return tuple(o for o in self.operators if o.kind == "source")

    @cached_property
    def sinks(self) -> tuple[Operator, ...]:
        """Operators where records leave."""
        return tuple(o for o in self.operators if o.kind == "sink")

    def upstream(self, id: str) -> tuple[Stream, ...]:  # noqa: A002
        """Streams into an operator, in the order they were declared."""
        return self._streams_by_end[1].get(OperatorId(id), ())

    def downstream(self, id: str) -> tuple[Stream, ...]:  # noqa: A002
        """Streams out of an operator, in the order they were declared."""
        return self._streams_by_end[0].get(OperatorId(id), ())

    def below(self, id: str) -> frozenset[OperatorId]:  # noqa: A002
        """An operator with everything downstream of it."""
        found = self._below.get(OperatorId(id))
        if found is None:
            reached, waiting = {OperatorId(id)}, [OperatorId(id)]
            while waiting:
                new = {s.target for s in self.downstream(waiting.pop())} - reached
                reached |= new
                waiting += new
            found = self._below[OperatorId(id)] = frozenset(reached)
        return found

    def keep_by(self, id: str) -> Names:  # noqa: A002
        """The columns that decide anew from this operator on; none where those decide that did so before."""
        columns = self.operator(id).keep_by
        return () if {self.kept_by[s.source] for s in self.upstream(id)} == {columns} else columns

    @cached_property
    def kept_by(self) -> Mapping[OperatorId, Names | None]:
        """The columns whose hash the records of each operator carry; None where they come from different ones."""
        found: dict[OperatorId, Names | None] = {}
        for id_ in self.topological:
            operator = self.operator(id_)
            before = {found[s.source] for s in self.upstream(id_)}
            inherited = before.pop() if len(before) == 1 else None
            found[id_] = operator.keep_by if operator.keep_by or operator.kind == "source" else inherited
        return found

    @cached_property
    def _below(self) -> dict[OperatorId, frozenset[OperatorId]]:
        return {}

    @cached_property
    def _streams_by_end(self) -> tuple[Mapping[OperatorId, tuple[Stream, ...]], ...]:
        leaving: dict[OperatorId, list[Stream]] = {}
        arriving: dict[OperatorId, list[Stream]] = {}
        for stream in self.streams:
            leaving.setdefault(stream.source, []).append(stream)
            arriving.setdefault(stream.target, []).append(stream)
        return tuple({id_: tuple(streams) for id_, streams in ends.items()} for ends in (leaving, arriving))

    @cached_property
    def query_names(self) -> tuple[str, ...]:
        """The query that each operator belongs to: its connected part of the dataflow."""
        from penstock.dataflow.applications import applications

        parts = applications(self)
        name = {o.id: part.name if len(parts) > 1 else self.name for part in parts for o in part.operators}
        return tuple(name[operator.id] for operator in self.operators)

    @cached_property
    def topological(self) -> tuple[OperatorId, ...]:
        """Operator ids so that every stream points forward; declared order breaks ties. A cycle is a ValueError."""
        waiting = {o.id: len(self.upstream(o.id)) for o in self.operators}
        ready = [o.id for o in self.operators if not waiting[o.id]]
        order: list[OperatorId] = []
        for id_ in ready:  # grows while it is walked
            order.append(id_)
            for stream in self.downstream(id_):
                waiting[stream.target] -= 1
                if not waiting[stream.target]:
                    ready.append(stream.target)
        if len(order) < len(self.operators):
            raise ValueError("the dataflow has a cycle: " + ", ".join(i for i, n in waiting.items() if n))
        return tuple(order)
