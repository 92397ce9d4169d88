"""The policy in the loop, on fixed cores: relief within two intervals, back when the load falls, no flapping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control import Desired, Loop, PolicyRun, Settings
from penstock.dataflow import Alternate
from penstock.policies.actions import Switch
from penstock.policies.provisioning import Provisioning, ProvisioningOptions
from penstock.policies.provisioning.capacity import FIRST_EFFICIENCY, Efficiency
from penstock.telemetry import Batches, Moments
from penstock.testing import FakeClock, RecordingRuntime, a_dataflow, a_snapshot
from tests.policies.provisioning.world import WAYS, World


def ran(world: World, seconds: float) -> RecordingRuntime:
    clock = FakeClock()
    runtime = RecordingRuntime(clock, world)
    run = PolicyRun(policy=Provisioning(), options=ProvisioningOptions())
    loop = Loop(runtime, [run], clock=clock, settings=Settings(interval_s=world.interval_s))
    loop.run(for_s=seconds)
    return runtime


def step(time_s: float) -> float:
    return 700.0 if 100 <= time_s < 300 else 200.0


def test_switches_within_two_intervals_and_back_without_flapping() -> None:
    world = World(load=step)
    switches = [a for a in ran(world, 600).actions if isinstance(a, Switch)]
    assert [(s.target, s.reason.code) for s in switches] == [
        ("fast", "throughput-low"),
        ("good", "load-has-fallen"),
    ]
    names = {time: name for time, name, _, _ in world.history}
    first = min(t for t, n in names.items() if n == "fast")
    assert first <= 100 + 2 * world.interval_s
    carried = [share for t, _, share, _ in world.history if first <= t < 300]
    assert min(carried) >= 1.0, "with the cheap alternate everything is carried at once"
    back = min(t for t, n in names.items() if t > 300 and n == "good")
    assert 300 < back <= 300 + 60
    assert world.backlog < 200 * 5


def test_a_measured_cost_beats_the_declared_one() -> None:
    """Everything is three times as slow as declared: by the declaration the good alternate would fit."""
    world = World(load=lambda t: 300.0, slowdown=3.0)
    assert any(isinstance(a, Switch) and a.target == "fast" for a in ran(world, 60).actions)
    assert world.history[-1][1] == "fast"


@settings(max_examples=15)
@given(
    rate=st.floats(10, 1500),
    noise=st.floats(0, 0.15),
    slowdown=st.floats(0.5, 2),
)
def test_constant_load_settles(rate: float, noise: float, slowdown: float) -> None:
    world = World(load=lambda t: rate, noise=noise, slowdown=slowdown)
    switches = [a for a in ran(world, 900).actions if isinstance(a, Switch)]
    assert len(switches) <= 5
    cheap_carries = 2 * 0.85 * (5 - 0.3) / 5 / (0.001 * slowdown)
    if rate * (1 + 3 * noise) < 0.7 * cheap_carries:
        assert world.backlog <= rate * 5 * 12, "what the cheap alternate can carry does not pile up"


UNDECLARED = (Alternate(name="good"), Alternate(name="fast", value=0.6))


@pytest.mark.parametrize("probed", [True, False])
def test_an_alternate_of_unknown_cost_runs_only_after_a_probe(probed: bool) -> None:
    world = World(load=step, flow=a_dataflow(alternates=UNDECLARED, bound_ms=None))
    world.seen |= {"fast": 20} if probed else {}
    targets = [a.target for a in ran(world, 280).actions if isinstance(a, Switch)]
    assert targets == (["fast"] if probed else [])


@pytest.mark.parametrize("agrees", [0.0, 0.3])
def test_an_alternate_that_always_disagrees_is_worth_nothing(agrees: float) -> None:
    """Whatever it declares: its value is what was measured."""
    world = World(load=step, agreement={"fast": agrees})
    targets = [a.target for a in ran(world, 280).actions if isinstance(a, Switch)]
    assert targets == (["fast"] if agrees else [])


def test_what_is_shed_is_still_to_be_carried() -> None:
    """Half is shed, so the good alternate carries what is left: the cheaper remedy comes first all the same."""
    world = World(load=lambda t: 700.0, keep=0.4)
    assert [a.target for a in ran(world, 60).actions if isinstance(a, Switch)] == ["fast"]


def test_without_alternates_it_is_silent() -> None:
    world = World(load=lambda t: 5000.0, flow=a_dataflow(alternates=WAYS[:1], bound_ms=None))
    runtime = ran(world, 60)
    assert not runtime.actions
    assert not [n for plan in runtime.plans for n in plan.notices]


def test_what_no_alternate_carries_is_said() -> None:
    world = World(load=lambda t: 5000.0)
    runtime = ran(world, 60)
    notices = [n for plan in runtime.plans for n in plan.notices]
    assert any(n.reason.code == "no-alternate-carries-the-load" for n in notices)
    assert [a.target for a in runtime.actions if isinstance(a, Switch)] == ["fast"]


@pytest.mark.parametrize("missing", ["sources", "alternates", "batches", "nan", "nodes"])
def test_missing_measurements_never_raise(missing: str) -> None:
    world = World(load=lambda t: 700.0)
    snapshot = world(5.0, Desired())
    nan = np.array([np.nan])
    if missing == "sources":
        snapshot = replace(snapshot, sources=snapshot.sources.with_columns(known=np.zeros(1, bool)))
    if missing == "alternates":
        table = snapshot.alternates
        snapshot = replace(
            snapshot,
            alternates=table.with_columns(service_s=Moments.empty(len(table)), records_in=np.zeros(4)),
        )
    if missing == "batches":
        snapshot = replace(snapshot, batches=None)
    if missing == "nan":
        sources = snapshot.sources.with_columns(produced_rps=nan, backlog_records=nan, keep=nan)
        batches = replace(snapshot.batches, busy_s=nan, fixed_s=nan, duration_s=nan)
        rows = len(snapshot.alternates)
        table = snapshot.alternates.with_columns(
            service_s=Moments(np.ones(rows), np.full(rows, np.nan), np.zeros(rows)),
            records_in=np.full(rows, np.nan),
        )
        nodes = snapshot.nodes.with_columns(foreign_cpu=nan, speed=nan)
        snapshot = replace(snapshot, sources=sources, batches=batches, alternates=table, nodes=nodes)
    if missing == "nodes":
        snapshot = replace(snapshot, nodes=snapshot.nodes.with_columns(ready=np.zeros(1, bool)))
    policy, options = Provisioning(), ProvisioningOptions()
    memory = policy.start(options)
    for _ in range(3):
        proposal, memory = policy.decide(snapshot, memory, options)
    if missing in ("sources", "nodes"):
        assert not proposal.actions
    if missing in ("nan", "alternates"):
        assert [a.subject for a in proposal.actions] == ["work"], (
            "the declaration still tells that it is too much"
        )


def test_an_unknown_rate_is_no_reason_to_act() -> None:
    flow = a_dataflow(alternates=WAYS, bound_ms=None)
    snapshot = a_snapshot(flow, demand_rps=1e6)
    blind = replace(snapshot, sources=snapshot.sources.with_columns(known=np.zeros(1, bool)))
    policy = Provisioning()
    proposal, _ = policy.decide(blind, policy.start(ProvisioningOptions()), ProvisioningOptions())
    assert not proposal.actions
    assert not proposal.notices


def batches(work_s: list[float], *, fixed_s: float, efficiency: float) -> Batches:
    """Batches on two cores of which a part is fixed that nobody measures as such."""
    work = np.array(work_s)
    return Batches(
        id=np.arange(len(work)),
        records=work / 0.01,
        duration_s=fixed_s + work / (2 * efficiency),
        fixed_s=np.full(len(work), 0.1),
        busy_s=work,
        interval_s=0.0,
    )


def test_efficiency_is_told_from_what_is_fixed_in_a_batch() -> None:
    mixed = batches([0.2, 1.0, 3.0, 5.0, 0.4, 2.0] * 5, fixed_s=0.8, efficiency=0.6)
    assert Efficiency().learn(mixed, 2.0).share == pytest.approx(0.6, rel=0.1)


def test_small_batches_do_not_make_cores_look_slow() -> None:
    """A fifth of the load that two cores hold: most of such a batch is fixed."""
    learnt = Efficiency().learn(batches([0.4] * 30, fixed_s=0.8, efficiency=0.9), 2.0)
    assert learnt.share >= 0.6
    assert Efficiency().learn(None, 2.0).share == Efficiency().share == FIRST_EFFICIENCY
