"""Tasks by operator and partition: sums, shares of operators in one stage, what a snapshot's table has of them."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.dataflow import Dataflow, Operator, OperatorId, State, Stream
from penstock.spark.observe.native_tasks import NativeReader, NativeTable
from penstock.telemetry import Nodes, Tasks
from tests.spark_offline.task_tables import a_stage, a_table

FLOW = Dataflow(
    "q",
    operators=(
        Operator(id=OperatorId("q.source"), kind="source"),
        Operator(id=OperatorId("q.state1"), kind="transform", state=State(schema="a")),
        Operator(id=OperatorId("q.state0"), kind="transform", state=State(schema="b")),
        Operator(id=OperatorId("q.sink"), kind="sink"),
    ),
    streams=tuple(
        Stream(source=OperatorId(a), target=OperatorId(b), wiring="key")
        for a, b in (("q.source", "q.state1"), ("q.state1", "q.state0"), ("q.state0", "q.sink"))
    ),
)
READER = NativeReader(FLOW, {0: OperatorId("q.state0"), 1: OperatorId("q.state1")})
SOURCE, STATE1, STATE0, SINK = range(4)


def test_stages_belong_to_their_operators_and_nothing_is_lost() -> None:
    stages = [
        a_stage(1, sources=(0,)),
        a_stage(2, is_first=False),
        a_stage(3, is_first=False, states=(1,)),
        a_stage(4, is_first=False, states=(0,)),
        a_stage(5, is_first=False, is_last=True),
    ]
    run_ms = [10, 20, 30, 40, 50, 60]
    table = a_table(
        stages,
        stage=[1, 2, 3, 3, 4, 5],
        partition=[0, 0, 0, 1, 0, 0],
        run_ms=run_ms,
        states={"task": [2, 3, 4], "operator": [1, 1, 0], "rows": [5, 6, 7], "memory_bytes": [50, 60, 70]},
    )
    found = READER.read([table])
    assert found.operator.tolist() == [SOURCE, STATE1, STATE1, STATE0, SINK]
    assert found.busy_s.tolist() == pytest.approx([0.03, 0.03, 0.04, 0.05, 0.06])
    assert found.state_rows.tolist() == [0, 5, 6, 7, 0]
    assert found.state_bytes.tolist() == [0, 50, 60, 70, 0]
    assert READER.read([table, table], scale=2.0).busy_s.sum() == pytest.approx(4 * sum(run_ms) / 1e3)


def test_operators_in_one_stage_share_its_time_and_hand_on_records() -> None:
    table = a_table(
        [a_stage(3, is_first=False, is_last=True, states=(0, 1))],
        stage=[3],
        partition=[4],
        run_ms=[100],
        shuffle_read_records=[20],
        shuffle_read_local_bytes=[200],
        states={
            "task": [0, 0],
            "operator": [0, 1],
            "update_ms": [10, 30],
            "emitted": [7, 12],
            "rows": [1, 1],
            "sst_bytes": [8, 9],
        },
    )
    found = READER.read([table])
    assert found.operator.tolist() == [STATE1, STATE0]
    assert found.index.tolist() == [4, 4]
    assert found.busy_s.tolist() == pytest.approx([0.075, 0.025])
    assert found.records_in.tolist() == [20, 12]
    assert found.records_out.tolist() == [12, 7]
    assert found.bytes_in.tolist() == [200, 0]
    assert found.state_bytes.tolist() == [9, 8]


def test_failed_tasks_cost_time_and_bring_no_records() -> None:
    table = a_table(
        [a_stage(1, sources=(0,))],
        stage=[1, 1],
        partition=[0, 0],
        run_ms=[5, 7],
        input_records=[3, 3],
        succeeded=[0, 1],
    )
    found = READER.read([table])
    assert (found.busy_s[0], found.records_in[0]) == (pytest.approx(0.012), 3)


def test_a_table_keeps_state_of_intervals_without_a_batch_and_where_state_is() -> None:
    nodes = Nodes.blank(2, ids=("a", "b"))
    base = Tasks.blank(1, operator=[STATE1], index=[0], node=[1], moving=[True])
    table = a_table(
        [a_stage(3, is_first=False, states=(1,))],
        stage=[3, 3],
        partition=[0, 1],
        executor=["a", "a"],
        run_ms=[1000, 3000],
        shuffle_read_records=[10, 0],
        states={"task": [0, 1], "operator": [1, 1], "rows": [5, 6], "version_bytes": [50, 60]},
    )
    rows = NativeTable(FLOW)
    found = rows.filled(base, READER.read([table]), nodes, 10.0, figures=True)
    assert found.node.tolist() == [1, 0], "where the state is, else where it ran"
    assert found.cpu.tolist() == pytest.approx([0.1, 0.3])
    assert found.moving.tolist() == [True, False]
    assert (found.known & found.state_known & found.runtime_known).all()
    later = rows.filled(base, None, nodes, 10.0, figures=True)
    assert later.known.tolist() == [False]
    assert later.state_bytes.tolist() == [50]
    assert later.state_known.tolist() == [True]


def test_the_figures_of_others_stay_and_only_state_is_added() -> None:
    nodes, native = Nodes.blank(1, ids=("a",)), READER.read([])
    base = Tasks.blank(1, operator=[SOURCE], index=[0], cpu=[0.5], known=True)
    found = NativeTable(FLOW).filled(base, native, nodes, 1.0, figures=True)
    assert (found.cpu.tolist(), found.state_known.tolist()) == ([0.5], [False])
    table = a_table([a_stage(1, sources=(0,))], stage=[1], partition=[3], run_ms=[9])
    found = NativeTable(FLOW).filled(base, READER.read([table]), nodes, 1.0, figures=True)
    assert found.cpu.tolist() == [0.5], "the source is told by its own tasks already"


def test_kinds_are_the_same_from_batch_to_batch() -> None:
    first, second = (
        a_table(
            [a_stage(n, sources=(0,)), a_stage(n + 1, is_first=False, states=(1,))],
            stage=[n, n + 1],
            run_ms=[1, 1],
        )
        for n in (1, 7)
    )
    assert READER.kinds(first) == READER.kinds(second) == ["q.source#0", "q.state1#0"]
    assert np.unique(READER.kinds(first)).size == 2
