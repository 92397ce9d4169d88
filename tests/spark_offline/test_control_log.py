"""A batch that runs again has the controls it had, whatever was written for later ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.internals.control_log import KEPT, ControlLog
from penstock.spark.internals.task_controls import ControlDocument


def test_the_batch_that_runs_again_keeps_its_values() -> None:
    first = ControlDocument().changed({"keep:in": 0.5}, from_batch=3)
    second = first.changed({"keep:in": 0.2}, from_batch=8)
    log = ControlLog().changed(first).changed(second)
    again = log.resumed(last_batch=7)
    assert again.at(7) == {"keep:in": 0.5}
    assert again.at(8) == {"keep:in": 0.2}


def test_a_batch_that_was_planned_under_the_newest_values_has_them() -> None:
    log = ControlLog().changed(ControlDocument().changed({"x": 1}, from_batch=4))
    assert log.resumed(last_batch=4).at(4) == {"x": 1}


def test_two_changes_ahead_of_the_running_batch_do_not_reach_it() -> None:
    """Written while Spark was planning: for batch 6, then for batch 7, and the crash comes in batch 5."""
    document = ControlDocument().changed({"x": 1}, from_batch=2)
    log = ControlLog().changed(document)
    for value, batch in ((2, 6), (3, 7)):
        document = document.changed({"x": value}, from_batch=batch)
        log = log.changed(document)
    assert log.resumed(last_batch=5).at(5) == {"x": 1}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=30))
def test_the_log_agrees_with_every_document_it_was_made_of(steps: list[tuple[int, int]]) -> None:
    """Batches advance by 0 to 3 between two changes; the last planned batch is the one before the change's."""
    document, log, batch = ControlDocument(), ControlLog(), 0
    for advance, value in steps:
        batch += advance
        seen = document.at(batch)
        document = document.changed({"x": value}, from_batch=batch + 1)
        log = log.changed(document)
        assert len(log.generations) <= KEPT
        assert log.resumed(last_batch=batch).at(batch) == dict(seen)
        assert log.resumed(last_batch=batch).at(batch + 1) == {"x": value}
