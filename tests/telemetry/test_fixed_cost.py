"""Where a micro-batch's time goes, and what is advised where."""

import pytest

from penstock.telemetry.fixed_cost import (
    ABORTABLE,
    CHANGELOG,
    FAST_LOCAL,
    MANAGER,
    PROVIDER,
    ROCKSDB,
    SHUFFLES,
    SOCKET,
    FixedCost,
    advice,
    fixed_cost,
    store_of,
    told,
)


def a_cost(*, stateful: bool = False, partitions: int | None = None) -> FixedCost:
    phases = {"walCommit": [100, 110, 90], "commitOffsets": [110] * 3, "queryPlanning": [20] * 3}
    return fixed_cost(
        "q",
        {**phases, "addBatch": [230] * 3, "triggerExecution": [480] * 3},
        [480, 480, 480],
        stateful=stateful,
        partitions=partitions,
    )


def test_phases_add_up_to_the_batch():
    cost = a_cost()
    assert cost.parts_ms == {"commits": 210, "planning": 20, "tasks": 230, "other": 20}
    assert (cost.total_ms, cost.fixed_ms) == (480, 250)


def test_the_sentence_says_what_commits_cost_and_what_would_be_left():
    cost = a_cost()
    lines = told(cost, advice(cost, {}, store="local", python=False))
    assert lines[0] == (
        "q: of 480 ms, 250 are fixed, 210 of them commits to this checkpoint store (median of 3 batches)"
    )
    assert "this would bring it to 344 ms" in lines[1]  # 480 - 0.65 x 210


@pytest.mark.parametrize(
    ("store", "value"), [("local", FAST_LOCAL), ("object", ABORTABLE), ("hdfs", None), ("unknown", None)]
)
def test_the_file_manager_is_advised_only_where_it_is_safe(store, value):
    found = {a.setting: a.value for a in advice(a_cost(), {}, store=store, python=False)}
    assert found.get(MANAGER) == value


def test_what_somebody_has_set_is_left_alone():
    cost = a_cost(stateful=True, partitions=200)
    settings = {MANAGER: "theirs", SOCKET: "false", SHUFFLES: "200"}
    assert advice(cost, settings, store="local", python=True, slots=4) == ()
    assert "nothing that is safe" in told(cost, ())[1]


def test_state_has_advice_of_its_own():
    cost = a_cost(stateful=True, partitions=200)
    found = {a.setting: a for a in advice(cost, {PROVIDER: ROCKSDB}, store="hdfs", python=False, slots=4)}
    assert set(found) == {CHANGELOG, SHUFFLES}
    assert "new checkpoint" in found[SHUFFLES].caution
    assert not advice(a_cost(stateful=True, partitions=8), {}, store="hdfs", python=False, slots=4)


@pytest.mark.parametrize(
    ("location", "store"),
    [
        ("file:/data/c", "local"),
        ("hdfs://namenode/c", "hdfs"),
        ("s3a://bucket/c", "object"),
        ("gs://bucket/c", "object"),
        ("abfss://c@account/x", "object"),
        ("/data/c", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_address_of_a_checkpoint_tells_its_store(location, store):
    assert store_of(location) == store
