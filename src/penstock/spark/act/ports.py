"""What acting on an application needs of Spark, as small protocols: Spark's own in `internals`, twins in tests.

`Executors` (`internals.executors`) is an `ExecutorBackend`, `DriverSettings` a `SettingsStore`, `SparkQueryRun`
(`act.query_run`) a `QueryRun`. `tests/spark_offline/doubles.py` has a twin of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.spark.internals.executors import Executor
from penstock.spark.internals.state import StateOperator


class ExecutorBackend(Protocol):
    """How executors of one application are listed, requested and removed."""

    fixed: str | None
    decommissions: bool

    @property
    def held_by(self) -> str | None:
        """Who else decides how many executors there are."""
        ...

    def all(self) -> tuple[Executor, ...]:
        """Every executor that the driver lists."""
        ...

    def targets(self) -> Mapping[int, int]:
        """The number requested by resource profile; empty if none was."""
        ...

    def request_total(self, count: int) -> bool:
        """Ask for that many of the default profile."""
        ...

    def kill(self, ids: Iterable[str], *, only_idle: bool = False) -> frozenset[str]:
        """Kill executors, the target stays; those that were killed."""
        ...

    def decommission(self, executor_id: str) -> bool:
        """Let one finish its tasks and leave, the target stays."""
        ...


class SettingsStore(Protocol):
    """Settings that live as long as the driver."""

    def get(self, key: str) -> str | None:
        """The value, None if not set."""
        ...

    def put(self, key: str, value: str | None) -> None:
        """Set or, with None, remove."""
        ...

    def swap(self, key: str, before: str | None, after: str | None) -> bool:
        """Set `after` only if the value is `before`."""
        ...

    def uptime_s(self) -> float:
        """A time that never steps, the same for every pilot of the driver."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where a query stands between its micro-batches."""

    batch: int
    """The newest batch that has ended, -1 before the first."""
    duration_s: float
    """How long that batch took."""
    resting: bool
    """Whether no batch runs now."""
    active: bool = True
    """Whether the query still runs."""


class QueryRun(Protocol):
    """One run of a query: where it stands and where its state is."""

    def boundary(self) -> Boundary:
        """Where it stands now; cheap."""
        ...

    def operators(self) -> tuple[StateOperator, ...]:
        """Its stateful operators, none before the first batch was planned."""
        ...

    def where(self, operator_id: int) -> Mapping[int, str | None]:
        """The executor of each partition of an operator: one reading, however many partitions."""
        ...

    def move(self, operator_id: int, targets: Mapping[int, tuple[str, str]]) -> None:
        """Tell Spark that partitions live on (host, executor): one call, however many partitions."""
        ...
