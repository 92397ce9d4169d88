"""A dataflow as the YAML that declares it, so that what is read can be compared with what was written."""

from __future__ import annotations

import re
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

import yaml

from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.graph import (
    Alternate,
    Connector,
    Constraint,
    Dataflow,
    Function,
    Goals,
    Operator,
    OperatorId,
    Parallelism,
    State,
    Stream,
)
from penstock.dataflow.load import Load
from penstock.dataflow.validation import alternate_place, problems
from penstock.dataflow.yaml_document import _FLOAT, _INTEGER, MAX_VALUES


def write_dataflow(dataflow: Dataflow) -> str:
    """YAML from which `parse_dataflow` makes an equal dataflow (its streams ordered by their targets).

    A DataflowError names what cannot be written: lambdas, closures, DataFrames, and what is not valid anyway.
    """
    unwritable = (*problems(dataflow), *(p for o in dataflow.operators for p in _unwritable(o)))
    if unwritable:
        raise DataflowError(unwritable)
    data = {
        "name": dataflow.name,
        "operators": {str(o.id): _operator(o, dataflow.upstream(o.id)) for o in dataflow.operators},
        "constraints": [_constraint(c) for c in dataflow.constraints],
        "goals": _changed(dataflow.goals, Goals()),
    }
    return write_document(_plain({key: value for key, value in data.items() if value}))


def _unwritable(operator: Operator) -> list[Problem]:
    place, connector = f"operators.{operator.id}", operator.connector
    functions = [(f"{place}.utility", operator.utility), (f"{place}.score", operator.score)]
    functions += [
        (f"{alternate_place(operator, i)}.function", a.function) for i, a in enumerate(operator.alternates)
    ]
    found = []
    if connector is not None:
        functions.append((f"{place}.connector.function", connector.function))
        if connector.kind == "dataframe":
            found.append(
                Problem(place=f"{place}.connector", message="a DataFrame cannot be written to a file")
            )
        if connector.load is not None and len(connector.load.times_s) > MAX_VALUES // 4:
            message = f"has {len(connector.load.times_s)} points; a file takes {MAX_VALUES // 4}: use a trace"
            found.append(Problem(place=f"{place}.connector.load", message=message))
    for where, function in functions:
        if function is not None and function.path is None:
            message = (
                "cannot be written: a file names functions as 'module:name', and this one has no such name"
            )
            found.append(Problem(place=where, message=f"{message} ({function.resolve()!r})"))
    return found


def _operator(operator: Operator, inputs: tuple[Stream, ...]) -> dict[str, Any]:
    usual = "key" if operator.kind == "keyed" else "forward"
    data: dict[str, Any] = {"kind": operator.kind}
    if inputs:
        data["inputs"] = [
            s.source if s.wiring == usual else {"from": s.source, "wiring": s.wiring} for s in inputs
        ]
    if operator.connector is not None:
        data["connector"] = _connector(operator.connector)
    changed = _changed(operator, Operator(id=OperatorId(""), kind=operator.kind))
    for name in ("id", "connector", "alternates", "parallelism", "state"):
        changed.pop(name, None)
    only = operator.alternates[0]
    if len(operator.alternates) == 1 and only.name == "default" and only.value == 1:
        data |= _changed(only, Alternate())
    else:
        data["alternates"] = [
            {"name": a.name, **_changed(a, Alternate(name=a.name))} for a in operator.alternates
        ]
    if operator.parallelism != Parallelism():
        p = operator.parallelism
        data["parallelism"] = [p.minimum, p.maximum, *(() if p.initial is None else (p.initial,))]
    if (state := operator.state) is not None:
        data["state"] = {"schema": state.schema, **_changed(state, State(schema=state.schema))}
    return data | changed


def _connector(connector: Connector) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": connector.kind, **connector.options}
    if connector.function is not None:
        data["function"] = connector.function
    if connector.schema is not None:
        data["schema"] = connector.schema
    if connector.load is not None:
        data["load"] = _load(connector.load)
    return data


def _load(load: Load) -> Any:
    if len(load.times_s) == 1 and load.period_s is None:
        return load.rates_rps[0]
    period = {} if load.period_s is None else {"period": load.period_s}
    return {"times": load.times_s, "rates": load.rates_rps, **period}


def _constraint(constraint: Constraint) -> dict[str, Any]:
    data: dict[str, Any] = {"sequence": str(constraint.sequence)}
    if constraint.name != data["sequence"]:
        data["name"] = constraint.name
    return data | {f"{constraint.statistic}_ms": constraint.bound_ms, "window_s": constraint.window_s}


def _changed(value: Any, default: Any) -> dict[str, Any]:
    """The fields in which `value` differs from `default`."""
    names = (field.name for field in fields(value))
    return {name: getattr(value, name) for name in names if getattr(value, name) != getattr(default, name)}


def _plain(value: Any) -> Any:
    """`value` in the few types YAML has."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, Function):
        return value.path
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    raise TypeError(f"no YAML for a {type(value).__name__}")


_Dumper: Any = type("_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), {})

# Texts that `_plain_value` would take for numbers are quoted.
for _pattern, _first in ((_INTEGER, "-+0123456789"), (_FLOAT, "-+.0123456789")):
    _whole = re.compile(f"^(?:{_pattern.pattern})$")
    _Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _whole, list(_first))


def _quoted(dumper: Any, text: str) -> Any:
    # Only between double quotes do breaks and marks survive as they are.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _quoted)


def write_document(data: Any) -> str:
    """`data` as YAML that `read_document` reads back as it was."""
    return yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )
