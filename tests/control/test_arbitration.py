"""Who yields to whom: tables for each rule, properties against an oracle written separately, pair by pair."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.arbitration import Arbitration, ArbitrationMemory, arbitrate, settle
from penstock.control.plan import Plan, Planned, Withheld
from penstock.dataflow import OperatorId
from penstock.dataflow.graph import CHEAPEST_FIRST
from penstock.policies.actions import Acquire, Action, Expectation, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.policy import Notice, Proposal
from penstock.policies.reasons import Reason
from tests.control.strategies import KEEP, keeps_now, remedy_orders, some_proposals, the_snapshot

LATE = Reason(code="test")
FOR_FAST, FOR_SLOW = "fast", "slow"
"""The goal that an action serves."""
NEW = ArbitrationMemory()
USUAL = Arbitration()
DOWNSTREAM = {
    "in": {"in", "a", "b", "c", "out"},
    "a": {"a", "c", "out"},
    "b": {"b", "c", "out"},
    "c": {"c", "out"},
}


def scale(operator: str | None, target: int, goal: str | None = None, **more: object) -> Scale:
    return Scale(
        reason=LATE,
        goal=goal,
        operator=None if operator is None else OperatorId(operator),
        current=3,
        target=target,
        **more,
    )


def move(task: str, target: str, goal: str | None = None, **more: object) -> Move:
    operator, index = task.rstrip("]").split("[")
    source = "n0" if target != "n0" else "n1"
    return Move(
        reason=LATE,
        goal=goal,
        operator=OperatorId(operator),
        index=int(index),
        source=source,
        target=target,
        **more,
    )


def shed(stream: str, keep: float, goal: str | None = None) -> Shed:
    operator, _, target = stream.partition("->")
    return Shed(
        reason=LATE,
        goal=goal,
        operator=OperatorId(operator),
        target=OperatorId(target) if target else None,
        keep=keep,
    )


def switch(operator: str, target: str, goal: str | None = None) -> Switch:
    current = "good" if target == "fast" else "fast"
    return Switch(reason=LATE, goal=goal, operator=OperatorId(operator), current=current, target=target)


def plan_of(*proposals: tuple[str, Action] | Proposal, remedies=CHEAPEST_FIRST, keep=None) -> Plan:
    """The plan in a world that sheds only if the proposals are about that."""
    given_ = [p if isinstance(p, Proposal) else Proposal(policy=p[0], actions=(p[1],)) for p in proposals]
    sheds = any(isinstance(a, Shed) for p in given_ for a in p.actions)
    snapshot = the_snapshot(remedies, keep=(KEEP if sheds else {}) if keep is None else keep)
    return arbitrate(given_, snapshot, NEW, USUAL)[0]


def result(plan: Plan) -> tuple[list[Action], list[tuple[str, str]]]:
    """(actions of the plan, code and rule of those withheld)."""
    withheld = [(w.reason.code, str(w.reason.facts.get("rule", ""))) for w in plan.withheld]
    return [p.action for p in plan.actions], withheld


@pytest.mark.parametrize(
    ("winner", "loser", "rule"),
    [
        (scale("a", 6), scale("a", 4), "one-per-subject"),
        (scale("a", 4), scale("a", 2), "one-per-subject"),
        (scale("a", 2), scale("a", 1), "one-per-subject"),
        (shed("in->a", 0.2), shed("in->a", 0.5), "one-per-subject"),
        (shed("in->a", 0.5), shed("in->a", 1.0), "one-per-subject"),
        (switch("a", "fast"), switch("a", "good"), "one-per-subject"),
        (scale(None, 6), scale(None, 2), "one-per-subject"),
        (shed("in->a", 0.2), scale("a", 2), "relief-first"),
        (shed("in->a", 0.2), scale("c", 2), "relief-first"),
        (shed("in", 0.2), switch("c", "good"), "relief-first"),
        (shed("in", 0.2), Release(reason=LATE, node="n3"), "relief-first"),
        (shed("in", 0.2), scale(None, 2), "relief-first"),
        (scale("a", 6), switch("a", "good"), "relief-first"),
        (switch("a", "fast"), scale("a", 2), "relief-first"),
        (shed("in->a", 1.0), scale("a", 2), "undo-dearest-first"),
        (scale("a", 2), switch("a", "good"), "undo-dearest-first"),
        (shed("in", 1.0), switch("b", "good"), "undo-dearest-first"),
        (move("a[1]", "n2"), Release(reason=LATE, node="n2"), "node-in-use"),
        (move("a[2]", "n1"), scale("a", 2), "task-would-go"),
        (Acquire(reason=LATE, machine="standard"), Release(reason=LATE, node="n3"), "one-way-to-size-nodes"),
        (Acquire(reason=LATE, machine="standard"), scale(None, 2), "one-way-to-size-nodes"),
        (scale(None, 6), Release(reason=LATE, node="n3"), "one-way-to-size-nodes"),
    ],
)
def test_of_two_contradictory_actions_the_stronger_stays(winner: Action, loser: Action, rule: str) -> None:
    for given_ in ([("p", winner), ("q", loser)], [("p", loser), ("q", winner)]):
        kept, withheld = result(plan_of(*given_))
        assert kept == [winner]
        assert withheld == [("contradicts", rule)]
    together = Proposal(policy="p", actions=(loser, winner))
    assert result(plan_of(together)) == ([winner], [("contradicts", rule)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (scale("a", 6), shed("in->a", 1.0)),  # more tasks are what shedding less needs
        (shed("in", 0.2), shed("in->a", 1.0)),  # keep shares of several streams are set together
        (scale("a", 6), scale("b", 1)),
        (move("a[0]", "n2"), scale("a", 2)),  # the moved task stays
        (move("a[1]", "n2"), Release(reason=LATE, node="n1")),
        (switch("a", "fast"), shed("in->b", 1.0)),
        (Acquire(reason=LATE, machine="large"), Release(reason=LATE, node="n3")),
        (Pace(reason=LATE, stream="in->a", deadline_s=0.1), scale("a", 2)),
    ],
)
def test_what_goes_together_is_planned_together(one: Action, other: Action) -> None:
    kept, withheld = result(plan_of(Proposal(policy="p", actions=(one, other))))
    assert (sorted(kept, key=repr), withheld) == (sorted([one, other], key=repr), [])


def test_two_policies_that_want_the_same_are_no_contradiction() -> None:
    plan = plan_of(("p", scale("a", 6, FOR_FAST)), ("q", scale("a", 6, FOR_SLOW)))
    assert [p.policy for p in plan.actions] == ["p"]
    assert [w.reason.code for w in plan.withheld] == ["already-planned"]


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (scale("nobody", 4), "no-such-operator"),
        (scale("a", 9), "out-of-bounds"),
        (Switch(reason=LATE, operator=OperatorId("a"), current="good", target="best"), "no-such-alternate"),
        (move("a[0]", "n9"), "no-such-node"),
        (Release(reason=LATE, node="n9"), "no-such-node"),
        (shed("in->nobody", 0.5), "no-such-operator"),
    ],
)
def test_what_cannot_be_done_is_withheld(action: Action, code: str) -> None:
    assert result(plan_of(("p", action))) == ([], [(code, "")])


CHEAP_TO_DEAR = [
    ("mover", move("a[0]", "n2", FOR_FAST)),
    ("switcher", switch("a", "fast", FOR_FAST)),
    ("elastic", scale("a", 6, FOR_FAST)),
    ("shedder", shed("in->a", 0.2, FOR_FAST)),
]


@pytest.mark.parametrize(("cheap", "dear"), list(combinations(CHEAP_TO_DEAR, 2)))
def test_the_dearer_remedy_waits_for_the_cheaper_one(cheap, dear) -> None:
    assert result(plan_of(dear, cheap)) == ([cheap[1]], [("yields-to-cheaper", "")])


@pytest.mark.parametrize(("dear", "cheap"), list(combinations(CHEAP_TO_DEAR, 2)))
def test_the_user_may_turn_the_order_round(cheap, dear) -> None:
    plan = plan_of(dear, cheap, remedies=("shed", "scale", "switch", "move"))
    assert result(plan) == ([cheap[1]], [("yields-to-cheaper", "")])


def test_remedies_for_other_operators_and_goals_do_not_wait() -> None:
    apart = plan_of(("mover", move("a[0]", "n2", FOR_FAST)), ("elastic", scale("b", 6, FOR_SLOW)))
    assert (len(apart.actions), apart.withheld) == (2, ())


def test_shedding_bridges_the_time_until_nodes_come() -> None:
    more, less = scale(None, 6), shed("in->b", 0.2)
    assert result(plan_of(("p", less), ("q", more))) == ([more, less], [])


@pytest.mark.parametrize(
    ("cheap", "dear"),
    [
        (move("a[0]", "n2", FOR_FAST), scale("c", 6, FOR_FAST)),  # one goal, different operators
        (move("c[0]", "n2", FOR_FAST), scale("c", 6, FOR_SLOW)),  # different goals, one operator
        (move("c[0]", "n2"), shed("in->b", 0.2)),  # b feeds c
        (move("a[0]", "n2"), Acquire(reason=LATE, machine="standard")),  # nodes serve every operator
        (scale("c", 6), shed("in->b", 0.2)),
    ],
)
def test_a_common_operator_or_goal_is_the_same_need(cheap: Action, dear: Action) -> None:
    assert result(plan_of(("p", dear), ("q", cheap))) == ([cheap], [("yields-to-cheaper", "")])


def test_a_dearer_remedy_also_waits_for_a_cheaper_one_that_rests() -> None:
    still = Reason(code="cooling-down", facts={"left_s": 5.0})
    rests = [Withheld(action=scale("a", 6, FOR_FAST), policy="elastic", reason=still)]
    dear = [Proposal(policy="shedder", actions=(shed("in->a", 0.2, FOR_FAST),))]
    plan, _ = arbitrate(dear, the_snapshot(), NEW, USUAL, resting=rests)
    assert result(plan) == ([], [("settling", "")])
    gives_up = [Proposal(policy="elastic", notices=(Notice(goal="fast", reason=LATE),)), *dear]
    plan, _ = arbitrate(gives_up, the_snapshot(), NEW, USUAL, resting=rests)
    assert len(plan.actions) == 1


def test_the_actions_of_one_policy_belong_together() -> None:
    both = Proposal(policy="p", actions=(move("a[0]", "n2", FOR_FAST), scale("a", 6, FOR_FAST)))
    assert len(plan_of(both).actions) == 2


def test_giving_back_never_waits_for_a_remedy() -> None:
    kept, withheld = result(plan_of(("mover", move("a[0]", "n2")), ("shedder", shed("in->a", 1.0))))
    assert (len(kept), withheld) == (2, [])


def test_a_cheaper_remedy_that_gives_up_holds_nobody_up() -> None:
    gave_up = Proposal(
        policy="mover",
        actions=(move("a[0]", "n2", FOR_FAST),),
        notices=(Notice(goal="fast", reason=Reason(code="test")),),
    )
    plan = plan_of(gave_up, ("elastic", scale("a", 6, FOR_FAST)))
    assert len(plan.actions) == 2
    assert plan.notices == gave_up.notices


def test_a_cheaper_remedy_that_promises_too_little_holds_nobody_up() -> None:
    def promising(latency_s: float) -> Move:
        return move(
            "a[0]",
            "n2",
            FOR_FAST,
            expects=Expectation(metric="latency_s", subject="fast", value=latency_s, within_s=5),
        )

    dear = ("elastic", scale("a", 6, FOR_FAST))
    assert len(plan_of(("mover", promising(0.08)), dear).actions) == 2  # the bound is 50 ms
    assert len(plan_of(("mover", promising(0.04)), dear).actions) == 1


def test_a_dearer_remedy_lets_a_cheaper_one_settle_and_then_goes_ahead() -> None:
    """The trace of five cycles: the move at 100 s promised an effect within 10 s."""
    promised = Expectation(metric="latency_s", subject="fast", value=0.04, within_s=10)
    cheap = Proposal(policy="mover", actions=(move("a[0]", "n2", FOR_FAST, expects=promised),))
    dear = Proposal(policy="elastic", actions=(scale("a", 6, FOR_FAST),))
    snapshot = the_snapshot(time_s=100)
    plan, memory = arbitrate([cheap], snapshot, NEW, USUAL)
    memory = settle(memory, plan.actions, snapshot)
    trace = []
    for time_s in (105.0, 110.0, 115.0):
        plan, memory = arbitrate([dear], the_snapshot(time_s=time_s), memory, USUAL)
        trace.append([w.reason.code for w in plan.withheld] or [p.action.kind for p in plan.actions])
    assert trace == [["settling"], ["settling"], ["scale"]]


def test_patience_ends_although_cheaper_remedies_keep_coming() -> None:
    memory, trace = NEW, []
    for cycle in range(9):
        snapshot = the_snapshot(time_s=100 + 5.0 * cycle)
        proposals = [
            Proposal(policy="mover", actions=(move(f"a[{cycle % 3}]", "n2", FOR_FAST),)),
            Proposal(policy="shedder", actions=(shed("in->a", 0.2, FOR_FAST),)),
        ]
        plan, memory = arbitrate(proposals, snapshot, memory, USUAL)
        memory = settle(memory, plan.actions, snapshot)
        trace.append("shed" in [p.action.kind for p in plan.actions])
    assert trace == [False] * USUAL.patience + [True] * (9 - USUAL.patience)


@pytest.mark.parametrize(
    ("action", "waits"),
    [
        (scale("a", 2), True),
        (scale("c", 2), True),  # downstream of a
        (scale("b", 2), False),
        (switch("a", "good"), True),
        (scale(None, 2), True),
        (scale("a", 6), False),
        (move("a[0]", "n2"), False),
        (Release(reason=LATE, node="n3"), False),  # may be a matter of money
    ],
)
def test_nothing_is_cut_back_while_records_are_still_being_shed(action: Action, waits: bool) -> None:
    plan = plan_of(("p", action), keep={"in->a": 0.7})
    assert result(plan) == (([], [("still-shedding", "")]) if waits else ([action], []))
    assert plan_of(("p", action), keep={}).withheld == ()


def test_unless_the_user_calls_shedding_the_cheaper_remedy() -> None:
    plan = plan_of(("p", scale("a", 2)), keep={"in->a": 0.7}, remedies=("shed", "move", "switch", "scale"))
    assert result(plan) == ([scale("a", 2)], [])


def gives_back(action: Action, keep: Mapping[str, float]) -> bool:
    match action:
        case Scale():
            return action.target < action.current
        case Shed():
            return action.keep > keep.get(action.subject, 1.0)
        case Switch():
            return action.target == "good"
    return isinstance(action, Release)


def touches(action: Action) -> set[str]:
    match action:
        case Scale() | Switch():
            return {action.operator} if action.operator else set()
        case Shed():
            return DOWNSTREAM.get(action.target or action.operator, {action.target or action.operator})
    return set()


def contradict(a: Action, b: Action, keep: Mapping[str, float]) -> bool:
    """The rules of docs/guide/control-loop.md, pair by pair."""
    if (a.kind, a.subject) == (b.kind, b.subject):
        return True
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Move):
            if isinstance(other, Release) and other.node == one.target:
                return True
            if isinstance(other, Scale) and other.operator == one.operator and one.index >= other.target:
                return True
        sizes_by_class = isinstance(one, Acquire | Release)
        if sizes_by_class and isinstance(other, Scale) and other.operator is None:
            return True
        if isinstance(one, Acquire) and isinstance(other, Release):
            return True  # all nodes are of one class here
        relieves, returns = not gives_back(one, keep), gives_back(other, keep)
        shrinks_nodes = isinstance(other, Release) or (isinstance(other, Scale) and other.operator is None)
        if isinstance(one, Shed) and relieves and shrinks_nodes and returns:
            return True
        if (
            touches(one) & touches(other)
            and returns
            and (not isinstance(other, Shed) if relieves else one.kind != other.kind)
        ):
            return True
    return False


@given(some_proposals(), remedy_orders, keeps_now)
@settings(max_examples=400, deadline=None)
def test_a_plan_never_contradicts_itself(proposals, remedies, keep) -> None:
    plan, _ = arbitrate(proposals, the_snapshot(remedies, keep=keep), NEW, USUAL)
    for one, other in combinations([p.action for p in plan.actions], 2):
        assert not contradict(one, other, keep), (one, other)


@given(some_proposals(), remedy_orders, keeps_now)
@settings(max_examples=300, deadline=None)
def test_every_action_is_planned_or_withheld_with_a_reason(proposals, remedies, keep) -> None:
    plan, _ = arbitrate(proposals, the_snapshot(remedies, keep=keep), NEW, USUAL)
    proposed = sorted(repr((p.policy, a)) for p in proposals for a in p.actions)
    answered = [repr((x.policy, x.action)) for x in (*plan.actions, *plan.withheld)]
    assert sorted(answered) == proposed
    assert all(w.reason.code for w in plan.withheld)


@given(some_proposals(), remedy_orders, keeps_now)
@settings(max_examples=300, deadline=None)
def test_a_withheld_action_has_a_cause_in_the_plan(proposals, remedies, keep) -> None:
    """Nothing is withheld as contradicting unless it does contradict something that is planned."""
    plan, _ = arbitrate(proposals, the_snapshot(remedies, keep=keep), NEW, USUAL)
    for withheld in plan.withheld:
        if withheld.reason.code in ("contradicts", "already-planned"):
            assert any(contradict(withheld.action, p.action, keep) for p in plan.actions)


@given(some_proposals(), keeps_now, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_the_order_within_a_proposal_does_not_matter(proposals, keep, chance) -> None:
    mixed = [replace(p, actions=tuple(sorted(p.actions, key=lambda _: chance.random()))) for p in proposals]
    first, _ = arbitrate(proposals, the_snapshot(keep=keep), NEW, USUAL)
    second, _ = arbitrate(mixed, the_snapshot(keep=keep), NEW, USUAL)
    assert [effect_of(p) for p in first.actions] == [effect_of(p) for p in second.actions]


def effect_of(planned: Planned) -> tuple[str, Action]:
    return planned.policy, replace(planned.action, reason=LATE, expects=None)


@given(some_proposals(), remedy_orders, keeps_now)
@settings(max_examples=300, deadline=None)
def test_a_plan_proposed_again_is_the_same_plan(proposals, remedies, keep) -> None:
    snapshot = the_snapshot(remedies, keep=keep)
    plan, _ = arbitrate(proposals, snapshot, NEW, USUAL)
    again = [
        replace(p, actions=tuple(planned.action for planned in plan.actions if planned.policy == p.policy))
        for p in proposals
    ]
    second, _ = arbitrate(again, snapshot, NEW, USUAL)
    assert second.actions == plan.actions
    assert not second.withheld
