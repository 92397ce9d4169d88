"""Which sequences are stamped inside a dataflow, and how ages of many moments add up."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from penstock import flow
from penstock.dataflow import Dataflow
from penstock.dataflow.graph import Sequence
from penstock.spark.observe.sections import measured_elsewhere, stamps_of, wanted_stamps
from penstock.spark.observe.task_measures import STAMPED_S, TaskMeasures
from tests.spark.flows import Collected, replayed


def chain() -> Dataflow:
    builder = flow("chain")
    first = builder.source("in", replayed()).map("first", dict, takes="record")
    first.map("second", dict, takes="record").sink("out", Collected().connector())
    builder.constrain("first", mean_ms=100)
    builder.constrain("first -> second", mean_ms=200)
    return builder.build()


@pytest.mark.parametrize(
    ("sequence", "stamps"),
    [
        ("first", ("first ->",)),
        ("-> first", ("first ->",)),
        ("first ->", ("-> second",)),
        ("first -> second", ()),
        ("second ->", ()),
    ],
)
def test_a_sequence_with_operators_behind_it_is_stamped_where_it_ends(
    sequence: str, stamps: tuple[str, ...]
) -> None:
    assert stamps_of(chain(), Sequence.parse(sequence)) == stamps


def test_a_sequence_that_ends_where_no_python_runs_is_told() -> None:
    builder = flow("native")
    native = builder.source("in", replayed()).transform("native", lambda frame: frame, schema="number long")
    native.map("second", dict, takes="record").sink("out", Collected().connector())
    builder.constrain("native", mean_ms=100, name="inside")
    builder.constrain("native ->", mean_ms=100, name="behind")
    made = builder.build()
    assert wanted_stamps(made) == {"-> second"}
    assert measured_elsewhere(made) == ("inside",)
    assert measured_elsewhere(chain()) == ()


def test_only_what_a_constraint_asks_for_is_stamped() -> None:
    assert wanted_stamps(chain()) == {"first ->"}


def test_ages_are_those_at_the_moment_of_each_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    measures = TaskMeasures("host")
    born_s = 1_700_000_000.0
    times = pa.array([int(1e6 * born_s)], pa.timestamp("us", "UTC"))
    for age_s in (1.0, 3.0):
        monkeypatch.setattr(time, "time", lambda at=born_s + age_s: at)
        measures.stamp("first ->", times)
    monkeypatch.undo()
    (told,) = measures.record().stamps
    moments, sketch = told.latencies_s(STAMPED_S)
    assert told.sink == "first ->"
    assert float(moments.count[0]) == 2.0
    assert float(moments.mean[0]) == pytest.approx(2.0, abs=0.01)
    assert sketch.quantile(0.4) == pytest.approx(1.0, rel=0.02)
