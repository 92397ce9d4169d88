"""What the operators of a dataflow may be given as keywords, by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from penstock.dataflow.graph import Alternate, Function, LatencyKind, Parallelism, Takes

AnyFunction = Callable[..., Any] | str | Function
"""A function, or where to import it from: `module:name`."""
AnyParallelism = int | tuple[int, int] | tuple[int, int, int] | Parallelism
"""Tasks: a fixed number, (minimum, maximum), or (minimum, maximum, initial)."""


class Settings(TypedDict, total=False):
    """What any operator but a sink or union may be given, as keywords."""

    parallelism: AnyParallelism
    cost_s: float
    """Seconds of a reference core per record, as far as is known."""
    cost_cv: float
    """Coefficient of variation of that time: 0 = always the same, 1 = exponential."""
    selectivity: float
    """Records out per record in."""
    record_bytes: float
    """Size of a record that leaves."""
    latency: LatencyKind
    keep_by: str | Sequence[str]
    """Columns whose hash decides which records shedding keeps."""
    utility: AnyFunction | None
    """Says how much each record matters (0..1), for semantic shedding."""


class TransformSettings(Settings, total=False):
    """What a `transform` may be given beside."""

    schema: str | None
    """Columns that leave the operator; None: not known before Spark says so."""
    key: str | Sequence[str]
    """Columns for inputs that are wired by key."""


class KeyedSettings(Settings, total=False):
    """What a `keyed` operator may be given beside."""

    schema: str | None
    """Columns that leave the operator; None: the same that came in."""
    alternates: Sequence[Alternate] | None
    """Several implementations, instead of one function."""
    score: AnyFunction | None
    """`score(best_output, output)`, 0..1: what an alternate is worth; by default the share of equal rows."""
    takes: Takes


class MapSettings(KeyedSettings, total=False):
    """What a `map` may be given beside."""

    key: str | Sequence[str]
    """Columns for inputs that are wired by key."""


class SinkSettings(TypedDict, total=False):
    """What a sink may be given, as keywords."""

    priority: int
    """The larger, the later this sink loses records."""
    min_accuracy: float
    """Share of the input that must count for the result, 0..1."""
    parallelism: AnyParallelism
    cost_s: float
    cost_cv: float


class GoalSettings(TypedDict, total=False):
    """What the whole dataflow may be given, as keywords; `Goals` says what each means."""

    budget_per_hour: float | None
    throughput: float
    throughput_tolerance: float
