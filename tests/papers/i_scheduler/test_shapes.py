"""The micro-benchmarks: the shapes of the placement instances, and every record on every way through them."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.api.choices import find_flow
from penstock.dataflow import Dataflow
from penstock_papers.i_scheduler.instances import SHAPES, Shape, operator_sizes
from penstock_papers.i_scheduler.shapes import diamond, linear, star
from tests.papers.common.interpreter import Interpreter

MAKERS = {"linear": linear, "diamond": diamond, "star": star}


def trace(id_: int, hops: list[int]) -> int:
    """What a record's trace must be after these operators."""
    found = 0
    for hop in hops:
        found = (found * 48_271 + id_ + hop + 1) % (2**31 - 1)
    return found


def ways(flow: Dataflow, sink: str) -> list[list[int]]:
    """The operators, sources and sinks left out, on each way to a sink."""

    def upward(id_: str) -> list[list[int]]:
        operator = flow.operator(id_)
        if operator.kind == "source":
            return [[]]
        own = [] if operator.kind == "sink" else [int(id_.removeprefix("op"))]
        return [[*way, *own] for stream in flow.upstream(operator.id) for way in upward(stream.source)]

    return upward(sink)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tasks", [10, 18, 32])
def test_are_the_instances_of_placement(shape: Shape, tasks: int) -> None:
    flow = MAKERS[shape](tasks=tasks)
    sizes, streams = operator_sizes(shape, tasks)
    assert {o.id: o.parallelism.maximum for o in flow.operators} == {f"op{i}": n for i, n in enumerate(sizes)}
    assert {(s.source, s.target) for s in flow.streams} == {(f"op{a}", f"op{b}") for a, b in streams}
    assert {s.wiring for s in flow.streams} == {"spread"}
    assert find_flow(shape).streams == MAKERS[shape]().streams


@pytest.mark.parametrize("shape", SHAPES)
def test_every_record_takes_every_way(shape: Shape) -> None:
    flow = MAKERS[shape](tasks=14)
    run = Interpreter(flow, seed=1).run(50, batches=[20, 33])
    for sink, rows in run.items():
        wanted = Counter((i, trace(i, way)) for way in ways(flow, sink) for i in range(50))
        assert Counter((row["id"], row["trace"]) for row in rows) == wanted


@pytest.mark.parametrize("shape", SHAPES)
def test_odd_sizes_are_refused(shape: Shape) -> None:
    with pytest.raises(ValueError, match="even number of tasks"):
        MAKERS[shape](tasks=11)
