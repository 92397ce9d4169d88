"""Costs of stages, from the tasks of batches whose cost is known."""

import numpy as np
import pytest

from penstock.spark.internals.tasks import TaskTable
from penstock.spark.observe.stage_costs import StageCosts
from tests.spark_offline.task_tables import a_stage, a_table


def batch(stages: list[tuple[list[int], float, float]]) -> TaskTable:
    """A batch with the given stages: (records of each task, seconds per task, seconds per record)."""
    rows = [
        (number, n, round(1e3 * (task_s + record_s * n)))
        for number, (records, task_s, record_s) in enumerate(stages)
        for n in records
    ]
    stage, records, run_ms = zip(*rows, strict=True)
    return a_table(
        [a_stage(number) for number in range(len(stages))], stage=stage, input_records=records, run_ms=run_ms
    )


def test_tasks_and_records_are_told_apart_where_tasks_differ() -> None:
    costs = StageCosts()
    state = list(np.random.default_rng(1).integers(0, 9, 200))
    tasks_s, records_s = costs.split(batch([([100, 300, 200], 0.05, 0.003), (state, 0.02, 0.001)]))
    assert tasks_s == pytest.approx(3 * 0.05 + 200 * 0.02, rel=0.02)
    assert tasks_s + records_s == pytest.approx(3 * 0.05 + 600 * 0.003 + 4.0 + sum(state) * 0.001, rel=0.01)


def test_what_cannot_be_told_apart_counts_as_records() -> None:
    tasks_s, records_s = StageCosts().split(batch([([100, 100, 100], 0.05, 0.003)]))
    assert tasks_s == 0
    assert records_s == pytest.approx(3 * 0.35)


def test_batches_of_other_sizes_tell_it() -> None:
    costs = StageCosts()
    costs.split(batch([([100, 100, 100], 0.05, 0.003)]))
    tasks_s, _ = costs.split(batch([([200, 200, 200], 0.05, 0.003)]))
    assert tasks_s == pytest.approx(3 * 0.05)


def test_tasks_without_records_are_fixed() -> None:
    assert StageCosts().split(batch([([0] * 200, 0.02, 0.0)])) == (pytest.approx(4.0), pytest.approx(0.0))
