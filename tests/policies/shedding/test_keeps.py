"""Keep-probabilities on a concrete dataflow, and what a runtime makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.policies.shedding import Graph, Keeps
from tests.policies.shedding.cluster import Cluster, Sink, application, thresholds

FLOW = application(
    [("a", "join"), ("b", "join"), ("b", "side"), ("join", "x"), ("join", "y")],
    {"x": Sink(), "y": Sink(), "side": Sink()},
)
ROW = FLOW.row
GRAPH = Graph.of(FLOW)


def keeps(x: float, y: float, side: float) -> Keeps:
    wanted = {"x": x, "y": y, "side": side}
    sinks = Cluster(FLOW, {}, lambda _: {}, [1.0]).snapshot_sinks()
    return Keeps.of(GRAPH, sinks, np.array([wanted[o.id] for o in FLOW.sinks]))


def test_dropped_as_early_as_possible() -> None:
    found = keeps(x=0.4, y=0.2, side=0.8)
    source = {o.id: float(found.source[ROW[o.id]]) for o in FLOW.sources}
    stream = {s.id: round(float(found.stream[i]), 9) for i, s in enumerate(FLOW.streams)}
    assert source == {"a": 0.4, "b": 0.8}
    assert stream == {"a->join": 1.0, "b->join": 0.5, "b->side": 1.0, "join->x": 1.0, "join->y": 0.5}


def test_thresholds_are_products_along_the_way() -> None:
    found = keeps(x=0.4, y=0.2, side=0.8)
    of_operator, of_stream = thresholds(GRAPH, found.source, found.stream)
    assert of_operator == pytest.approx(found.desired)
    assert dict(zip([s.id for s in FLOW.streams], of_stream.round(9), strict=True)) == {
        "a->join": 0.4, "b->join": 0.4, "b->side": 0.8, "join->x": 0.4, "join->y": 0.2,
    }  # fmt: skip


def test_where_inputs_differ_the_lowest_counts() -> None:
    source = np.ones(len(GRAPH))
    source[ROW["a"]] = 0.3  # type: ignore[index]
    of_operator, _ = thresholds(GRAPH, source, np.ones(len(FLOW.streams)))
    assert of_operator[ROW["x"]] == 0.3  # type: ignore[index]
    assert of_operator[ROW["side"]] == 1.0  # type: ignore[index]


def test_nothing_wanted_nothing_kept() -> None:
    found = keeps(x=0.0, y=0.0, side=0.5)
    assert found.stream[1] == 0.0  # b->join
    assert found.stream[3] == 0.0  # join->x, though 0/0
