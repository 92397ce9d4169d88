"""What `penstock.attach` and `penstock.Goals` refuse, without Spark: one line that says what would do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

import penstock
from penstock.spark.attach import AttachError
from penstock.spark.goals import GoalsError


def a_session(*, stopped: bool | None) -> SparkSession:
    """As much of a session as is looked at before anything starts; None: `spark.stop()` was called."""
    spark = SparkSession.__new__(SparkSession)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped))
    spark._sc = SimpleNamespace(_jsc=None if stopped is None else java)  # type: ignore[assignment]
    return spark


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"latency_ms": "3s"}, "latency_ms must be a number, not '3s'"),
        ({"latency_ms": True}, "latency_ms must be a number, not True"),
        ({"latency_ms": 0}, "latency_ms must be more than 0"),
        ({"statistic": "p59"}, "there is no statistic 'p59'; did you mean"),
        ({"goals": [penstock.Goals()]}, "goals takes a mapping of query names to penstock.Goals, not list"),
        ({"goals": penstock.Goals()}, "goals takes a mapping of query names to penstock.Goals, not Goals"),
        ({"goals": {"a": 2000}}, "goals takes a mapping of query names to penstock.Goals, not of 2000"),
        ({"min_executors": "1"}, "min_executors takes a whole number, not '1'"),
        ({"max_executors": 2.5}, "max_executors takes a whole number, not 2.5"),
        ({"max_executors": 0}, "max_executors must be at least 1, not 0"),
        ({"min_executors": 0}, "min_executors must lie in 1 to as many as there are, not 0"),
        ({"pacing": "yes"}, "pacing takes True or False, not 'yes'"),
        ({"mode": None}, "there is no mode None; known are observe, recommend, act"),
        ({"policies": ["elasticity"]}, "policies takes a list of PolicyRun, not of 'elasticity'"),
        ({"interval_s": "5s"}, "interval_s takes a number of seconds, not '5s'"),
        ({"interval_s": 0}, "interval_s must be more than 0, not 0"),
        ({"journal": 3}, "journal takes the path of a file, not 3"),
        ({"machine": "m5"}, "machine takes a MachineClass, not 'm5'"),
        ({"settings": {}}, "settings takes penstock.control.Settings, not dict"),
        ({"subscribers": print}, "subscribers takes a list of functions, not builtin_function_or_method"),
        ({"subscribers": ["a"]}, "subscribers takes a list of functions, not of 'a'"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_in_a_line(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(AttachError) as told:
        penstock.attach(a_session(stopped=False), **options)
    assert str(told.value).startswith(complaint)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("stopped", [None, True])
def test_a_stopped_session_is_refused_in_a_line(stopped: bool | None) -> None:
    with pytest.raises(AttachError, match="this Spark session has been stopped"):
        penstock.attach(a_session(stopped=stopped), latency_ms=1000)


def test_a_session_whose_driver_is_gone_is_a_stopped_one() -> None:
    def gone() -> None:
        raise Py4JNetworkError("no answer")

    spark = a_session(stopped=None)
    spark._sc = SimpleNamespace(_jsc=SimpleNamespace(sc=gone))  # type: ignore[assignment]
    with pytest.raises(AttachError, match="has been stopped"):
        penstock.attach(spark)


@pytest.mark.parametrize("other", [None, "local[2]", SparkSession.builder, SparkSession])
def test_what_is_no_session_is_refused_in_a_line(other: Any) -> None:
    with pytest.raises(AttachError, match="attach takes a SparkSession, not"):
        penstock.attach(other)


@pytest.mark.parametrize(
    "goals", [{"latency_ms": "3s"}, {"window_s": None}, {"priority": "high"}, {"min_accuracy": "x"}]
)
def test_a_goal_that_is_no_number_is_refused(goals: dict[str, Any]) -> None:
    with pytest.raises(GoalsError, match="must be a number, not"):
        penstock.Goals(**goals)
