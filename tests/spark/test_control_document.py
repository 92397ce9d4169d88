"""Control documents, without Spark: every batch keeps the values it began with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.internals.task_controls import ControlDocument, current_controls

CHANGES = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), min_size=1),
    ),
    max_size=30,
)


@given(CHANGES)
def test_a_batch_that_began_never_changes_its_values(changes: list[tuple[int, dict[str, int]]]) -> None:
    document, running, merged = ControlDocument(), -1, {}
    for batches_later, values in changes:
        running += batches_later
        before = document.at(running) if running >= 0 else {}
        document = document.changed(values, from_batch=running + 1)
        merged |= values
        if running >= 0:
            assert document.at(running) == before
        assert document.at(running + 1) == merged
        assert ControlDocument.decode(document.encode()) == document
    assert document.version == len(changes)


def test_a_change_ahead_of_time_holds_back_later_ones() -> None:
    document = ControlDocument().changed({"a": 1}, from_batch=7).changed({"a": 2}, from_batch=6)
    assert document.at(6) == {}
    assert document.at(7) == {"a": 2}


@pytest.mark.parametrize("text", ["[]", '{"version":1}', "nonsense"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ControlDocument.decode(text)


def test_not_a_number_cannot_travel() -> None:
    with pytest.raises(ValueError, match="JSON"):
        ControlDocument(current={"p": float("nan")}).encode()


def test_outside_a_task_there_are_no_controls() -> None:
    assert current_controls() == {}
