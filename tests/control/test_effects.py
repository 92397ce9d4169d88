"""Expectations against outcomes."""

from dataclasses import replace

import pytest

from penstock.control.effects import expect, judge
from penstock.dataflow import OperatorId
from penstock.policies.actions import Expectation, Move, Scale
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.telemetry.metrics import METRICS, read
from penstock.testing import a_dataflow, a_snapshot
from penstock.testing.builders import TWO_WAYS

WHY = Reason(code="test")
FLOW = a_dataflow(alternates=TWO_WAYS, min_accuracy=0.5)


def at(time_s: float, **facts: object) -> Snapshot:
    return a_snapshot(FLOW, time_s=time_s, **facts)


def scaled(metric: str, subject: str, value: float, within_s: float = 10.0) -> Scale:
    expects = Expectation(metric=metric, subject=subject, value=value, within_s=within_s)
    return Scale(reason=WHY, operator=OperatorId("work"), current=2, target=4, expects=expects)


@pytest.mark.parametrize(
    ("metric", "subject", "value"),
    [
        ("latency_s", "on-time", 0.2),
        ("latency_s", "results", 0.2),
        ("accuracy", "results", 0.9),
        ("utilisation", "work", 0.75),
        ("arrival_rps", "work", 500.0),
        ("queued", "work", 0.0),
        ("alternate", "work", 1.0),
        ("parallelism", "work", 3.0),
        ("parallelism", "nodes", 2.0),
        ("nodes", "nodes", 2.0),
        ("nodes", "class:standard", 2.0),
        ("nodes", "class:other", 0.0),
        ("keep", "events", 0.5),
        ("keep", "events->work", 0.25),
        ("node", "work[1]", 0.0),
        ("backlog_records", "events", 70.0),
        ("backlog_records", "all", 70.0),
        ("cost_per_hour", "nodes", 0.2),
        ("latency_s", "nobody", None),
        ("utilisation", "nobody", None),
        ("node", "work[9]", None),
        ("node", "work", None),
        ("keep", "nobody", None),
        ("happiness", "work", None),
    ],
)
def test_named_metrics_are_read_from_the_snapshot(metric: str, subject: str, value: float | None) -> None:
    snapshot = at(
        5,
        latency_s=0.2,
        accuracy=0.9,
        utilisation=0.75,
        parallelism={"work": 3},
        alternate={"work": "fast"},
        keep={"events": 0.5, "events->work": 0.25},
        node_of={"work[1]": "n0"},
        backlog_records=70.0,
    )
    assert read(snapshot, metric, subject) == (None if value is None else pytest.approx(value))


def test_every_metric_that_the_contract_names_can_be_read() -> None:
    named = {
        "latency_s",
        "utilisation",
        "parallelism",
        "nodes",
        "keep",
        "alternate",
        "node",
        "backlog_records",
    }
    assert named <= METRICS.keys()


@pytest.mark.parametrize(
    ("expected_s", "reached_s", "verdict"),
    [(0.1, 0.09, "worked"), (0.1, 0.104, "worked"), (0.1, 0.12, "did-not"), (0.1, 0.3, "did-not")],
)
def test_a_latency_is_judged_at_the_deadline_with_its_numbers(expected_s, reached_s, verdict) -> None:
    pending = expect(scaled("latency_s", "on-time", expected_s), "elastic", at(5, latency_s=0.2))
    assert pending is not None
    none, still = judge([pending], at(10, latency_s=0.01))  # half-way: a lucky moment proves nothing
    assert (none, still) == ((), (pending,))
    (effect,), rest = judge(still, at(15, latency_s=reached_s, demand_rps=600.0))
    assert rest == ()
    assert (effect.verdict, effect.before, effect.expected) == (verdict, 0.2, expected_s)
    assert (effect.observed, effect.after_s) == (pytest.approx(reached_s), 10.0)
    assert effect.load_change == pytest.approx(0.2)


def test_a_setting_is_done_as_soon_as_it_is_reached() -> None:
    pending = expect(scaled("parallelism", "work", 4, within_s=60), "elastic", at(5))
    assert pending is not None
    assert judge([pending], at(10, parallelism={"work": 3}))[1] == (pending,)
    (effect,), _ = judge([pending], at(15, parallelism={"work": 4}))
    assert (effect.verdict, effect.after_s) == ("worked", 10.0)
    (effect,), _ = judge([pending], at(65, parallelism={"work": 3}))
    assert effect.verdict == "did-not"


@pytest.mark.parametrize(("value", "reached", "verdict"), [(1.0, 0.97, "worked"), (1.0, 0.6, "did-not")])
def test_what_should_rise_must_rise(value: float, reached: float, verdict: str) -> None:
    pending = expect(scaled("accuracy", "results", value), "shedder", at(5, accuracy=0.5))
    assert pending is not None
    (effect,), _ = judge([pending], at(15, accuracy=reached))
    assert effect.verdict == verdict


def test_what_was_not_measured_is_unknown_not_failed() -> None:
    pending = expect(scaled("latency_s", "on-time", 0.1), "elastic", at(5))
    assert pending is not None
    (effect,), _ = judge([pending], at(15, latency_s=None))
    assert (effect.verdict, effect.observed) == ("unknown", None)


def test_a_move_is_judged_by_the_node_not_by_its_row() -> None:
    """n0 has gone meanwhile, so the target has another row than when the move was decided."""
    expects = Expectation(metric="node", subject="work[0]", value=1.0, within_s=10)
    move = Move(reason=WHY, operator=OperatorId("work"), index=0, source="n0", target="n1", expects=expects)
    pending = expect(move, "mover", at(5, node_of={"work[0]": "n0"}))
    assert pending is not None
    left = at(10, nodes=1)
    assert judge([pending], left)[0] == ()  # the node that is left is n0
    (effect,), _ = judge([pending], replace(left, nodes=left.nodes.with_columns(ids=("n1",))))
    assert effect.verdict == "worked"


def test_an_action_that_promises_nothing_is_not_followed() -> None:
    action = Scale(reason=WHY, operator=OperatorId("work"), current=2, target=4)
    assert expect(action, "elastic", at(5)) is None
