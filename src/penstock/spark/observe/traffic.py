"""Bytes between the partitions of one stateful operator and the next, from Spark's shuffle matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.dataflow import Dataflow, OperatorId
from penstock.spark.internals.shuffles import ShuffleMatrix
from penstock.telemetry import Tasks, Traffic


def traffic_between(
    flow: Dataflow,
    stateful: Mapping[int, OperatorId],
    matrices: Sequence[ShuffleMatrix],
    tasks: Tasks,
    batch_s: float,
) -> Traffic:
    """Traffic per second into each stateful operator, from the tasks whose output was shuffled.

    `stateful` names the operators by Spark's numbers. A map task's position is its partition. What counts is who wrote
    the bytes: records for a later operator travel through the stages of those between, which hand them on.
    """
    if batch_s <= 0:
        return Traffic.blank(0)
    rows = {
        (int(op), int(index)): i
        for i, (op, index) in enumerate(zip(tasks.operator, tasks.index, strict=True))
    }
    sources: list[int] = []
    targets: list[int] = []
    bytes_per_s: list[float] = []
    for matrix in matrices:
        operator = stateful.get(matrix.reader) if matrix.reader is not None else None
        if operator is None:
            continue  # a shuffle of records that no state is kept of: its tasks have no place
        feeding = stateful.get(matrix.writer) if matrix.writer is not None else _first(flow, operator)
        if feeding is None:
            continue
        for m, sizes in enumerate(matrix.sizes_bytes):
            source = rows.get((flow.row[feeding], m))
            for r in np.flatnonzero(sizes):
                target = rows.get((flow.row[operator], int(r)))
                if source is not None and target is not None:
                    sources.append(source)
                    targets.append(target)
                    bytes_per_s.append(float(sizes[r]) / batch_s)
    return Traffic.blank(len(sources), from_task=sources, to_task=targets, bytes_per_s=bytes_per_s)


def _first(flow: Dataflow, operator: OperatorId) -> OperatorId | None:
    """The first operator of the stage without state before an operator: the source, or what a shuffle leads to."""
    at = operator
    while True:
        streams = flow.upstream(at)
        if len(streams) != 1 or (at != operator and streams[0].wiring != "forward"):
            return at if at != operator else None
        at = streams[0].source
