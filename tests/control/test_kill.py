"""Fifty kills at random moments: the journal is never corrupt, and each cycle is there whole or not at all.

Real processes, each a controller that goes on with the same run, killed with SIGKILL while they write as fast as they
can. Started by a fork server, which has imported everything already, so that fifty of them take seconds.
"""

import multiprocessing
import random
import sqlite3
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from penstock.control import Cycle, Loop, PolicyRun, Retention, SqliteJournal, replay
from penstock.control.codec import unpack
from penstock.control.decision import Standing
from penstock.policies.actions import Shed
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.testing import FakeClock, RecordingRuntime, ScriptedPolicy, a_snapshot

KILLS = 50
RETENTION = Retention(evidence_bytes=300_000)  # small, so that dropping old snapshots is among what is killed


def zigzag(snapshot: Snapshot) -> list[Shed]:
    now = float(snapshot.sources.keep[0])
    reason = Reason(code="test", facts={"keep": now})
    return [Shed(reason=reason, operator=snapshot.dataflow.sources[0].id, keep=0.5 if now == 1.0 else 1.0)]


def write_until_killed(path: str, run: str | None, start_s: float, written: Connection) -> None:
    with SqliteJournal(path, retention=RETENTION) as journal:
        clock = FakeClock(start_s)

        def tell(cycle: Cycle, _: object) -> None:
            written.send((loop.run_id, cycle.number, cycle.time_s, [f.cause for f in cycle.faults]))

        runtime = RecordingRuntime(
            clock, lambda t, d: a_snapshot(time_s=t, parallelism=20, keep=dict(d["keep"]))
        )
        policies = [PolicyRun(policy=ScriptedPolicy(zigzag))]
        loop = Loop(runtime, policies, clock=clock, journal=journal, resume=run, subscribers=[tell])
        loop.run()


def check(path: Path, run: str, written: int) -> None:
    """Sound as a file, and nothing half-written in it."""
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        numbers = [n for (n,) in db.execute("SELECT number FROM cycles WHERE run = ? ORDER BY id", (run,))]
        with_evidence = [
            n for (n,) in db.execute("SELECT number FROM evidence WHERE run = ? ORDER BY id", (run,))
        ]
        latest, standing = db.execute("SELECT number, standing FROM latest WHERE run = ?", (run,)).fetchone()
    db.close()
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= written  # what was acknowledged is there
    assert latest == numbers[-1]  # a cycle, its evidence and the standing after it are one transaction
    assert with_evidence == numbers[-len(with_evidence) :]
    unpack(Standing, standing)


@pytest.mark.slow
def test_fifty_kills_never_corrupt_the_journal(tmp_path: Path) -> None:
    path, chance = tmp_path / "journal.db", random.Random(20240229)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    run, number, time_s, kills = None, 0, 0.0, 0
    for _ in range(KILLS):
        receiving, sending = processes.Pipe(duplex=False)
        child = processes.Process(target=write_until_killed, args=(str(path), run, time_s, sending))
        child.start()
        sending.close()
        assert receiving.poll(30), "the controller wrote nothing in 30 s"
        time.sleep(chance.uniform(0.0, 0.06))
        child.kill()
        child.join()
        assert child.exitcode == -9
        kills += 1
        try:
            while receiving.poll():
                run, number, time_s, faults = receiving.recv()
                assert faults == []
        except (EOFError, OSError):
            pass  # the last message may be cut off, as its sender was
        assert run is not None
        check(path, run, number)
    assert kills == KILLS
    with SqliteJournal(path, retention=RETENTION) as journal:
        cycles = list(journal.cycles(run))
        replayed = list(replay(journal, run, [PolicyRun(policy=ScriptedPolicy(zigzag))]))
    assert sum(c.recovering for c in cycles) == KILLS - 1
    assert len(replayed) > 10
    assert all(r.same for r in replayed)
