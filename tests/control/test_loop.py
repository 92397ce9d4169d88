"""The loop with a fake clock: whole traces of scenarios, and faults that never stop it."""

import errno
import logging

import pytest

from penstock.control import Cycle, Desired, Loop, NotReadyError, Plan, PolicyRun, Settings, SqliteJournal
from penstock.dataflow import OperatorId
from penstock.policies.actions import Expectation, Move, Scale, Shed, Switch
from penstock.policies.policy import Notice, Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.testing import (
    FakeClock,
    RecordingRuntime,
    ScriptedPolicy,
    a_dataflow,
    a_snapshot,
)
from penstock.testing.builders import TWO_WAYS
from tests.control.memory_journal import MemoryJournal

WORK = OperatorId("work")
FLOW = a_dataflow(alternates=TWO_WAYS)
LATE = Reason(code="test", facts={"constraint": "on-time"})


def world(time_s: float, desired: Desired) -> Snapshot:
    """Latency falls with the number of tasks, and rises fourfold between 20 s and 60 s."""
    tasks = desired["parallelism"].get("work", 2)
    demand = 2000.0 if 20 <= time_s < 60 else 500.0
    return a_snapshot(
        FLOW,
        time_s=time_s,
        demand_rps=demand,
        parallelism={"work": tasks},
        keep=dict(desired["keep"]),
        alternate=dict(desired["alternate"]),
        latency_s=demand / 500 * 0.1 / tasks,
    )


def scale(current: int, target: int) -> Scale:
    expects = Expectation(metric="latency_s", subject="on-time", value=0.1, within_s=10)
    return Scale(reason=LATE, operator=WORK, current=current, target=target, expects=expects)


def grow_when_late(snapshot: Snapshot) -> list[Scale]:
    now, late = int(snapshot.operators.parallelism[1]), snapshot.constraints.latency_s[0]
    if late > 0.1:
        return [scale(now, now * 2)]
    return [scale(now, now // 2)] if late < 0.04 else []


def a_loop(
    *policies: ScriptedPolicy, shown=world, answers=None, journal=None, dry=(), **options: object
) -> tuple[Loop, RecordingRuntime, list[Cycle]]:
    clock = FakeClock()
    runtime = RecordingRuntime(clock, shown, answers=answers)
    runs = [PolicyRun(policy=p, dry_run=p.name in dry) for p in policies]
    told: list[Cycle] = []
    loop = Loop(
        runtime,
        runs,
        clock=clock,
        journal=MemoryJournal() if journal is None else journal,
        subscribers=[lambda cycle, _: told.append(cycle)],
        **options,
    )
    return loop, runtime, told


def trace(cycles: list[Cycle]) -> list[tuple[float, list[str]]]:
    """(time, what was done, withheld, and told), leaving out cycles in which nothing was."""
    lines = []
    for cycle in cycles:
        told = [
            *(f"{o.status} {o.action.kind} {o.action.subject}" for o in cycle.outcomes),
            *(f"{w.reason.code} {w.action.kind} {w.action.subject}" for w in cycle.plan.withheld),
            *(f"{e.verdict} {e.kind} {e.subject}" for e in cycle.effects),
            *(f"{f.code} {f.policy or ''}".strip() for f in cycle.faults),
        ]
        lines += [(cycle.time_s, told)] if told else []
    return lines


def test_a_rise_and_a_fall_of_the_load_leave_this_trace() -> None:
    loop, runtime, cycles = a_loop(ScriptedPolicy(grow_when_late))
    loop.run(for_s=80)
    assert [c.time_s for c in cycles] == [5.0 * i for i in range(1, 17)]
    assert trace(cycles) == [
        (20.0, ["applied scale work"]),  # 200 ms with 2 tasks: 4
        (30.0, ["worked scale work"]),  # 100 ms
        (60.0, ["applied scale work"]),  # 25 ms: back to 2
        (70.0, ["worked scale work"]),
    ]
    assert [(a.current, a.target) for a in runtime.actions] == [(2, 4), (4, 2)]
    assert loop.faults == {}


def test_an_action_that_does_not_help_is_said_so_and_the_next_one_rests_first() -> None:
    loop, _, cycles = a_loop(ScriptedPolicy(grow_when_late), shown=lambda t, d: _slow(t, d))
    loop.run(for_s=25)
    assert trace(cycles) == [
        (5.0, ["applied scale work"]),
        (10.0, ["cooling-down scale work"]),
        (15.0, ["cooling-down scale work", "did-not scale work"]),
        (20.0, ["applied scale work"]),
        (25.0, ["cooling-down scale work"]),
    ]
    effect = cycles[2].effects[0]
    assert (effect.before, effect.expected, effect.observed) == (0.5, 0.1, 0.5)


def _slow(time_s: float, desired: Desired) -> Snapshot:
    return a_snapshot(
        FLOW, time_s=time_s, latency_s=0.5, parallelism={"work": desired["parallelism"].get("work", 2)}
    )


def test_dry_run_decides_and_explains_and_does_nothing() -> None:
    loop, runtime, cycles = a_loop(
        ScriptedPolicy(grow_when_late), shown=_slow, settings=Settings(dry_run=True)
    )
    loop.run(for_s=10)
    assert runtime.plans == []
    assert trace(cycles) == [(5.0, ["blocked scale work"]), (10.0, ["blocked scale work"])]
    assert cycles[0].outcomes[0].reason == Reason(code="dry-run")
    assert cycles[0].dry_run


def test_one_policy_in_dry_run_speaks_but_does_not_count() -> None:
    speaker = ScriptedPolicy([[scale(2, 8)]], name="speaker")
    doer = ScriptedPolicy([[scale(2, 4)]], name="doer")
    loop, runtime, cycles = a_loop(speaker, doer, dry={"speaker"})
    loop.run(for_s=5)
    assert [a.target for a in runtime.actions] == [4]
    assert [(w.policy, w.reason.code) for w in cycles[0].plan.withheld] == [("speaker", "dry-run")]


def test_a_raising_policy_is_a_fault_and_the_others_go_on() -> None:
    broken = ScriptedPolicy(lambda _: ZeroDivisionError("no tasks"), name="broken")
    loop, runtime, cycles = a_loop(broken, ScriptedPolicy(grow_when_late), shown=_slow)
    loop.run(for_s=10)
    assert len(runtime.actions) == 1
    assert [(f.stage, f.policy, f.cause) for f in cycles[1].faults] == [
        ("decide", "broken", "ZeroDivisionError: no tasks")
    ]
    assert loop.faults == {"decide-failed": 2}


def test_a_policy_that_raises_keeps_its_old_memory() -> None:
    shaky = ScriptedPolicy([(), RuntimeError("once"), [scale(2, 3)]])
    loop, runtime, cycles = a_loop(shaky)
    loop.run(for_s=20)
    # The second line raises for ever, since a failed turn does not count: memory stays at 1.
    assert [len(c.faults) for c in cycles] == [0, 1, 1, 1]
    assert runtime.actions == ()


def test_a_policy_that_returns_nonsense_is_a_fault() -> None:
    class Nonsense(ScriptedPolicy):
        def decide(self, snapshot, memory, options):
            return "scale it", memory

    loop, _, cycles = a_loop(Nonsense([], name="nonsense"))
    loop.step()
    assert "returns a Proposal" in cycles[0].faults[0].cause


def test_a_blind_runtime_keeps_its_last_controls_and_the_loop_tries_again() -> None:
    seen = [
        _slow(5, Desired()),
        OSError("connection refused"),
        OSError("connection refused"),
        _slow(20, Desired()),
    ]
    loop, runtime, cycles = a_loop(ScriptedPolicy([[scale(2, 4)]]), shown=seen)
    loop.run(for_s=20)
    assert [c.brief is None for c in cycles] == [False, True, True, False]
    assert [c.time_s for c in cycles] == [5, 10, 15, 20]
    # Empty plans go on being applied, so that the runtime asserts what was asked for; nothing is taken back.
    assert [len(p.actions) for p in runtime.plans] == [1, 0, 0, 0]
    assert runtime.desired["parallelism"] == {"work": 4}
    assert loop.faults == {"observe-failed": 2}


def test_not_ready_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    loop, _, cycles = a_loop(ScriptedPolicy([]), shown=[NotReadyError("no batch yet"), _slow(10, Desired())])
    with caplog.at_level(logging.INFO):
        loop.run(for_s=10)
    assert [c.faults for c in cycles] == [(), ()]
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


def test_a_runtime_that_raises_fails_the_actions_and_the_next_cycle_asks_again() -> None:
    loop, runtime, cycles = a_loop(
        ScriptedPolicy(grow_when_late), shown=_slow, answers={"scale": OSError("gone")}
    )
    loop.run(for_s=10)
    assert trace(cycles) == [
        (5.0, ["failed scale work", "apply-failed"]),
        (10.0, ["failed scale work", "apply-failed"]),  # no rest after what did not happen
    ]
    runtime.answers.clear()
    assert [o.status for o in loop.step().outcomes] == ["applied"]


@pytest.mark.parametrize(
    ("status", "rests"),
    [("applied", True), ("held", True), ("deferred", True), ("blocked", False), ("failed", False)],
)
def test_only_what_was_carried_out_rests_and_is_followed(status, rests: bool) -> None:
    loop, _, cycles = a_loop(ScriptedPolicy(grow_when_late), shown=_slow, answers={"scale": status})
    loop.run(for_s=15)
    assert (cycles[1].plan.withheld != ()) == rests
    assert (cycles[2].effects != ()) == rests


def test_a_journal_that_fails_never_stops_the_loop() -> None:
    journal = MemoryJournal()
    journal.broken = OSError(errno.ENOSPC, "No space left on device")
    loop, runtime, _ = a_loop(ScriptedPolicy(grow_when_late), journal=journal)
    loop.run(for_s=20)
    assert len(runtime.actions) == 1
    assert loop.faults == {"journal-failed": 4}
    journal.broken = None
    loop.run(for_s=10)
    assert loop.run_id is not None
    kept = list(journal.cycles(loop.run_id))
    assert [c.number for c in kept] == [5, 6]
    assert [f.stage for f in kept[0].faults] == ["journal"]  # the failure before is told now


def test_a_really_full_disk(tmp_path) -> None:
    """SQLite itself refuses to grow the file; what was written before stays readable."""
    with SqliteJournal(tmp_path / "journal.db") as journal:
        loop, _, cycles = a_loop(ScriptedPolicy(grow_when_late), journal=journal)
        loop.run(for_s=20)
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        loop.run(for_s=100)
        assert len(cycles) == 24
        assert any("disk is full" in f.cause for c in cycles for f in c.faults)
        journal._db.execute("PRAGMA max_page_count = 1000000")
        loop.run(for_s=20)
        assert loop.run_id is not None
        numbers = [c.number for c in journal.cycles(loop.run_id)]
        assert numbers[:4] == [1, 2, 3, 4]
        assert numbers[-4:] == [25, 26, 27, 28]
        assert len(numbers) < 28
        assert journal._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_memory_that_cannot_be_stored_is_a_fault_of_that_policy() -> None:
    class Forgetful(ScriptedPolicy):
        def decide(self, snapshot, memory, options):
            return Proposal(policy=self.name), {"not", "a", "turn"}

    loop, _, cycles = a_loop(Forgetful([], name="forgetful"))
    loop.run(for_s=10)
    assert [(f.stage, f.policy) for f in cycles[1].faults] == [("journal", "forgetful")]


def test_a_subscriber_that_raises_is_survived() -> None:
    loop, _, cycles = a_loop(ScriptedPolicy([]))
    loop.subscribers.insert(0, lambda cycle, snapshot: 1 / 0)
    loop.run(for_s=15)
    assert len(cycles) == 3
    assert loop.faults == {"subscriber-failed": 3}


def test_faults_are_logged_once_and_cycles_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    loop, _, _ = a_loop(ScriptedPolicy(lambda _: ValueError("again")), shown=_slow)
    with caplog.at_level(logging.INFO):
        loop.run(for_s=50)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert len(warnings) == 1
    assert "decide-failed of policy scripted: ValueError: again" in warnings[0]
    assert len(lines) == 10
    assert "goals 0/1 held | 6 tasks on 2 nodes | no action | 1 faults" in lines[0]


def test_late_cycles_are_skipped_and_counted() -> None:
    clock = FakeClock()

    class Slow(RecordingRuntime):
        def apply(self, plan: Plan):
            clock.advance(12 if plan.time_s == 10 else 1)
            return super().apply(plan)

    told: list[Cycle] = []
    loop = Loop(Slow(clock, world), [], clock=clock, subscribers=[lambda c, _: told.append(c)])
    loop.run(for_s=40)
    assert [c.time_s for c in told] == [5, 10, 25, 30, 35, 40]
    assert [c.skipped for c in told] == [0, 0, 2, 0, 0, 0]


def test_it_stops_when_told_or_when_the_time_is_over() -> None:
    class Told:
        def is_set(self) -> bool:
            return len(cycles) == 3

    loop, _, cycles = a_loop(ScriptedPolicy([]))
    loop.run(stop=Told())
    assert len(cycles) == 3
    loop.run(for_s=5)
    assert [c.time_s for c in cycles] == [5, 10, 15, 25]  # the clock stood at 20 when it was stopped


def test_a_notice_reaches_the_plan() -> None:
    notice = Notice(goal="on-time", reason=Reason(code="test"), helps="more nodes")
    loop, _, cycles = a_loop(ScriptedPolicy([Proposal(policy="x", notices=(notice,))]))
    loop.step()
    assert cycles[0].plan.notices == (notice,)


def test_each_policy_runs_once() -> None:
    with pytest.raises(ValueError, match="each policy runs once"):
        a_loop(ScriptedPolicy([]), ScriptedPolicy([]))


ASKED = (
    scale(2, 5),
    Switch(reason=LATE, operator=WORK, current="good", target="fast"),
    Move(reason=LATE, operator=OperatorId("events"), index=0, source="n0", target="n1"),
    Shed(reason=LATE, operator=OperatorId("events"), target=WORK, keep=0.5),
)


def restarted(
    journal, first: Loop, policy: ScriptedPolicy, start_s: float
) -> tuple[RecordingRuntime, list[Cycle]]:
    """The first cycle of a new controller whose runtime has forgotten everything."""
    clock = FakeClock(start_s)
    runtime = RecordingRuntime(clock, world)
    told: list[Cycle] = []
    loop = Loop(
        runtime,
        [PolicyRun(policy=policy)],
        clock=clock,
        journal=journal,
        resume=first.run_id,
        subscribers=[lambda c, _: told.append(c)],
    )
    loop.run(for_s=10)
    return runtime, told


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_restarted_controller_asserts_the_desired_state_again(kind: str, tmp_path) -> None:
    journal = MemoryJournal() if kind == "memory" else SqliteJournal(tmp_path / "journal.db")
    first, _, _ = a_loop(ScriptedPolicy([ASKED]), journal=journal)
    first.run(for_s=5)
    runtime, told = restarted(journal, first, ScriptedPolicy([(), [scale(2, 9)]]), start_s=10)
    assert {(p.policy, p.action.kind, p.action.subject) for p in runtime.plans[0].actions} == {
        ("recovery", a.kind, a.subject) for a in ASKED
    }
    assert (runtime.desired["parallelism"], runtime.desired["alternate"]) == ({"work": 5}, {"work": "fast"})
    assert (runtime.desired["keep"], runtime.desired["node"]) == ({"events->work": 0.5}, {"events[0]": "n1"})
    # The policy's memory went on (line 2 of its script), but the first cycle is for recovering.
    assert [(w.action.target, w.reason.code) for w in told[0].plan.withheld] == [(9, "recovering")]
    assert [c.number for c in told] == [2, 3]
    assert [c.recovering for c in told] == [True, False]


def test_where_time_starts_anew_only_the_desired_state_is_recovered() -> None:
    journal = MemoryJournal()
    first, _, _ = a_loop(ScriptedPolicy([ASKED]), journal=journal)
    first.run(for_s=20)
    runtime, told = restarted(journal, first, ScriptedPolicy([[scale(2, 9)]]), start_s=0)
    assert runtime.desired["parallelism"] == {"work": 5}
    # The policy starts with the first line of its script.
    assert [(w.action.target, w.reason.code) for w in told[0].plan.withheld] == [(9, "recovering")]


def test_rests_go_on_over_a_restart() -> None:
    """Scaled up at 5 s, restarted at 5 s with the tasks still there: the rest lasts until 15 s."""
    journal = MemoryJournal()
    first, _, _ = a_loop(ScriptedPolicy([[scale(2, 4)]]), shown=_four, journal=journal)
    first.run(for_s=5)
    clock = FakeClock(5)
    told: list[Cycle] = []
    again = ScriptedPolicy([(), (), [scale(4, 8)], [scale(4, 8)]])
    runs = [PolicyRun(policy=again)]
    loop = Loop(
        RecordingRuntime(clock, _four),
        runs,
        clock=clock,
        journal=journal,
        resume=first.run_id,
        subscribers=[lambda c, _: told.append(c)],
    )
    loop.run(for_s=15)
    assert trace(told) == [
        (15.0, ["cooling-down scale work", "worked scale work"]),
        (20.0, ["applied scale work"]),
    ]


def _four(time_s: float, _: Desired) -> Snapshot:
    return a_snapshot(FLOW, time_s=time_s, parallelism={"work": 4})


def test_an_unknown_run_cannot_be_resumed_but_stops_nothing() -> None:
    loop, _, cycles = a_loop(ScriptedPolicy([]), resume="nobody")
    loop.step()
    assert [f.stage for f in cycles[0].faults] == ["recover"]
