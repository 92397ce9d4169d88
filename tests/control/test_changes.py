"""Goals and mode changed by hand while the loop runs: from the next cycle on, written down, kept over a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.control import Loop, PolicyRun, SqliteJournal
from penstock.control.changes import Change
from penstock.errors import InputError
from penstock.policies.actions import Scale
from penstock.policies.reasons import Reason
from penstock.testing import FakeClock, RecordingRuntime, ScriptedPolicy, a_snapshot

GROW = Scale(current=2, target=3, reason=Reason(code="test"))


def a_loop(
    journal: SqliteJournal | None = None, *, resume: str | None = None
) -> tuple[Loop, RecordingRuntime]:
    clock = FakeClock()
    runtime = RecordingRuntime(clock, lambda now_s, _: a_snapshot(time_s=now_s, latency_s=0.05))
    policy = ScriptedPolicy([[GROW]] * 9)
    loop = Loop(runtime, [PolicyRun(policy=policy)], clock=clock, journal=journal, resume=resume)
    return loop, runtime


def test_a_bound_set_by_hand_holds_from_the_next_cycle_on_and_is_in_the_journal(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "runs.sqlite") as journal:
        loop, _ = a_loop(journal)
        before = loop.step()
        loop.bounds.ask("on-time", 20.0, by="page")
        after = loop.step()
        last = loop.step()
        assert before.brief is not None
        assert after.brief is not None
        assert last.brief is not None
        assert [c.brief.constraints[0].bound_s for c in (before, after, last) if c.brief] == [0.1, 0.02, 0.02]
        assert [c.brief.constraints[0].held for c in (before, after, last) if c.brief] == [True, False, False]
        change = Change(what="latency_ms", subject="on-time", before="100", after="20", by="page")
        assert (after.changes, last.changes) == ((change,), ())
        assert loop.run_id is not None
        assert [c.changes for c in journal.cycles(loop.run_id)] == [(), (change,), ()]
        snapshots = list(journal.snapshots(loop.run_id, at_most=9))
        assert [s.dataflow.constraints[0].bound_ms for s in snapshots] == [100.0, 20.0, 20.0]


def test_a_restarted_loop_keeps_the_bounds_that_were_set(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "runs.sqlite") as journal:
        loop, _ = a_loop(journal)
        loop.step()
        loop.bounds.ask("on-time", 20.0, by="page")
        loop.step()
        again, _ = a_loop(journal, resume=loop.run_id)
        brief = again.step().brief
        assert brief is not None
        assert brief.constraints[0].bound_s == 0.02


@pytest.mark.parametrize(
    ("goal", "bound_ms"), [("off-time", 20.0), ("on-time", 0.0), ("on-time", float("nan"))]
)
def test_a_goal_that_is_not_there_or_no_bound_is_refused(goal: str, bound_ms: float) -> None:
    loop, _ = a_loop()
    loop.step()
    with pytest.raises(InputError):
        loop.bounds.ask(goal, bound_ms, by="page")
    assert loop.step().changes == ()


def test_the_mode_decides_whether_policies_are_asked_and_obeyed() -> None:
    loop, runtime = a_loop()
    loop.modes.ask("observe", by="page")
    seen = loop.step()
    loop.modes.ask("recommend", by="page")
    recommended = loop.step()
    loop.modes.ask("act", by="page")
    acted = loop.step()
    assert [c.mode for c in (seen, recommended, acted)] == ["observe", "recommend", "act"]
    assert [[(x.before, x.after) for x in c.changes] for c in (seen, recommended, acted)] == [
        [("act", "observe")], [("observe", "recommend")], [("recommend", "act")]
    ]  # fmt: skip
    assert seen.plan.actions == ()
    assert [o.status for o in recommended.outcomes] == ["blocked"]
    assert [o.status for o in acted.outcomes] == ["applied"]
    assert runtime.actions == (GROW,)


def test_an_unknown_mode_is_refused() -> None:
    loop, _ = a_loop()
    with pytest.raises(InputError, match="did you mean 'observe'"):
        loop.modes.ask("obserf", by="page")
