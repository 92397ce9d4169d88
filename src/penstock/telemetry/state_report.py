"""The state of queries, told to people: how large, how even, where, and what another layout would bring.

What a layout would bring is an estimate: partitions weigh what they took (their time, else their bytes, else their
rows), executors are alike, and keys that are not hot spread evenly over other partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from penstock.arrays import Floats
from penstock.dataflow import Operator
from penstock.telemetry.snapshot import Snapshot

Measure = Literal["busy_s", "bytes", "rows"]
MEASURES: tuple[Measure, ...] = ("busy_s", "bytes", "rows")
"""What partitions are compared by: the first that is known of all of them."""
HOT = 1.5
"""A partition weighs so many times what its rows explain: then keys in it are hot."""
RECENT = 20
"""Snapshots in which state is looked for: a query that starts again tells its state within as many."""
ROW_PER_KEY = ("statestoresave", "streamingdeduplicate", "dedupe")
"""How Spark's names of operators begin that keep a row for each key; a join keeps one for each record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One state partition; None: not known."""

    index: int
    executor: str | None = None
    rows: float | None = None
    bytes: float | None = None
    """What a copy of the newest version takes."""
    busy_s: float | None = None
    """Time of its tasks in the last interval."""
    version: int | None = None
    snapshot_version: int | None = None
    """From here on, changes are replayed when the partition is restored."""
    snapshot_age_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class OperatorState:
    """The state of one operator."""

    query: str
    operator: str
    kind: str = ""
    """What Spark calls it."""
    partitions: tuple[PartitionState, ...]
    executors: tuple[str, ...] = ()
    """All that there are, those without a partition of it too; none: not known."""
    largest_key_share: float | None = None
    """Rows of its largest key over all rows, where somebody counted them."""

    def total(self, measure: Measure) -> float | None:
        """Over all partitions; None where one of them is not known."""
        values = [getattr(p, measure) for p in self.partitions]
        return None if None in values else float(sum(values))

    @cached_property
    def by(self) -> Measure | None:
        """What its partitions are compared by; None: nothing is known of all of them."""
        return next((m for m in MEASURES if (self.total(m) or 0.0) > 0), None)

    @cached_property
    def weights(self) -> Floats:
        """Share of each partition in the operator; empty: not known."""
        if self.by is None:
            return np.zeros(0)
        found = np.array([getattr(p, self.by) for p in self.partitions], np.float64)
        return np.asarray(found / found.sum())

    @property
    def skew(self) -> float | None:
        """Largest partition over the mean."""
        return float(self.weights.max() * len(self.weights)) if len(self.weights) else None

    @property
    def hottest(self) -> int | None:
        """Index of the largest partition."""
        return self.partitions[int(np.argmax(self.weights))].index if len(self.weights) else None

    @property
    def hottest_share(self) -> float | None:
        """Of it in all partitions."""
        return float(self.weights.max()) if len(self.weights) else None

    @property
    def hot_keys_share(self) -> float | None:
        """Share of the whole that hot keys of the largest partition take, beyond what its number of rows explains.

        0: its rows explain it. None: not known. As a key is in one partition, more partitions do not divide it.
        """
        rows = [p.rows for p in self.partitions]
        if not self.kind.lower().startswith(ROW_PER_KEY):
            return self.largest_key_share
        if self.by in (None, "rows") or len(rows) < 3 or any(r is None or r <= 0 for r in rows):
            return None
        counts = np.array(rows, np.float64)
        usual = float(np.median(self.weights / counts))
        at = int(np.argmax(self.weights))
        explained = usual * counts[at]
        return float(self.weights[at] - explained) if self.weights[at] > HOT * explained else 0.0

    @property
    def slowest_share(self) -> float | None:
        """Share of the executor that has most of it now."""
        places = [p.executor for p in self.partitions]
        if not len(self.weights) or None in places:
            return None
        loads = dict.fromkeys(self.executors, 0.0)
        for executor, weight in zip(places, self.weights.tolist(), strict=True):
            assert executor is not None
            loads[executor] = loads.get(executor, 0.0) + weight
        return max(loads.values())

    def even_share(self, executors: int) -> float | None:
        """Share of the fullest of so many executors with an even placement: the largest first, each to the emptiest."""
        return _fullest(self.weights, executors) if len(self.weights) and executors > 0 else None

    def repartitioned_share(self, executors: int, partitions: int) -> float | None:
        """The same after a change of the number of partitions, hot keys staying whole: an estimate."""
        if not len(self.weights) or executors <= 0 or partitions <= 0:
            return None
        hot = self.hot_keys_share or 0.0
        after = np.full(partitions, (1.0 - hot) / partitions)
        after[0] += hot
        return _fullest(after, executors)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport:
    """All operators with state of a run or a checkpoint."""

    origin: str
    operators: tuple[OperatorState, ...]


def state_of(snapshot: Snapshot, origin: str) -> StateReport:
    """What a snapshot knows of state."""
    tasks, nodes, flow = snapshot.tasks, snapshot.nodes, snapshot.dataflow
    stateful = np.array([o.is_stateful for o in flow.operators], np.bool_)
    executors = tuple(id_ for id_, here in zip(nodes.ids, nodes.staying.tolist(), strict=True) if here)
    found = []
    for row in np.flatnonzero(stateful).tolist():
        mine = np.flatnonzero(tasks.operator == row)
        mine = mine[np.argsort(tasks.index[mine])]
        partitions = [
            PartitionState(
                index=int(tasks.index[i]),
                executor=nodes.ids[tasks.node[i]] if tasks.node[i] >= 0 else None,
                rows=float(tasks.state_rows[i]) if tasks.state_known[i] else None,
                bytes=float(tasks.state_bytes[i]) if tasks.state_known[i] else None,
                busy_s=float(tasks.busy_s[i]) if tasks.known[i] else None,
            )
            for i in mine.tolist()
        ]
        if partitions:
            found.append(
                OperatorState(
                    query=snapshot.query_names[row],
                    operator=flow.operators[row].id,
                    kind=_kind(flow.operators[row]),
                    partitions=tuple(partitions),
                    executors=executors,
                )
            )
    return StateReport(origin=origin, operators=tuple(found))


def last_known(snapshots: Iterable[Snapshot], origin: str) -> StateReport:
    """Each operator as it was when its rows were last known; the newest snapshot comes last.

    A query that was just started again has not told its rows yet.
    """
    found = dict[str, OperatorState]()
    for snapshot in snapshots:
        for state in state_of(snapshot, origin).operators:
            if state.operator not in found or state.total("rows") is not None:
                found[state.operator] = state
    return StateReport(origin=origin, operators=tuple(found.values()))


def _kind(operator: Operator) -> str:
    schema = operator.state.schema if operator.state is not None else ""
    return schema if isinstance(schema, str) else ""


def in_a_line(state: OperatorState) -> str:
    """Its size and its balance."""
    size, rows = state.total("bytes"), state.total("rows")
    words = [f"{len(state.partitions)} partitions"]
    words.append("rows unknown" if rows is None else f"{rows:,.0f} rows")
    words.append("size unknown" if size is None else f"{size / 1e6:,.3g} MB")
    if state.skew is not None:
        words.append(
            f"skew {state.skew:.2f} by {state.by} (partition {state.hottest}: {state.hottest_share:.0%})"
        )
    return f"{state.query}: {state.operator}{f' ({state.kind})' if state.kind else ''}: {', '.join(words)}"


def advice(state: OperatorState, *, executors: int = 0, partitions: int | None = None) -> tuple[str, ...]:
    """What to know about an operator's state, in sentences; `executors` where it does not say how many there are."""
    count, told = len(state.executors) or executors, list[str]()
    if state.by is None:
        return ("how large its partitions are is not known: nothing can be said about their balance",)
    now, even = state.slowest_share, state.even_share(count)
    if now is not None and even is not None and count > 1:
        if even < 0.95 * now:
            told.append(
                f"an even placement: the fullest executor has {even:.0%} instead of {now:.0%} (estimate)"
            )
        else:
            told.append(f"placed as evenly as its partitions allow: the fullest executor has {now:.0%}")
    if partitions is not None and even is not None:
        after = state.repartitioned_share(count, partitions)
        told.append(
            f"{partitions} partitions: the fullest of {count} executors has {after:.0%} instead of {even:.0%} "
            "with an even placement (estimate)"
        )
    hot = state.hot_keys_share
    if state.largest_key_share is not None:
        told.append(
            f"its largest key has {state.largest_key_share:.1%} of all rows: the executor that holds it cannot have "
            "less, however many there are"
        )
    elif hot:
        told.append(
            f"hot keys are the limit: partition {state.hottest} takes {hot:.0%} of the whole beyond what its rows "
            "explain, and more partitions do not divide a key"
        )
    elif hot is None:
        told.append("whether single keys are the limit is not known")
    return tuple(told)


def _fullest(weights: Floats | Sequence[float], executors: int) -> float:
    loads = [0.0] * executors
    for weight in sorted((float(w) for w in weights), reverse=True):
        heapq.heapreplace(loads, loads[0] + weight)
    return max(loads)
