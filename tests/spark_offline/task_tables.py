"""Tables of tasks as Spark would tell them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from penstock.spark.internals.tasks import NUMBERS, StageFacts, StateTable, TaskTable


def a_stage(number: int, tasks: int = 1, **facts: Any) -> StageFacts:
    """A stage that begins with a source and writes a shuffle, unless the facts say otherwise."""
    usual: dict[str, Any] = {
        "attempt": 0,
        "is_first": True,
        "is_last": False,
        "has_python": False,
        "sources": (),
        "states": (),
    }
    return StageFacts(id=number, tasks=tasks, **{**usual, **facts})


def a_table(
    stages: Sequence[StageFacts],
    *,
    states: dict[str, Sequence[float]] | None = None,
    executor: Sequence[str] | None = None,
    **columns: Sequence[float],
) -> TaskTable:
    """A table with these columns, `stage` among them; all others are 0."""
    count = len(columns["stage"])
    numbers: dict[str, Any] = {name: np.zeros(count) for name in NUMBERS if name != "executor"}
    numbers |= {name: np.asarray(values, np.float64) for name, values in columns.items()}
    for name in ("stage", "stage_attempt", "partition"):
        numbers[name] = numbers[name].astype(np.int64)
    numbers["succeeded"] = np.asarray(columns.get("succeeded", np.ones(count)), np.bool_)
    held = states or {}
    rows = len(held.get("task", ()))
    kept: dict[str, Any] = {
        f.name: np.asarray(held.get(f.name, np.zeros(rows)), np.float64) for f in fields(StateTable)
    }
    kept |= {name: kept[name].astype(np.int64) for name in ("task", "operator")}
    return TaskTable(
        executor=tuple(executor or ("x",) * count),
        host=("h",) * count,
        stages=tuple(stages),
        states=StateTable(**kept),
        **numbers,
    )
