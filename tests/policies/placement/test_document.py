import json
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from penstock.cli.placement_document import (
    PlacementDocumentError,
    parse_problem,
    placement_document,
)
from penstock.policies.placement.placement import place
from penstock.policies.placement.problem import UNPLACED, PlacementProblem
from tests.policies.placement.strategies import problems

GOOD = {
    "tasks": [
        {"id": "a", "load": 1, "operator": "read"},
        {"id": "b", "load": {"cpu": 2, "memory": 3}},
    ],
    "streams": [{"from": "a", "to": "b", "rate": 10}],
    "nodes": [{"id": "n", "capacity": {"cpu": 4, "memory": 8}}, {"id": "m", "capacity": 1}],
    "placement": {"b": "n"},
}


def test_a_good_document_is_read():
    problem = parse_problem(json.dumps(GOOD))
    assert problem.resources == ("cpu", "memory")
    assert problem.loads.tolist() == [[1, 0], [2, 3]]
    assert problem.capacities.tolist() == [[4, 8], [1, 0]]
    assert problem.running.tolist() == [UNPLACED, 0]
    assert problem.traffic == 10.0
    assert problem.task_ids == ("a", "b")


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


@given(problems(running=True))
@settings(deadline=None, max_examples=50)
def test_written_and_read_again_it_is_the_same_problem(problem):
    again = parse_problem(json.dumps(problem_document(problem)))
    for name in ("loads", "capacities", "sources", "targets", "rates", "running"):
        assert np.array_equal(getattr(problem, name), getattr(again, name)), name
    _, before = np.unique(problem.operators, return_inverse=True)
    assert len(set(zip(before, again.operators, strict=True))) == len(set(before))


def test_the_result_is_plain_json_with_ids():
    problem = parse_problem(json.dumps(GOOD))
    document = placement_document(problem, place(problem, clock=time.monotonic))
    assert json.loads(json.dumps(document)) == document
    assert document["assignment"] == {"a": "n", "b": "n"}
    assert (document["cost"], document["lower_bound"], document["optimal"]) == (0.0, 0.0, True)
    assert (document["policy"], document["nodes_used"], document["moves"]) == ("default", 1, 0)


def test_every_problem_is_told_at_once_with_its_place():
    bad = {
        "tasks": [
            {"id": "a", "load": -1},
            {"id": "a", "load": {"cpu": "much"}},
            {"load": 1},
            {"id": "c", "load": {"gpu": 1}},
            {"id": "d", "load": True, "oprator": "x"},
            "task",
        ],
        "streams": [{"from": "a", "to": "zz", "rate": 1}, {"from": "a", "rate": -3}],
        "nodes": [{"id": "n", "capacity": {"cpu": 2}}],
        "placement": {"a": "m", "q": "n"},
        "taskz": 1,
    }
    with pytest.raises(PlacementDocumentError) as refusal:
        parse_problem(json.dumps(bad))
    assert {p.place for p in refusal.value.problems} == {
        "taskz",
        "tasks[0].load",
        "tasks[1].id",
        "tasks[1].load.cpu",
        "tasks[2].id",
        "tasks[3].load.gpu",
        "tasks[4].load",
        "tasks[4].oprator",
        "tasks[5]",
        "streams[0].to",
        "streams[1].to",
        "streams[1].rate",
        "placement.a",
        "placement.q",
    }
    assert "taskz: is not known; did you mean 'tasks'?" in str(refusal.value).splitlines()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object"),
        ('{"tasks": [{"id": "a", "load": NaN}]}', "NaN is not a number"),
        ('{"tasks": [], "tasks": []}', "the key 'tasks' stands twice"),
        ('{"nodes": [{"id": "n", "capacity": 1}]}', "tasks: is missing"),
        ('{"tasks": [], "nodes": [{"id": "n", "capacity": 1}]}', "tasks: must be a list with entries"),
        ('{"tasks": {"a": 1}, "nodes": 3}', "nodes: must be a list with entries"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_text_that_is_no_problem_is_refused(text, complaint):
    with pytest.raises(PlacementDocumentError, match=complaint):
        parse_problem(text)
