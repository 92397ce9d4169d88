"""What can be wrong with the shape of a dataflow: streams, cycles, sequences, and the columns that flow along."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import get_args

from penstock.dataflow.checks import choice
from penstock.dataflow.columns import ColumnsError, column_names
from penstock.dataflow.errors import Problem
from penstock.dataflow.graph import Dataflow, Operator, OperatorId, Sequence, Stream, Wiring
from penstock.errors import did_you_mean

Columns = frozenset[str]
"""Names in lower case, as Spark compares them."""


def graph_problems(dataflow: Dataflow) -> Iterator[Problem]:
    """All that is wrong with how operators, streams and sequences hang together."""
    operators = {operator.id: operator for operator in dataflow.operators}
    for kind in ("source", "sink"):
        if not any(operator.kind == kind for operator in dataflow.operators):
            yield Problem(place="operators", message=f"there is no {kind}")
    places = _places(dataflow)
    for stream, place in zip(dataflow.streams, places, strict=True):
        yield from _stream(stream, place, operators)
    for (source, target), count in Counter((s.source, s.target) for s in dataflow.streams).items():
        if count > 1:
            yield Problem(place=f"operators.{target}.inputs", message=f"'{source}' is there {count} times")
    yield from _ends(dataflow)
    cycles = list(_cycles(dataflow))
    for cycle in cycles:
        yield Problem(place="operators", message="there is a cycle: " + " -> ".join((*cycle, cycle[0])))
    for i, constraint in enumerate(dataflow.constraints):
        yield from _sequence(f"constraints[{i}].sequence", constraint.sequence, dataflow)
    if not cycles:
        yield from _column_problems(dataflow, operators, places)


def _places(dataflow: Dataflow) -> list[str]:
    """For every stream, where a user finds it: the position among its target's inputs."""
    seen: Counter[str] = Counter()
    places = []
    for stream in dataflow.streams:
        places.append(f"operators.{stream.target}.inputs[{seen[stream.target]}]")
        seen[stream.target] += 1
    return places


def _stream(stream: Stream, place: str, operators: Mapping[OperatorId, Operator]) -> Iterator[Problem]:
    yield from choice(f"{place}.wiring", stream.wiring, get_args(Wiring))
    for end in (stream.source, stream.target):
        if end not in operators:
            yield Problem(place=place, message=f"there is no operator '{end}'{did_you_mean(end, operators)}")
    source, target = operators.get(stream.source), operators.get(stream.target)
    if source is not None and source.kind == "sink":
        yield Problem(place=place, message=f"'{source.id}' is a sink; nothing leaves it")
    if target is None:
        return
    if target.kind == "source":
        yield Problem(place=place, message="a source has no inputs")
    elif target.kind == "keyed":
        if stream.wiring == "key":
            return
        yield Problem(
            place=f"{place}.wiring", message=f"a keyed operator is wired by key (got '{stream.wiring}')"
        )
    elif stream.wiring == "key" and not target.key:
        yield Problem(place=f"{place}.wiring", message=f"is by key, but '{target.id}' has no key")


def _ends(dataflow: Dataflow) -> Iterator[Problem]:
    """Operators that nothing reaches, or that lead nowhere."""
    incoming = Counter(stream.target for stream in dataflow.streams)
    by_key = {stream.target for stream in dataflow.streams if stream.wiring == "key"}
    known = {operator.id for operator in dataflow.operators}
    read: set[str] = {stream.source for stream in dataflow.streams}
    for misspelt in read - known:
        # The reader has its own message; what it meant to read is not left over.
        read.update(difflib.get_close_matches(misspelt, known, 1))
    for operator in dataflow.operators:
        place, inputs = f"operators.{operator.id}", incoming[operator.id]
        if operator.kind == "union" and inputs < 2:
            yield Problem(place=f"{place}.inputs", message=f"a union needs at least two (got {inputs})")
        elif operator.kind != "source" and not inputs:
            yield Problem(
                place=f"{place}.inputs", message=f"a {operator.kind} needs at least one; nothing reaches it"
            )
        if operator.kind != "sink" and operator.id not in read:
            yield Problem(place=place, message="nothing reads it; end it in a sink or leave it out")
        if operator.kind in ("map", "transform") and operator.key and inputs and operator.id not in by_key:
            yield Problem(place=f"{place}.key", message="means nothing: no input is wired by key")


def _cycles(dataflow: Dataflow) -> Iterator[tuple[OperatorId, ...]]:
    """A cycle for each knot of the graph, from its first declared operator on."""
    ids = [operator.id for operator in dataflow.operators]
    after: dict[OperatorId, list[OperatorId]] = {id_: [] for id_ in ids}
    for stream in dataflow.streams:
        if stream.source in after and stream.target in after:
            after[stream.source].append(stream.target)
    done: set[OperatorId] = set()
    for root in ids:
        path: list[OperatorId] = []
        on_path: set[OperatorId] = set()
        todo = [(root, False)]
        while todo:
            id_, leaving = todo.pop()
            if leaving:
                path.pop()
                on_path.discard(id_)
                done.add(id_)
            elif id_ in on_path:
                yield tuple(path[path.index(id_) :])
            elif id_ not in done:
                path.append(id_)
                on_path.add(id_)
                todo.append((id_, True))
                todo.extend((next_, False) for next_ in reversed(after[id_]))


def _sequence(place: str, sequence: Sequence, dataflow: Dataflow) -> Iterator[Problem]:
    if not sequence.operators:
        yield Problem(place=place, message="is empty")
        return
    known = dataflow.row
    unknown = [id_ for id_ in sequence.operators if id_ not in known]
    for id_ in unknown:
        yield Problem(place=place, message=f"there is no operator '{id_}'{did_you_mean(id_, known)}")
    for one, two in zip(sequence.operators, sequence.operators[1:], strict=False):
        if one in known and two in known and all(s.target != two for s in dataflow.downstream(one)):
            yield Problem(place=place, message=f"is not connected: no stream from '{one}' to '{two}'")
    if unknown:
        return
    first, last = sequence.operators[0], sequence.operators[-1]
    if sequence.leading_stream and not dataflow.upstream(first):
        yield Problem(place=place, message=f"begins with a stream, but nothing flows into '{first}'")
    if sequence.trailing_stream and not dataflow.downstream(last):
        yield Problem(place=place, message=f"ends with a stream, but nothing leaves '{last}'")


def _column_problems(
    dataflow: Dataflow, operators: Mapping[OperatorId, Operator], places: list[str]
) -> Iterator[Problem]:
    """Columns that are asked for where it is known that they are not there."""
    leaving = _columns_leaving(dataflow, operators)
    for stream, place in zip(dataflow.streams, places, strict=True):
        target, arriving = operators.get(stream.target), leaving.get(stream.source)
        if target is not None and stream.wiring == "key" and arriving is not None:
            for column in target.key:
                yield from _missing(f"operators.{target.id}.key", column, arriving, f"from '{stream.source}'")
        if target is not None and target.kind == "union" and arriving is not None:
            expected = leaving[target.id]
            if expected is not None and arriving != expected:
                message = f"a union's inputs need the same columns; '{stream.source}' differs from the first"
                yield Problem(place=place, message=message)
    for operator in operators.values():
        columns = leaving[operator.id]
        if columns is None:
            continue
        for column in operator.keep_by:
            yield from _missing(f"operators.{operator.id}.keep_by", column, columns, f"from '{operator.id}'")
        if operator.connector is not None and isinstance(operator.connector.options.get("time_column"), str):
            column = str(operator.connector.options["time_column"])
            place = f"operators.{operator.id}.connector.time_column"
            yield from _missing(place, column, columns, "from the source")


def _missing(place: str, column: object, columns: Columns, whence: str) -> Iterator[Problem]:
    if isinstance(column, str) and column.lower() not in columns:
        hint = did_you_mean(column.lower(), sorted(columns))
        yield Problem(place=place, message=f"no column '{column}' comes {whence}{hint}")


def _columns_leaving(
    dataflow: Dataflow, operators: Mapping[OperatorId, Operator]
) -> dict[OperatorId, Columns | None]:
    """The columns that leave each operator; None where only Spark will know."""
    inputs: dict[OperatorId, list[Stream]] = {id_: [] for id_ in operators}
    for stream in dataflow.streams:
        if stream.source in operators and stream.target in operators:
            inputs[stream.target].append(stream)
    leaving: dict[OperatorId, Columns | None] = {}

    todo = [*reversed([*operators])]
    while todo:
        id_ = todo[-1]
        waiting = [stream.source for stream in inputs[id_] if stream.source not in leaving]
        if id_ not in leaving and waiting:
            todo.extend(waiting)
            continue
        todo.pop()
        # What is broadcast is looked up, not passed on.
        arriving = [leaving[stream.source] for stream in inputs[id_] if stream.wiring != "broadcast"]
        leaving.setdefault(id_, _columns_of(operators[id_], arriving))
    return leaving


def _columns_of(operator: Operator, arriving: list[Columns | None]) -> Columns | None:
    if operator.kind == "source":
        columns = _columns_of_source(operator)
        weight = {operator.weight.lower()} if isinstance(operator.weight, str) else set()
        return None if columns is None else columns | weight
    if operator.schema is not None:
        return _parsed(operator.schema)
    if operator.kind == "transform" or not arriving:
        return None
    if operator.kind == "union" or all(columns == arriving[0] for columns in arriving):
        return arriving[0]
    return None


def _columns_of_source(operator: Operator) -> Columns | None:
    connector = operator.connector
    if connector is None:
        return None
    if connector.kind == "rate":
        return frozenset({"timestamp", "value"})
    if connector.kind == "kafka":
        if connector.options.get("value_format") != "json":
            return frozenset({"key", "value", "timestamp"})
        declared = _parsed(connector.schema)
        return None if declared is None else declared | {"timestamp"}
    return _parsed(connector.schema)


def _parsed(schema: str | None) -> Columns | None:
    try:
        return None if schema is None else frozenset(name.lower() for name in column_names(schema))
    except (ColumnsError, TypeError):
        return None
