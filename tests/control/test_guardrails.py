"""Guardrails: what an owner forbids is not done and is explained; what did harm is taken back, once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.control.guardrails import TAKE_BACK, GuardMemory, Guardrails, guard, harmful
from penstock.control.plan import Plan, Planned
from penstock.dataflow import OperatorId
from penstock.policies.actions import Action, Cost, Move, Scale, Shed, Switch
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.testing import a_snapshot

WHY = Reason(code="test")
SHRINK = Scale(current=3, target=2, reason=WHY)
GROW = Scale(current=2, target=3, reason=WHY, cost=Cost(per_hour=2.0))


def plan_of(*actions: Action, policy: str = "elasticity") -> Plan:
    return Plan(time_s=0.0, actions=tuple(Planned(action=a, policy=policy) for a in actions))


def guarded(
    *actions: Action,
    options: Guardrails,
    at: Snapshot | None = None,
    memory: GuardMemory = GuardMemory(),  # noqa: B008  # a frozen value
    policy: str = "elasticity",
) -> tuple[list[Action], list[str], GuardMemory]:
    plan, after = guard(plan_of(*actions, policy=policy), at or a_snapshot(), memory, options)
    return [p.action for p in plan.actions], [w.reason.code for w in plan.withheld], after


def test_a_remedy_may_only_be_recommended() -> None:
    shed = Shed(operator=OperatorId("source"), keep=0.5, reason=WHY)
    done, held, _ = guarded(SHRINK, shed, options=Guardrails(only_recommend=("shed",)))
    assert (done, held) == ([SHRINK], ["only-recommended"])


def test_changes_within_an_hour_are_counted_by_cycles() -> None:
    options, memory = Guardrails(changes_per_hour=2, take_back=False), GuardMemory()
    codes = []
    for minute in (0, 10, 20, 61, 65):
        at = a_snapshot(time_s=60.0 * minute + 1)
        _, held, memory = guarded(SHRINK, options=options, at=at, memory=memory)
        codes.append(held)
    assert codes == [[], [], ["too-many-changes"], [], ["too-many-changes"]]


@pytest.mark.parametrize(("hour", "quiet"), [(21.9, False), (22.0, True), (3.0, True), (6.0, False)])
def test_quiet_hours_may_go_over_midnight(hour: float, quiet: bool) -> None:
    options = Guardrails(quiet_from_h=22, quiet_until_h=6)
    _, held, _ = guarded(SHRINK, options=options, at=a_snapshot(time_s=hour * 3600))
    assert held == (["quiet-hours"] if quiet else [])


def test_what_would_cost_too_much_is_not_bought() -> None:
    snapshot = a_snapshot()
    spent = float(snapshot.nodes.price_per_hour.sum())
    assert guarded(GROW, options=Guardrails(most_per_hour=spent + 1.0))[1] == ["over-the-budget"]
    assert guarded(GROW, options=Guardrails(most_per_hour=spent + 2.0))[1] == []
    assert guarded(SHRINK, options=Guardrails(most_per_hour=0.01))[1] == []


def seen(latency_s: float, *, rate_rps: float = 100.0, time_s: float = 100.0) -> Snapshot:
    """Latency of a goal with a bound of 1 s, with such a load."""
    snapshot = a_snapshot(time_s=time_s, demand_rps=rate_rps, latency_s=latency_s)
    bounds = np.full(len(snapshot.constraints), 1.0)
    return replace(snapshot, constraints=snapshot.constraints.with_columns(bound_s=bounds))


def test_what_made_a_goal_worse_is_taken_back_and_not_tried_again_for_a_while() -> None:
    options = Guardrails(ban_s=600)
    _, _, memory = guarded(SHRINK, options=options, at=seen(0.5))
    assert harmful(seen(0.9, time_s=105), memory, options).actions == (), "still within its bound"
    assert harmful(seen(2.0, rate_rps=300.0, time_s=105), memory, options).actions == (), (
        "the load explains it"
    )
    back = harmful(seen(2.0, time_s=105), memory, options).actions
    assert [(a.current, a.target) for a in back if isinstance(a, Scale)] == [(2, 3)]
    done, _, memory = guarded(
        *back, options=options, at=seen(2.0, time_s=105), memory=memory, policy=TAKE_BACK
    )
    assert done == list(back)
    assert harmful(seen(2.0, time_s=110), memory, options).actions == (), "once"
    _, held, memory = guarded(SHRINK, options=options, at=seen(0.5, time_s=300), memory=memory)
    assert held == ["made-things-worse-before"]
    _, held, _ = guarded(SHRINK, options=options, at=seen(0.5, time_s=706), memory=memory)
    assert held == []


def test_harm_long_after_an_action_is_not_put_down_to_it() -> None:
    options = Guardrails(watch_s=60)
    _, _, memory = guarded(SHRINK, options=options, at=seen(0.5))
    _, _, memory = guarded(options=options, at=seen(0.5, time_s=161), memory=memory)
    assert harmful(seen(5.0, time_s=165), memory, options).actions == ()


def test_only_what_takes_something_away_has_an_opposite() -> None:
    move = Move(operator=OperatorId("op"), index=1, source="a", target="b", reason=WHY)
    switch = Switch(operator=OperatorId("op"), current="full", target="quick", reason=WHY)
    assert GROW.undone(WHY) is None
    for action in (SHRINK, move, switch):
        undone = action.undone(WHY)
        assert undone is not None
        again = undone.undone(WHY)
        assert again is None or again == action
