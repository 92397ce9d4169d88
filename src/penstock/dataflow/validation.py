"""Everything that can be wrong with a declared dataflow, found at once and before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import get_args

from penstock.dataflow.checks import (
    FUNCTION_PATH,
    check_fields,
    choice,
    columns,
    function,
    identifier,
    number,
    shown,
    text,
    truth,
)
from penstock.dataflow.connectors import KINDS as CONNECTOR_KINDS
from penstock.dataflow.connectors import ConnectorKind, Role, kinds_of
from penstock.dataflow.errors import Problem
from penstock.dataflow.functions import FunctionNotFoundError
from penstock.dataflow.graph import Connector, Dataflow, Kind, Operator, OperatorId, Parallelism
from penstock.dataflow.load import Load
from penstock.dataflow.topology import graph_problems
from penstock.errors import did_you_mean

_SWITCHABLE = ("map", "keyed")
ONLY_FOR = {
    "connector": ("source", "sink"),
    "state": ("keyed",),
    "takes": _SWITCHABLE,
    "schema": ("map", "keyed", "transform"),
    "key": ("map", "keyed", "transform"),
    "priority": ("sink",),
    "min_accuracy": ("sink",),
    "keep_by": ("source", "map", "keyed", "transform", "union"),
    "utility": ("source", "map", "keyed", "transform", "union"),
    "score": ("map", "keyed"),
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
    yield from identifier("name", dataflow.name)
    for id_, count in _repeated(o.id for o in dataflow.operators):
        yield Problem(place=f"operators.{id_}", message=f"is declared {count} times")
    for operator in dataflow.operators:
        yield from _operator(operator)
        if check_functions:
            yield from _runnable(operator)
    yield from graph_problems(dataflow)
    for name, count in _repeated(c.name for c in dataflow.constraints):
        message = f"{count} constraints are called '{name}'; give them names"
        yield Problem(place="constraints", message=message)
    for i, constraint in enumerate(dataflow.constraints):
        place = f"constraints[{i}]"
        yield from check_fields(place, constraint, but=("sequence", "bound_ms"))
        yield from number(f"{place}.{constraint.statistic}_ms", constraint.bound_ms, above=0)
    yield from check_fields("goals", dataflow.goals)
    for i, remedy in enumerate(dataflow.goals.remedies):
        if remedy in dataflow.goals.remedies[:i]:
            yield Problem(place=f"goals.remedies[{i}]", message=f"'{remedy}' is there twice")


def _repeated(words: Iterable[str]) -> list[tuple[str, int]]:
    return [(word, count) for word, count in Counter(words).items() if count > 1]


def _operator(operator: Operator) -> Iterator[Problem]:
    place, kind = f"operators.{operator.id}", operator.kind
    yield from identifier(place, operator.id)
    if unknown := list(choice(f"{place}.kind", kind, get_args(Kind))):
        yield from unknown
        return
    for field, kinds in ONLY_FOR.items():
        if kind not in kinds and getattr(operator, field) != getattr(_UNSET, field):
            message = f"is not for a {kind}; only for {' and '.join(filter(None, (', '.join(kinds[:-1]), kinds[-1])))}"
            yield Problem(place=f"{place}.{field}", message=message)
    yield from _alternates(place, operator)
    yield from check_fields(place, operator, but=("id", "kind", "alternates", "connector", "parallelism"))
    yield from _parallelism(f"{place}.parallelism", operator.parallelism)
    if kind == "keyed":
        for field in ("key", "state"):
            if not getattr(operator, field):
                message = f"a keyed operator needs the columns of its {field}"
                yield Problem(place=f"{place}.{field}", message=message)
    if kind == "source" or kind == "sink":
        yield from _connector(f"{place}.connector", kind, operator.connector)


def _alternates(place: str, operator: Operator) -> Iterator[Problem]:
    switchable = operator.kind in _SWITCHABLE
    if not operator.alternates:
        yield Problem(place=f"{place}.alternates", message="must have at least one")
    if len(operator.alternates) > 1 and not switchable:
        message = f"a {operator.kind} cannot be switched; only map and keyed can"
        yield Problem(place=f"{place}.alternates", message=message)
    for name, count in _repeated(a.name for a in operator.alternates):
        yield Problem(place=f"{place}.alternates", message=f"'{name}' is declared {count} times")
    for i, alternate in enumerate(operator.alternates):
        here = alternate_place(operator, i)
        yield from check_fields(here, alternate)
        if alternate.function is not None and not (switchable or operator.kind == "transform"):
            yield Problem(place=f"{here}.function", message=f"is not for a {operator.kind}")


def _parallelism(place: str, parallelism: Parallelism) -> Iterator[Problem]:
    if bad := list(check_fields(place, parallelism)):
        yield from bad
        return
    low, high, start = parallelism.minimum, parallelism.maximum, parallelism.initial
    if low > high:
        yield Problem(place=place, message=f"minimum {low} is above maximum {high}")
    elif start is not None and not low <= start <= high:
        yield Problem(place=f"{place}.initial", message=f"{start} is not within {low}..{high}")


def _connector(place: str, role: Role, connector: Connector | None) -> Iterator[Problem]:
    if not isinstance(connector, Connector):
        yield Problem(place=place, message=f"a {role} needs one: {', '.join(kinds_of(role))}")
        return
    kind, what = connector.kind, f"{connector.kind} {role}"
    rules = CONNECTOR_KINDS.get((role, kind))
    if rules is None:
        hint = did_you_mean(str(kind), kinds_of(role))
        yield Problem(place=f"{place}.kind", message=f"{shown(kind)} is no kind of {role}{hint}")
        return
    yield from _options(place, what, rules, connector)
    for part, need in (("function", rules.function), ("schema", rules.schema), ("load", rules.load)):
        given = getattr(connector, part) is not None
        if need == ("refused" if given else "required"):
            message = f"is not for a {what}" if given else f"is required for a {what}"
            yield Problem(place=f"{place}.{part}", message=message)
    if connector.function is not None:
        yield from function(f"{place}.function", connector.function)
    if connector.schema is not None:
        yield from columns(f"{place}.schema", connector.schema)
    if connector.load is not None and not isinstance(connector.load, Load):
        yield Problem(place=f"{place}.load", message=f"must be a load (got {shown(connector.load)})")
    if kind == "replay" and connector.function is not None and "path" in connector.options:
        yield Problem(place=place, message="plays a path or a function, not both")
    if kind == "dataframe" and connector.dataframe is None:
        yield Problem(place=place, message="has no DataFrame; it can only be given in Python")
    if what == "kafka source":
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
            yield from truth(here, value)
        elif rule.type is str:
            yield from choice(here, value, rule.choices) if rule.choices else text(here, value)
        else:
            yield from number(here, value, whole=rule.type is int, above=rule.above)


def _runnable(operator: Operator) -> Iterator[Problem]:
    """What keeps an operator that can be simulated from being run."""
    place = f"operators.{operator.id}"
    functions = [(f"{place}.utility", operator.utility), (f"{place}.score", operator.score)]
    for i, alternate in enumerate(operator.alternates):
        here = f"{alternate_place(operator, i)}.function"
        functions.append((here, alternate.function))
        if alternate.function is None and operator.kind in (*_SWITCHABLE, "transform"):
            message = "is needed to run; without it the dataflow can only be simulated"
            yield Problem(place=here, message=message)
    if (connector := operator.connector) is not None:
        functions.append((f"{place}.connector.function", connector.function))
        if connector.kind == "replay" and connector.function is None and "path" not in connector.options:
            message = "needs a path or a function to run; without, the dataflow can only be simulated"
            yield Problem(place=f"{place}.connector", message=message)
    for here, given in functions:
        try:
            if given is not None and given.path is not None and FUNCTION_PATH.fullmatch(given.path):
                given.resolve()
        except FunctionNotFoundError as problem:
            yield Problem(place=here, message=str(problem))
