"""Whatever is wanted, lost or slow in whatever order: the pool ends where it was told to and harms nobody."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.spark.act.executor_pool import ExecutorPool
from penstock.testing import FakeClock
from tests.spark_offline.doubles import FakeCluster, FakeSettings

CAPACITY = 6


class PoolMachine(RuleBasedStateMachine):
    """A pool on a fake cluster: wishes, time, losses and restarts in any order."""

    @initialize(
        executors=st.integers(1, 4),
        startup_s=st.sampled_from([2.0, 15.0]),
        decommissions=st.booleans(),
        batches=st.lists(st.sampled_from([0.5, 3.0, 40.0]), max_size=2),
    )
    def begin(self, executors: int, startup_s: float, decommissions: bool, batches: list[float]) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(
            self.clock,
            executors=executors,
            capacity=CAPACITY,
            startup_s=startup_s,
            decommissions=decommissions,
        )
        self.pool = ExecutorPool(self.cluster, FakeSettings(self.clock), clock=self.clock.now)
        for number, batch_s in enumerate(batches):
            self.pool.follow(str(number), self.cluster.query(batch_s=batch_s, partitions=4))
        self.desired: int | None = None
        self.lost = 0
        self.run(1.0)

    def run(self, seconds: float) -> None:
        end_s = self.clock.now() + seconds
        due_s, looks_s = 0.0, 0.0
        while self.clock.now() < end_s:
            if self.clock.now() >= looks_s:
                self.pool.reconcile()
                due_s, looks_s = 0.0, self.clock.now() + 2.0
            if self.clock.now() >= due_s:
                due_s = self.clock.now() + self.pool.tick()
            self.cluster.advance(0.02)

    @rule(count=st.integers(1, CAPACITY))
    def want(self, count: int) -> None:
        self.pool.want(count)
        self.desired = count

    @rule(number=st.integers(1, 8))
    def release(self, number: int) -> None:
        self.pool.release(str(number))
        self.desired = self.pool.status().desired

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0, 7.0]))
    def wait(self, seconds: float) -> None:
        self.run(seconds)

    @rule(number=st.integers(1, 8))
    def lose(self, number: int) -> None:
        working = [m for m in self.cluster.present() if m.takes_tasks]
        if len(working) > 1 and str(number) in {m.id for m in working}:
            self.cluster.lose(str(number))

    @invariant()
    def nobody_is_harmed(self) -> None:
        if hasattr(self, "cluster"):
            assert self.cluster.harm == []
            assert any(m.takes_tasks for m in self.cluster.present())

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.run(400)
        self.nobody_is_harmed()
        if self.desired is not None:
            there = self.cluster.present()
            assert len(there) == self.desired, "quiet, and as many as desired"
            assert self.cluster.target in (None, self.desired)
            assert self.pool.status().settled
            for query in self.cluster.queries:
                assert set(query.at.values()) <= {m.id for m in there}
        assert self.pool.close()
        assert all(m.takes_tasks for m in self.cluster.present() if m.leaves_s is None)


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(
    max_examples=25, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
