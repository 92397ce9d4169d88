"""Tables and the views derived from them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry import Constraints, MachineClass, Moments, Nodes, Snapshot, Tasks
from penstock.testing import a_dataflow, a_snapshot

FLOW = a_dataflow("in", "a", "b", "out")


@st.composite
def snapshots(draw) -> Snapshot:
    """Random tasks of four operators on three nodes, some not measured, some not placed."""
    count = draw(st.integers(0, 40))
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def column(high: float) -> np.ndarray:
        return chance.uniform(0, high, count)

    seen = chance.integers(0, 50, count).astype(float)
    tasks = Tasks.blank(
        count,
        operator=chance.integers(0, 4, count),
        index=chance.permutation(count),
        node=chance.integers(-1, 3, count),
        arrived=column(100),
        processed=column(100) * (chance.random(count) < 0.9),
        emitted=column(100),
        shed=column(10),
        queued=column(10),
        busy_s=column(5),
        cpu=column(1),
        service_s=Moments(seen, column(1), column(3)),
        known=chance.random(count) < 0.8,
    )
    return a_snapshot(FLOW, nodes=3, tasks=tasks)


@given(snapshots())
@settings(deadline=None)
def test_the_view_per_operator_is_the_sum_over_its_measured_tasks(snapshot: Snapshot) -> None:
    view, tasks = snapshot.by_operator, snapshot.tasks
    for row in range(4):
        present = [t for t in range(len(tasks)) if tasks.operator[t] == row]
        measured = [t for t in present if tasks.known[t]]
        assert view.tasks[row] == len(present)
        assert view.known[row] == bool(measured)
        for name in ("arrived", "processed", "emitted", "shed", "queued", "busy_s", "cpu"):
            assert getattr(view, name)[row] == pytest.approx(sum(getattr(tasks, name)[t] for t in measured))
        merged = Moments.empty(1)
        for t in measured:
            merged = merged.merge(tasks.service_s.take(np.array([t])))
        assert view.service_s.count[row] == pytest.approx(merged.count[0])
        assert view.service_s.mean[row] == pytest.approx(merged.mean[0])
        assert view.service_s.variance[row] == pytest.approx(merged.variance[0])
        busy = sum(tasks.busy_s[t] for t in measured) / (len(measured) * 5.0) if measured else 0.0
        assert view.utilisation[row] == pytest.approx(busy)
        assert view.arrival_rps[row] == pytest.approx(view.arrived[row] / 5.0)
        assert view.selectivity[row] == pytest.approx(
            view.emitted[row] / view.processed[row] if view.processed[row] else 1.0
        )


@given(snapshots())
@settings(deadline=None)
def test_the_cpu_of_a_node_is_that_of_the_tasks_on_it(snapshot: Snapshot) -> None:
    for node in range(3):
        on_it = snapshot.tasks.node == node
        assert snapshot.node_cpu[node] == pytest.approx(snapshot.tasks.cpu[on_it].sum())


@given(snapshots())
@settings(deadline=None)
def test_tasks_in_order_of_operator_and_index(snapshot: Snapshot) -> None:
    tasks = snapshot.tasks
    order, starts = tasks.rows_by_operator
    assert sorted(order) == list(range(len(tasks)))
    for row in range(len(starts) - 1):
        mine = order[starts[row] : starts[row + 1]]
        assert set(mine) == set(np.flatnonzero(tasks.operator == row))
        assert list(tasks.index[mine]) == sorted(tasks.index[mine])


def test_a_task_is_called_by_its_operator_and_index() -> None:
    snapshot = a_snapshot(FLOW, parallelism=2)
    assert [snapshot.task_id(i) for i in (0, 1, 3)] == ["in[0]", "in[1]", "a[1]"]


@pytest.mark.parametrize(
    ("latency_s", "known", "held"),
    [(0.05, True, True), (0.1, True, True), (0.11, True, False), (0.11, False, False)],
)
def test_a_goal_is_held_at_its_bound_and_unknown_where_nothing_was_measured(latency_s, known, held) -> None:
    table = Constraints.blank(1, bound_s=0.1, latency_s=latency_s, known=known)
    assert table.held[0] == held
    assert table.missed[0] == (known and not held)


def test_cores_that_others_use_are_not_ours() -> None:
    nodes = Nodes.blank(2, ids=("a", "b"), hosts=("h", "h"), cores=4.0, foreign_cpu=[1.5, 6.0])
    assert list(nodes.available_cpu) == [2.5, 0.0]
    assert nodes.row == {"a": 0, "b": 1}


def test_blank_fills_and_repeats() -> None:
    tasks = Tasks.blank(3, operator=1, known=True)
    assert list(tasks.operator) == [1, 1, 1]
    assert tasks.operator.dtype == np.int64
    assert tasks.known.all()
    assert (len(tasks), len(tasks.service_s), tasks.cpu.sum()) == (3, 3, 0.0)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Tasks.blank(3).with_columns(cpu=np.zeros(2))
    with pytest.raises(TypeError, match="no column colour"):
        Tasks.blank(1, colour=3)


def test_a_snapshot_changed_in_one_table_has_fresh_views() -> None:
    snapshot = a_snapshot(FLOW)
    busy = snapshot.by_operator.utilisation[1]
    changed = replace(snapshot, tasks=snapshot.tasks.with_columns(busy_s=snapshot.tasks.busy_s * 2))
    assert changed.by_operator.utilisation[1] == pytest.approx(2 * busy)


def test_a_percentile_at_a_sink() -> None:
    snapshot = a_snapshot(FLOW, latency_s=0.25)
    assert snapshot.sinks.quantile_s(0, 0.95) == pytest.approx(0.25, rel=0.01)
    assert a_snapshot(FLOW, latency_s=None).sinks.quantile_s(0, 0.95) is None


HOURLY = MachineClass(name="h", price_per_hour=0.24)
BY_MINUTE = MachineClass(name="m", price_per_hour=6.0, billing_s=60.0, minimum_s=600.0)
BY_SECOND = MachineClass(name="s", price_per_hour=3.6, billing_s=1.0, minimum_s=60.0)


@pytest.mark.parametrize(
    ("machine", "seconds", "owed"),
    [
        (HOURLY, 0.0, 0.24),
        (HOURLY, 3600.0, 0.24),
        (HOURLY, 3601.0, 0.48),
        (BY_MINUTE, 1.0, 1.0),
        (BY_MINUTE, 599.0, 1.0),
        (BY_MINUTE, 601.0, 1.1),
        (BY_SECOND, 10.0, 0.06),
        (BY_SECOND, 90.5, 0.091),
    ],
)
def test_started_units_are_billed_in_full(machine: MachineClass, seconds: float, owed: float) -> None:
    assert machine.bill(seconds) == pytest.approx(owed)
