"""Interference on what Spark tells of an attached query: micro-batches, inferred speeds, the real size of state."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.dataflow import Dataflow, Operator, OperatorId, State, Stream
from penstock.policies.actions import Move
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.telemetry import (
    Alternates,
    Batches,
    Constraints,
    Nodes,
    Operators,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)

SOURCE, STATE, SINK = (OperatorId(f"q.{name}") for name in ("source", "state0", "sink"))
FLOW = Dataflow(
    "q",
    operators=(
        Operator(id=SOURCE, kind="source"),
        Operator(id=STATE, kind="transform", state=State(schema="dedup")),
        Operator(id=SINK, kind="sink"),
    ),
    streams=(
        Stream(source=SOURCE, target=STATE, wiring="key"),
        Stream(source=STATE, target=SINK, wiring="forward"),
    ),
)
PARTITIONS, INTERVAL_S = 30, 5.0


class Application:
    """A query on three executors: every partition takes 0.1 s a batch on a usual one, a batch an interval."""

    def __init__(
        self,
        *,
        noise: float = 0.0,
        state_bytes: float = 1e6,
        empty: bool = False,
        seed: int = 0,
        **options: float,
    ) -> None:
        self.rng, self.noise = np.random.default_rng(seed), noise
        self.node = np.arange(PARTITIONS) % 3
        self.slow, self.pause_factor = np.ones(3), 1.0
        self.state_bytes, self.records = state_bytes, 0.0 if empty else 100.0
        self.policy, self.options, self.now_s = Interference(), InterferenceOptions(**options), 0.0
        self.memory = self.policy.start(self.options)

    def cycle(self) -> int:
        """One cycle; the moves that it decided, which are made at once."""
        self.now_s += INTERVAL_S
        busy = 0.1 * self.slow[self.node] * self.rng.lognormal(0, self.noise, PARTITIONS)
        proposal, self.memory = self.policy.decide(self._snapshot(busy), self.memory, self.options)
        moves = [a for a in proposal.actions if isinstance(a, Move)]
        for move in moves:
            self.node[move.index] = int(move.target)
        return len(moves)

    def _snapshot(self, busy: np.ndarray) -> Snapshot:
        everything = np.full(PARTITIONS, self.records)
        return Snapshot(
            time_s=self.now_s,
            interval_s=INTERVAL_S,
            dataflow=FLOW,
            nodes=Nodes.blank(
                3,
                ids=("0", "1", "2"),
                hosts=("a", "b", "c"),
                machines=("executor",) * 3,
                cores=1.0,
                speed=1.0 / self.slow,
                speed_known=True,
                ready=True,
            ),
            operators=Operators.blank(3, parallelism=[3, PARTITIONS, 1]),
            alternates=Alternates.blank(0),
            tasks=Tasks.blank(
                PARTITIONS,
                operator=1,
                index=np.arange(PARTITIONS),
                node=self.node,
                arrived=everything,
                processed=everything,
                busy_s=busy,
                cpu=busy / INTERVAL_S,
                state_bytes=self.state_bytes,
                state_known=True,
                known=True,
            ),
            streams=Streams.blank(2, keep=1.0),
            sources=Sources.blank(0),
            sinks=Sinks.blank(0),
            pause_factor=self.pause_factor,
            constraints=Constraints.blank(0),
            batches=Batches(
                id=np.array([1]),
                records=np.array([self.records * PARTITIONS]),
                duration_s=np.array([INTERVAL_S]),
                fixed_s=np.array([0.1]),
                busy_s=np.array([busy.sum()]),
                interval_s=0.0,
            ),
        )

    def counts(self) -> list[int]:
        """State partitions on each executor."""
        return np.bincount(self.node, minlength=3).tolist()


@pytest.mark.parametrize("empty", [False, True], ids=["records", "tasks without records"])
def test_partitions_leave_a_slow_executor_stay_away_and_return(empty: bool) -> None:
    application = Application(empty=empty)
    assert sum(application.cycle() for _ in range(10)) == 0
    application.slow[2] = 4.0
    assert sum(application.cycle() for _ in range(20)) > 0
    assert application.counts()[2] <= 5, "30 partitions at speeds 1, 1, 1/4: about 13, 13, 4"
    assert sum(application.cycle() for _ in range(40)) == 0, "what moved stays"
    application.slow[2] = 1.0
    for _ in range(40):
        application.cycle()
    assert min(application.counts()) >= 8


def test_noise_moves_nothing_in_ten_minutes() -> None:
    application = Application(noise=0.3)
    assert sum(application.cycle() for _ in range(120)) == 0


def test_eight_partitions_beside_twice_eleven_stay_where_they_are() -> None:
    """What Spark made of thirty partitions in an undisturbed run; a tenth of the time to be won moved three of them."""
    moves = {}
    for least in (InterferenceOptions().least_relief, 0.05):
        applications = [Application(noise=0.3, seed=seed, least_relief=least) for seed in range(5)]
        for application in applications:
            application.node = np.repeat([0, 1, 2], [11, 11, 8])
        moves[least] = sum(application.cycle() for application in applications for _ in range(120))
    assert moves[0.2] == 0
    assert moves[0.05] > 0, "else the threshold has nothing to do"


def test_a_move_costs_what_its_state_takes_to_restore() -> None:
    small, large = Application(state_bytes=1e6), Application(state_bytes=4e9)
    for application in (small, large):
        application.slow[2] = 2.0
    assert sum(small.cycle() for _ in range(10)) > 0
    assert sum(large.cycle() for _ in range(10)) == 0, "200 s of restoring for 0.1 s a batch"
    slower = Application(state_bytes=1e6)
    slower.slow[2], slower.pause_factor = 2.0, 4000.0
    assert sum(slower.cycle() for _ in range(10)) == 0, "moves were seen to pause that much longer"
