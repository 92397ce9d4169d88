"""The desired placement: what was moved, what was left beside it, and an engine that tells it all only later."""

from dataclasses import replace

from penstock.control import Desired, Loop, PolicyRun
from penstock.control.loop import RECOVERY_CYCLES
from penstock.dataflow import OperatorId
from penstock.policies.actions import Move, Release, Scale
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.testing import FakeClock, RecordingRuntime, ScriptedPolicy, a_snapshot
from tests.control.memory_journal import MemoryJournal

WORK = OperatorId("work")
WHY = Reason(code="test")
GATHER = Move(reason=WHY, operator=WORK, index=0, source="n0", target="n1")
GATHERED = {"work[0]": "n1", "work[1]": "n1"}


def unplaced(snapshot: Snapshot) -> Snapshot:
    """As an engine tells that has just been restarted."""
    node = snapshot.tasks.node.copy()
    node[snapshot.tasks.operator == snapshot.dataflow.row[WORK]] = -1
    return replace(snapshot, tasks=snapshot.tasks.with_columns(node=node))


def test_moving_some_tasks_of_an_operator_decides_where_all_of_them_are() -> None:
    desired = Desired().after([GATHER], snapshot=a_snapshot())
    assert desired["node"] == GATHERED
    scattered = a_snapshot(node_of={"work[0]": "n0", "work[1]": "n0"})
    assert {a.subject: a.target for a in desired.missing(scattered).actions} == GATHERED


def test_a_later_move_keeps_what_was_asked_for_before() -> None:
    """Work[0] drifted back without our doing; moving the other does not make that a wish."""
    desired = Desired().after([GATHER], snapshot=a_snapshot())
    back = Move(reason=WHY, operator=WORK, index=1, source="n1", target="n0")
    assert desired.after([back], snapshot=a_snapshot())["node"] == {"work[0]": "n1", "work[1]": "n0"}


def test_what_the_engine_spreads_anew_has_no_desired_place() -> None:
    desired = Desired().after([GATHER], snapshot=a_snapshot())
    assert desired.after([Scale(reason=WHY, operator=None, current=2, target=3)])["node"] == {}
    assert desired.after([Release(reason=WHY, node="n1")])["node"] == {}


def after_restart(told: list[Snapshot]) -> tuple[RecordingRuntime, list[bool]]:
    """What a controller does that wakes up to these snapshots; its predecessor had gathered `work` on n1."""
    journal = MemoryJournal()
    first = Loop(
        RecordingRuntime(FakeClock(), [a_snapshot()]),
        [PolicyRun(policy=ScriptedPolicy([[GATHER]]))],
        clock=FakeClock(),
        journal=journal,
    )
    first.step()
    runtime = RecordingRuntime(FakeClock(), told)
    again = Loop(
        runtime,
        [PolicyRun(policy=ScriptedPolicy([]))],
        clock=FakeClock(),
        journal=journal,
        resume=first.run_id,
    )
    return runtime, [again.step().recovering for _ in range(RECOVERY_CYCLES + 2)]


def test_recovery_waits_for_places_and_nodes() -> None:
    """State that nobody has opened, then one node only: the moves come when they can be named, and once."""
    scattered = a_snapshot(node_of={"work[0]": "n0", "work[1]": "n0"})
    lonely = a_snapshot(nodes=1)
    back = a_snapshot(node_of=GATHERED)
    runtime, recovering = after_restart([unplaced(scattered), lonely, scattered, back])
    assert recovering == [True, True, True, *[False] * (RECOVERY_CYCLES - 1)]
    assert [{a.subject: a.target for a in (p.action for p in plan.actions)} for plan in runtime.plans] == [
        {}, {}, GATHERED, *[{}] * (RECOVERY_CYCLES - 1),
    ]  # fmt: skip


def test_recovery_does_not_wait_forever_for_a_node_that_is_gone() -> None:
    _, recovering = after_restart([a_snapshot(nodes=1)])
    assert recovering == [True] * RECOVERY_CYCLES + [False] * 2


def test_moves_under_way_are_not_asked_for_again() -> None:
    desired = Desired().after([GATHER], snapshot=a_snapshot())
    scattered = a_snapshot(node_of={"work[0]": "n0", "work[1]": "n0"})
    moving = replace(scattered, tasks=scattered.tasks.with_columns(moving=scattered.tasks.node >= 0))
    assert desired.missing(scattered).actions
    assert not desired.missing(moving).actions
