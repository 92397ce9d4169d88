"""Who sent how much to whom, from Spark's shuffle matrices, without Spark."""

import numpy as np
import pytest

from penstock.dataflow import flow
from penstock.dataflow.connectors import discard, rate
from penstock.spark.internals.shuffles import ShuffleMatrix
from penstock.spark.observe.traffic import traffic_between
from penstock.telemetry import Tasks


def step(record):
    return record


def a_flow():
    """A source, a map that records are spread over, and two keyed operators."""
    app = flow("chain")
    spread = app.source("in", rate(10)).map("map", step, wiring="spread", schema="value long")
    first = spread.keyed("first", step, key="value", state="n long", schema="value long")
    first.keyed("second", step, key="value", state="n long", schema="value long").sink("out", discard())
    return app.build()


def a_matrix(writer, reader, sizes):
    sizes = np.array(sizes, dtype=float)
    places = ("1",) * len(sizes)
    return ShuffleMatrix(
        shuffle_id=0, map_executor=places, map_host=places, writer=writer, reader=reader, sizes_bytes=sizes
    )


@pytest.fixture
def tasks():
    """Two of each operator."""
    count = len(a_flow().operators)
    return Tasks.blank(2 * count, operator=np.repeat(np.arange(count), 2), index=np.tile(np.arange(2), count))


def named(traffic, tasks):
    names = [f"{a_flow().operators[op].id}[{i}]" for op, i in zip(tasks.operator, tasks.index, strict=True)]
    return {
        (names[a], names[b]): bps
        for a, b, bps in zip(traffic.from_task, traffic.to_task, traffic.bytes_per_s, strict=True)
    }


def test_every_shuffle_is_told_as_what_its_stages_hold(tasks):
    matrices = [
        a_matrix(1, 0, [[40, 0], [0, 60]]),  # the first keyed operator to the second
        a_matrix(None, 1, [[2, 4], [6, 8]]),  # from behind the spread to the first
        a_matrix(None, None, [[9, 9], [9, 9]]),  # the spread itself
    ]
    traffic = traffic_between(a_flow(), {0: "second", 1: "first"}, matrices, tasks, 2.0)
    assert named(traffic, tasks) == {
        ("first[0]", "second[0]"): 20,
        ("first[1]", "second[1]"): 30,
        ("map[0]", "first[0]"): 1,
        ("map[0]", "first[1]"): 2,
        ("map[1]", "first[0]"): 3,
        ("map[1]", "first[1]"): 4,
    }


def test_a_batch_without_duration_or_an_operator_of_nobody_tells_nothing(tasks):
    matrix = a_matrix(1, 0, [[40, 0], [0, 60]])
    assert len(traffic_between(a_flow(), {0: "second", 1: "first"}, [matrix], tasks, 0.0)) == 0
    assert len(traffic_between(a_flow(), {1: "first"}, [matrix], tasks, 2.0)) == 0
    assert len(traffic_between(a_flow(), {0: "second"}, [matrix], tasks, 2.0)) == 0
