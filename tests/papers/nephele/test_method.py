"""The paper's method: bottlenecks doubled, else rebalanced; rests after growing; says what it cannot do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.policies.actions import Pace, Scale
from penstock.policies.policy import Proposal
from penstock.telemetry import Snapshot
from penstock.testing import a_dataflow, a_snapshot
from penstock_papers.nephele.method import Reactive, ReactiveOptions

OPTIONS = ReactiveOptions(batching=False)


def decided(snapshot: Snapshot) -> Proposal:
    return Reactive().decide(snapshot, Reactive().start(OPTIONS), OPTIONS)[0]


def target(proposal: Proposal) -> int | None:
    return next((a.target for a in proposal.actions if isinstance(a, Scale) and a.operator == "work"), None)


def test_a_bottleneck_is_doubled() -> None:
    proposal = decided(a_snapshot(utilisation=0.97, parallelism=3))
    assert target(proposal) == 6
    assert proposal.actions[0].reason.code == "bottleneck"


def test_a_bottleneck_at_its_maximum_is_told() -> None:
    proposal = decided(a_snapshot(a_dataflow(parallelism=(1, 3)), utilisation=0.99, parallelism=3))
    assert target(proposal) is None
    assert [n.reason.code for n in proposal.notices] == ["bottleneck-at-limit"]


def test_rests_two_intervals_after_growing() -> None:
    policy, memory = Reactive(), Reactive().start(OPTIONS)
    busy = a_snapshot(utilisation=0.97, parallelism=3)
    acted = []
    for cycle in range(1, 6):
        proposal, memory = policy.decide(replace(busy, time_s=5.0 * cycle), memory, OPTIONS)
        acted.append(bool(proposal.actions))
    assert acted == [True, False, True, False, True]


def test_gives_back_what_the_bound_does_not_need() -> None:
    assert (target(decided(a_snapshot(demand_rps=50, utilisation=0.05, parallelism=20))) or 20) < 5


def test_an_impossible_bound_is_told() -> None:
    proposal = decided(a_snapshot(a_dataflow(bound_ms=0.1), utilisation=0.5))
    assert [n.reason.code for n in proposal.notices] == ["tasks-slower-than-bound"]


def test_silence_and_nonsense_change_nothing() -> None:
    assert not decided(a_snapshot(demand_rps=0, utilisation=0, latency_s=None)).actions
    good = a_snapshot()
    nan = np.full(len(good.tasks), np.nan)
    moments = type(good.tasks.service_s)(nan, nan, nan)
    broken = replace(good, tasks=good.tasks.with_columns(service_s=moments, interarrival_s=moments))
    assert all(1 <= a.target <= 100 for a in decided(broken).actions if isinstance(a, Scale))


def test_batches_fill_what_is_left_of_the_bound() -> None:
    policy, options = Reactive(), ReactiveOptions()
    snapshot = a_snapshot(a_dataflow(bound_ms=50), utilisation=0.3)
    snapshot = replace(snapshot, streams=snapshot.streams.with_columns(deadline_s=np.full(2, 0.5)))
    proposal, _ = policy.decide(snapshot, policy.start(options), options)
    for pace in (a for a in proposal.actions if isinstance(a, Pace)):
        assert pace.deadline_s < 0.05
