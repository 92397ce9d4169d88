"""The document of `penstock place`: a placement problem as JSON in, a placement as a plain document out.

    {"tasks": [{"id": "a0", "load": 1, "operator": "a"}, {"id": "b0", "load": {"cpu": 1, "memory": 2}}],
     "streams": [{"from": "a0", "to": "b0", "rate": 10}],
     "nodes": [{"id": "n0", "capacity": {"cpu": 4, "memory": 8}}],
     "placement": {"a0": "n0"}}

A number is a load or capacity of the one resource `cpu`. A bad document is refused with every problem at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.dataflow.checks import number
from penstock.dataflow.errors import Problem
from penstock.errors import InputError, did_you_mean
from penstock.policies.placement.placement import Placement
from penstock.policies.placement.problem import UNPLACED, PlacementProblem, placement_problem

ONE_RESOURCE = "cpu"
ITEMS: dict[str, tuple[bool, dict[str, bool]]] = {
    "tasks": (True, {"id": True, "load": True, "operator": False}),
    "nodes": (True, {"id": True, "capacity": True}),
    "streams": (False, {"from": True, "to": True, "rate": True}),
}
"""Lists of the document: whether they are required, and their keys, required or not."""


class PlacementDocumentError(InputError):
    """A document that is no placement problem; its text has one line for each of its `problems`."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def parse_problem(text: str | bytes) -> PlacementProblem:
    """The problem a JSON text describes; a PlacementDocumentError lists everything that is wrong with it."""
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise PlacementDocumentError([Problem(place="", message=f"is not JSON: {error}")]) from None
    if not isinstance(document, dict):
        raise PlacementDocumentError([Problem(place="", message="must be an object with tasks and nodes")])
    reader = _Reader()
    reader.keys("", document, {**dict.fromkeys(ITEMS, False), "placement": False})
    tasks, nodes, streams = (reader.items(document, name) for name in ITEMS)
    task_at, node_at = reader.ids("tasks", document), reader.ids("nodes", document)
    for place, stream in streams.items():
        for end in ("from", "to"):
            reader.known(f"{place}.{end}", "task", stream.get(end), task_at)
    running = reader.running(document.get("placement"), task_at, node_at)
    offered = dict.fromkeys(name for node in nodes.values() for name in node["capacity"])
    for place, task in tasks.items():
        for name in task["load"] if offered else ():
            reader.known(f"{place}.load.{name}", "capacity", name, offered, "no node has a capacity of")
    if reader.problems:
        raise PlacementDocumentError(reader.problems)
    named = [task.get("operator") or task["id"] for task in tasks.values()]
    operators = {name: i for i, name in enumerate(dict.fromkeys(named))}
    return placement_problem(
        loads=[[task["load"].get(r, 0.0) for r in offered] for task in tasks.values()],
        capacities=[[node["capacity"].get(r, 0.0) for r in offered] for node in nodes.values()],
        sources=[task_at[stream["from"]] for stream in streams.values()],
        targets=[task_at[stream["to"]] for stream in streams.values()],
        rates=[stream["rate"] for stream in streams.values()],
        operators=[operators[name] for name in named],
        running=[running.get(i, UNPLACED) for i in range(len(tasks))],
        task_ids=[task["id"] for task in tasks.values()],
        node_ids=[node["id"] for node in nodes.values()],
        resources=tuple(offered),
    )


def placement_document(problem: PlacementProblem, placement: Placement) -> dict[str, Any]:
    """What `penstock place --json` prints for one policy."""
    nodes = [problem.node_ids[node] for node in placement.assignment]
    named = ("cost", "lower_bound", "optimal", "nodes_used", "moves", "seconds")
    return {
        "policy": placement.policy,
        "assignment": dict(zip(problem.task_ids, nodes, strict=True)),
        **{name: getattr(placement, name) for name in named},
        **({"move_cost": placement.move_cost} if placement.move_cost else {}),
    }


class _Reader:
    """Reads parts of the document and remembers what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def refuse(self, place: str, message: str) -> None:
        self.problems.append(Problem(place=place, message=message))

    def keys(self, place: str, data: Mapping[str, Any], known: Mapping[str, bool]) -> None:
        dotted = f"{place}." if place else ""
        for key in data:
            if key not in known:
                self.refuse(f"{dotted}{key}", f"is not known{did_you_mean(key, known)}")
        for key, required in known.items():
            if required and key not in data:
                self.refuse(f"{dotted}{key}", "is missing")

    def items(self, document: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
        """The valid entries of a list by place, with amounts per resource."""
        required, known = ITEMS[name]
        listed = document.get(name)
        if listed is None and not required:
            return {}
        if not isinstance(listed, list) or (required and not listed):
            self.refuse(name, "is missing" if listed is None else "must be a list with entries")
            return {}
        valid = {}
        for i, item in enumerate(listed):
            place, before = f"{name}[{i}]", len(self.problems)
            if not isinstance(item, dict):
                self.refuse(place, "must be an object")
                continue
            self.keys(place, item, known)
            read = {key: self.part(f"{place}.{key}", key, item[key]) for key in known if key in item}
            if len(self.problems) == before:
                valid[place] = read
        return valid

    def part(self, place: str, key: str, value: Any) -> Any:
        if key == "rate":
            self.problems += number(place, value, at_least=0)
            return value
        if key not in ("load", "capacity"):
            if not isinstance(value, str) or not value:
                self.refuse(place, "must be a text that is not empty")
            return value
        if not isinstance(value, dict):  # a bare number: the resource is ours
            self.problems += number(place, value, at_least=0)
            return {ONE_RESOURCE: value}
        if not value:
            self.refuse(place, "must name a resource")
        for name, amount in value.items():
            self.problems += number(f"{place}.{name}", amount, at_least=0)
        return value

    def ids(self, name: str, document: Mapping[str, Any]) -> dict[str, int]:
        """Position of each id, those of otherwise bad entries too, so that one slip is not told twice."""
        found: dict[str, int] = {}
        listed = document.get(name)
        for i, item in enumerate(listed if isinstance(listed, list) else []):
            id_ = item.get("id") if isinstance(item, dict) else None
            if isinstance(id_, str):
                if id_ in found:
                    self.refuse(f"{name}[{i}].id", f"{id_!r} is the id of {name}[{found[id_]}] already")
                found.setdefault(id_, i)
        return found

    def known(
        self, place: str, what: str, name: Any, names: Iterable[str], missing: str = "there is no {}"
    ) -> bool:
        if name in names if isinstance(name, str) else False:
            return True
        self.refuse(place, f"{missing.format(what)} {name!r}{did_you_mean(str(name), names)}")
        return False

    def running(self, placement: Any, tasks: Mapping[str, int], nodes: Mapping[str, int]) -> dict[int, int]:
        if placement is None:
            return {}
        if not isinstance(placement, dict):
            self.refuse("placement", "must map task ids to node ids")
            return {}
        return {
            tasks[task]: nodes[node]
            for task, node in placement.items()
            if self.known(f"placement.{task}", "task", task, tasks)
            and self.known(f"placement.{task}", "node", node, nodes)
        }


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if any(key == other for other, _ in pairs[:i]))
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return unique


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")
