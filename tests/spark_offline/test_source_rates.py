"""Rates, backlog and ages of a Kafka source: silence, bursts, long batches, offsets that are no records."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.dataflow import constant, staircase
from penstock.spark.observe.looks import EndOffsets, Look
from penstock.spark.observe.source_rates import KafkaSource, PlainSource, SourceFacts
from tests.spark_offline.looks import START_S, FakeQuery, a_batch, by_partition, offsets

EVERY_S = 5.0


def watched(query: FakeQuery, until_s: float, source: KafkaSource | None = None) -> list[SourceFacts]:
    """What is said of the source every five seconds."""
    source, found = source or KafkaSource(0), []
    for now_s in np.arange(query.now_s + EVERY_S, until_s + 1e-9, EVERY_S):
        query.run_until(float(now_s))
        source.note(query.look())
        found.append(source.facts(START_S + query.now_s, fresh_s=3 * EVERY_S))
    return found


@pytest.mark.parametrize("broker", [True, False], ids=["broker", "no broker"])
def test_a_topic_that_falls_silent_and_comes_back(broker):
    load = staircase([(60.0, 500.0), (60.0, 0.0), (60.0, 500.0)])
    found = watched(FakeQuery(came=load.records_until, broker=broker), 180.0)
    before, silent, after = found[:12], found[12:24], found[24:]
    # At first a batch is over soon: what waits is what came since.
    assert all(f.produced_rps == pytest.approx(500, rel=0.02) for f in before[2:])
    assert all(f.backlog_records <= 1.5 * 500 for f in before)
    for facts in silent[2:]:
        assert facts.backlog_known
        assert facts.backlog_records == 0, "lag 0 within two intervals, and no growth"
        assert facts.oldest_s == 0
        assert facts.produced_rps == 0
    assert silent[-1].read_rps == 0
    assert all(f.produced_rps == pytest.approx(500, rel=0.02) for f in after[2:]), "right within three"


def test_a_constant_load_has_no_spike_after_attaching():
    """The first trigger asks its source for seconds: the moment it was told is not known, so it tells no rate."""
    query = FakeQuery(came=constant(500.0).records_until, broker=False)
    query.run_until(30.0)
    first = query.reports()
    slow = a_batch(0, first[0].began_s, end=first[0].sources[0].end, asking_s=4.0)
    source = KafkaSource(0)
    source.note(
        Look(time_s=START_S + 30.0, run_id="run", batches=(slow, *first[1:]), standing=query.standing())
    )
    rates = [source.facts(START_S + 30.0, fresh_s=15.0).produced_rps]
    rates += [f.produced_rps for f in watched(query, 90.0, source)]
    assert np.allclose(rates, 500.0, rtol=0.03)


def test_what_arrives_while_a_long_batch_runs_is_counted_by_the_broker():
    query = FakeQuery(came=constant(300.0).records_until, takes_s=lambda n: 1.0 if n < 2000 else 50.0)
    query.run_until(10.0)
    query.takes_s = lambda n: 50.0
    source = KafkaSource(0)
    found = watched(query, 55.0, source)
    running = [f for f in found if f.known]
    assert query.running is not None
    assert all(f.produced_rps == pytest.approx(300, rel=0.02) for f in running)
    assert np.all(np.diff([f.backlog_records for f in running]) == pytest.approx(300 * EVERY_S, rel=0.02))
    assert found[-1].read_rps > 0, "no batch ended, which does not mean that nothing is read"
    came_s = source.running_arrivals_s()
    assert came_s is not None
    began_s, _, end = query.running
    assert came_s[-1] <= START_S + began_s + 0.5
    assert source.running_records() == pytest.approx(end - query.processed, abs=2)


def test_without_a_broker_a_long_batch_makes_the_rate_unknown():
    query = FakeQuery(came=constant(300.0).records_until, takes_s=lambda n: 1.0, broker=False)
    source = KafkaSource(0)
    assert watched(query, 20.0, source)[-1].known
    query.takes_s = lambda n: 100.0
    found = watched(query, 60.0, source)
    assert not found[-1].known
    assert not found[-1].backlog_known


def test_ages_follow_what_came_when():
    """A burst that took a minute to read is as old as its first record, not as the batch before."""
    load = staircase([(20.0, 100.0), (10.0, 2000.0), (100.0, 100.0)])
    query = FakeQuery(came=load.records_until, takes_s=lambda n: 1.0 + n / 500)
    source = KafkaSource(0)
    for now_s in np.arange(1.0, 80.0):
        query.run_until(float(now_s))
        look = query.look()
        source.note(look)
        for batch in look.batches:
            came_s = source.arrivals_s(batch)
            if came_s is None:
                continue
            start, end = (sum(o["topic"].values()) for o in (batch.sources[0].start, batch.sources[0].end))
            times = np.linspace(0, 80, 8001)
            truth = np.interp(
                np.linspace(start, end, 41)[1::2], [load.records_until(t) for t in times], times
            )
            assert np.abs(came_s - START_S - truth).max() < 1.1, "to the second between two readings"


def test_offsets_that_are_no_records_are_not_counted():
    query = FakeQuery(came=constant(1000.0).records_until, record_share=0.25)
    found = watched(query, 60.0)
    assert found[-1].produced_rps == pytest.approx(250.0, rel=0.03)


def test_partitions_count_one_by_one():
    """A partition that was made anew, and one that comes later, add what they have, and hide nothing of others."""
    source, now_s = KafkaSource(0), START_S

    def tell(seconds: float, ends: dict[str, int]) -> SourceFacts:
        told = {0: EndOffsets(time_s=now_s + seconds, offsets=ends)}
        source.note(Look(time_s=now_s + seconds, run_id="run", ends=told, batches=batches))
        return source.facts(now_s + seconds, fresh_s=15.0)

    batches = (a_batch(0, now_s - 1, start=offsets(0), end=offsets(2000), records=2000),)
    tell(0.0, by_partition(offsets(2000)))
    batches = ()
    facts = tell(10.0, {"topic-0": 100, "topic-1": 2000})
    assert facts.produced_rps == pytest.approx((100 + 1000) / 10)
    facts = tell(20.0, {"topic-0": 200, "topic-1": 2100, "topic-2": 50_000})
    assert facts.produced_rps < 200, "what a new partition already held did not come in this interval"


@pytest.mark.parametrize("jump_rps", [10.0, 600.0])
def test_a_jump_is_followed_within_two_readings(jump_rps):
    load = staircase([(60.0, 100.0), (60.0, jump_rps)])
    found = [f.produced_rps for f in watched(FakeQuery(came=load.records_until), 120.0)]
    assert np.allclose(found[3:12], 100.0, rtol=0.02)
    assert np.allclose(found[14:], jump_rps, rtol=0.02)


def test_chance_is_no_change():
    chance = np.random.default_rng(5)
    counts = np.cumsum(chance.poisson(400.0, 1000))
    source, found = KafkaSource(0), []
    for second in range(300):
        ends = {0: EndOffsets(time_s=START_S + second, offsets={"topic-0": int(counts[second])})}
        source.note(Look(time_s=START_S + second, run_id="run", ends=ends))
        found.append(source.facts(START_S + second, fresh_s=15.0).produced_rps)
    # A window of ten seconds of a Poisson stream is off by 1.6 %; one of a second would be by 5 %.
    assert np.std(np.array(found[20:]) / 400 - 1) < 0.025


def test_a_source_that_tells_nothing_has_an_unknown_backlog():
    query = FakeQuery(came=constant(100.0).records_until, broker=False)
    source = PlainSource(0)
    facts = SourceFacts()
    for now_s in np.arange(5.0, 40.0, 5.0):
        query.run_until(float(now_s))
        source.note(query.look())
        facts = source.facts(START_S + query.now_s, fresh_s=15.0)
    assert facts.known
    assert facts.produced_rps == pytest.approx(100, rel=0.1)
    assert not facts.backlog_known
