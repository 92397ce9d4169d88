"""Filling by priority, against the definition worked out by bisection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.shedding.grants import Claims
from penstock.policies.shedding.graph import Graph
from penstock.telemetry import Sinks


def claims_of(
    edges: list[tuple[int, int]],
    operators: int,
    sinks: list[int],
    priority: list[int],
    tasks: list[tuple[int, int, float]],
) -> Claims:
    source, target = (np.array([e[i] for e in edges], np.int64) for i in (0, 1))
    level = np.zeros(operators, np.int64)
    for _ in range(operators):
        np.maximum.at(level, target, level[source] + 1)
    label = np.arange(operators)
    for _ in range(operators):
        for a, b in edges:
            label[a] = label[b] = min(label[a], label[b])
    operator, node, slope = (np.array(c) for c in zip(*tasks, strict=True))
    return Claims(
        Graph(level, source, target, label),
        Sinks.blank(len(sinks), operator=sinks, priority=priority),
        operator,
        node,
        slope.astype(np.float64),
        np.zeros(len(tasks)),
    )


def by_definition(claims: Claims, floor: np.ndarray, ceiling: np.ndarray, room: np.ndarray) -> np.ndarray:
    """All sinks of a priority rise together as far as they fit (bisection); who cannot rise alone stays; repeat."""
    got = floor.copy()
    app = claims.graph.application[claims.sinks.operator]
    upstream = [reach_up(claims.graph, int(o)) for o in claims.sinks.operator]

    def fits(accuracy: np.ndarray) -> bool:
        return bool(np.all(claims.used(accuracy, len(room)) <= room + 1e-11))

    def at(level: float, growing: np.ndarray, lack: np.ndarray, got: np.ndarray) -> np.ndarray:
        risen = np.minimum(floor + (1 - floor) * np.minimum(level / lack, 1.0), ceiling)
        return np.where(growing, risen, got)

    for p in sorted(set(claims.sinks.priority.tolist()), reverse=True):
        growing = (claims.sinks.priority == p) & (ceiling > floor)
        lack = np.ones(len(app))
        for a in set(app[growing].tolist()):
            mine = np.flatnonzero(growing & (app == a))
            needs = [
                s * (1 - max(floor[q] for q in mine if o in upstream[q]))
                for o, s in zip(claims.operator.tolist(), claims.slope.tolist(), strict=True)
                if any(o in upstream[q] for q in mine)
            ]
            lack[app == a] = max(needs) or 1.0

        while growing.any():
            low, high = 0.0, float(lack.max())
            for _ in range(50):
                middle = (low + high) / 2
                low, high = (middle, high) if fits(at(middle, growing, lack, got)) else (low, middle)
            top = at(high, growing, lack, got)
            got = top if fits(top) else at(low, growing, lack, got)
            for q in np.flatnonzero(growing):
                more = got.copy()
                more[q] = got[q] + 1e-7
                if more[q] > ceiling[q] or not fits(more):
                    growing[q] = False
    return got


def reach_up(graph: Graph, sink: int) -> set[int]:
    found, todo = {sink}, [sink]
    while todo:
        t = todo.pop()
        for s in graph.source[graph.target == t].tolist():
            if s not in found:
                found.add(s)
                todo.append(s)
    return found


def test_evenly_within_a_priority_smallest_need_first() -> None:
    alone = [(i, 0, need) for i, need in enumerate([0.1, 0.5, 0.8])]
    claims = claims_of([], 3, [0, 1, 2], [1, 1, 1], alone)
    grants = claims.grant(np.zeros(3), np.ones(3), np.array([0.7]))
    assert grants.accuracy == pytest.approx([1.0, 0.3 / 0.5, 0.3 / 0.8])
    assert grants.stopped_by.tolist() == [-1, 0, 0]


def test_a_grant_that_another_node_makes_useless_goes_to_the_neighbour() -> None:
    # Sink 0 works on both nodes and node 1 holds it at 0.2; the paper would still set CPU aside for it on node 0.
    claims = claims_of([], 2, [0, 1], [1, 1], [(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0)])
    grants = claims.grant(np.zeros(2), np.ones(2), np.array([1.0, 0.2]))
    assert grants.accuracy == pytest.approx([0.2, 0.8])
    assert grants.stopped_by.tolist() == [1, 0]


def test_a_shared_operator_takes_nothing_for_the_lower_sink_at_the_rank_of_the_higher() -> None:
    # Operator 0 feeds sinks 1 (high) and 2 (low). It and sink 1 share node 0; sink 2 has node 1 for itself.
    claims = claims_of([(0, 1), (0, 2)], 3, [1, 2], [9, 1], [(0, 0, 0.5), (1, 0, 1.0), (2, 1, 0.1)])
    grants = claims.grant(np.zeros(2), np.ones(2), np.array([1.0, 1.0]))
    assert grants.accuracy == pytest.approx([2 / 3, 2 / 3])


def test_sinks_of_one_application_give_up_the_same_share_of_what_they_may() -> None:
    claims = claims_of([(0, 1), (0, 2)], 3, [1, 2], [1, 1], [(0, 0, 0.0), (1, 0, 1.0), (2, 0, 1.0)])
    grants = claims.grant(np.array([0.4, 0.6]), np.ones(2), np.array([1.5]))
    assert grants.accuracy == pytest.approx([0.7, 0.8])


def test_floors_that_do_not_fit_stay() -> None:
    claims = claims_of([], 2, [0, 1], [1, 2], [(0, 0, 1.0), (1, 0, 1.0)])
    grants = claims.grant(np.array([0.4, 0.8]), np.ones(2), np.array([1.0]))
    assert grants.accuracy.tolist() == [0.4, 0.8]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Claims, np.ndarray, np.ndarray, np.ndarray]:
    operators = draw(st.integers(1, 9))
    edges = [
        (a, b)
        for b in range(operators)
        for a in range(b)
        if draw(st.integers(0, 3)) == 0  # sparse, so that several applications appear
    ]
    sinks = [o for o in range(operators) if not any(a == o for a, _ in edges)]
    nodes = draw(st.integers(1, 3))
    share = st.integers(0, 20).map(lambda i: i / 20)
    tasks = [
        (o, draw(st.integers(0, nodes - 1)), draw(share))
        for o in range(operators)
        for _ in range(draw(st.integers(1, 2)))
    ]
    priority = [draw(st.integers(0, 2)) for _ in sinks]
    floor = np.array([draw(share) for _ in sinks]) * 0.8
    ceiling = np.array([max(f, draw(share)) for f in floor])
    claims = claims_of(edges, operators, sinks, priority, tasks)
    spare = np.array([draw(share) for _ in range(nodes)]) * 2
    return claims, floor, ceiling, claims.used(floor, nodes) + spare


@settings(max_examples=60, deadline=None)
@given(problems())
def test_as_by_definition(problem: tuple[Claims, np.ndarray, np.ndarray, np.ndarray]) -> None:
    claims, floor, ceiling, room = problem
    grants = claims.grant(floor, ceiling, room)
    assert np.all(grants.used <= room + 1e-9)
    assert np.all((grants.accuracy >= floor) & (grants.accuracy <= ceiling))
    assert grants.accuracy == pytest.approx(by_definition(claims, floor, ceiling, room), abs=2e-6)


@settings(max_examples=150, deadline=None)
@given(problems())
def test_nobody_could_have_more(problem: tuple[Claims, np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Who is below its ceiling could not rise even if every sink of lower priority were at its floor."""
    claims, floor, ceiling, room = problem
    got = claims.grant(floor, ceiling, room).accuracy
    for q in np.flatnonzero(got < ceiling - 1e-6):
        lower = claims.sinks.priority < claims.sinks.priority[q]
        trial = np.where(lower, floor, got)
        trial[q] += 1e-6
        assert np.any(claims.used(trial, len(room)) > room + 1e-12)
