"""TwitterSentiment: real functions on real batches, and a load of the paper's shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.api.choices import find_flow
from penstock.dataflow import Load, constant, read_trace
from penstock_papers.nephele.sentiment import (
    HOT,
    PEAK_RPS,
    PLAYED_S,
    SCHEMA,
    HotFilter,
    days_and_nights,
    list_topics,
    made_tweets,
    merge_topics,
    sentiment,
    sentiment_of,
    tweet_load,
    with_sentiment,
)


def test_is_a_workload_with_the_papers_goals() -> None:
    flow = find_flow("sentiment")
    assert {c.name: c.bound_ms for c in flow.constraints} == {"topics": 215, "scores": 30}
    assert flow.upstream("filter")[1].wiring == "broadcast"
    for operator in ("hot_topics", "filter", "sentiment"):
        bounds = flow.operator(operator).parallelism
        assert (bounds.minimum, bounds.maximum) == (1, 100)


def test_tweets_depend_on_their_number_alone() -> None:
    whole = made_tweets(0, 200)
    assert whole.schema == SCHEMA
    assert whole.slice(50, 70).equals(made_tweets(50, 120))


def test_few_topics_have_most_tweets_and_another_one_bursts_later() -> None:
    def top(start: int) -> str:
        return str(list_topics(made_tweets(start, start + 2000)).column("topic")[0])

    tweets = made_tweets(0, 4000)
    hot = list_topics(tweets)
    assert hot.num_rows == HOT
    assert np.sum(hot.column("tweets").to_numpy()) > 0.5 * tweets.num_rows
    assert top(0) != top(60_000)


def test_partial_lists_merge_to_the_list_of_the_whole() -> None:
    tweets = made_tweets(0, 3000)
    parts = [list_topics(tweets.slice(at, 1000)) for at in (0, 1000, 2000)]
    merged = merge_topics(pa.Table.from_batches(parts).combine_chunks().to_batches()[0])
    whole = list_topics(tweets)
    best = whole.column("topic").to_pylist()[:3]
    assert merged.column("topic").to_pylist()[:3] == best
    assert merged.column("tweets").to_pylist()[:3] == whole.column("tweets").to_pylist()[:3]


def test_the_filter_passes_tweets_on_hot_topics_and_no_lists() -> None:
    keep, tweets = HotFilter(), made_tweets(0, 1000)
    assert keep(tweets).num_rows == 1000, "nothing is known to be cold before the first list"
    hot = list_topics(tweets)
    both = pa.Table.from_batches([hot, tweets]).combine_chunks().to_batches()[0]
    passed = keep(both)
    assert 0 < passed.num_rows < 1000
    assert set(passed.column("topic").to_pylist()) <= set(hot.column("topic").to_pylist())
    assert passed.column("tweets").null_count == passed.num_rows


@pytest.mark.parametrize(
    ("text", "sign"),
    [("This is great, I love it :)", 1), ("awful, a complete disaster", -1), ("it is not bad at all", 1)],
)
def test_feelings_are_those_of_the_lexicon(text: str, sign: int) -> None:
    assert np.sign(sentiment_of(text)) == sign


def test_every_tweet_is_scored() -> None:
    scored = with_sentiment(made_tweets(0, 50))
    values = scored.column("sentiment").to_numpy()
    assert len(values) == 50
    assert np.all(np.abs(values) <= 1)
    assert values.min() < -0.2 < 0.2 < values.max()


def test_a_trace_is_played_in_100_minutes_with_the_papers_peak() -> None:
    load = tweet_load(days_and_nights())
    assert load.duration_s == PLAYED_S
    assert load.peak_rps == pytest.approx(PEAK_RPS)


def test_a_constant_trace_stays_constant_and_a_silent_one_silent() -> None:
    day = 86_400.0
    assert set(np.round(tweet_load(Load((0.0,), (3.0,), day)).rates_rps, 6)) == {PEAK_RPS}
    assert tweet_load(Load((0.0,), (0.0,), day)).peak_rps == 0


@pytest.mark.parametrize("company", ["AAPL", "FB", "GOOG"])
def test_real_traces_keep_their_days(shared_data: Path, company: str) -> None:
    trace = read_trace(shared_data / f"tweet_volume_{company}.csv")
    load = tweet_load(trace)
    # The share of the first week in the two weeks is that of the trace.
    week = 7 * 86_400.0
    share = trace.records_until(week) / trace.records_until(2 * week)
    assert load.records_until(PLAYED_S / 2) / load.records_until(PLAYED_S) == pytest.approx(share, abs=0.01)


def test_reads_tweets_from_a_file_too() -> None:
    connector = sentiment(load=constant(10), path="tweets.csv").operator("tweets").connector
    assert connector is not None
    assert connector.options["path"] == "tweets.csv"
    assert connector.function is None
