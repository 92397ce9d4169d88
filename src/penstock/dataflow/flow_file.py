"""Dataflows as YAML files: read, with every problem at its line.

Reading makes the calls to the builder that the file stands for. Here only the shape is judged (mappings, lists, texts,
keys that exist); what the values mean is judged by `validation`, for files and for Python alike.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from penstock.dataflow import load as loads
from penstock.dataflow.builder import FlowBuilder, Output, make_constraint
from penstock.dataflow.checks import check, hints_of, shown
from penstock.dataflow.connectors import with_defaults
from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.functions import Function
from penstock.dataflow.graph import (
    Alternate,
    Connector,
    Dataflow,
    Goals,
    Operator,
    OperatorId,
    Parallelism,
    State,
)
from penstock.dataflow.load import Load, LoadError
from penstock.dataflow.validation import problems
from penstock.dataflow.yaml_document import MAX_BYTES, Document, read_document
from penstock.errors import did_you_mean

LOADS: dict[str, Callable[..., Load]] = {
    "constant": loads.constant,
    "staircase": loads.staircase,
    "sine": loads.sine,
    "bursts": loads.bursts,
    "random-walk": loads.random_walk,
    "trace": loads.scaled_trace,
}
"""How a file calls the makers of loads; it gives their arguments by name."""
POINTS = {"times": "times_s", "rates": "rates_rps", "period": "period_s"}
"""A load without a kind: the fields of `Load`, as a file calls them."""
OF_ALTERNATE = ("function", "cost_s", "cost_cv", "selectivity")
"""What stands at the operator itself when there is one alternate only."""


def read_dataflow(path: str | Path) -> Dataflow:
    """The dataflow in a YAML file; a DataflowError tells everything that is wrong, with file and line.

    Relative paths in it (a file to replay, a rate trace) start from the file's folder.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as problem:  # ValueError: a path that cannot be one
        reason = getattr(problem, "strerror", None) or str(problem)
        raise DataflowError(
            [Problem(place="", message=f"cannot be read: {reason}")], origin=str(path)
        ) from None
    return parse_dataflow(text, origin=str(path), base=Path(path).parent)


def parse_dataflow(text: str | bytes, *, origin: str | None = None, base: str | Path = "") -> Dataflow:
    """The dataflow that `text` declares; `origin` names it in messages, `base` is where relative paths start."""
    try:
        document = read_document(text)
    except DataflowError as error:
        raise DataflowError(error.problems, origin=origin) from None
    reader = _Reader(str(base))
    dataflow = reader.flow(document.data)
    found = reader.found
    if not reader.guessing:
        told = {*reader.left_out, *(problem.place for problem in found)}
        found += [p for p in problems(dataflow) if not any(_within(p.place, place) for place in told)]
    if found:
        located = [_located(problem, document) for problem in found]
        raise DataflowError(sorted(located, key=lambda p: (p.line or 0, p.column or 0)), origin=origin)
    return dataflow


class _Reader:
    """From plain data to the builder's calls; what has the wrong shape is told and left out."""

    def __init__(self, base: str) -> None:
        self.found: list[Problem] = []
        self.guessing = False
        """Something essential is wrong: what the rest of the file means would be a guess."""
        self.left_out: list[str] = []
        """Places of what could not be made; that it is not there says nothing more."""
        self._base = base

    def flow(self, data: Any) -> Dataflow:
        top = self._keys("", data, ("name", "operators", "constraints", "goals"), ("name", "operators"))
        builder = FlowBuilder(top.get("name", ""))
        operators = self._mapping("operators", top.get("operators", {}), essential=True)
        for id_, each in operators.items():
            self._operator(builder, id_, each)
        for i, each in enumerate(self._list("constraints", top.get("constraints", []))):
            self._constraint(builder, f"constraints[{i}]", each)
        goals = self._keys("goals", top.get("goals", {}), _names(Goals))
        if "remedies" in goals:
            goals["remedies"] = self._list("goals.remedies", goals["remedies"])
        builder.goals(**goals)
        return builder.unchecked()

    def _operator(self, builder: FlowBuilder, id_: str, data: Any) -> None:
        place = f"operators.{id_}"
        known = ("kind", "inputs", *OF_ALTERNATE, *_names(Operator)[2:])
        given = self._keys(
            place, data, known, ("kind",), essential=("kind", "inputs", "connector", "alternates")
        )
        kind = self._text(f"{place}.kind", given.pop("kind", ""), essential=True)
        inputs = [
            self._input(builder, f"{place}.inputs[{i}]", each)
            for i, each in enumerate(self._list(f"{place}.inputs", given.pop("inputs", []), essential=True))
        ]
        if given.get("alternates") is not None:
            listed = self._list(f"{place}.alternates", given["alternates"], essential=True)
            given["alternates"] = [
                self._alternate(f"{place}.alternates[{i}]", each) for i, each in enumerate(listed)
            ]
            if twice := [key for key in OF_ALTERNATE if key in given]:
                message = f"{', '.join(twice)} belong into the alternates when there are any"
                self._refuse(place, message, essential=True)
                given = {key: value for key, value in given.items() if key not in twice}
        for key in ("function", "utility", "score"):
            if given.get(key) is not None:
                given[key] = self._function(f"{place}.{key}", given[key])
        for key in ("key", "keep_by"):
            if key in given:
                value = given[key]
                given[key] = value if isinstance(value, str) else self._list(f"{place}.{key}", value)
        if given.get("connector") is not None:
            given["connector"] = self._connector(f"{place}.connector", kind, given["connector"])
        if given.get("state") is not None:
            given["state"] = self._state(f"{place}.state", given["state"])
        if "parallelism" in given:
            given["parallelism"] = self._parallelism(f"{place}.parallelism", given["parallelism"])
        builder.add(id_, kind, inputs, wiring="key" if kind == "keyed" else "forward", **given)  # type: ignore[arg-type]

    def _input(self, builder: FlowBuilder, place: str, data: Any) -> Output:
        given = {"from": data} if isinstance(data, str) else data
        given = self._keys(place, given, ("from", "wiring"), ("from",), essential=("from",))
        source = self._text(f"{place}.from", given.get("from", ""), essential=True)
        return Output(builder, OperatorId(source), given.get("wiring"))

    def _alternate(self, place: str, data: Any) -> Alternate:
        given = self._keys(place, data, _names(Alternate), ("name",))
        given["name"] = self._text(f"{place}.name", given.get("name", ""))
        if given.get("function") is not None:
            given["function"] = self._function(f"{place}.function", given["function"])
        return Alternate(**given)

    def _parallelism(self, place: str, data: Any) -> Parallelism:
        given = data
        if isinstance(data, int | float) and not isinstance(data, bool):
            given = {"minimum": data, "maximum": data}
        elif isinstance(data, list) and len(data) in (2, 3):
            given = dict(zip(_names(Parallelism), data, strict=False))
        return Parallelism(**self._keys(place, given, _names(Parallelism), ("maximum",)))

    def _state(self, place: str, data: Any) -> State:
        given = self._keys(
            place, {"schema": data} if isinstance(data, str) else data, _names(State), ("schema",)
        )
        return State(**{"schema": "", **given})

    def _connector(self, place: str, role: str, data: Any) -> Connector:
        options = self._mapping(place, data, essential=True)
        kind = options.pop("kind", None)
        if kind is None:
            self._refuse(f"{place}.kind", "is required", essential=True)
        kind = self._text(f"{place}.kind", "" if kind is None else kind, essential=True)
        parts = {
            key: options.pop(key) for key in ("function", "schema", "load") if options.get(key) is not None
        }
        for key, value in list(options.items()):
            if not isinstance(value, str | int | float | bool):
                message = f"must be a text, a number, true or false (got {shown(value)})"
                self._refuse(f"{place}.{key}", message)
                del options[key]
        if "function" in parts:
            parts["function"] = self._function(f"{place}.function", parts["function"])
        if "load" in parts:
            parts["load"] = self._load(f"{place}.load", parts["load"])
            self.left_out += [f"{place}.load"] if parts["load"] is None else []
        path = options.get("path")
        if kind == "replay" and isinstance(path, str) and path and "://" not in path:
            options["path"] = os.path.join(self._base, path)
        return with_defaults(Connector(kind=kind, options=options, **parts), role)  # type: ignore[arg-type]

    def _load(self, place: str, data: Any) -> Load | None:
        given = data
        if isinstance(data, int | float) and not isinstance(data, bool):
            given = {"kind": "constant", "rate_rps": data}
        kind = given.get("kind", "points") if isinstance(given, dict) else None
        if not isinstance(kind, str) or kind not in ("points", *LOADS):
            got = given["kind"] if isinstance(given, dict) else given
            message = f"must be a rate, or points, or of a kind: {', '.join(LOADS)} (got {shown(got)})"
            self._refuse(place, message)
            return None
        maker = Load if kind == "points" else LOADS[kind]
        called = POINTS if kind == "points" else {name: name for name in hints_of(maker)}
        parameters = inspect.signature(maker).parameters
        required = [
            key for key, name in called.items() if parameters[name].default is inspect.Parameter.empty
        ]
        before = len(self.found)
        rest = {key: value for key, value in given.items() if key != "kind" or kind == "points"}
        arguments = self._keys(place, rest, called, required)
        for key, value in arguments.items():
            self.found += check(f"{place}.{key}", value, hints_of(maker)[called[key]])
        if len(self.found) > before:
            return None
        if kind == "trace":
            arguments["path"] = os.path.join(self._base, arguments["path"])
        try:
            return maker(**{called[key]: _as_tuple(value) for key, value in arguments.items()})
        except LoadError as problem:
            self._refuse(place, str(problem))
            return None

    def _constraint(self, builder: FlowBuilder, place: str, data: Any) -> None:
        names = [*inspect.signature(make_constraint).parameters][1:]
        given = self._keys(place, data, names, ("sequence",), essential=("sequence",))
        for key in ("sequence", "name"):
            if given.get(key) is not None:
                given[key] = self._text(f"{place}.{key}", given[key], essential=key == "sequence")
        if isinstance(given.get("sequence"), str):
            constraint, found = make_constraint(place, **given)
            builder.constraints += constraint
            self.found += found

    def _function(self, place: str, data: Any) -> Function | None:
        path = self._text(place, data)
        return Function(path=path) if isinstance(data, str) else None

    def _text(self, place: str, data: Any, *, essential: bool = False) -> str:
        if isinstance(data, str):
            return data
        self._refuse(place, f"must be a text (got {shown(data)})", essential=essential)
        return ""

    def _list(self, place: str, data: Any, *, essential: bool = False) -> list[Any]:
        if isinstance(data, list):
            return data
        self._refuse(place, f"must be a list (got {shown(data)})", essential=essential)
        return []

    def _mapping(self, place: str, data: Any, *, essential: bool = False) -> dict[str, Any]:
        if isinstance(data, dict):
            return dict(data)
        self._refuse(place, f"must be a mapping (got {shown(data)})", essential=essential)
        return {}

    def _keys(
        self,
        place: str,
        data: Any,
        known: Iterable[str],
        required: Iterable[str] = (),
        *,
        essential: Iterable[str] = (),
    ) -> dict[str, Any]:
        """The mapping without keys that are not known; what one of them holds goes under the key that was meant."""
        given = self._mapping(place, data, essential=True)
        known = list(known)
        dotted = f"{place}." if place else ""
        for key in [key for key in given if key not in known]:
            self._refuse(f"{dotted}{key}", f"is not a known key{did_you_mean(key, known)}")
            value = given.pop(key)
            for meant in difflib.get_close_matches(key, known, n=1):
                given.setdefault(meant, value)
        for key in required:
            if isinstance(data, dict) and key not in given:
                self._refuse(f"{dotted}{key}", "is required", essential=key in essential)
        return given

    def _refuse(self, place: str, message: str, *, essential: bool = False) -> None:
        self.found.append(Problem(place=place, message=message))
        self.guessing = self.guessing or essential


def _within(place: str, around: str) -> bool:
    return place == around or place.startswith((f"{around}.", f"{around}["))


def _names(of: type[Any]) -> list[str]:
    return [field.name for field in fields(of)]


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(each) for each in value) if isinstance(value, list) else value


def _located(problem: Problem, document: Document) -> Problem:
    """`problem` with the line of its place; ids may have dots, so the longest key that fits is the one meant."""
    keys: list[str | int] = []
    here, rest = document.data, problem.place
    while rest:
        if isinstance(here, dict):
            fitting = [k for k in here if rest == k or rest.startswith((f"{k}.", f"{k}["))]
            if not fitting:
                break
            key: str | int = max(fitting, key=len)
            rest = rest[len(str(key)) :].removeprefix(".")
        elif (
            isinstance(here, list)
            and (match := re.match(r"\[(\d+)\]\.?", rest))
            and int(match[1]) < len(here)
        ):
            key, rest = int(match[1]), rest[match.end() :]
        else:
            break
        keys.append(key)
        here = here[key]
    line, column = document.position(tuple(keys))
    return replace(problem, line=line, column=column)
