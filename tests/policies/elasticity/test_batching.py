"""Trigger intervals and read limits: within the bound, never in a query's way, and still once they fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.api.choices import choose_policies
from penstock.control import Cycle, Loop, Settings
from penstock.dataflow import Load, constant, staircase
from penstock.dataflow.graph import Statistic
from penstock.policies.actions import Limit, Pace
from penstock.policies.elasticity import NodeOptions
from penstock.policies.elasticity.batching import LEAST_USEFUL, Situation, drained_s
from penstock.policies.elasticity.microbatch import BatchCost
from penstock.simulator import SimulatedClock
from penstock.simulator.microbatch import MicrobatchRuntime
from penstock.telemetry import Snapshot
from tests.simulator.microbatches import a_query, application, engine_of

OPTIONS = NodeOptions()


@st.composite
def any_situation(draw: st.DrawFn) -> Situation:
    overhead_s, record_s = draw(st.floats(0.02, 2.0)), draw(st.floats(1e-5, 1e-2))
    cost = BatchCost()
    for records in (100.0, 1000.0, 400.0, 2000.0):
        cost = cost.add(records, overhead_s + record_s * records, overhead_s, record_s * records, 1.0)
    statistic: Statistic = draw(st.sampled_from(["mean", "p95", "p99"]))
    (constraint,) = a_query("q", bound_ms=draw(st.floats(200, 60_000)), statistic=statistic).constraints
    own_s = draw(st.sampled_from([0.0, 0.5, 3.0]))
    return Situation(
        constraint=constraint,
        cost=cost,
        rate_rps=draw(st.floats(0, 3000)),
        cores=draw(st.floats(0.5, 8.0)),
        interval_s=own_s * draw(st.sampled_from([1.0, 2.0])),
        own_interval_s=own_s,
        keep=draw(st.sampled_from([1.0, 0.3])),
        startup_s=draw(st.sampled_from([0.0, 6.0])),
        may_grow=draw(st.booleans()),
    )


@given(any_situation())
def test_a_longer_interval_never_takes_more_than_its_share_of_the_bound(one: Situation) -> None:
    interval_s = one.longest_interval_s(OPTIONS)
    assert interval_s >= one.own_interval_s
    if interval_s > one.own_interval_s:
        assert one.predicted_s(interval_s) <= OPTIONS.pace_share * one.bound_s * (1 + 1e-9)


@given(any_situation(), st.floats(0.01, 10))
def test_records_that_were_later_than_predicted_shorten_it(one: Situation, excess_s: float) -> None:
    assert one.longest_interval_s(OPTIONS, excess_s) <= one.longest_interval_s(OPTIONS)


@given(any_situation())
def test_a_limit_never_holds_back_a_query_that_can_keep_up(one: Situation) -> None:
    steady_s = one.steady_s(one.interval_s, one.keep)
    assume(np.isfinite(steady_s))
    assume(not one.may_grow)
    assert one.most_records >= one.rate_rps * steady_s
    assert one.most_records / max(one.batch_s, 1e-9) >= one.rate_rps * (1 - 1e-9) or one.interval_s > 0


@given(any_situation())
def test_a_bounded_batch_lasts_half_the_bound_or_what_keeping_up_takes(one: Situation) -> None:
    steady_s = one.steady_s(one.interval_s, one.keep)
    least_s = max(one.bound_s / 2, LEAST_USEFUL * one.overhead_s)
    needed_s = 1.25 * steady_s if np.isfinite(steady_s) else 0.0
    assert one.batch_s <= max(least_s, one.overhead_s + needed_s) * (1 + 1e-9)
    assert one.batch_s >= least_s * (1 - 1e-9)


@given(any_situation(), st.floats(0, 1e6), st.floats(0, 1e6))
def test_more_backlog_never_takes_less_time(one: Situation, backlog: float, more: float) -> None:
    assert drained_s(one, backlog) <= drained_s(one, backlog + more)


def run(
    load: Load, bound_ms: float, seconds: float, *, pacing: bool = True, **engine: object
) -> list[Snapshot]:
    """The policy on the micro-batch simulator, cycle by cycle."""
    runtime = application({"q": load}, {"q": bound_ms}, **engine)  # type: ignore[arg-type]
    return [s for s, _ in steered(runtime, seconds, pacing=pacing)]


def steered(
    runtime: MicrobatchRuntime, seconds: float, *, pacing: bool = True
) -> list[tuple[Snapshot, list[Pace | Limit]]]:
    seen: list[tuple[Snapshot, list[Pace | Limit]]] = []

    def note(cycle: Cycle, snapshot: Snapshot | None) -> None:
        assert snapshot is not None
        seen.append((snapshot, [p.action for p in cycle.plan.actions if isinstance(p.action, Pace | Limit)]))

    loop = Loop(
        runtime,
        choose_policies(["elasticity"], {"elasticity.pacing": pacing}),
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=2.0),
        subscribers=[note],
    )
    loop.run(for_s=seconds)
    assert not loop.faults
    return seen


def test_a_low_load_gets_longer_intervals_and_settles() -> None:
    runtime = application({"q": constant(50)}, {"q": 5e3}, limit=1)
    cycles = steered(runtime, 240)
    assert not [a for _, actions in cycles[60:] for a in actions], "constant load settles"
    calm = [s for s, _ in cycles[60:]]
    assert all(s.constraints.held[0] for s in calm)
    assert calm[-1].queries.interval_s[0] >= 2.0
    batches = sum(len(s.batches) for s in calm if s.batches is not None)
    stock = run(constant(50), 5e3, 240, pacing=False, limit=1)[60:]
    assert batches <= 0.25 * sum(len(s.batches) for s in stock if s.batches is not None)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_backlog_of_two_minutes_goes_in_bounded_batches_in_the_time_foretold(seed: int) -> None:
    burst = staircase([(120, 300), (1, 36_000), (400, 300)])
    longest, gone_s = {}, {}
    for pacing in (True, False):
        seen = run(burst, 8e3, 400, pacing=pacing, limit=1, seed=seed, noise=0.05)
        after = [s for s in seen if s.time_s > 118]
        longest[pacing] = max(s.batches.duration_s.max(initial=0.0) for s in after if s.batches is not None)
        gone_s[pacing] = next(
            s.time_s - 121 for s in after if s.time_s > 130 and s.sources.backlog_records[0] < 900
        )
    assert longest[False] > 20, "stock Spark reads everything at once"
    assert longest[True] <= 4.0 * 1.2, "half the bound, and what the model does not know"
    worked_rps = 1000 * (4.0 - 0.3) / 4.0
    assert gone_s[True] == pytest.approx(36_000 / (worked_rps - 300), rel=0.2)


def test_a_step_while_executors_start_meets_no_batch_that_holds_everything() -> None:
    step = staircase([(60, 100), (90, 300), (90, 100)])
    longest: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(4):
        for pacing, found in longest.items():
            seen = run(step, 8e3, 240, pacing=pacing, record_s=1 / 150, limit=3, partitions=6, seed=seed)
            found.append(max(s.batches.duration_s.max(initial=0.0) for s in seen if s.batches is not None))
    # Half the bound is 4 s; new executors are slow at first, which no limit can know beforehand.
    assert max(longest[True]) <= 4.0 * 1.75
    assert np.mean(longest[True]) < 0.85 * np.mean(longest[False])


def test_the_owner_s_own_pace_is_the_limit() -> None:
    engine = engine_of(a_query("q", bound_ms=8e3), ["q"])
    (query,) = engine.queries
    owned = replace(engine, queries=(replace(query, trigger_s=3.0, read_limit=200.0),))
    runtime = application({"q": constant(2000)}, {"q": 8e3}, limit=1, engine=owned)
    for snapshot, _ in steered(runtime, 120):
        assert snapshot.queries.interval_s[0] >= 3.0
        assert 0 < snapshot.sources.read_limit[0] <= 200
