"""Moves of state: issued between batches, verified, one dead target stops nobody, calls linear in partitions."""

from __future__ import annotations

import pytest

from penstock.spark.act.locality_wait import LocalityWait
from penstock.spark.act.spreading import Place
from penstock.spark.act.state_moves import TRIES, MoveJob, StateMoves
from penstock.spark.act.touched import Touched
from penstock.testing import FakeClock
from tests.spark_offline.doubles import FakeCluster, FakeQuery, FakeSettings


class Scene:
    def __init__(self, **query: object) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(self.clock)
        self.settings = FakeSettings(self.clock)
        self.query: FakeQuery = self.cluster.query(**query)
        self.moves = StateMoves(
            self.query,
            hosts=lambda: {m.id: "host" for m in self.cluster.present()},
            wait=LocalityWait(self.settings, Touched(self.settings)),
            clock=self.clock.now,
        )

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.02)):
            self.cluster.advance(0.02)
            if self.moves.busy:
                self.moves.tick()

    def results(self, job: MoveJob) -> dict[int, str]:
        return {place.partition: outcome.result for place, outcome in job.outcomes.items()}


def at(partition: int, operator: int = 0) -> Place:
    return Place(operator=operator, partition=partition)


def test_a_move_is_issued_between_batches_and_verified() -> None:
    s = Scene(gap_s=0.04)
    s.run(0.5)
    job = s.moves.move({at(0): "3", at(1): "3"})
    s.run(0.3)
    assert s.query.running
    assert s.query.calls["move"] == 0, "not while a batch runs"
    s.run(3)
    assert job.done
    assert s.results(job) == {0: "moved", 1: "moved"}
    assert {s.query.at[0, 0], s.query.at[0, 1]} == {"3"}
    assert job.pause_s is not None
    assert s.moves.moving == frozenset()


@pytest.mark.parametrize("partitions", [200, 1000])
def test_calls_do_not_grow_with_the_partitions(partitions: int) -> None:
    s = Scene(partitions=partitions)
    job = s.moves.move({at(p): "2" for p in range(partitions)})
    s.run(5)
    assert job.done
    assert not job.missed
    assert s.query.calls["move"] <= 2
    assert s.query.calls["where"] <= 4


def test_a_dead_target_stops_nobody_else() -> None:
    s = Scene()
    job = s.moves.move({at(0): "99", at(1): "2", at(3): "2"})
    s.run(5)
    assert s.results(job) == {0: "target-gone", 1: "moved", 3: "moved"}
    assert job.missed[at(0)].cause == "executor 99 is gone"


def test_a_newer_wish_replaces_the_older_one() -> None:
    s = Scene()
    first = s.moves.move({at(0): "2", at(1): "2"})
    second = s.moves.move({at(0): "3"})
    s.run(5)
    assert s.results(first) == {0: "replaced", 1: "moved"}
    assert s.results(second) == {0: "moved"}
    assert s.query.at[0, 0] == "3"


def test_what_is_cancelled_is_not_issued() -> None:
    s = Scene(gap_s=0.04)
    before = dict(s.query.at)
    s.run(0.5)
    job = s.moves.move({at(0): "3", at(1): "3"})
    job.cancel()
    s.run(5)
    assert s.results(job) == {0: "cancelled", 1: "cancelled"}
    assert s.query.at == before


def test_what_spark_will_not_do_is_tried_a_few_times_and_said() -> None:
    s = Scene(sticky=False)
    job = s.moves.move({at(0): "3"})
    s.run(15)
    assert s.results(job) == {0: "elsewhere"}
    assert s.query.calls["move"] == TRIES


def test_patience_follows_the_length_of_batches() -> None:
    s = Scene(batch_s=120.0, gap_s=0.04)
    s.run(150)
    job = s.moves.move({at(0): "3"})
    s.run(300)
    assert s.results(job) == {0: "moved"}


def test_a_batch_that_never_ends_is_given_up() -> None:
    s = Scene(batch_s=10_000.0)
    s.run(1)
    job = s.moves.move({at(0): "3"})
    s.run(130)
    assert s.results(job) == {0: "no-boundary"}
    assert "no micro-batch ended within" in str(job.missed[at(0)].cause)


def test_an_idle_query_is_told_without_a_batch() -> None:
    s = Scene(idle=True)
    job = s.moves.move({at(0): "3"})
    s.run(4)
    assert s.results(job) == {0: "told"}
    assert not job.missed


def test_the_end_of_the_query_ends_its_moves() -> None:
    s = Scene(gap_s=0.04)
    s.run(0.5)
    job = s.moves.move({at(0): "3"})
    s.query.active = False
    s.run(1)
    assert s.results(job) == {0: "query-ended"}


def test_state_that_does_not_exist_is_said() -> None:
    s = Scene()
    job = s.moves.move({at(0, operator=7): "3", at(99): "3"})
    s.run(3)
    assert {o.cause for o in job.outcomes.values()} == {"the query has no such state"}


def test_the_wait_is_raised_while_moves_are_under_way_only() -> None:
    s = Scene(batch_s=6.0, gap_s=0.04)
    s.run(10)
    s.moves.move({at(0): "3"})
    s.run(4)
    assert s.settings.values["spark.locality.wait.process"] == "9000ms"
    s.run(20)
    assert s.settings.values == {}


def test_a_longer_wait_of_the_user_stays() -> None:
    s = Scene(gap_s=0.04)
    s.settings.values["spark.locality.wait"] = "10s"
    s.moves.move({at(0): "3"})
    s.run(5)
    assert s.settings.values == {"spark.locality.wait": "10s"}


def test_close_decides_everything() -> None:
    s = Scene(gap_s=0.04)
    s.run(0.5)
    job = s.moves.move({at(0): "3"})
    s.moves.close()
    assert job.done
    assert s.results(job) == {0: "cancelled"}
    assert s.settings.values == {}
