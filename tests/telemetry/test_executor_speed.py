"""A known slow factor is found within 10 %: with ten partitions on each executor after five batches.

A hundred quiet batches raise no false alarm. All of it on simulated tasks, of which noise and pauses are known.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrays import Floats
from penstock.telemetry.executor_speed import COLD, ExecutorSpeeds, observed

SPREAD = 0.15
"""Of a task's time around what it usually takes, in log units."""
PAUSES = 0.02
"""Share of tasks that stand still for three times their time, as a collection of garbage does."""
WARM = COLD + 12


class Cluster:
    """Batches of a query with a source stage and a stage with state, on executors of known slowness."""

    def __init__(
        self, seed: int, executors: int, partitions: int, skew: float = 0.0, *, spread: float = SPREAD
    ) -> None:
        self.rng, self.spread = np.random.default_rng(seed), spread
        self.moods, self.lasting, self.mood = 0.0, 0.0, np.zeros(executors)
        self.ids = tuple(str(i) for i in range(executors))
        self.slow = np.ones(executors)
        self.homes = np.arange(partitions) % executors
        self.share = self.rng.pareto(2.0, partitions) * skew + 1.0
        self.share /= self.share.mean()

    def batch(self, speeds: ExecutorSpeeds) -> ExecutorSpeeds:
        """One more, with another load and another mood of the whole machine."""
        rng, load, mood = self.rng, 1000 * self.rng.lognormal(0, 0.3), self.rng.lognormal(0, 0.2)
        maps = rng.integers(len(self.ids), size=2 * len(self.ids))
        ran = np.concatenate([maps, self.homes])
        kinds = ["source"] * len(maps) + ["state"] * len(self.homes)
        records = np.concatenate([np.full(len(maps), load), load * self.share])
        usual = np.where(np.arange(len(ran)) < len(maps), 5e-3 + 2e-5 * records, 2e-2 + 1e-4 * records)
        fresh = self.moods * rng.normal(size=len(self.ids)) if self.moods else np.zeros(len(self.ids))
        self.mood = self.lasting * self.mood + (1.0 - self.lasting**2) ** 0.5 * fresh
        noise = rng.lognormal(0, self.spread, len(ran)) * np.where(rng.random(len(ran)) < PAUSES, 3.0, 1.0)
        seconds = np.round(usual * noise * self.slow[ran] * mood * np.exp(self.mood)[ran], 3)
        return observed(speeds, kinds, [self.ids[e] for e in ran], records, seconds)

    def batches(self, speeds: ExecutorSpeeds, count: int) -> ExecutorSpeeds:
        """So many more."""
        for _ in range(count):
            speeds = self.batch(speeds)
        return speeds

    def slowness(self, speeds: ExecutorSpeeds) -> Floats:
        """As told."""
        return speeds.slowness(self.ids)[0]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("least", "most", "batches"), [(10, 41, 5), (2, 10, 15)], ids=["many", "few"])
def test_a_known_factor_is_found_within_a_tenth(seed: int, least: int, most: int, batches: int) -> None:
    draw = np.random.default_rng(seed)
    executors, each, factor = (
        int(draw.integers(3, 13)),
        int(draw.integers(least, most)),
        draw.uniform(1.5, 6.0),
    )
    cluster = Cluster(seed, executors, executors * each, skew=draw.uniform(0.0, 1.0))
    speeds = cluster.batches(ExecutorSpeeds.nothing(), WARM)
    cluster.slow[1] = factor
    speeds = cluster.batches(speeds, batches)
    found = cluster.slowness(speeds)
    assert found[1] == pytest.approx(factor, rel=0.1)
    assert np.delete(found, 1) == pytest.approx(1.0)
    cluster.slow[1] = 1.0
    assert cluster.slowness(cluster.batches(speeds, batches)) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_quiet_batches_raise_no_alarm(seed: int) -> None:
    draw = np.random.default_rng(1000 + seed)
    executors, each = int(draw.integers(2, 13)), int(draw.integers(2, 21))
    cluster = Cluster(1000 + seed, executors, executors * each, skew=draw.uniform(0.0, 1.0))
    speeds = ExecutorSpeeds.nothing()
    for _ in range(100):
        speeds = cluster.batch(speeds)
        assert cluster.slowness(speeds) == pytest.approx(1.0)


def moody(seed: int) -> Cluster:
    """Noise of 15 to 40 % a task, and of 3 to 12 % for all tasks of an executor in a batch, which may last."""
    draw = np.random.default_rng(seed)
    executors, each = int(draw.integers(3, 7)), int(draw.integers(6, 16))
    cluster = Cluster(seed, executors, executors * each, skew=0.5, spread=draw.uniform(0.15, 0.4))
    cluster.moods, cluster.lasting = draw.uniform(0.03, 0.12), float(draw.choice([0.0, 0.5]))
    return cluster


@pytest.mark.parametrize("seed", range(7000, 7005))
def test_moods_of_executors_raise_no_alarm_in_a_hundred_quiet_batches(seed: int) -> None:
    cluster, speeds = moody(seed), ExecutorSpeeds.nothing()
    for _ in range(100):
        speeds = cluster.batch(speeds)
        assert cluster.slowness(speeds) == pytest.approx(1.0)


def test_two_thirds_of_the_speed_is_mostly_found_within_ten_batches_whatever_the_mood() -> None:
    found = []
    for seed in range(8000, 8012):
        cluster = moody(seed)
        speeds = cluster.batches(ExecutorSpeeds.nothing(), WARM)
        cluster.slow[1] = 1.5
        told = cluster.slowness(cluster.batches(speeds, 10))
        found.append(told[1])
        assert np.delete(told, 1) == pytest.approx(1.0)
    assert sum(f > 1.0 for f in found) >= 6
    assert np.median([f for f in found if f > 1.0]) == pytest.approx(1.5, rel=0.1)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), executors=st.integers(2, 5), unit=st.sampled_from([1e-3, 60.0]))
def test_neither_the_unit_of_time_nor_the_order_of_tasks_matters(
    seed: int, executors: int, unit: float
) -> None:
    rng, ids = np.random.default_rng(seed), [str(e) for e in range(executors)]
    plain, other = ExecutorSpeeds.nothing(), ExecutorSpeeds.nothing()
    for _ in range(COLD + 8):
        ran = np.concatenate([np.arange(executors), rng.integers(executors, size=10)])
        records = rng.integers(1, 100, len(ran)).astype(float)
        seconds = (1.0 + records) * np.where(ran == 0, 3.0, 1.0) * rng.lognormal(0, 0.1, len(ran))
        plain = observed(plain, ["k"] * len(ran), [ids[e] for e in ran], records, seconds)
        order = rng.permutation(len(ran))
        shuffled = [ids[e] for e in ran[order]]
        other = observed(other, ["k"] * len(ran), shuffled, records[order], unit * seconds[order])
    assert other.slowness(ids)[0] == pytest.approx(plain.slowness(ids)[0])


def test_of_two_executors_the_faster_is_the_measure() -> None:
    cluster = Cluster(1, 2, 20)
    speeds = cluster.batches(ExecutorSpeeds.nothing(), WARM)
    cluster.slow[0] = 2.0
    found = cluster.slowness(cluster.batches(speeds, 5))
    assert found[0] == pytest.approx(2.0, rel=0.1)
    assert found[1] == 1.0


def test_an_executor_without_tasks_is_forgotten_and_a_new_one_is_unknown() -> None:
    cluster = Cluster(2, 3, 30)
    speeds = cluster.batches(ExecutorSpeeds.nothing(), WARM)
    assert speeds.slowness(("0", "9"))[1].tolist() == [True, False]
    later = Cluster(3, 2, 20)
    assert set(later.batches(speeds, 20).executors) == {"0", "1"}


def test_nothing_is_known_of_nothing() -> None:
    assert observed(ExecutorSpeeds.nothing(), [], [], np.zeros(0), np.zeros(0)).executors == ()
    found, known = ExecutorSpeeds.nothing().slowness(("a",))
    assert (found.tolist(), known.tolist()) == ([1.0], [False])
