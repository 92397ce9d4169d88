"""One contract for both journals; then what only a file must do."""

import os
import shutil
import sqlite3
import stat
import threading
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.control import JournalError, Latest, Loop, PolicyRun, Retention, SqliteJournal, replay
from penstock.control.journal import APPLICATION_ID, IN_MEMORY, SCHEMA_VERSION
from penstock.dataflow import OperatorId
from penstock.errors import UserError
from penstock.policies.actions import Expectation, Scale, Shed
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.testing import (
    FakeClock,
    RecordingRuntime,
    ScriptedPolicy,
    a_dataflow,
    a_snapshot,
)
from tests.control.memory_journal import MemoryJournal

FLOW = a_dataflow()


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path):
    if request.param == "memory":
        yield MemoryJournal()
    else:
        with SqliteJournal(tmp_path / "journal.db") as opened:
            yield opened


def grow_when_late(snapshot) -> list[Scale | Shed]:
    now, late = int(snapshot.operators.parallelism[1]), snapshot.constraints.latency_s[0]
    expects = Expectation(metric="latency_s", subject="on-time", value=0.1, within_s=10)
    why = Reason(code="test", facts={"latency_s": float(late), "seed": snapshot.seed})
    if late <= 0.1:
        return []
    shed = Shed(reason=why, operator=OperatorId("events"), keep=0.9)
    return [
        Scale(reason=why, operator=OperatorId("work"), current=now, target=now + 1, expects=expects),
        shed,
    ]


def a_world(time_s: float, desired):
    tasks = desired["parallelism"].get("work", 2)
    noise = np.random.default_rng(int(time_s)).random()
    return a_snapshot(
        FLOW,
        time_s=time_s,
        parallelism={"work": tasks},
        keep=dict(desired["keep"]),
        latency_s=(0.2 + 0.3 * noise) / tasks,
        seed=int(time_s),
    )


def a_run(journal, seconds: float = 60, policy=grow_when_late) -> tuple[Loop, list]:
    clock, told = FakeClock(), []
    loop = Loop(
        RecordingRuntime(clock, a_world),
        [PolicyRun(policy=ScriptedPolicy(policy))],
        clock=clock,
        journal=journal,
        options={"command": "test"},
        subscribers=[lambda cycle, _: told.append(cycle)],
    )
    loop.run(for_s=seconds)
    assert not loop.faults
    return loop, told


def test_cycles_come_back_as_they_were(journal) -> None:
    loop, told = a_run(journal)
    assert list(journal.cycles(loop.run_id)) == told
    assert any(c.plan.withheld for c in told)
    assert any(c.effects for c in told)


def test_a_run_is_kept_with_its_options(journal) -> None:
    first, _ = a_run(journal, 5)
    second, _ = a_run(journal, 5)
    assert [r.id for r in journal.runs()] == [first.run_id, second.run_id]
    assert journal.runs()[0].options == {"command": "test"}
    assert journal.runs()[0].dataflow == "example"
    assert [c.number for c in journal.cycles(second.run_id)] == [1]


def test_the_latest_is_of_the_last_cycle(journal) -> None:
    loop, told = a_run(journal)
    latest = journal.latest(loop.run_id)
    assert latest is not None
    assert (latest.number, latest.time_s) == (told[-1].number, told[-1].time_s)
    assert journal.latest("nobody") is None
    assert list(journal.cycles("nobody")) == []


def test_replaying_a_journal_reproduces_it(journal) -> None:
    loop, told = a_run(journal)
    replayed = list(replay(journal, loop.run_id, loop.policies))
    assert [r.recorded for r in replayed] == told
    assert all(r.same for r in replayed)
    assert sum(len(r.plan.actions) for r in replayed) > 2


def test_replaying_finds_what_a_changed_policy_would_do(journal) -> None:
    loop, told = a_run(journal)

    def double(snapshot):
        return [
            Scale(
                reason=a.reason,
                operator=a.operator,
                current=a.current,
                target=a.current * 2,
                expects=a.expects,
            )
            if isinstance(a, Scale)
            else a
            for a in grow_when_late(snapshot)
        ]

    changed = [PolicyRun(policy=ScriptedPolicy(double))]
    replayed = list(replay(journal, loop.run_id, changed))
    assert [r.same for r in replayed] == [not any(p.actions for p in c.proposals) for c in told]
    targets = [p.action.target for r in replayed for p in r.plan.actions if isinstance(p.action, Scale)]
    assert targets[0] == 4


def test_replaying_afresh_carries_memories_along(journal) -> None:
    """A script is told line by line only if its memory is carried."""
    lines = [(), [Shed(reason=Reason(code="test"), operator=OperatorId("events"), keep=0.5)], ()]
    loop, _ = a_run(journal, 20, policy=lambda _: ())
    script = [PolicyRun(policy=ScriptedPolicy(lines, name="another"))]
    replayed = list(replay(journal, loop.run_id, script, afresh=True))
    assert [len(r.plan.actions) for r in replayed] == [0, 1, 0, 0]
    # Nothing recorded for a policy of that name: the same happens without being asked for.
    assert [len(r.plan.actions) for r in replay(journal, loop.run_id, script)] == [0, 1, 0, 0]


def test_an_unknown_run_cannot_be_replayed(journal) -> None:
    with pytest.raises(JournalError, match="no run 'nobody'"):
        next(replay(journal, "nobody", []))


def test_what_was_written_is_there_after_reopening(tmp_path) -> None:
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        loop, told = a_run(journal)
    with SqliteJournal(path, create=False) as journal:
        assert list(journal.cycles(loop.run_id)) == told
        assert all(r.same for r in replay(journal, loop.run_id, loop.policies))
        evidence = next(journal.evidence(loop.run_id))
        assert evidence.snapshot.dataflow == FLOW


def test_another_connection_reads_while_a_run_is_written(tmp_path) -> None:
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal, SqliteJournal(path) as reader:
        loop, told = a_run(journal, 30)
        seen = reader.cycles(loop.run_id)
        assert next(seen) == told[0]
        loop.run(for_s=30)  # the reader is in the middle of reading
        assert len(list(seen)) == 5 + 6


def test_a_cycle_that_cannot_be_written_leaves_nothing_behind(tmp_path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        loop, told = a_run(journal, 10)
        before = journal.latest(loop.run_id)
        evidence = list(journal.evidence(loop.run_id))[-1]
        again = Latest(number=2, time_s=99.0, memories={}, standing=b"")
        with pytest.raises(sqlite3.IntegrityError):
            journal.append(loop.run_id, told[-1], again, evidence)  # number 2 is there already
        assert journal.latest(loop.run_id) == before
        loop.run(for_s=5)
        assert [c.number for c in journal.cycles(loop.run_id)] == [1, 2, 3]


def test_full_snapshots_are_dropped_when_they_grow_too_large(tmp_path) -> None:
    path = tmp_path / "journal.db"
    with SqliteJournal(path, retention=Retention(evidence_bytes=20_000, cycles=15)) as journal:
        loop, _ = a_run(journal, 200)
        kept = [e.number for e in journal.evidence(loop.run_id)]
        sizes = journal._db.execute("SELECT sum(bytes), min(bytes) FROM evidence").fetchone()
        assert 0 < sizes[0] <= 20_000 < sizes[0] + 2 * sizes[1]
        assert kept == list(range(kept[0], 41))
        assert [c.number for c in journal.cycles(loop.run_id)] == list(range(26, 41))
        replayed = [r.recorded.number for r in replay(journal, loop.run_id, loop.policies)]
        assert replayed == [n for n in kept if n >= 26]
        journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = path.stat().st_size
        loop.run(for_s=600)
        journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size < size * 1.2  # four times as many cycles


def test_the_bound_on_snapshots_holds_over_a_restart(tmp_path) -> None:
    path = tmp_path / "journal.db"
    for _ in range(3):
        with SqliteJournal(path, retention=Retention(evidence_bytes=15_000)) as journal:
            a_run(journal, 60)
            assert journal._db.execute("SELECT sum(bytes) FROM evidence").fetchone()[0] <= 15_000


def test_large_dataflows_are_kept_in_brief_only(tmp_path) -> None:
    with SqliteJournal(tmp_path / "journal.db", retention=Retention(evidence_tasks=5)) as journal:
        loop, told = a_run(journal, 10)
        assert list(journal.evidence(loop.run_id)) == []
        assert list(journal.cycles(loop.run_id)) == told


def test_a_dataflow_is_stored_once(tmp_path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        a_run(journal, 30)
        a_run(journal, 30)
        assert journal._db.execute("SELECT count(*) FROM dataflows").fetchone() == (1,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda p: p.write_bytes(b"this is no database, but some text of more than a few bytes" * 20),
            "not a database",
        ),
        (
            lambda p: sqlite3.connect(p).executescript("CREATE TABLE t (x); PRAGMA user_version = 1"),
            "not a journal",
        ),
        (
            lambda p: sqlite3.connect(p).executescript(
                f"CREATE TABLE t (x); PRAGMA application_id = {APPLICATION_ID};"
                f" PRAGMA user_version = {SCHEMA_VERSION + 1}"
            ),
            "newer Penstock",
        ),
        (lambda p: p.mkdir(), "cannot be opened"),
    ],
)
def test_a_file_that_is_no_journal_is_refused_in_words(make, message: str, tmp_path) -> None:
    path = tmp_path / "journal.db"
    make(path)
    with pytest.raises(JournalError, match=message):
        SqliteJournal(path)


def test_an_empty_file_is_not_made_a_journal_by_reading(tmp_path) -> None:
    path = tmp_path / "journal.db"
    path.touch()
    with pytest.raises(JournalError, match="an empty file"):
        SqliteJournal(path, create=False)
    assert path.stat().st_size == 0


def test_a_missing_journal_is_not_created_for_reading(tmp_path) -> None:
    with pytest.raises(JournalError, match="there is no journal"):
        SqliteJournal(tmp_path / "none.db", create=False)
    assert not (tmp_path / "none.db").exists()


def test_a_folder_that_does_not_exist_is_refused_in_words(tmp_path) -> None:
    with pytest.raises(JournalError, match="cannot be opened as a journal"):
        SqliteJournal(tmp_path / "nowhere" / "journal.db")


def test_what_this_version_cannot_read_is_said_in_words(tmp_path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        loop, _ = a_run(journal, 5)
        strange = zlib.compress(msgspec.msgpack.encode({"number": 1, "mood": "good"}))
        journal._db.execute("UPDATE cycles SET body = ?", (strange,))
        with pytest.raises(JournalError, match=r"cannot read: stored Cycle cannot be read: .*`mood`"):
            list(journal.cycles(loop.run_id))


def test_two_controllers_make_one_new_file_together(tmp_path) -> None:
    path, problems, start = tmp_path / "journal.db", [], threading.Barrier(4)

    def work() -> None:
        start.wait()
        try:
            with SqliteJournal(path) as journal:
                a_run(journal, 20)
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with SqliteJournal(path) as journal:
        assert [len(list(journal.cycles(run.id))) for run in journal.runs()] == [4] * 4


def test_proposals_are_kept_even_when_nothing_is_planned(journal) -> None:
    loop, _ = a_run(journal, 15, policy=lambda s: Proposal(policy="x"))
    assert [len(c.proposals) for c in journal.cycles(loop.run_id)] == [1, 1, 1]


GOLDEN = Path(__file__).parents[1] / "golden" / "journal.sqlite"


def test_a_journal_of_the_earlier_format_is_left_alone_and_said_in_words(tmp_path) -> None:
    path = tmp_path / "journal.sqlite"
    shutil.copy(GOLDEN, path)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"earlier Penstock .format 1, .* left as it is; move it away"):
        SqliteJournal(path)
    assert path.read_bytes() == before
    assert issubclass(JournalError, UserError), "the command line prints it as it is"


def test_files_are_for_their_owner_only(tmp_path) -> None:
    before = os.umask(0)
    try:
        with SqliteJournal(tmp_path / "journal.db") as journal:
            a_run(journal, 10)
            files = sorted(tmp_path.iterdir())
            assert [f.name for f in files] == ["journal.db", "journal.db-shm", "journal.db-wal"]
            assert {stat.S_IMODE(f.stat().st_mode) for f in files} == {0o600}
    finally:
        os.umask(before)


def test_a_journal_in_memory_is_bounded() -> None:
    with SqliteJournal(":memory:") as journal:
        assert journal.retention == IN_MEMORY
        assert IN_MEMORY.evidence_bytes + IN_MEMORY.cycle_bytes <= 64_000_000


def test_cycles_are_dropped_when_they_grow_too_large(tmp_path) -> None:
    retention = Retention(cycle_bytes=20_000)
    with SqliteJournal(tmp_path / "journal.db", retention=retention) as journal:
        loop, _ = a_run(journal, 500)
        kept = [c.number for c in journal.cycles(loop.run_id)]
        size = journal._one("SELECT sum(bytes) FROM cycles")[0]
    assert size <= 20_000
    assert 0 < len(kept) < 100
    assert kept == list(range(kept[0], 101)), "the newest"


def test_a_locked_file_is_survived_and_written_again_afterwards(tmp_path) -> None:
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        loop, _ = a_run(journal, 10)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        loop.run(for_s=5)
        assert loop.faults == {"journal-failed": 1}
        other.execute("ROLLBACK")
        other.close()
        loop.run(for_s=5)
        assert loop.faults == {"journal-failed": 1}
        numbers = [c.number for c in journal.cycles(loop.run_id)]
    assert numbers == [1, 2, 4]


def test_a_full_disk_is_survived(tmp_path) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        loop, _ = a_run(journal, 10)
        pages = journal._one("PRAGMA page_count")[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        loop.run(for_s=200)
        assert loop.faults["journal-failed"] > 0
        journal._db.execute("PRAGMA max_page_count = 1000000")
        loop.run(for_s=5)
        assert next(reversed(list(journal.cycles(loop.run_id)))).number == 43
