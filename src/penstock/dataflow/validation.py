"""Everything that can be wrong with a declared dataflow, found at once and before anything starts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from penstock.dataflow.checks import choice, number, shown, text
from penstock.dataflow.columns import ColumnsError, column_names
from penstock.dataflow.connectors import KINDS as CONNECTOR_KINDS
from penstock.dataflow.connectors import ConnectorKind, Role, kinds_of
from penstock.dataflow.errors import Problem
from penstock.dataflow.graph import (
    CHEAPEST_FIRST,
    KINDS,
    LATENCY_KINDS,
    STATISTICS,
    TAKES,
    Alternate,
    Connector,
    Dataflow,
    Function,
    FunctionNotFoundError,
    Goals,
    Operator,
    OperatorId,
    Parallelism,
)
from penstock.dataflow.load import Load
from penstock.dataflow.topology import graph_problems
from penstock.errors import did_you_mean

MAX_TASKS = 1_000_000
"""More tasks than this of one operator is taken for a slip of the pen."""

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_FUNCTION_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_ONLY_FOR = {
    "connector": ("source", "sink"),
    "state": ("keyed",),
    "takes": ("map", "keyed"),
    "schema": ("map", "keyed", "transform"),
    "key": ("map", "keyed", "transform"),
    "priority": ("sink",),
    "min_accuracy": ("sink",),
    "keep_by": ("source", "map", "keyed", "transform", "union"),
    "utility": ("source", "map", "keyed", "transform", "union"),
    "weight": ("source",),
}
_UNSET = Operator(id=OperatorId("unset"), kind="map")


def problems(dataflow: Dataflow, *, check_functions: bool = False) -> tuple[Problem, ...]:
    """All that is wrong with `dataflow`; nothing when it can be planned and simulated.

    With `check_functions` also what keeps it from running: functions that are missing or cannot be imported.
    """
    return tuple(_problems(dataflow, check_functions))


def alternate_place(operator: Operator, i: int) -> str:
    """Where a user finds the alternate: a single unnamed one is written without the word."""
    place = f"operators.{operator.id}"
    alone = len(operator.alternates) == 1 and operator.alternates[0].name == "default"
    return place if alone else f"{place}.alternates[{i}]"


def _problems(dataflow: Dataflow, check_functions: bool) -> Iterator[Problem]:
    yield from _identifier("name", dataflow.name)
    for id_, count in Counter(o.id for o in dataflow.operators).items():
        if count > 1:
            yield Problem(place=f"operators.{id_}", message=f"is declared {count} times")
    for operator in dataflow.operators:
        yield from _operator(operator)
        if check_functions:
            yield from _runnable(operator)
    yield from graph_problems(dataflow)
    yield from _constraints(dataflow)
    yield from _goals(dataflow.goals)


def _identifier(place: str, value: object) -> Iterator[Problem]:
    if not isinstance(value, str) or not _ID.fullmatch(value) or len(value) > 100:
        rule = "must be letters, digits, '_', '-' and '.', beginning with a letter, at most 100"
        yield Problem(place=place, message=f"{rule} (got {shown(value)})")


def _operator(operator: Operator) -> Iterator[Problem]:
    place = f"operators.{operator.id}"
    yield from _identifier(place, operator.id)
    unknown_kind = list(choice(f"{place}.kind", operator.kind, KINDS))
    if unknown_kind:
        yield from unknown_kind
        return
    for field, kinds in _ONLY_FOR.items():
        if operator.kind not in kinds and getattr(operator, field) != getattr(_UNSET, field):
            yield Problem(
                place=f"{place}.{field}", message=f"is not for a {operator.kind}; only for {_list(kinds)}"
            )
    yield from _alternates(place, operator)
    yield from _parallelism(f"{place}.parallelism", operator.parallelism)
    yield from choice(f"{place}.takes", operator.takes, TAKES)
    yield from choice(f"{place}.latency", operator.latency, LATENCY_KINDS)
    yield from _columns(f"{place}.schema", operator.schema)
    yield from number(f"{place}.record_bytes", operator.record_bytes, at_least=0)
    yield from number(f"{place}.priority", operator.priority, whole=True)
    yield from number(f"{place}.min_accuracy", operator.min_accuracy, at_least=0, at_most=1)
    yield from _names(f"{place}.key", operator.key)
    yield from _names(f"{place}.keep_by", operator.keep_by)
    yield from _function(f"{place}.utility", operator.utility)
    if operator.weight is not None:
        yield from _names(f"{place}.weight", (operator.weight,))
    if operator.kind == "keyed":
        yield from _keyed(place, operator)
    if operator.kind == "source" or operator.kind == "sink":
        yield from _connector(f"{place}.connector", operator.kind, operator.connector)


def _alternates(place: str, operator: Operator) -> Iterator[Problem]:
    switchable = operator.kind in ("map", "keyed")
    if not operator.alternates:
        yield Problem(place=f"{place}.alternates", message="must have at least one")
    if len(operator.alternates) > 1 and not switchable:
        yield Problem(
            place=f"{place}.alternates",
            message=f"a {operator.kind} cannot be switched; only map and keyed can",
        )
    for name, count in Counter(a.name for a in operator.alternates).items():
        if count > 1:
            yield Problem(place=f"{place}.alternates", message=f"'{name}' is declared {count} times")
    for i, alternate in enumerate(operator.alternates):
        here = alternate_place(operator, i)
        yield from _alternate(here, alternate)
        if alternate.function is not None and not (switchable or operator.kind == "transform"):
            yield Problem(place=f"{here}.function", message=f"is not for a {operator.kind}")


def _alternate(place: str, alternate: Alternate) -> Iterator[Problem]:
    yield from _identifier(f"{place}.name", alternate.name)
    yield from _function(f"{place}.function", alternate.function)
    yield from number(f"{place}.value", alternate.value, above=0, at_most=1)
    yield from number(f"{place}.cost_s", alternate.cost_s, at_least=0)
    yield from number(f"{place}.cost_cv", alternate.cost_cv, at_least=0)
    yield from number(f"{place}.selectivity", alternate.selectivity, at_least=0)


def _parallelism(place: str, parallelism: Parallelism) -> Iterator[Problem]:
    low, high, start = parallelism.minimum, parallelism.maximum, parallelism.initial
    bad = [
        *number(f"{place}.minimum", low, whole=True, at_least=1, at_most=MAX_TASKS),
        *number(f"{place}.maximum", high, whole=True, at_least=1, at_most=MAX_TASKS),
        *(() if start is None else number(f"{place}.initial", start, whole=True)),
    ]
    yield from bad
    if bad:
        return
    if low > high:
        yield Problem(place=place, message=f"minimum {low} is above maximum {high}")
    elif start is not None and not low <= start <= high:
        yield Problem(place=f"{place}.initial", message=f"{start} is not within {low}..{high}")


def _keyed(place: str, operator: Operator) -> Iterator[Problem]:
    if not operator.key:
        yield Problem(place=f"{place}.key", message="a keyed operator needs the columns of its key")
    if operator.state is None:
        yield Problem(place=f"{place}.state", message="a keyed operator needs the columns of its state")
        return
    yield from _columns(f"{place}.state.schema", operator.state.schema)
    yield from number(f"{place}.state.bytes_per_task", operator.state.bytes_per_task, at_least=0)


def _connector(place: str, role: Role, connector: Connector | None) -> Iterator[Problem]:
    if not isinstance(connector, Connector):
        yield Problem(place=place, message=f"a {role} needs one: {', '.join(kinds_of(role))}")
        return
    rules = CONNECTOR_KINDS.get((role, connector.kind))
    if rules is None:
        hint = did_you_mean(str(connector.kind), kinds_of(role))
        yield Problem(place=f"{place}.kind", message=f"{shown(connector.kind)} is no kind of {role}{hint}")
        return
    yield from _options(place, f"{connector.kind} {role}", rules, connector)
    for part, need in (("function", rules.function), ("schema", rules.schema), ("load", rules.load)):
        given = getattr(connector, part) is not None
        if need == "required" and not given:
            yield Problem(place=f"{place}.{part}", message=f"is required for a {connector.kind} {role}")
        if need == "refused" and given:
            yield Problem(place=f"{place}.{part}", message=f"is not for a {connector.kind} {role}")
    yield from _function(f"{place}.function", connector.function)
    yield from _columns(f"{place}.schema", connector.schema)
    if connector.load is not None and not isinstance(connector.load, Load):
        yield Problem(place=f"{place}.load", message=f"must be a load (got {shown(connector.load)})")
    if connector.kind == "replay" and connector.function is not None and "path" in connector.options:
        yield Problem(place=place, message="plays a path or a function, not both")
    if connector.kind == "dataframe" and connector.dataframe is None:
        yield Problem(place=place, message="has no DataFrame; it can only be given in Python")
    if connector.kind == "kafka" and role == "source":
        is_json = connector.options.get("value_format") == "json"
        if is_json != (connector.schema is not None):
            message = "is required to read json" if is_json else "is only for value_format json"
            yield Problem(place=f"{place}.schema", message=message)


def _options(place: str, what: str, rules: ConnectorKind, connector: Connector) -> Iterator[Problem]:
    for name, option in rules.options.items():
        if option.required and name not in connector.options:
            yield Problem(place=f"{place}.{name}", message=f"is required for a {what}")
    for name, value in connector.options.items():
        here, rule = f"{place}.{name}", rules.options.get(name)
        if rule is None:
            if rules.passes_on is None or not str(name).startswith(rules.passes_on):
                hint = did_you_mean(str(name), rules.options)
                yield Problem(place=here, message=f"is not an option of a {what}{hint}")
        elif rule.type is bool:
            if not isinstance(value, bool):
                yield Problem(place=here, message=f"must be true or false (got {shown(value)})")
        elif rule.type is str:
            yield from choice(here, value, rule.choices) if rule.choices else text(here, value)
        else:
            yield from number(here, value, whole=rule.type is int, above=rule.above)


def _constraints(dataflow: Dataflow) -> Iterator[Problem]:
    for name, count in Counter(c.name for c in dataflow.constraints).items():
        if count > 1:
            yield Problem(
                place="constraints", message=f"{count} constraints are called '{name}'; give them names"
            )
    for i, constraint in enumerate(dataflow.constraints):
        place = f"constraints[{i}]"
        yield from text(f"{place}.name", constraint.name)
        yield from choice(f"{place}.statistic", constraint.statistic, STATISTICS)
        yield from number(f"{place}.{constraint.statistic}_ms", constraint.bound_ms, above=0)
        yield from number(f"{place}.window_s", constraint.window_s, above=0)


def _goals(goals: Goals) -> Iterator[Problem]:
    if goals.budget_per_hour is not None:
        yield from number("goals.budget_per_hour", goals.budget_per_hour, above=0)
    yield from number("goals.throughput", goals.throughput, at_least=0, at_most=1)
    yield from number("goals.throughput_tolerance", goals.throughput_tolerance, at_least=0, at_most=1)
    for i, remedy in enumerate(goals.remedies):
        yield from choice(f"goals.remedies[{i}]", remedy, CHEAPEST_FIRST)
        if remedy in goals.remedies[:i]:
            yield Problem(place=f"goals.remedies[{i}]", message=f"'{remedy}' is there twice")


def _names(place: str, names: tuple[str, ...]) -> Iterator[Problem]:
    for i, name in enumerate(names):
        yield from text(f"{place}[{i}]", name)
        if name in names[:i]:
            yield Problem(place=f"{place}[{i}]", message=f"'{name}' is there twice")


def _columns(place: str, schema: str | None) -> Iterator[Problem]:
    if schema is None:
        return
    if not isinstance(schema, str):
        yield Problem(place=place, message=f"must be a text (got {shown(schema)})")
        return
    try:
        column_names(schema)
    except ColumnsError as problem:
        yield Problem(place=place, message=str(problem))


def _function(place: str, function: Function | None) -> Iterator[Problem]:
    if function is None:
        return
    if not isinstance(function, Function):
        yield Problem(place=place, message=f"must be a function (got {shown(function)})")
    elif function.path is not None and not _FUNCTION_PATH.fullmatch(function.path):
        yield Problem(place=place, message=f"must be of the form 'module:name' (got '{function.path}')")
    elif function.path is None and not callable(function.resolve()):
        yield Problem(place=place, message=f"cannot be called (got {shown(function.resolve())})")


def _runnable(operator: Operator) -> Iterator[Problem]:
    """What keeps an operator that can be simulated from being run."""
    place = f"operators.{operator.id}"
    functions = [(f"{place}.utility", operator.utility)]
    for i, alternate in enumerate(operator.alternates):
        here = f"{alternate_place(operator, i)}.function"
        functions.append((here, alternate.function))
        if alternate.function is None and operator.kind in ("map", "keyed", "transform"):
            yield Problem(
                place=here, message="is needed to run; without it the dataflow can only be simulated"
            )
    if (connector := operator.connector) is not None:
        functions.append((f"{place}.connector.function", connector.function))
        if connector.kind == "replay" and connector.function is None and "path" not in connector.options:
            message = "needs a path or a function to run; without, the dataflow can only be simulated"
            yield Problem(place=f"{place}.connector", message=message)
    for here, function in functions:
        try:
            if function is not None and function.path is not None and _FUNCTION_PATH.fullmatch(function.path):
                function.resolve()
        except FunctionNotFoundError as problem:
            yield Problem(place=here, message=str(problem))


def _list(words: tuple[str, ...]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]
