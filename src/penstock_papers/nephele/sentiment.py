"""TwitterSentiment: which topics are hot just now, and how people feel about them.

The application of Nephele's second trial (`nephele.txt`, section V-B). Every tweet goes two ways: to the hot-topics
tasks, which list what is popular in windows of 200 ms, and to the filter. A merger joins the partial lists and
broadcasts the result to all filter tasks; what concerns a hot topic goes on to be scored with VADER's lexicon
(Hutto, Gilbert 2014).

All streams have the same columns: a tweet has `text` and no `tweets`, an entry of a list has `tweets` (how many
there were on its topic) and no `text`.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.dataflow import Dataflow, Load, flow
from penstock.dataflow.connectors import discard, replay

TraceForm = Literal["lines", "steps"]
COLUMNS = "id long, topic string, text string, tweets long"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("topic", pa.string()), ("text", pa.string()), ("tweets", pa.int64())]
)
WINDOW_S = 0.2
"""How long a hot-topics task collects before it lists."""
HOT = 20
"""Topics on a list."""
PEAK_RPS = 6_734.0
PLAYED_S = 6_000.0
TRACE_DAYS = 14.0
HOUR_S, DAY_S = 3_600.0, 86_400.0

TOPICS = 400
BURST_TWEETS = 20_000
"""After so many tweets another topic bursts."""
BURST_SHARE = 0.25
"""Share of all tweets that the topic that bursts has."""

_OPENINGS = ("Just saw", "Can't stop thinking about", "Everyone talks about", "So this is", "Reading about")
_FEELINGS = (
    "and I love it!", "what a great day :)", "it is awful", "not bad at all", "a complete disaster!!!",
    "and nobody cares", "it looks okay", "brilliant work", "I hate the delays :(", "hope it gets better",
)  # fmt: skip
_ENDINGS = ("", " lol", " #fail", " thanks", " again", " wow")


def made_tweets(start: int, stop: int) -> pa.RecordBatch:
    """Tweets number `start` to `stop`, each depending on its number alone: few topics are popular, and some burst."""
    ids = np.arange(start, stop, dtype=np.int64)
    bits = [
        int.from_bytes(hashlib.blake2b(int(i).to_bytes(8, "big"), digest_size=8).digest(), "big") for i in ids
    ]
    topics, texts = [], []
    for number, b in zip(ids.tolist(), bits, strict=True):
        burst = (number // BURST_TWEETS * 7919) % TOPICS
        in_burst = (b & 0xFFFF) / 0x10000 < BURST_SHARE
        rank = burst if in_burst else int(np.searchsorted(_popularity(), ((b >> 16) & 0xFFFFFF) / 0x1000000))
        topic = f"#topic{rank}"
        opening, feeling = _OPENINGS[(b >> 40) % len(_OPENINGS)], _FEELINGS[(b >> 44) % len(_FEELINGS)]
        topics.append(topic)
        texts.append(f"{opening} {topic}, {feeling}{_ENDINGS[(b >> 52) % len(_ENDINGS)]}")
    return pa.RecordBatch.from_arrays(
        [pa.array(ids), pa.array(topics), pa.array(texts), pa.nulls(len(ids), pa.int64())], schema=SCHEMA
    )


def list_topics(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The most tweeted topics of a batch: a partial list."""
    return _listed(_counted(batch.column("topic"), np.ones(batch.num_rows)))


def merge_topics(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The most tweeted topics of all partial lists together."""
    counts = batch.column("tweets").to_numpy(zero_copy_only=False)
    return _listed(_counted(batch.column("topic"), counts))


class HotFilter:
    """Passes tweets on topics of the last list it was given; before the first list, all tweets."""

    def __init__(self) -> None:
        self._hot: frozenset[str] | None = None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The tweets of the batch that concern a hot topic."""
        listed = batch.column("tweets").is_valid()
        topics = batch.filter(listed).column("topic").to_pylist()
        if topics:
            self._hot = frozenset(topics)
        tweets = batch.filter(pc.invert(listed))
        if self._hot is None:
            return tweets
        return tweets.filter(pc.is_in(tweets.column("topic"), pa.array(sorted(self._hot))))


@cache
def _filter() -> HotFilter:
    return HotFilter()


def keep_hot(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Tweets on topics that are hot, as this process was last told."""
    return _filter()(batch)


@cache
def _analyser() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


def sentiment_of(text: str) -> float:
    """How positive (1) or negative (-1) a text is, by VADER's lexicon and rules.

    >>> sentiment_of("I love it!") > 0.5 > -0.3 > sentiment_of("It is awful")
    True
    """
    return float(_analyser().polarity_scores(text)["compound"])


def with_sentiment(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with a column `sentiment`, -1 to 1."""
    scores = [sentiment_of(text) for text in batch.column("text").to_pylist()]
    return batch.append_column("sentiment", pa.array(scores, pa.float64()))


def tweet_load(
    trace: Load, *, form: TraceForm = "lines", played_s: float = PLAYED_S, peak_rps: float = PEAK_RPS
) -> Load:
    """The first two weeks of a rate trace, played in 100 minutes with the peak at 6,734/s.

    Rates are the hourly means of the trace, with straight lines between or as steps (`form`). The traces at hand count
    the mentions of one company: a dozen in five minutes, and therefore noise of a quarter from one count to the next.
    Blown up to thousands a second, that noise would be a hundred times that of any real stream of the size (1/√n).
    """
    length_s = min(TRACE_DAYS * DAY_S, trace.duration_s)
    hours = max(1, round(length_s / HOUR_S))
    ends = np.linspace(0.0, length_s, hours + 1)
    totals = np.array([trace.records_until(float(t)) for t in ends])
    means = np.diff(totals) / np.diff(ends)
    if form == "steps":
        highest = float(means.max())
        starts = ends[:-1] * (played_s / length_s)
        rates = means * (peak_rps / highest if highest > 0 else 0.0)
        return Load(tuple(starts.tolist()), tuple(rates.tolist()), float(played_s))
    times = np.linspace(0.0, length_s, max(2, round(played_s / 1.5)), endpoint=False)
    rates = np.interp(times, (ends[1:] + ends[:-1]) / 2, means)
    highest = float(rates.max())
    scale = peak_rps / highest if highest > 0 else 0.0
    stretch = played_s / length_s
    return Load(tuple((times * stretch).tolist()), tuple((rates * scale).tolist()), float(played_s))


def days_and_nights(days: int = 14, *, seed: int = 0) -> Load:
    """A made-up trace of tweets: quiet nights, busy evenings, quieter weekends, and now and then a burst."""
    rng = np.random.default_rng(seed)
    hours = np.arange(24 * days)
    daily = 0.55 - 0.45 * np.cos(2 * np.pi * ((hours % 24) - 4) / 24)
    weekly = np.where((hours // 24) % 7 >= 5, 0.75, 1.0)
    rates = daily * weekly * rng.gamma(60.0, 1 / 60.0, len(hours))
    for at in rng.integers(0, len(hours) - 3, max(1, days // 3)):
        rates[at : at + 3] *= np.array([2.2, 1.7, 1.3])
    return Load(tuple(float(h * HOUR_S) for h in hours), tuple(rates.tolist()), float(len(hours) * HOUR_S))


def sentiment(
    *,
    load: Load | None = None,
    path: str | None = None,
    tasks: tuple[int, int] = (1, 100),
    first_tasks: int = 4,
    topics_s: float = 0.008,
    filter_s: float = 0.001,
    score_s: float = 0.008,
    hot_share: float = 0.5,
) -> Dataflow:
    """The dataflow, with the paper's constraints and parallelism.

    `load` is what the source plays (default: made-up days and nights, as `tweet_load` plays them); `path` is a file
    of tweets with the columns `COLUMNS`, instead of made ones. The costs are those of the simulation: such that at
    the paper's peak the operators have tens of tasks, and scoring about 28 more than before it, as in the paper.
    """
    elastic = (tasks[0], tasks[1], min(max(first_tasks, tasks[0]), tasks[1]))
    app = flow("sentiment")
    source = app.source(
        "tweets",
        replay(
            path,
            None if path else made_tweets,
            load=load if load is not None else tweet_load(days_and_nights()),
            schema=COLUMNS,
        ),
        record_bytes=300,
        keep_by=("id",),
    )
    partial = source.map(
        "hot_topics",
        list_topics,
        schema=COLUMNS,
        wiring="spread",
        parallelism=elastic,
        cost_s=topics_s,
        cost_cv=0.5,
        latency="read-write",
        selectivity=0.05,
        record_bytes=400,
    )
    merged = partial.map(
        "merger",
        merge_topics,
        schema=COLUMNS,
        wiring="spread",
        cost_s=0.0002,
        cost_cv=0.5,
        record_bytes=400,
    )
    hot = app.map(
        "filter",
        keep_hot,
        inputs=[source.wired("spread"), merged.wired("broadcast")],
        schema=COLUMNS,
        parallelism=elastic,
        cost_s=filter_s,
        cost_cv=0.5,
        selectivity=hot_share,
        record_bytes=300,
    )
    scored = hot.map(
        "sentiment",
        with_sentiment,
        schema=f"{COLUMNS}, sentiment double",
        wiring="spread",
        parallelism=elastic,
        cost_s=score_s,
        cost_cv=0.5,
        record_bytes=310,
    )
    scored.wired("spread").sink("feelings", discard())
    app.constrain("-> hot_topics -> merger -> filter", mean_ms=215, window_s=5, name="topics")
    app.constrain("-> filter -> sentiment ->", mean_ms=30, window_s=5, name="scores")
    return app.build()


@cache
def _popularity() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Cumulative shares of the topics: Zipf with exponent 1."""
    weights = 1 / np.arange(1, TOPICS + 1)
    return np.asarray(np.cumsum(weights) / weights.sum())


def _counted(topics: pa.Array, counts: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic, count in zip(topics.to_pylist(), counts.tolist(), strict=True):
        if topic is not None:
            found[topic] = found.get(topic, 0) + int(count)
    return found


def _listed(counts: dict[str, int]) -> pa.RecordBatch:
    """The `HOT` largest, as entries of a list."""
    top = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:HOT]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(len(top), pa.int64()),
            pa.array([topic for topic, _ in top], pa.string()),
            pa.nulls(len(top), pa.string()),
            pa.array([count for _, count in top], pa.int64()),
        ],
        schema=SCHEMA,
    )
