"""Several applications as one dataflow, and back."""

import pytest

from penstock.dataflow import DataflowError, applications, problems, together
from penstock.testing import a_dataflow
from penstock_papers.quality_of_data.scoring import scoring


def test_apart_again_they_are_what_they_were_but_for_their_names():
    one, two = a_dataflow("in", "work", "out", name="one"), a_dataflow("in", "out", name="two", bound_ms=None)
    both = together(one, two)
    assert both.name == "one-two"
    first, second = applications(both)
    assert (first.name, second.name) == ("one", "two")
    assert [o.id for o in first.operators] == ["one.in", "one.work", "one.out"]
    assert [s.id for s in second.streams] == ["two.in->two.out"]
    assert [c.name for c in first.constraints] == [f"one.{c.name}" for c in one.constraints]
    assert not second.constraints
    assert {o.id for part in (first, second) for o in part.operators} == set(both.row)


def test_what_is_right_apart_is_right_together():
    servers = "127.0.0.1:9092"
    both = together(scoring("alerts", "a", servers, priority=5), scoring("trends", "b", servers))
    assert not problems(both, check_functions=True)
    assert [s.priority for s in both.sinks] == [5, 0]


def test_a_connected_dataflow_is_one_application():
    flow = a_dataflow("in", "a", "b", "out")
    (only,) = applications(flow)
    assert only.operators == flow.operators
    assert only.streams == flow.streams


@pytest.mark.parametrize(
    ("flows", "message"),
    [
        ((a_dataflow(name="same"), a_dataflow(name="same")), "names of their own"),
        ((a_dataflow(name="one"), a_dataflow(name="two", remedies=("shed",))), "different goals"),
    ],
)
def test_what_cannot_share_is_refused(flows, message):
    with pytest.raises(DataflowError, match=message):
        together(*flows)
