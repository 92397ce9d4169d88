"""What others do: sizes that follow their own rule, and nothing of latency."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.dataflow import constant
from penstock.policies.actions import Scale
from penstock.policies.policy import Proposal
from penstock.testing import a_snapshot
from penstock_papers.rivals.autoscalers import (
    Ds2,
    Ds2Options,
    Fixed,
    FixedOptions,
    Threshold,
    ThresholdOptions,
)
from tests.policies.elasticity.scenes import a_line, played, sizes


def target(proposal: Proposal) -> int | None:
    return next((a.target for a in proposal.actions if isinstance(a, Scale) and a.operator == "work"), None)


def test_fixed_stays() -> None:
    policy, options = Fixed(), FixedOptions(tasks=7)
    proposal, _ = policy.decide(a_snapshot(parallelism=2), policy.start(options), options)
    assert target(proposal) == 7
    assert not policy.decide(a_snapshot(parallelism=7), policy.start(options), options)[0].actions


@pytest.mark.parametrize(("utilisation", "wanted"), [(0.7, None), (0.74, None), (0.95, 6), (0.35, 2)])
def test_threshold_is_proportional_outside_its_band(utilisation: float, wanted: int | None) -> None:
    policy, options = Threshold(), ThresholdOptions()
    snapshot = a_snapshot(parallelism=4, utilisation=utilisation)
    assert target(policy.decide(snapshot, policy.start(options), options)[0]) == wanted


def test_threshold_remembers_the_largest_of_late() -> None:
    policy, options = Threshold(), ThresholdOptions()
    memory = policy.start(options)
    _, memory = policy.decide(a_snapshot(parallelism=4, utilisation=0.95, time_s=5.0), memory, options)
    quiet = a_snapshot(parallelism=6, utilisation=0.2)
    held, _ = policy.decide(replace(quiet, time_s=20.0), memory, options)
    assert target(held) is None
    shrunk, _ = policy.decide(replace(quiet, time_s=60.0), memory, options)
    assert target(shrunk) == 2


def test_ds2_finds_the_size_from_true_rates_in_one_step() -> None:
    # 600/s of 10 ms keep 6 tasks busy; at 70 % that is 9.
    scene = played(a_line(constant(600), mean_ms=50), Ds2(), Ds2Options(), 120, interval_s=5.0)
    assert sizes(scene)[-1] in (9, 10)


def test_ds2_sees_through_a_bottleneck() -> None:
    # Two tasks process 200/s at most; the 900/s that come are seen at the source.
    scene = played(a_line(constant(900), mean_ms=50), Ds2(), Ds2Options(), 10, interval_s=5.0)
    assert sizes(scene)[-1] >= 13
