"""One desired number of executors: what comes late, in part or never, and what is called off at every step."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.policies.reasons import Reason
from penstock.spark.act.executor_pool import ExecutorPool, PoolOptions
from penstock.spark.act.touched import KEY as TOUCHED
from penstock.spark.internals.errors import SparkInternalsError
from penstock.testing import FakeClock
from tests.spark_offline.doubles import FakeCluster, FakeQuery, FakeSettings


@dataclass
class World:
    """A pool on a fake cluster with one query, and its own time."""

    clock: FakeClock = field(default_factory=FakeClock)
    cluster: FakeCluster = field(init=False)
    settings: FakeSettings = field(init=False)
    pool: ExecutorPool = field(init=False)
    told: list[Reason] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Let time pass as the background thread sees it; the loop looks every two seconds."""
        end_s = self.clock.now() + seconds
        looks_s = self.clock.now()
        due_s = 0.0
        while self.clock.now() < end_s:
            if self.clock.now() >= looks_s:
                self.told += self.pool.reconcile()
                looks_s += 2.0
                due_s = 0.0
            if self.clock.now() >= due_s:
                due_s = self.clock.now() + self.pool.tick()
            self.cluster.advance(0.02)

    @property
    def ids(self) -> list[str]:
        return [m.id for m in self.cluster.present()]

    @property
    def codes(self) -> list[str]:
        return [reason.code for reason in self.told]


def world(
    *, options: PoolOptions | None = None, query: dict[str, object] | None = None, **cluster: object
) -> World:
    made = World()
    made.cluster = FakeCluster(made.clock, **cluster)  # type: ignore[arg-type]
    made.settings = FakeSettings(made.clock)
    made.pool = ExecutorPool(made.cluster, made.settings, options=options, clock=made.clock.now)
    if query is not None:
        follow(made, **query)
    made.run(3)
    return made


def follow(made: World, key: str = "q", **options: object) -> FakeQuery:
    query = made.cluster.query(**options)
    made.pool.follow(key, query)
    return query


def test_three_two_three_one_moves_state_and_asks_exactly() -> None:
    w = world(query={})
    for count in (2, 3, 1):
        w.pool.want(count)
        w.run(40)
        assert len(w.ids) == w.cluster.target == count
        assert w.pool.status().settled
        assert set(w.cluster.queries[0].at.values()) <= set(w.ids)
    assert (w.cluster.harm, w.cluster.rough) == ([], [])
    assert w.told == []


def test_state_is_spread_over_executors_that_arrive() -> None:
    w = world(executors=1, query={"partitions": 6})
    w.pool.want(3)
    w.run(30)
    held = list(w.cluster.queries[0].at.values())
    assert sorted(held.count(id_) for id_ in w.ids) == [2, 2, 2]


def test_nothing_is_touched_before_something_is_wanted() -> None:
    w = world(query={})
    w.run(60)
    assert (w.cluster.requests, w.cluster.killed, w.settings.values) == ([], [], {})


def test_capacity_that_never_comes_is_taken_back_and_told_once() -> None:
    w = world(executors=3, capacity=3, query={})
    w.pool.want(10)
    w.run(30)
    assert w.cluster.target == 10
    w.run(60)
    assert w.cluster.target == 3
    status = w.pool.status()
    assert status.refusal is not None
    assert dict(status.refusal.facts) == {"asked": 10, "came": 3, "waited_s": 60, "retry_s": 60}
    w.run(2000)
    assert w.codes == ["executors-not-there"]
    raised = [a for a, b in zip(w.cluster.requests, w.cluster.requests[1:], strict=False) if a < b]
    assert 3 <= len(raised) <= 6, "asked again with growing pauses"


def test_ten_asked_five_came_shrink_to_three_leaves_three() -> None:
    w = world(executors=3, capacity=5, query={})
    w.pool.want(10)
    w.run(10)
    assert (w.cluster.target, len(w.ids)) == (10, 5)
    w.pool.want(3)
    w.run(40)
    assert (w.cluster.target, len(w.ids)) == (3, 3)
    w.run(200)
    assert w.cluster.launched == 5, "no replacement storm"


def test_late_arrivals_are_welcome_while_wanted() -> None:
    w = world(executors=1, startup_s=100.0, query={})
    w.pool.want(3)
    w.run(70)
    assert (w.cluster.target, w.pool.status().usable) == (1, 1)
    assert w.pool.status().refusal is not None
    w.run(40)
    assert len(w.ids) == 3
    assert w.cluster.target == 3
    assert w.pool.status().refusal is None


def test_late_arrivals_that_nobody_wants_any_more_leave_again() -> None:
    w = world(executors=1, startup_s=100.0, query={})
    w.pool.want(3)
    w.run(10)
    w.pool.want(1)
    w.run(80)
    assert (w.cluster.target, len(w.ids)) == (1, 1)
    w.run(60)
    assert (w.cluster.target, len(w.ids)) == (1, 1)
    assert w.cluster.killed == ["3", "2"] or w.cluster.killed == ["2", "3"]
    assert w.cluster.harm == []


def test_patience_follows_how_long_executors_took() -> None:
    w = world(executors=1, startup_s=50.0, capacity=2, query={})
    w.pool.want(2)
    w.run(60)
    assert len(w.ids) == 2
    w.pool.want(3)
    w.run(140)
    assert w.cluster.target == 3, "three times 50 s have not passed"
    w.run(20)
    assert w.cluster.target == 2


@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0, 1.5, 2.0, 3.0, 6.0])
def test_a_drain_is_called_off_at_any_step(after_s: float) -> None:
    w = world(query={"batch_s": 1.0})
    w.pool.want(1)
    w.run(after_s)
    killed = list(w.cluster.killed)
    w.pool.want(3)
    w.run(60)
    assert w.cluster.killed == killed, "nobody is removed any more"
    assert len(w.ids) == 3
    assert w.cluster.target == (None if after_s == 0.0 else 3), "untouched unless it had begun"
    assert w.pool.status().settled
    assert w.cluster.harm == []


@pytest.mark.parametrize("after_s", [0.0, 1.0, 3.0, 5.0, 8.0])
def test_a_growth_is_called_off_at_any_step(after_s: float) -> None:
    w = world(query={})
    w.pool.want(9)
    w.run(after_s)
    w.pool.want(3)
    w.run(60)
    assert w.cluster.target == (None if after_s == 0.0 else 3), "untouched unless it had begun"
    assert w.ids == ["1", "2", "3"], "the old ones stay"
    assert w.cluster.harm == []


def test_the_newest_wish_wins() -> None:
    w = world(query={})
    for count in (9, 2, 5, 1, 3):
        w.pool.want(count)
        w.run(0.5)
    w.run(60)
    assert (len(w.ids), w.cluster.target) == (3, 3)
    assert w.cluster.harm == []


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0, 1.5, 2.5, 4.5, 7.0])
def test_close_at_any_step_leaves_a_sound_target(count: int, after_s: float) -> None:
    w = world(query={})
    w.pool.want(count)
    w.run(after_s)
    assert w.pool.close()
    w.cluster.advance(60)
    usable = [m for m in w.cluster.present() if m.takes_tasks]
    assert len(usable) == len(w.ids), "none is half removed"
    if w.cluster.target is not None:
        assert len(usable) >= w.cluster.target >= 1
        assert w.cluster.target <= 3 if after_s < 4 or count == 1 else True
    assert w.pool.touched.put_back({"executors": w.pool.put_back_target}) == {}
    w.cluster.advance(20)
    assert w.cluster.target in (None, 3), "as before"
    assert TOUCHED not in w.settings.values
    assert w.cluster.harm == []


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0, 1.5, 2.5, 4.5, 7.0])
def test_after_a_kill_at_any_step_the_next_pilot_puts_everything_back(count: int, after_s: float) -> None:
    w = world(query={"batch_s": 4.0, "gap_s": 0.04})
    w.pool.want(count)
    w.run(after_s)
    w.cluster.advance(30)  # the process is gone: nothing looks any more
    later = ExecutorPool(w.cluster, w.settings, clock=w.clock.now)
    levers = {"executors": later.put_back_target, **later.wait.levers}
    assert later.touched.put_back(levers) == {}
    w.cluster.advance(30)
    assert w.cluster.target in (None, 3)
    assert len(w.ids) >= 3
    assert all(m.takes_tasks for m in w.cluster.present()), "none is half removed"
    assert w.settings.values == {}
    assert w.cluster.harm == []


@pytest.mark.parametrize("gap_s", [0.02, 0.04, 0.5])
@pytest.mark.parametrize("seconds", [0.0, 0.37, 0.74])
def test_removal_waits_for_the_end_of_a_batch(gap_s: float, seconds: float) -> None:
    w = world(query={"partitions": 1, "gap_s": gap_s, "batch_s": 1.1})
    w.run(seconds)
    w.pool.want(2)
    w.run(20)
    assert len(w.ids) == 2, "an executor without state needs no move, and still no task of it is lost"
    assert (w.cluster.harm, w.cluster.rough) == ([], [])


def test_batches_of_two_minutes() -> None:
    w = world(query={"batch_s": 120.0, "gap_s": 0.04})
    w.pool.want(2)
    w.run(600)
    assert (len(w.ids), w.cluster.target) == (2, 2)
    assert w.cluster.harm == []
    w.pool.want(3)
    w.run(600)
    held = list(w.cluster.queries[0].at.values())
    assert sorted(held.count(id_) for id_ in w.ids) == [2, 2, 2]
    assert w.cluster.harm == []


def test_state_that_will_not_move_leaves_between_batches_only() -> None:
    w = world(query={"sticky": False, "gap_s": 0.04})
    w.pool.want(2)
    w.run(120)
    assert len(w.ids) == 2
    assert (w.cluster.harm, w.cluster.rough) == ([], [])


def test_two_queries_that_never_rest_together() -> None:
    w = world(query={"batch_s": 3.0, "gap_s": 0.0})
    follow(w, "other", batch_s=7.1, gap_s=0.0)
    w.run(10)
    w.pool.want(2)
    w.run(180)
    assert len(w.ids) == 2
    assert w.cluster.harm == []


def test_state_that_comes_back_is_moved_again() -> None:
    w = world(query={"strays": True, "gap_s": 0.04})
    w.pool.want(2)
    w.run(60)
    assert len(w.ids) == 2
    assert (w.cluster.harm, w.cluster.rough) == ([], [])


def test_nothing_is_removed_while_it_is_unknown_where_state_is(monkeypatch: pytest.MonkeyPatch) -> None:
    w = world(query={})

    def unreadable(self: FakeQuery, operator_id: int) -> dict[int, str | None]:
        raise SparkInternalsError("state moves", "the gateway is busy")

    with monkeypatch.context() as patched:
        patched.setattr(FakeQuery, "where", unreadable)
        w.pool.want(1)
        w.run(100)
        assert w.cluster.killed == []
    w.run(60)
    assert len(w.ids) == 1
    assert w.cluster.harm == []


def test_an_idle_query_is_no_hindrance() -> None:
    w = world(query={"idle": True})
    w.pool.want(1)
    w.run(30)
    assert len(w.ids) == 1
    assert set(w.cluster.queries[0].at.values()) == set(w.ids)


def test_a_query_that_ended_is_no_hindrance() -> None:
    w = world(query={})
    w.cluster.queries[0].active = w.cluster.queries[0].running = False
    w.pool.want(1)
    w.run(30)
    assert len(w.ids) == 1


def test_release_takes_just_that_one() -> None:
    w = world(query={})
    w.pool.release("1")
    w.pool.release("1")
    w.run(20)
    assert w.ids == ["2", "3"]
    assert w.cluster.target == 2
    w.pool.release("1")
    w.run(20)
    assert w.ids == ["2", "3"], "what is gone is not released again"


def test_the_last_executor_stays() -> None:
    w = world(executors=1, query={})
    w.pool.release("1")
    w.run(20)
    assert w.ids == ["1"]
    with pytest.raises(ValueError, match="at least one"):
        w.pool.want(0)


def test_the_one_that_was_to_go_stays_when_the_others_die() -> None:
    w = world(executors=2, capacity=2, startup_s=200.0, query={"batch_s": 4.0})
    w.pool.want(1)
    w.run(0.02)
    (draining,) = w.pool.draining
    w.cluster.lose("1" if draining == "2" else "2")
    w.run(30)
    assert w.ids == [draining]
    assert w.cluster.harm == []


def test_the_one_that_works_stays_although_it_was_released() -> None:
    w = world(executors=1, startup_s=4.0, query={})
    w.pool.want(2)
    w.run(5)
    for machine in w.cluster.present():
        machine.completed_tasks = 1 if machine.id == "1" else 0
    w.pool.release("1")
    w.run(1)
    assert w.cluster.harm == []
    w.run(60)
    assert len(w.ids) == 1
    assert w.cluster.harm == []


def test_a_zombie_is_no_capacity_and_is_replaced() -> None:
    w = world(query={})
    w.pool.want(3)
    w.run(5)
    w.cluster.decommission("2")
    w.run(5)
    status = w.pool.status()
    assert (status.usable, status.unusable) == (2, 1)
    assert [v.reason for v in w.pool.view() if v.state == "unusable"] == [
        "Spark gives it no tasks: decommissioned or lost"
    ]
    w.run(60)
    assert "2" not in w.ids
    assert len(w.ids) == w.cluster.target == 3
    assert w.codes.count("executor-unusable") == 1
    assert w.pool.touched.pending() == {"executors": 3}, "as many as there were, the zombie too"


def test_an_excluded_executor_is_left_alone_and_another_asked_for() -> None:
    w = world(query={})
    w.pool.want(3)
    w.run(5)
    w.cluster.machines["2"].is_excluded = True
    w.run(60)
    assert "2" in w.ids
    assert w.pool.status().usable == 3
    assert w.cluster.target == 4
    w.pool.want(2)
    w.run(60)
    assert "2" not in w.ids, "what is no use goes first"
    assert len(w.ids) == w.cluster.target == 2


def test_a_silent_executor_is_no_capacity() -> None:
    w = world(query={})
    w.pool.want(3)
    w.run(2)
    w.cluster.machines["3"].heartbeat_age_s = 40.0
    w.run(2)
    assert w.pool.status().unusable == 1


def test_an_executor_that_dies_is_replaced_by_the_manager() -> None:
    w = world(query={})
    w.pool.want(3)
    w.run(5)
    w.cluster.lose("2")
    w.run(30)
    assert len(w.ids) == w.cluster.target == 3
    assert w.cluster.killed == []


def test_dynamic_allocation_is_respected() -> None:
    w = world(held_by="Spark's dynamic allocation", query={})
    w.pool.want(1)
    w.run(60)
    assert (w.cluster.requests, w.cluster.killed) == ([], [])
    refusal = w.pool.status().refusal
    assert refusal is not None
    assert refusal.code == "executors-not-ours"
    assert "dynamic allocation" in str(refusal.facts["cause"])


def test_another_pilot_is_left_alone() -> None:
    w = world(query={})
    w.pool.want(1)
    w.run(0.5)
    w.pool.leave_alone("pilot 4711 holds the application")
    w.run(60)
    assert len(w.ids) == 3
    w.pool.leave_alone(None)
    w.pool.want(1)
    w.run(30)
    assert len(w.ids) == 1


def test_somebody_who_keeps_changing_the_target_is_noticed() -> None:
    w = world(query={})
    w.pool.want(3)
    w.run(5)
    for _ in range(4):
        w.cluster.request_total(2)
        w.run(5)
    assert w.codes == ["executors-not-ours"]
    asked = len(w.cluster.requests)
    w.cluster.request_total(2)
    w.run(60)
    assert len(w.cluster.requests) == asked + 1


def test_other_resource_profiles_keep_their_executors() -> None:
    w = world(query={})
    w.cluster.totals[7] = 4
    w.cluster.machines["3"].resource_profile = 7
    w.pool.want(1)
    w.run(60)
    assert w.cluster.totals == {0: 1, 7: 4}
    assert "3" in w.ids
    assert [v.id for v in w.pool.view()] == w.ids[:1]


def test_with_decommissioning_executors_leave_that_way() -> None:
    w = world(decommissions=True, query={})
    w.pool.want(2)
    w.run(30)
    assert len(w.ids) == w.cluster.target == 2
    assert w.cluster.killed == []


def test_an_executor_that_does_not_leave_is_killed() -> None:
    w = world(decommissions=True, removal_s=10_000.0, query={})
    w.pool.want(2)
    w.run(60)
    (leaving,) = w.pool.draining
    w.cluster.removal_s = 5.0
    w.run(120)
    assert w.cluster.killed == [leaving]
    assert len(w.ids) == w.cluster.target == 2
    assert w.pool.status().settled


def test_the_locality_wait_is_the_users_again_afterwards() -> None:
    w = world(query={"batch_s": 8.0, "gap_s": 0.04})
    w.pool.want(2)
    w.run(12)
    assert w.settings.values["spark.locality.wait.process"] == "12000ms"
    w.run(60)
    assert "spark.locality.wait.process" not in w.settings.values
    assert w.pool.touched.pending() == {"executors": 3}


def test_while_a_killed_executor_is_still_listed_no_task_waits_for_it() -> None:
    w = world(query={})
    w.pool.want(2)
    seen = set()
    for _ in range(400):
        w.run(0.1)
        leaving = any(v.state == "leaving" for v in w.pool.view())
        seen.add((leaving, w.settings.get("spark.locality.wait.node")))
    assert seen - {(False, "200ms")} == {(True, "200ms"), (False, None)}, "short before it is seen to leave"
    assert w.settings.values == {"spark.penstock.touched": '{"executors": 3}'}
