"""Plans for a runtime under test, and waiting until they are carried out."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from penstock.control.plan import Outcome, Plan, Planned
from penstock.policies.actions import Action
from penstock.policies.reasons import Reason
from penstock.spark.application import ApplicationRuntime
from penstock.spark.goals import Goals
from penstock.spark.runtime import RuntimeOptions, SparkRuntime

WHY = Reason(code="test")


def application(spark: SparkSession) -> ApplicationRuntime:
    """What `penstock.attach` steers, without a loop."""
    return ApplicationRuntime(spark, goals=lambda name: Goals(), options=RuntimeOptions(), interval_s=60.0)


def carry_out(
    runtime: SparkRuntime | ApplicationRuntime, *actions: Action, timeout_s: float = 120.0
) -> dict[str, Outcome]:
    """Apply the actions and wait until none of them is deferred any more; the last outcome by subject."""
    plan = Plan(time_s=time.time(), actions=tuple(Planned(action=a, policy="test") for a in actions))
    outcomes = {o.action.subject: o for o in runtime.apply(plan)}
    deadline_s = time.monotonic() + timeout_s
    while any(o.status == "deferred" for o in outcomes.values()):
        assert time.monotonic() < deadline_s, f"still waiting for {outcomes}"
        assert runtime.query_is_active()
        time.sleep(0.1)
        runtime.observe()
        outcomes.update({o.action.subject: o for o in runtime.apply(Plan(time_s=time.time()))})
    return outcomes
