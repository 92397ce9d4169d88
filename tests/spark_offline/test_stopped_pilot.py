"""A cycle that is still under way when its pilot is stopped: nothing is changed, and it is no fault."""

from __future__ import annotations

import pytest

from penstock.control.plan import NotReadyError, Plan
from penstock.spark.application import ApplicationRuntime
from penstock.spark.worker import Worker


def stopped() -> ApplicationRuntime:
    """As much of a runtime as a late cycle meets."""
    runtime = ApplicationRuntime.__new__(ApplicationRuntime)
    runtime._asked = runtime._applying = runtime.only_observes = None
    runtime._front, runtime._interval_s, runtime._patience_s = Worker("test"), 1.0, 0.8
    runtime._front.close()
    return runtime


def test_a_plan_after_the_stop_changes_nothing() -> None:
    assert stopped().apply(Plan(time_s=1.0)) == ()


def test_there_is_nothing_to_see_after_the_stop() -> None:
    with pytest.raises(NotReadyError, match="the pilot has been stopped"):
        stopped().observe()
