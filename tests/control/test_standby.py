"""A standby takes over from a killed leader within two intervals, with what the leader knew; never do two act."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path

import numpy as np

from penstock.control import Loop, PolicyRun, Settings, SqliteJournal, WallClock
from penstock.control.codec import unpack
from penstock.control.standby import Standby
from penstock.policies.interference import Interference, InterferenceMemory, InterferenceOptions
from penstock.testing import RecordingRuntime
from tests.policies.interference.scenes import a_crowd

INTERVAL_S = 1.0


def lead(path: str, owner: str, told, ready) -> None:
    clock = WallClock()
    options = InterferenceOptions(cooldown_s=60.0)
    memory = Interference().start(options)
    for step in range(4):  # a standby that waits has its code compiled
        _, memory = Interference().decide(a_crowd(time_s=5.0 * step), memory, options)
    with SqliteJournal(path) as journal:

        def make_loop(run: str | None) -> Loop:
            return Loop(
                RecordingRuntime(clock, lambda t, _: a_crowd(time_s=t, interval_s=INTERVAL_S)),
                [PolicyRun(policy=Interference(), options=options)],
                clock=clock,
                journal=journal,
                settings=Settings(interval_s=INTERVAL_S),
                resume=run,
                subscribers=[
                    lambda cycle, _: told.send((owner, cycle.number, time.time(), cycle.recovering))
                ],
            )

        ready.set()
        Standby(journal, make_loop, name="flow", owner=owner, clock=clock, interval_s=INTERVAL_S).run(
            threading.Event()
        )


def test_a_killed_leader_is_replaced_within_two_intervals(tmp_path: Path) -> None:
    processes = multiprocessing.get_context("spawn")
    receiving, sending = processes.Pipe(duplex=False)
    path = str(tmp_path / "journal.db")
    ready = {owner: processes.Event() for owner in ("first", "second")}
    first, second = (
        processes.Process(target=lead, args=(path, owner, sending, ready[owner])) for owner in ready
    )
    told = []

    def listen(until) -> None:
        deadline = time.time() + 60
        while not until() and time.time() < deadline:
            if receiving.poll(0.05):
                told.append(receiving.recv())

    try:
        first.start()
        listen(lambda: len(told) >= 3)
        second.start()
        assert ready["second"].wait(60), "the standby stands by"
        listen(lambda: len(told) >= 8)
        assert {owner for owner, *_ in told} == {"first"}, "while it lives, nobody else acts"
        first.kill()
        killed = time.time()
        first.join()
        listen(lambda: sum(t[0] == "second" for t in told) >= 3)
    finally:
        for process in (first, second):
            if process.pid is not None:
                process.kill()
                process.join()
    owners = [owner for owner, *_ in told]
    assert owners == sorted(owners), "first, then second, never in turns"
    took = next(t for t in told if t[0] == "second")
    before = max(t[1] for t in told if t[0] == "first")
    assert took[1] >= before + 1
    assert took[3], "the first cycle puts back what had been asked for"
    assert took[2] - killed <= 2 * INTERVAL_S + 0.4  # for the cycle itself, on a busy machine
    with SqliteJournal(path) as journal:
        run = next(iter(journal.runs())).id
        numbers = [cycle.number for cycle in journal.cycles(run)]
        latest = journal.latest(run)
    assert numbers == list(range(1, len(numbers) + 1)), "one history"
    assert latest is not None
    memory = unpack(InterferenceMemory, latest.memories["interference"])
    assert len(memory.cooling_s), "cool-downs of the first are those of the second"
    assert memory.learned.state.clock == len(numbers), "forecasts went on"
    assert np.isfinite(memory.learned.cpu_s).all()
