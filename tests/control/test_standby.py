"""A standby takes over from a killed leader within two intervals, with what the leader knew; never do two act."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest

from penstock.control import Loop, PolicyRun, Settings, SqliteJournal, WallClock
from penstock.control.codec import unpack
from penstock.control.standby import Standby
from penstock.policies.actions import Shed
from penstock.policies.interference import Interference, InterferenceMemory, InterferenceOptions
from penstock.policies.reasons import Reason
from penstock.testing import FakeClock, RecordingRuntime, ScriptedPolicy, a_dataflow, a_snapshot
from tests.policies.interference.scenes import a_crowd

INTERVAL_S = 3.0


class Never:
    """A stop that is never set, and tells when the standby is ready."""

    def __init__(self, ready) -> None:
        self.ready, self.standby = ready, None

    def is_set(self) -> bool:
        if self.standby.ready:
            self.ready.set()
        return False


def lead(path: str, owner: str, told, ready) -> None:
    clock = WallClock()
    options = InterferenceOptions(cooldown_s=60.0)
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

        stop = Never(ready)
        stop.standby = Standby(
            journal, make_loop, name="flow", owner=owner, clock=clock, interval_s=INTERVAL_S
        )
        stop.standby.run(stop)


@pytest.mark.slow
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
        deadline = time.time() + 250
        while not until() and time.time() < deadline:
            if receiving.poll(0.05):
                told.append(receiving.recv())

    try:
        first.start()
        listen(lambda: len(told) >= 3)
        second.start()
        assert ready["second"].wait(250), "the standby stands by"
        listen(lambda: len(told) >= 5)
        assert {owner for owner, *_ in told} == {"first"}, "while it lives, nobody else acts"
        first.kill()
        killed = time.time()
        first.join()
        listen(lambda: sum(t[0] == "second" for t in told) >= 2)
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
    assert took[2] - killed <= 2 * INTERVAL_S
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


def test_a_leader_that_was_replaced_while_it_decided_neither_acts_nor_writes(tmp_path: Path) -> None:
    clock, flow = FakeClock(1000.0), a_dataflow()
    meanwhile = []  # what happens while the first decides

    def propose(_) -> list[Shed]:
        if meanwhile:
            meanwhile.pop()()
        return [Shed(reason=Reason(code="test"), operator="events", keep=0.5)]

    with SqliteJournal(tmp_path / "journal.db", unix_time=clock.now) as journal:

        def controller(owner: str, script) -> tuple[Standby, RecordingRuntime]:
            world = RecordingRuntime(clock, lambda t, _: a_snapshot(flow, time_s=t))

            def make_loop(run: str | None) -> Loop:
                policies = [PolicyRun(policy=ScriptedPolicy(script), options=None)]
                return Loop(world, policies, clock=clock, journal=journal, resume=run)

            return Standby(journal, make_loop, name="flow", owner=owner, clock=clock, interval_s=10.0), world

        first, by_first = controller("first", propose)
        second, by_second = controller("second", [])
        assert first.step()
        assert not second.step()
        assert (first.ready, second.ready) == (True, True), "both have rehearsed"
        assert (len(by_first.actions), by_second.plans) == (1, []), "which does nothing"
        meanwhile += [lambda: clock.advance(16.0) or second.step()]  # longer than the lease of 15 s
        first.step()
        assert not first.step(), "it has noticed"
        assert (len(by_first.plans), len(by_second.plans)) == (1, 1)
        holder, (run,) = journal.leases.holder("flow"), journal.runs()
        assert (holder and holder.owner) == "second"
        assert [cycle.number for cycle in journal.cycles(run.id)] == [1, 2], "one history, the second's"
