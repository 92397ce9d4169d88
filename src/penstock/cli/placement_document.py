"""The door of `penstock place`: a placement problem as JSON in, a placement as a plain document out.

    {"tasks": [{"id": "a0", "load": 1, "operator": "a"}, {"id": "b0", "load": {"cpu": 1, "memory": 2}}],
     "streams": [{"from": "a0", "to": "b0", "rate": 10}],
     "nodes": [{"id": "n0", "capacity": {"cpu": 4, "memory": 8}}],
     "placement": {"a0": "n0"}}

A number is a load or capacity of the one resource `cpu`. A bad document is refused with every problem at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from penstock.dataflow.errors import Problem
from penstock.errors import InputError, did_you_mean
from penstock.policies.placement.placement import Placement
from penstock.policies.placement.problem import UNPLACED, PlacementProblem, placement_problem

ONE_RESOURCE = "cpu"
KEYS = ("tasks", "streams", "nodes", "placement")

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Id = Annotated[str, Field(min_length=1, strict=True)]
Amounts = Annotated[
    dict[Id, Amount],
    Field(min_length=1),
    BeforeValidator(lambda v: v if isinstance(v, dict) else {ONE_RESOURCE: v}),
]


class PlacementDocumentError(InputError):
    """A document that is no placement problem; its text has one line for each of its `problems`."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskPart(_Part):
    """A task, what it needs, and the operator it is an instance of (itself, if none is named)."""

    id: Id
    load: Amounts
    operator: Id | None = None


class StreamPart(_Part):
    """Traffic per second from one task to another."""

    source: Id = Field(alias="from")
    target: Id = Field(alias="to")
    rate: Amount


class NodePart(_Part):
    """A node and what it offers."""

    id: Id
    capacity: Amounts


def parse_problem(text: str | bytes) -> PlacementProblem:
    """The problem a JSON text describes; a PlacementDocumentError lists everything that is wrong with it."""
    problems: list[Problem] = []
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PlacementDocumentError([Problem(place="", message=f"is not JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise PlacementDocumentError([Problem(place="", message="must be an object with tasks and nodes")])
    problems += [
        Problem(place=key, message=f"is not known{did_you_mean(key, KEYS)}")
        for key in document
        if key not in KEYS
    ]
    tasks = _items(document, "tasks", TypeAdapter(TaskPart), problems, required=True)
    nodes = _items(document, "nodes", TypeAdapter(NodePart), problems, required=True)
    streams = _items(document, "streams", TypeAdapter(StreamPart), problems, required=False)
    task_at = _unique(document, "tasks", problems)
    node_at = _unique(document, "nodes", problems)
    _check_streams(streams, task_at, problems)
    running = _running(document, task_at, node_at, problems)
    resources = _resources(tasks, nodes, problems)
    if problems:
        raise PlacementDocumentError(problems)
    operators = {name: i for i, name in enumerate(dict.fromkeys(t.operator or t.id for t in tasks.values()))}
    return placement_problem(
        loads=[_row(task.load, resources) for task in tasks.values()],
        capacities=[_row(node.capacity, resources) for node in nodes.values()],
        sources=[task_at[stream.source] for stream in streams.values()],
        targets=[task_at[stream.target] for stream in streams.values()],
        rates=[stream.rate for stream in streams.values()],
        operators=[operators[task.operator or task.id] for task in tasks.values()],
        running=[running.get(i, UNPLACED) for i in range(len(tasks))],
        task_ids=[task.id for task in tasks.values()],
        node_ids=[node.id for node in nodes.values()],
        resources=resources,
    )


def problem_document(problem: PlacementProblem) -> dict[str, Any]:
    """The document that `parse_problem` would read as `problem`."""

    def amounts(row: Any) -> dict[str, float]:
        return dict(zip(problem.resources, map(float, row), strict=True))

    document: dict[str, Any] = {
        "tasks": [
            {"id": task, "load": amounts(load), "operator": f"operator-{operator}"}
            for task, load, operator in zip(problem.task_ids, problem.loads, problem.operators, strict=True)
        ],
        "streams": [
            {"from": problem.task_ids[a], "to": problem.task_ids[b], "rate": float(rate)}
            for a, b, rate in zip(problem.sources, problem.targets, problem.rates, strict=True)
        ],
        "nodes": [
            {"id": node, "capacity": amounts(capacity)}
            for node, capacity in zip(problem.node_ids, problem.capacities, strict=True)
        ],
    }
    known = np.flatnonzero(problem.running != UNPLACED)
    if len(known):
        document["placement"] = {problem.task_ids[t]: problem.node_ids[problem.running[t]] for t in known}
    return document


def placement_document(problem: PlacementProblem, placement: Placement) -> dict[str, Any]:
    """What `penstock place --json` prints for one policy."""
    document: dict[str, Any] = {
        "policy": placement.policy,
        "assignment": {
            task: problem.node_ids[node]
            for task, node in zip(problem.task_ids, placement.assignment, strict=True)
        },
        "cost": placement.cost,
        "lower_bound": placement.lower_bound,
        "optimal": placement.optimal,
        "nodes_used": placement.nodes_used,
        "moves": placement.moves,
        "seconds": placement.seconds,
    }
    if placement.move_cost:
        document["move_cost"] = placement.move_cost
    return document


def _items(
    document: Mapping[str, Any],
    key: str,
    adapter: TypeAdapter[Any],
    problems: list[Problem],
    *,
    required: bool,
) -> dict[int, Any]:
    """The valid items of a list by position; each of the others adds its problems."""
    items = document.get(key)
    if items is None and not required:
        return {}
    if not isinstance(items, list) or (required and not items):
        problems.append(
            Problem(place=key, message="is missing" if items is None else "must be a list with entries")
        )
        return {}
    valid = {}
    for position, item in enumerate(items):
        try:
            valid[position] = adapter.validate_python(item)
        except ValidationError as error:
            problems += _told(error, f"{key}[{position}]", item)
    return valid


def _told(error: ValidationError, place: str, item: Any) -> list[Problem]:
    told = []
    for detail in error.errors(include_url=False):
        path = [str(part) for part in detail["loc"]]
        if path[-1:] == [ONE_RESOURCE] and not isinstance(item[path[0]], dict):
            path.pop()  # The user wrote a bare number; the resource is ours.
        message = {"extra_forbidden": "is not known", "missing": "is missing"}.get(detail["type"])
        if not path and message is None:
            message = "must be an object"
        told.append(Problem(place=".".join([place, *path]), message=message or _lower(detail["msg"])))
    return told


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _unique(document: Mapping[str, Any], key: str, problems: list[Problem]) -> dict[str, int]:
    """Position of each id, those of otherwise bad entries too, so that one slip is not told twice."""
    position_of: dict[str, int] = {}
    items = document.get(key)
    for position, item in enumerate(items if isinstance(items, list) else []):
        name = item.get("id") if isinstance(item, dict) else None
        if not isinstance(name, str):
            continue
        if name in position_of:
            message = f"{name!r} is the id of {key}[{position_of[name]}] already"
            problems.append(Problem(place=f"{key}[{position}].id", message=message))
        position_of.setdefault(name, position)
    return position_of


def _check_streams(
    streams: Mapping[int, StreamPart], task_at: Mapping[str, int], problems: list[Problem]
) -> None:
    for position, stream in streams.items():
        for end, task in (("from", stream.source), ("to", stream.target)):
            if task not in task_at:
                message = f"there is no task {task!r}{did_you_mean(task, task_at)}"
                problems.append(Problem(place=f"streams[{position}].{end}", message=message))


def _running(
    document: Mapping[str, Any],
    task_at: Mapping[str, int],
    node_at: Mapping[str, int],
    problems: list[Problem],
) -> dict[int, int]:
    placement = document.get("placement")
    if placement is None:
        return {}
    if not isinstance(placement, dict):
        problems.append(Problem(place="placement", message="must map task ids to node ids"))
        return {}
    running = {}
    for task, node in placement.items():
        if task not in task_at:
            message = f"there is no task {task!r}{did_you_mean(task, task_at)}"
            problems.append(Problem(place=f"placement.{task}", message=message))
        elif not isinstance(node, str) or node not in node_at:
            message = f"there is no node {node!r}{did_you_mean(str(node), node_at)}"
            problems.append(Problem(place=f"placement.{task}", message=message))
        else:
            running[task_at[task]] = node_at[node]
    return running


def _resources(
    tasks: Mapping[int, TaskPart], nodes: Mapping[int, NodePart], problems: list[Problem]
) -> tuple[str, ...]:
    """All resources, in the order of their first mention; a load must name only what some node offers."""
    offered = dict.fromkeys(name for node in nodes.values() for name in node.capacity)
    for position, task in tasks.items():
        problems += [
            Problem(
                place=f"tasks[{position}].load.{name}",
                message=f"no node has a capacity of {name!r}{did_you_mean(name, offered)}",
            )
            for name in task.load
            if offered and name not in offered
        ]
    return tuple(offered)


def _row(amounts: Mapping[str, float], resources: tuple[str, ...]) -> list[float]:
    """One amount per resource; what is not named is neither needed nor offered."""
    return [amounts.get(resource, 0.0) for resource in resources]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if any(key == other for other, _ in pairs[:i]))
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return unique


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
