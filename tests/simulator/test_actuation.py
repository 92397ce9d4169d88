"""What becomes of actions, on both fidelities."""

from __future__ import annotations

import pytest

from penstock.control.plan import NotReadyError
from penstock.dataflow import OperatorId
from penstock.policies.actions import Acquire, Action, Move, Pace, Release, Scale, Shed, Switch
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime, SimulationOptions
from penstock.telemetry import MachineClass
from tests.simulator.scenes import WHY, act, pipeline

WORK, COUNT, SOURCE = OperatorId("work"), OperatorId("count"), OperatorId("source")


@pytest.fixture(params=["discrete", "fluid"])
def runtime(request: pytest.FixtureRequest) -> SimulatedRuntime:
    cluster = Cluster(
        classes=(
            MachineClass(name="node", cores=2, startup_s=3.0, price_per_hour=1.0, bandwidth_bytes_per_s=1e6),
            MachineClass(name="big", cores=8, price_per_hour=4.0, available=1),
        ),
        nodes={"node-0": "node", "node-1": "node"},
        max_nodes=4,
    )
    return SimulatedRuntime(
        pipeline(100.0, bytes_per_task=1e6),
        cluster,
        fidelity=request.param,
        options=SimulationOptions(task_startup_s=0.5, step_s=0.1, move_s=0.1),
    )


def scale(operator: OperatorId | None, target: int) -> Scale:
    return Scale(operator=operator, current=0 if target else 1, target=target, reason=WHY)


def move(operator: OperatorId, index: int, target: str) -> Move:
    return Move(operator=operator, index=index, source="", target=target, reason=WHY)


BLOCKED: list[tuple[Action, str]] = [
    (scale(OperatorId("nope"), 2), "no-such-operator"),
    (scale(WORK, 7), "out-of-bounds"),
    (scale(WORK, 0), "out-of-bounds"),
    (scale(SOURCE, 2), "out-of-bounds"),
    (move(OperatorId("nope"), 0, "node-1"), "no-such-operator"),
    (move(WORK, 3, "node-1"), "no-such-task"),
    (move(WORK, -1, "node-1"), "no-such-task"),
    (move(WORK, 0, "elsewhere"), "no-such-node"),
    (Shed(operator=WORK, keep=0.5, reason=WHY), "no-such-source"),
    (Shed(operator=SOURCE, target=COUNT, keep=0.5, reason=WHY), "no-such-stream"),
    (Switch(operator=OperatorId("nope"), current="", target="x", reason=WHY), "no-such-operator"),
    (Switch(operator=WORK, current="default", target="x", reason=WHY), "no-such-alternate"),
    (Pace(query="q", deadline_s=1.0, reason=WHY), "no-batches"),
    (Pace(stream="a->b", deadline_s=1.0, reason=WHY), "no-such-stream"),
    (Acquire(machine="nope", reason=WHY), "no-such-class"),
    (Acquire(machine="node", count=3, reason=WHY), "max-nodes"),
    (Acquire(machine="big", count=2, reason=WHY), "class-exhausted"),
    (Release(node="nope", reason=WHY), "no-such-node"),
]


@pytest.mark.parametrize(
    ("action", "code"), BLOCKED, ids=[f"{a.kind}-{c}-{i}" for i, (a, c) in enumerate(BLOCKED)]
)
def test_what_cannot_be_done_is_blocked_with_a_reason(
    runtime: SimulatedRuntime, action: Action, code: str
) -> None:
    (outcome,) = act(runtime, action)
    assert (outcome.status, outcome.reason and outcome.reason.code) == ("blocked", code)


INSTANT: list[Action] = [
    Shed(operator=SOURCE, keep=0.5, reason=WHY),
    Shed(operator=SOURCE, target=WORK, keep=0.5, reason=WHY),
    Pace(stream="work->count", deadline_s=0.1, reason=WHY),
    Acquire(machine="big", reason=WHY),
]


@pytest.mark.parametrize("action", INSTANT, ids=lambda a: a.subject)
def test_what_takes_no_time_is_applied_at_once(runtime: SimulatedRuntime, action: Action) -> None:
    assert [o.status for o in act(runtime, action)] == ["applied"]


def decided(runtime: SimulatedRuntime) -> list[tuple[str, str]]:
    return [(o.action.subject, o.status) for o in act(runtime)]


def test_applying_twice_is_applying_once(runtime: SimulatedRuntime) -> None:
    for action in INSTANT[:3]:
        assert [o.status for o in (*act(runtime, action), *act(runtime, action))] == ["applied", "held"]
    assert act(runtime, scale(WORK, 3))[0].status == "held"


def test_scaling_up_takes_the_startup_of_a_task(runtime: SimulatedRuntime) -> None:
    runtime.advance(1.0)
    assert act(runtime, scale(WORK, 5))[0].status == "deferred"
    runtime.advance(1.4)
    assert runtime.observe().operators.parallelism[1] == 3
    assert decided(runtime) == []
    runtime.advance(1.6)
    assert runtime.observe().operators.parallelism[1] == 5
    (outcome,) = act(runtime)
    assert outcome.status == "applied"
    assert outcome.took_s == pytest.approx(0.6)
    assert act(runtime) == ()


def test_scaling_down_drains(runtime: SimulatedRuntime) -> None:
    runtime.advance(1.0)
    assert act(runtime, scale(WORK, 1))[0].status == "deferred"
    runtime.advance(3.0)
    assert decided(runtime) == [("work", "applied")]
    snapshot = runtime.observe()
    assert snapshot.operators.parallelism[1] == 1
    assert sum(snapshot.tasks.operator == 1) == 1


def test_the_later_wish_wins(runtime: SimulatedRuntime) -> None:
    runtime.advance(1.0)
    act(runtime, scale(WORK, 6))
    assert act(runtime, scale(WORK, 4))[0].status == "deferred"
    runtime.advance(5.0)
    found = {o.action.target: o for o in act(runtime) if isinstance(o.action, Scale)}
    assert found[4].status == "applied"
    assert (found[6].status, found[6].reason.code if found[6].reason else "") == ("failed", "superseded")
    assert runtime.observe().operators.parallelism[1] == 4


def test_a_move_pauses_for_the_protocol_and_the_state(runtime: SimulatedRuntime) -> None:
    """1 MB over 1 MB/s and 0.1 s fixed."""
    runtime.advance(1.0)
    before = runtime.observe()
    row = 4  # count[0]: source, work[0..2], count[0]
    source = before.nodes.ids[before.tasks.node[row]]
    target = "node-0" if source == "node-1" else "node-1"
    assert act(runtime, move(COUNT, 0, target))[0].status == "deferred"
    runtime.advance(1.9)
    during = runtime.observe()
    assert during.tasks.moving[row]
    assert during.tasks.queued[row] > 10
    assert decided(runtime) == []
    runtime.advance(2.5)
    after = runtime.observe()
    assert not after.tasks.moving[row]
    assert after.nodes.ids[after.tasks.node[row]] == target
    assert decided(runtime) == [("count[0]", "applied")]


def test_a_keyed_operator_rescales_with_a_pause(runtime: SimulatedRuntime) -> None:
    runtime.advance(1.0)
    act(runtime, scale(COUNT, 4))
    runtime.advance(2.0)
    assert runtime.observe().tasks.moving.sum() == 2
    runtime.advance(4.0)
    snapshot = runtime.observe()
    assert snapshot.operators.parallelism[2] == 4
    assert not snapshot.tasks.moving.any()
    assert snapshot.tasks.state_bytes[snapshot.tasks.operator == 2].tolist() == [5e5] * 4


def test_nodes_start_take_tasks_and_go(runtime: SimulatedRuntime) -> None:
    runtime.advance(1.0)
    (acquired,) = act(runtime, Acquire(machine="node", reason=WHY))
    assert acquired.status == "deferred"
    runtime.advance(2.0)
    assert runtime.observe().nodes.ready.tolist() == [True, True, False]
    # A task sent to a node that is still starting leaves when it is ready.
    assert act(runtime, move(WORK, 0, "node-2"))[0].status == "deferred"
    runtime.advance(3.9)
    assert runtime.observe().tasks.node[1] != 2
    runtime.advance(4.5)
    snapshot = runtime.observe()
    assert snapshot.nodes.ready.all()
    assert snapshot.tasks.node[1] == 2
    assert sorted(s for _, s in decided(runtime)) == ["applied", "applied"]
    (released,) = act(runtime, Release(node="node-0", reason=WHY))
    assert released.status == "deferred"
    assert act(runtime, move(WORK, 1, "node-0"))[0].reason.code == "node-draining"  # type: ignore[union-attr]
    runtime.advance(10.0)
    assert decided(runtime) == [("node:node-0", "applied")]
    snapshot = runtime.observe()
    assert snapshot.nodes.ids == ("node-1", "node-2")
    assert (snapshot.tasks.node >= 0).all()


def test_the_last_node_stays(runtime: SimulatedRuntime) -> None:
    outcomes = act(runtime, Release(node="node-0", reason=WHY), Release(node="node-1", reason=WHY))
    assert [o.status for o in outcomes] == ["deferred", "blocked"]
    assert outcomes[1].reason is not None
    assert outcomes[1].reason.code == "last-node"


def test_scaling_nodes(runtime: SimulatedRuntime) -> None:
    assert act(runtime, scale(None, 3))[0].status == "deferred"
    runtime.advance(4.0)
    assert decided(runtime) == [("nodes", "applied")]
    assert act(runtime, scale(None, 1))[0].status == "deferred"
    runtime.advance(10.0)
    snapshot = runtime.observe()
    assert snapshot.nodes.ids == ("node-0",)


def test_nothing_to_see_before_time_passes(runtime: SimulatedRuntime) -> None:
    with pytest.raises(NotReadyError):
        runtime.observe()


def test_the_clock_advances_the_simulation(runtime: SimulatedRuntime) -> None:
    clock = SimulatedClock(runtime)
    clock.sleep_until(2.5)
    assert clock.now() == runtime.now_s == 2.5
    clock.sleep_until(1.0)
    assert clock.now() == 2.5


def test_money_is_counted_also_for_nodes_that_are_gone(runtime: SimulatedRuntime) -> None:
    runtime.advance(1.0)
    assert runtime.observe().cost == 2.0
    act(runtime, Acquire(machine="big", reason=WHY))
    runtime.advance(5.0)
    snapshot = runtime.observe()
    assert snapshot.cost == 6.0
    assert snapshot.nodes.paid_until_s.tolist() == [3600.0, 3600.0, 3601.0]
    act(runtime, Release(node="big-0", reason=WHY))
    runtime.advance(3601.0 if runtime.fidelity == "fluid" else 6.0)
    assert runtime.observe().cost == (8.0 if runtime.fidelity == "fluid" else 6.0)
