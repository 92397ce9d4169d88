"""What a user declares: operators, their alternates, the streams between them, and the goals.

Everything here is an inert, frozen value. The same `Dataflow` is run on Spark, simulated, drawn, written to a
file and compared in a test; `dataflow.builder` is the comfortable way to make one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NewType

from penstock.dataflow.load import Load
from penstock.errors import UserError

OperatorId = NewType("OperatorId", str)

Kind = Literal["source", "map", "keyed", "transform", "union", "sink"]
Wiring = Literal["forward", "spread", "key", "broadcast"]
Takes = Literal["arrow", "pandas", "record"]
LatencyKind = Literal["read-ready", "read-write"]
Statistic = Literal["mean", "p50", "p95", "p99"]
Remedy = Literal["move", "switch", "scale", "shed"]

KINDS: tuple[Kind, ...] = ("source", "map", "keyed", "transform", "union", "sink")
WIRINGS: tuple[Wiring, ...] = ("forward", "spread", "key", "broadcast")
TAKES: tuple[Takes, ...] = ("arrow", "pandas", "record")
LATENCY_KINDS: tuple[LatencyKind, ...] = ("read-ready", "read-write")
STATISTICS: tuple[Statistic, ...] = ("mean", "p50", "p95", "p99")
CHEAPEST_FIRST: tuple[Remedy, ...] = ("move", "switch", "scale", "shed")


class FunctionNotFoundError(UserError, LookupError):
    """A `module:name` that cannot be imported, with what was tried."""


class Function:
    """A user's function: importable as `module:name`, or (lambdas, closures) known only by the object itself.

    Two functions are equal when their paths are, whether or not they have been imported yet, so a dataflow read
    from a file equals the one that wrote it.
    """

    __slots__ = ("_target", "path")

    def __init__(self, target: Callable[..., Any] | None = None, *, path: str | None = None) -> None:
        if target is None and path is None:
            raise ValueError("a function needs a callable or a 'module:name'")
        self._target = target
        self.path = path if path is not None else _importable_path(target)

    @classmethod
    def of(cls, given: Callable[..., Any] | str | Function) -> Function:
        """`given` as a Function, whichever of the three forms it has."""
        if isinstance(given, Function):
            return given
        return cls(path=given) if isinstance(given, str) else cls(given)

    def resolve(self) -> Callable[..., Any]:
        """The callable itself, imported on first use."""
        if self._target is None:
            assert self.path is not None
            self._target = _import(self.path)
        return self._target

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Function):
            return NotImplemented
        return self.path == other.path if self.path or other.path else self._target is other._target

    def __hash__(self) -> int:
        return hash(self.path or id(self._target))

    def __repr__(self) -> str:
        return f"Function({self.path or self._target!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Travels by name where it has one, so that a worker imports it rather than receiving a copy of its code.
        return (_rebuild_function, (None if self.path else self._target, self.path))


def _rebuild_function(target: Callable[..., Any] | None, path: str | None) -> Function:
    return Function(target, path=path)


def _importable_path(target: Callable[..., Any] | None) -> str | None:
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", "")
    if not module or not name or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    if getattr(found, "__spec__", None) is None:  # run, not imported: nobody else can import it
        return None
    # Bound methods and wrappers carry the name of what they wrap: only what the name leads back to counts.
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is target else None


def _import(path: str) -> Callable[..., Any]:
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise FunctionNotFoundError(f"'{path}' is not of the form 'module:name'")
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as problem:  # the user's module may fail in any way while it is imported
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise FunctionNotFoundError(f"cannot import '{path}': {reason}") from problem
    if not callable(found):
        raise FunctionNotFoundError(f"'{path}' is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]  # callable() does not narrow Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternate:
    """One implementation of an operator.

    `value` is its quality relative to the best one (1). `cost_s`, `cost_cv` and `selectivity` are what the user
    believes; a running dataflow measures them. The simulator and the first deployment plan have only these.
    """

    name: str = "default"
    function: Function | None = None
    value: float = 1.0
    cost_s: float = 0.0
    """Seconds of a reference core per record."""
    cost_cv: float = 1.0
    """Coefficient of variation of the time per record (0 = always the same, 1 = exponential)."""
    selectivity: float = 1.0
    """Records out per record in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How many tasks an operator may have; equal bounds make it inelastic."""

    minimum: int = 1
    maximum: int = 1
    initial: int | None = None

    @property
    def start(self) -> int:
        """The number of tasks to deploy with."""
        return self.minimum if self.initial is None else self.initial


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a keyed operator remembers for each key."""

    schema: str
    """Columns as Spark writes them, e.g. `count long, total double`."""
    bytes_per_task: float = 0.0
    """Expected size of one task's state, for planning a move before it can be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """Where a source's records come from or a sink's records go; `dataflow.connectors` has a maker for each kind."""

    kind: str
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    function: Function | None = None
    schema: str | None = None
    load: Load | None = None
    dataframe: Any = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash((self.kind, tuple(sorted(self.options.items())), self.function, self.schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A vertex of the dataflow: one or more alternates that do the same work."""

    id: OperatorId
    kind: Kind
    alternates: tuple[Alternate, ...] = (Alternate(),)
    parallelism: Parallelism = Parallelism()
    takes: Takes = "arrow"
    """What a `map` or `keyed` function is given: Arrow batches, pandas frames, or one record at a time."""
    schema: str | None = None
    """Columns that leave the operator; None: the same that came in."""
    key: tuple[str, ...] = ()
    state: State | None = None
    connector: Connector | None = None
    latency: LatencyKind = "read-ready"
    record_bytes: float = 100.0
    """Expected size of a record that leaves the operator."""
    keep_by: tuple[str, ...] = ()
    """Columns whose hash decides which records shedding keeps; empty: the whole record."""
    utility: Function | None = None
    """Says how much each record matters (0..1), for semantic shedding."""
    weight: str | None = None
    """Sources only: a column that records get, 1 / the probability with which shedding kept them."""
    priority: int = 0
    """Sinks only: larger matters more."""
    min_accuracy: float = 0.0
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

    name: str
    sequence: Sequence
    bound_ms: float
    window_s: float = 10.0
    statistic: Statistic = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What the whole dataflow must respect beside its constraints and sinks."""

    budget_per_hour: float | None = None
    """Most that nodes may cost, in the currency of the price list."""
    throughput: float = 0.8
    """Relative throughput to keep, 0..1 (the dynamic-dataflow constraint)."""
    throughput_tolerance: float = 0.05
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
