"""A source of which every batch takes all there is: production and backlog from when batches began."""

from __future__ import annotations

import pytest

from penstock.spark.observe.looks import Look
from penstock.spark.observe.read_all_source import ReadAllSource
from tests.spark_offline.looks import START_S, a_batch


def look(time_s: float, *batches: tuple[int, float, int, float], running_s: float = 0.0) -> Look:
    """At a time, with batches (number, began, records, lasted) that have ended."""
    ended = tuple(a_batch(n, START_S + at, records=r, lasts_s=d) for n, at, r, d in batches)
    return Look(time_s=START_S + time_s, run_id="run", batches=ended, running_s=running_s)


def test_an_overloaded_query_reads_less_than_is_produced_and_the_rest_waits() -> None:
    """1,000 records a second; a batch takes twice as long as its records took to come."""
    source = ReadAllSource(0)
    source.note(look(3.0, (0, 0.0, 1000, 1.0), (1, 1.0, 1000, 2.0), running_s=0.1))
    source.note(look(7.0, (2, 3.0, 2000, 4.0), running_s=0.1))
    facts = source.facts(START_S + 7.0, fresh_s=15.0)
    assert facts.produced_rps == pytest.approx(1000.0)
    assert facts.read_rps < 700
    assert facts.backlog_known
    assert facts.backlog_records == pytest.approx(4000.0), "what came since the last ended batch was planned"


def test_a_query_that_rests_has_nothing_waiting() -> None:
    source = ReadAllSource(0)
    source.note(look(2.2, (0, 0.0, 100, 0.2), (1, 1.0, 100, 0.2), (2, 2.0, 100, 0.2)))
    source.note(look(2.8))
    facts = source.facts(START_S + 2.8, fresh_s=15.0)
    assert (facts.backlog_known, facts.backlog_records) == (True, 0.0)
