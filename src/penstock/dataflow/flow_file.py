"""Dataflows as YAML files: read, with every problem at its line, and written so that reading gives the same back."""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from penstock.dataflow.checks import shown
from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.flow_writer import write_dataflow
from penstock.dataflow.graph import Dataflow
from penstock.dataflow.load_schema import LOAD_DOORS, LOAD_KINDS
from penstock.dataflow.schema import DOORS, FlowDoor, OperatorDoor
from penstock.dataflow.validation import problems
from penstock.dataflow.yaml_document import MAX_BYTES, Document, Keys, read_document
from penstock.errors import did_you_mean

__all__ = ["parse_dataflow", "read_dataflow", "write_dataflow"]

_LOAD_KINDS = f"must be a rate, or points, or of a kind: {', '.join(LOAD_KINDS)}"
_MESSAGES = {
    "missing": "is required",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "too_short": "has too few parts",
    "too_long": "has too many parts",
    "greater_than_equal": "must not be negative",
    "union_tag_not_found": _LOAD_KINDS,
    "union_tag_invalid": _LOAD_KINDS,
}
# Where one of these is wrong, what the rest of the file means is a guess.
_ESSENTIAL = {"kind", "inputs", "from", "connector", "alternates", "sequence"}


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
    try:
        dataflow = FlowDoor.model_validate(document.data, context={"base": str(base)}).to_domain(str(base))
        found = list(problems(dataflow))
    except ValidationError as error:
        found = list(_of_shape_and_meaning(document.data, error, str(base)))
    if found:
        located = [_located(problem, document) for problem in found]
        raise DataflowError(sorted(located, key=lambda p: (p.line or 0, p.column or 0)), origin=origin)
    return dataflow


def _of_shape_and_meaning(data: Any, error: ValidationError, base: str) -> Iterator[Problem]:
    """What is wrong with the shape of the file, and with its meaning as far as that can be told."""
    errors = error.errors(include_url=False)
    repaired: Any = copy.deepcopy(data)
    touched: set[Keys] = set()
    meant: set[Keys] = set()
    for each in errors:
        if each["type"] == "extra_forbidden":
            keys, known = _keys(each["loc"], data), _known_keys(each["loc"])
            near = difflib.get_close_matches(str(keys[-1]), known, n=1)
            meant.update((*keys[:-1], key) for key in near)
            repaired = _without(repaired, keys, instead=near)
            touched.add(keys[:2])
            hint = did_you_mean(str(keys[-1]), known)
            yield Problem(place=_place(keys), message=f"is not a known key{hint}")
    for each in errors:
        keys = _keys(each["loc"], data)
        if each["type"] == "extra_forbidden" or (each["type"] == "missing" and keys in meant):
            continue
        repaired = _without(repaired, keys)
        touched.add(keys[:2])
        yield Problem(place=_place(keys), message=_message(each))
    try:
        dataflow = FlowDoor.model_validate(repaired, context={"base": base}).to_domain(base)
    except ValidationError:
        return
    for problem in problems(dataflow):
        if not any(problem.place.startswith(_place(keys)) for keys in touched):
            yield problem


def _message(error: Any) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    message: str = _MESSAGES.get(error["type"], error["msg"])
    if error["type"] == "missing":
        return message
    got = error["ctx"]["tag"] if error["type"] == "union_tag_invalid" else error["input"]
    return f"{message} (got {shown(got)})"


def _keys(location: tuple[str | int, ...], data: Any) -> Keys:
    """Pydantic's location without the names of union members, which no file has."""
    keys: list[str | int] = []
    for i, part in enumerate(location, start=1):
        if _has(data, part):
            keys.append(part)
            data = data[part]
        elif i == len(location):  # a key that is missing, or one that a short form stands for
            keys.append(part)
    return tuple(keys)


def _has(data: Any, key: str | int) -> bool:
    if isinstance(data, dict):
        return key in data
    return isinstance(data, list) and isinstance(key, int) and key < len(data)


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    if len(location) == 1:
        return FlowDoor.known_keys()
    if len(location) == 3 and location[0] == "operators":
        return OperatorDoor.known_keys()
    around = [part for part in location[:-1] if isinstance(part, str)]
    door = {**DOORS, **LOAD_DOORS}.get(around[-1])
    return [] if door is None else door.known_keys()


def _without(data: Any, keys: Keys, *, instead: Collection[str] | None = None) -> Any:
    """`data` without the bad value; None when the rest would be a guess.

    An unknown key is always dispensable; its value goes under the key that was meant, if there is one.
    """
    *around, last = keys or ("",)
    parent = data
    for key in around:
        parent = parent[key] if _has(parent, key) else None
    if not isinstance(parent, dict) or last not in parent:
        return None
    if instead is None and (len(keys) < 3 or last in _ESSENTIAL):
        return None
    value = parent.pop(last)
    for key in instead or ():
        parent.setdefault(key, value)
    return data


def _place(keys: Keys) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


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
