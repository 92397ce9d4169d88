"""Plans for a runtime under test, and waiting until they are carried out."""

from __future__ import annotations

import time

from penstock.control.plan import Outcome, Plan, Planned
from penstock.policies.actions import Action
from penstock.policies.reasons import Reason
from penstock.spark.runtime import SparkRuntime

WHY = Reason(code="test")


def carry_out(runtime: SparkRuntime, *actions: Action, timeout_s: float = 120.0) -> dict[str, Outcome]:
    """Apply the actions and wait until none of them is deferred any more; the last outcome by subject."""
    plan = Plan(time_s=time.time(), actions=tuple(Planned(action=a, policy="test") for a in actions))
    outcomes = {o.action.subject: o for o in runtime.apply(plan)}
    deadline_s = time.monotonic() + timeout_s
    while any(o.status == "deferred" for o in outcomes.values()):
        assert time.monotonic() < deadline_s, f"still waiting for {outcomes}"
        assert runtime.query.isActive, f"the query failed: {runtime.query.exception()}"
        time.sleep(0.1)
        runtime.observe()
        outcomes.update({o.action.subject: o for o in runtime.apply(Plan(time_s=time.time()))})
    return outcomes
