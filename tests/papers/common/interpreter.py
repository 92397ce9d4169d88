"""A dataflow run in plain Python, in any batches and with the rows of a batch in any order."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.dataflow import Dataflow, Operator

Record = dict[str, Any]
TYPES = {"long": pa.int64(), "double": pa.float64(), "string": pa.string(), "boolean": pa.bool_()}


def arrow_type(text: str) -> pa.DataType:
    array = re.fullmatch(r"array<(.*)>", text)
    return pa.list_(arrow_type(array[1])) if array else TYPES[text]


@cache
def arrow_schema(columns: str) -> pa.Schema:
    """The columns of a flat declaration such as `id long, routes array<long>`."""
    return pa.schema(
        [(name, arrow_type(kind)) for name, kind in (c.split(" ", 1) for c in columns.split(", "))]
    )


class Interpreter:
    """Runs a dataflow's own functions; alternates are the best ones unless chosen otherwise."""

    def __init__(
        self, dataflow: Dataflow, *, seed: int | None = None, alternates: Mapping[str, str] | None = None
    ) -> None:
        self._flow, self._chosen = dataflow, dict(alternates or {})
        self._order = None if seed is None else random.Random(seed)
        self.states: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = defaultdict(dict)
        self.sinks: dict[str, list[Record]] = {sink.id: [] for sink in dataflow.sinks}

    def run(self, rows: int, *, batches: Iterable[int] = ()) -> dict[str, list[Record]]:
        """What reaches the sinks when every source's first `rows` rows come, cut at the numbers `batches`."""
        cuts = [0, *batches, rows]
        for start, stop in pairwise(cuts):
            self._batch(start, stop)
        return self.sinks

    def _batch(self, start: int, stop: int) -> None:
        leaving: dict[str, list[Record]] = {}
        for id_ in self._flow.topological:
            operator = self._flow.operator(id_)
            if operator.kind == "source":
                assert operator.connector is not None
                assert operator.connector.function is not None
                leaving[id_] = operator.connector.function.resolve()(start, stop).to_pylist()
                continue
            arriving = [row for stream in self._flow.upstream(id_) for row in leaving[stream.source]]
            if self._order is not None:
                self._order.shuffle(arriving)
            if operator.kind == "sink":
                self.sinks[id_].extend(arriving)
            elif operator.kind == "keyed":
                leaving[id_] = self._keyed(operator, arriving)
            else:
                leaving[id_] = self._map(operator, arriving)

    def _map(self, operator: Operator, rows: list[Record]) -> list[Record]:
        if not rows:
            return []
        assert operator.takes == "arrow"
        # Two batches, as two tasks would have.
        half = len(rows) // 2
        parts = [self._arrow(operator, part) for part in (rows[:half], rows[half:]) if part]
        return [row for part in parts for row in _declared(_rows(self._function(operator)(part)), operator)]

    def _keyed(self, operator: Operator, rows: list[Record]) -> list[Record]:
        groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
        for row in rows:
            groups[tuple(row[name] for name in operator.key)].append(row)
        states, out = self.states[operator.id], []
        for key, mine in groups.items():
            given = mine if operator.takes == "record" else self._arrow(operator, mine)
            result, state = self._function(operator)(key, given, states.get(key))
            if state is None:
                states.pop(key, None)
            else:
                assert isinstance(state, tuple)
                states[key] = state
            out.extend(_rows(result))
        return _declared(out, operator)

    def _function(self, operator: Operator) -> Any:
        name = self._chosen.get(operator.id, operator.best.name)
        (found,) = (a.function for a in operator.alternates if a.name == name)
        assert found is not None
        return found.resolve()

    def _arrow(self, operator: Operator, rows: list[Record]) -> pa.RecordBatch:
        source = self._flow.operator(self._flow.upstream(operator.id)[0].source)
        columns = source.schema or (source.connector and source.connector.schema)
        assert columns
        return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns))


def _rows(result: Any) -> list[Record]:
    if result is None:
        return []
    return result if isinstance(result, list) else list(result.to_pylist())


def _declared(rows: list[Record], operator: Operator) -> list[Record]:
    """The rows in exactly the declared columns and types; what is missing is null, as on Spark."""
    names = arrow_schema(operator.schema or "").names
    assert not rows or set(names) <= set().union(*rows), "a column is in no row"
    return list(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(operator.schema or "")).to_pylist())


def some_cuts(rows: int, count: int, seed: int) -> list[int]:
    """`count` places at which batches end."""
    return sorted(np.random.default_rng(seed).integers(1, rows, count).tolist())


def in_order(rows: list[Record]) -> list[tuple[Any, ...]]:
    """The rows as tuples of (column, value), sorted: equal lists hold the same rows."""
    return sorted((tuple((k, _fixed(v)) for k, v in sorted(row.items())) for row in rows), key=repr)


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
