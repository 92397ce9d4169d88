"""Skew, even placement, what a repartition brings, and hot keys, on layouts whose answers are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry import Snapshot, Tasks
from penstock.telemetry.state_report import OperatorState, PartitionState, advice, last_known, state_of
from penstock.testing import a_dataflow, a_snapshot


def operator(
    busy: list[float], *, rows: list[float] | None = None, homes: str = "", kind: str = "StateStoreSave"
) -> OperatorState:
    each = rows or [100.0] * len(busy)
    places = homes or "a" * len(busy)
    return OperatorState(
        query="q",
        operator="q.state0",
        kind=kind,
        executors=("a", "b", "c"),
        partitions=tuple(
            PartitionState(index=i, executor=e, rows=r, bytes=10 * r, busy_s=b)
            for i, (b, r, e) in enumerate(zip(busy, each, places, strict=True))
        ),
    )


def test_what_is_even_and_what_is_not() -> None:
    state = operator([1.0, 1.0, 1.0, 3.0], homes="aabb")
    assert (state.by, state.skew, state.hottest, state.hottest_share) == ("busy_s", 2.0, 3, 0.5)
    assert state.slowest_share == pytest.approx(4 / 6)
    assert state.even_share(3) == pytest.approx(0.5), "the hot partition alone"


def test_hot_keys_stay_whole_when_partitions_are_divided() -> None:
    state = operator([1.0, 1.0, 1.0, 7.0])
    assert state.hot_keys_share == pytest.approx(0.6), "six of ten seconds that equal rows do not explain"
    assert state.repartitioned_share(3, 400) == pytest.approx(0.6, abs=0.01)
    assert any(line.startswith("hot keys are the limit: partition 3 takes 60%") for line in advice(state))
    large = operator([1.0, 1.0, 1.0, 7.0], rows=[100.0, 100.0, 100.0, 700.0])
    assert large.hot_keys_share == 0.0
    assert large.repartitioned_share(3, 400) == pytest.approx(1 / 3, abs=0.01)
    assert operator([1.0, 1.0, 7.0], kind="StreamingSymmetricHashJoin").hot_keys_share is None, (
        "rows are records"
    )


def test_unknown_is_said() -> None:
    nothing = OperatorState(query="q", operator="o", partitions=(PartitionState(index=0),))
    assert (nothing.by, nothing.skew, nothing.total("rows")) == (None, None, None)
    assert "not known" in advice(nothing)[0]
    bytes_only = OperatorState(
        query="q", operator="o", partitions=tuple(PartitionState(index=i, bytes=1.0) for i in range(4))
    )
    assert (bytes_only.by, bytes_only.slowest_share, bytes_only.hot_keys_share) == ("bytes", None, None)
    assert advice(bytes_only) == ("whether single keys are the limit is not known",)
    assert any("8 partitions" in line for line in advice(bytes_only, executors=2, partitions=8))


@given(
    st.lists(st.floats(0.01, 100.0), min_size=1, max_size=60),
    st.integers(1, 8),
    st.integers(1, 60),
)
def test_no_layout_beats_its_bounds(busy: list[float], executors: int, partitions: int) -> None:
    state = operator(busy)
    for share in (state.even_share(executors), state.repartitioned_share(executors, partitions)):
        assert share is not None
        assert 1 / executors - 1e-9 <= share <= 1 + 1e-9


def test_a_snapshot_tells_what_it_knows() -> None:
    tasks = Tasks.blank(
        2, operator=1, index=[1, 0], node=[0, -1], state_rows=[5.0, 7.0], state_known=[True, False]
    )
    snapshot = a_snapshot(a_dataflow(stateful=True), tasks=tasks)
    (found,) = state_of(snapshot, "here").operators
    first, second = found.partitions
    assert (first.index, first.executor, first.rows) == (0, None, None)
    assert (second.index, second.executor, second.rows, second.busy_s) == (
        1,
        snapshot.nodes.ids[0],
        5.0,
        None,
    )
    assert found.executors == snapshot.nodes.ids


def test_a_query_that_was_just_started_again_keeps_its_state_in_the_report() -> None:
    flow = a_dataflow(stateful=True)

    def seen(rows: float, *, known: bool) -> Snapshot:
        tasks = Tasks.blank(1, operator=1, index=[0], node=[0], state_rows=[rows], state_known=[known])
        return a_snapshot(flow, tasks=tasks)

    gone = a_snapshot(a_dataflow())  # between two runs of the query
    for recent in ([seen(5.0, known=True), gone], [seen(5.0, known=True), seen(0.0, known=False)]):
        (found,) = last_known(recent, "here").operators
        assert found.total("rows") == 5.0
    (found,) = last_known([seen(5.0, known=True), seen(7.0, known=True)], "here").operators
    assert found.total("rows") == 7.0
