"""The proactive policy: bounds held with few tasks, ahead of what can be foreseen, and clear words at the limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.codec import pack, unpack
from penstock.dataflow import Constraint, OperatorId, constant, staircase
from penstock.dataflow import Sequence as OperatorSequence
from penstock.policies.actions import Scale
from penstock.policies.elasticity import Elasticity, ElasticityMemory, ElasticityOptions, Proactive
from penstock.policies.policy import Proposal
from penstock.telemetry import Batches, Snapshot
from penstock.testing import a_dataflow, a_snapshot
from tests.policies.elasticity.scenes import a_line, codes, held, played, sizes

OPTIONS = ElasticityOptions()


def decided(snapshot: Snapshot, options: ElasticityOptions = OPTIONS, cycles: int = 3) -> Proposal:
    """What the policy says after it has seen the same thing a few times."""
    policy = Proactive()
    memory = policy.start(options)
    for cycle in range(cycles):
        seen = replace(snapshot, time_s=snapshot.interval_s * (cycle + 1))
        proposal, memory = policy.decide(seen, memory, options)
    return proposal


def wanted(proposal: Proposal, operator: str = "work") -> int | None:
    found = [a.target for a in proposal.actions if isinstance(a, Scale) and a.operator == operator]
    return found[0] if found else None


def test_constant_load_settles_and_stays() -> None:
    scene = played(a_line(constant(800), mean_ms=50), Elasticity(), OPTIONS, 90)
    late = sizes(scene)[45:]
    assert held(scene, after_s=20) == 1.0
    assert max(late) - min(late) <= 1, "it does not see-saw"
    assert max(late) <= 13, "800/s of 10 ms keep 8 tasks busy"


def test_a_repeated_step_is_met_before_it_comes() -> None:
    load = staircase([(30, 200), (30, 900)], repeat=True)
    scene = played(a_line(load, mean_ms=50), Elasticity(), OPTIONS, 240)
    before = [s for _, s in scene if 209 < s.time_s <= 210]  # the fourth rise, of which three were seen
    assert sizes([(scene[0][0], s) for s in before])[0] >= 9
    assert held(scene, after_s=180) > 0.95
    assert "foreseen-load" in codes(scene)


def test_a_breach_that_nobody_could_foresee_is_short() -> None:
    load = staircase([(30, 200), (60, 800)])
    scene = played(a_line(load, mean_ms=50), Elasticity(), OPTIONS, 60)
    assert "drain" in codes(scene)
    assert held(scene, after_s=45) == 1.0


def test_falling_load_gives_tasks_back_after_patience() -> None:
    load = staircase([(40, 900), (60, 100)])
    found = dict(
        zip(
            range(1, 91),
            sizes(played(a_line(load, mean_ms=50), Elasticity(), OPTIONS, 90)),
            strict=True,
        )
    )
    assert found[43] >= 9, "not in the first seconds"
    assert found[65] <= 4


def test_a_percentile_needs_more_than_a_mean() -> None:
    def settled(**bound: float) -> int:
        return sizes(played(a_line(constant(600), **bound), Elasticity(), OPTIONS, 60))[-1]

    scene = played(a_line(constant(600), p95_ms=30), Elasticity(), OPTIONS, 60)
    assert held(scene, after_s=30) > 0.95
    assert settled(p95_ms=30) > settled(mean_ms=30)


def test_a_budget_caps_the_tasks_and_says_what_would_do() -> None:
    # 8 cores for 0.8 an hour: 0.6 buys 6 of them, and source and sink need one each.
    line = a_line(constant(800), mean_ms=50, budget_per_hour=0.6)
    scene = played(line, Elasticity(), OPTIONS, 40, price_per_hour=0.8)
    assert max(sizes(scene)) == 4
    notices = {n.reason.code: n for n in scene[-1][0].plan.notices}
    assert notices["over-budget"].reason.facts["tasks_affordable"] == 4
    assert "a budget of" in notices["over-budget"].helps


def test_overlapping_constraints_get_the_stricter_size() -> None:
    flow = a_dataflow("in", "a", "b", "out", bound_ms=None)

    def bounded(*bounds: tuple[str, float]) -> Proposal:
        constraints = tuple(
            Constraint(name=s, sequence=OperatorSequence.parse(s), bound_ms=ms) for s, ms in bounds
        )
        return decided(a_snapshot(replace(flow, constraints=constraints), utilisation=0.8, demand_rps=400))

    loose, strict = ("-> a -> b", 60.0), ("-> b", 12.0)
    together = bounded(loose, strict)
    for operator in ("a", "b"):
        alone = [wanted(bounded(each), operator) or 0 for each in (loose, strict)]
        assert (wanted(together, operator) or 0) >= max(alone)


def test_an_impossible_bound_is_told_and_does_not_buy_useless_tasks() -> None:
    # Service takes 3.2 ms: no number of tasks brings that below 1 ms.
    proposal = decided(a_snapshot(a_dataflow(bound_ms=1), utilisation=0.8))
    (notice,) = proposal.notices
    assert notice.reason.code == "tasks-slower-than-bound"
    assert "bound above" in notice.helps
    assert (wanted(proposal) or 2) < 10


def test_a_bound_out_of_reach_of_the_maximum_is_told_with_what_would_reach_it() -> None:
    flow = a_dataflow(parallelism=(1, 3), bound_ms=8)
    proposal = decided(a_snapshot(flow, demand_rps=900, utilisation=0.95, parallelism=3))
    (notice,) = proposal.notices
    assert notice.reason.code == "bound-out-of-reach"
    assert int(notice.reason.facts["tasks_needed"] or 0) > 3
    assert wanted(proposal) is None, "it is at its maximum already"


def test_at_the_minimum_nothing_is_given_back() -> None:
    proposal = decided(a_snapshot(demand_rps=1, utilisation=0.001, parallelism=1), cycles=30)
    assert wanted(proposal) is None


def test_no_traffic_no_action() -> None:
    silent = a_snapshot(demand_rps=0, utilisation=0.0, latency_s=None)
    assert decided(silent, cycles=20) == Proposal(policy="elasticity")


def test_numbers_that_are_not_numbers_are_not_believed() -> None:
    good = a_snapshot(demand_rps=500, utilisation=0.6)
    nan = np.full(len(good.tasks), np.nan)
    moments = type(good.tasks.service_s)(nan, nan, nan)
    broken = replace(
        good,
        tasks=good.tasks.with_columns(
            arrived=nan, processed=nan, queued=nan, busy_s=nan, service_s=moments, interarrival_s=moments,
            latency_s=moments,
        ),
        sources=good.sources.with_columns(produced_rps=np.array([np.nan])),
        streams=good.streams.with_columns(records=np.full(2, np.nan)),
    )  # fmt: skip
    policy, memory = Proactive(), Proactive().start(OPTIONS)
    for t in range(1, 5):
        _, memory = policy.decide(replace(good, time_s=5.0 * t), memory, OPTIONS)
    proposal, memory = policy.decide(replace(broken, time_s=25.0), memory, OPTIONS)
    assert wanted(proposal) is None or 1 <= (wanted(proposal) or 0) <= 4
    assert memory.learnt is not None
    assert np.all(np.isfinite(memory.learnt.service_s.mean))


def test_a_vanished_operator_starts_afresh() -> None:
    policy, memory = Proactive(), Proactive().start(OPTIONS)
    _, memory = policy.decide(a_snapshot(a_dataflow("in", "a", "b", "out"), time_s=5.0), memory, OPTIONS)
    proposal, memory = policy.decide(a_snapshot(a_dataflow("in", "a", "out"), time_s=10.0), memory, OPTIONS)
    assert memory.operators == ("in", "a", "out")
    assert all(a.operator == OperatorId("a") for a in proposal.actions if isinstance(a, Scale))


def test_where_the_runtime_works_in_batches_nodes_are_scaled() -> None:
    batches = Batches(
        id=np.arange(3),
        records=np.full(3, 5000.0),
        duration_s=np.full(3, 9.0),
        fixed_s=np.full(3, 0.2),
        busy_s=np.full(3, np.nan),
        interval_s=0.0,
    )
    memory = Elasticity().start(OPTIONS)
    for time_s in (5.0, 20.0):
        snapshot = a_snapshot(batches=batches, backlog_records=50_000.0, time_s=time_s)
        proposal, memory = Elasticity().decide(snapshot, memory, OPTIONS)
    assert all(isinstance(a, Scale) and a.operator is None for a in proposal.actions)
    assert memory.nodes.costs[""].known
    assert memory.tasks.learnt is None


def test_memory_survives_the_journal() -> None:
    policy, memory = Elasticity(), Elasticity().start(OPTIONS)
    for t in range(1, 40):
        _, memory = policy.decide(a_snapshot(time_s=5.0 * t, demand_rps=400.0 + t), memory, OPTIONS)
    again = unpack(ElasticityMemory, pack(ElasticityMemory, memory))
    snapshot = a_snapshot(time_s=200.0, demand_rps=900.0, utilisation=0.9)
    first, second = (policy.decide(snapshot, m, OPTIONS)[0] for m in (memory, again))
    assert first == second


@given(
    demand=st.floats(1, 5000),
    more=st.floats(1.0, 4.0),
    utilisation=st.floats(0.05, 0.9),
    bound=st.floats(5, 500),
)
@settings(max_examples=60)
def test_more_demand_never_wants_fewer_tasks(
    demand: float, more: float, utilisation: float, bound: float
) -> None:
    flow = a_dataflow(bound_ms=bound, parallelism=(1, 200))
    less = a_snapshot(flow, demand_rps=demand, utilisation=utilisation, parallelism=4)
    sources = less.sources.with_columns(produced_rps=less.sources.produced_rps * more)
    few, many = decided(less), decided(replace(less, sources=sources))
    assert (wanted(many) or 4) >= (wanted(few) or 4)


@given(
    demand=st.floats(0, 20_000),
    utilisation=st.floats(0, 1),
    tasks=st.integers(1, 7),
    bound=st.floats(0.5, 500),
)
@settings(max_examples=60)
def test_plans_respect_the_bounds(demand: float, utilisation: float, tasks: int, bound: float) -> None:
    flow = a_dataflow(bound_ms=bound, parallelism=(1, 7))
    proposal = decided(a_snapshot(flow, demand_rps=demand, utilisation=utilisation, parallelism=tasks))
    for action in proposal.actions:
        if isinstance(action, Scale):
            assert 1 <= action.target <= 7


@pytest.mark.parametrize("most", [1, 3, 10])
def test_a_cap_on_tasks_is_kept(most: int) -> None:
    flow = a_dataflow("in", "a", "b", "out", bound_ms=20, parallelism=(1, 50))
    snapshot = a_snapshot(flow, demand_rps=2000, utilisation=0.9, parallelism={"in": 1, "out": 1})
    proposal = decided(snapshot, replace(OPTIONS, max_tasks=most))
    now = {"a": 2, "b": 2} | {
        str(a.operator): a.target for a in proposal.actions if isinstance(a, Scale) and a.operator
    }
    assert now["a"] + now["b"] <= max(most, 2), "each operator has at least one"
