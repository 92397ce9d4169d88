"""Bytes between the partitions of one stateful operator and the next, from Spark's shuffle matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.dataflow import Dataflow, OperatorId
from penstock.runtimes.spark.internals.shuffles import ShuffleMatrix
from penstock.telemetry import Tasks, Traffic


def traffic_between(
    flow: Dataflow,
    shuffled: Sequence[OperatorId],
    matrices: Sequence[ShuffleMatrix],
    tasks: Tasks,
    batch_s: float,
) -> Traffic:
    """Traffic per second into each stateful operator, from the tasks whose output was shuffled.

    `shuffled` are the stateful operators from the sinks back, the order in which Spark's plan has their exchanges; a
    map task's position is its partition, so what feeds an exchange is the operator before it in the chain. Where the
    plan has other exchanges than those (a repartition of the user's), nobody can tell which is whose: none is told.
    """
    if len(matrices) != len(shuffled) or batch_s <= 0:
        return Traffic.blank(0)
    rows = {
        (int(op), int(index)): i
        for i, (op, index) in enumerate(zip(tasks.operator, tasks.index, strict=True))
    }
    sources: list[int] = []
    targets: list[int] = []
    bytes_bps: list[float] = []
    for operator, matrix in zip(shuffled, matrices, strict=True):
        feeding = _before(flow, operator, shuffled)
        if feeding is None:
            continue
        for m, sizes in enumerate(matrix.sizes_bytes):
            source = rows.get((flow.row[feeding], m))
            for r in np.flatnonzero(sizes):
                target = rows.get((flow.row[operator], int(r)))
                if source is not None and target is not None:
                    sources.append(source)
                    targets.append(target)
                    bytes_bps.append(float(sizes[r]) / batch_s)
    return Traffic.blank(len(sources), from_task=sources, to_task=targets, bytes_bps=bytes_bps)


def _before(flow: Dataflow, operator: OperatorId, shuffled: Sequence[OperatorId]) -> OperatorId | None:
    """The operator whose tasks write an operator's shuffle: the nearest stateful one, or the source, before it."""
    at = operator
    while True:
        streams = flow.upstream(at)
        if len(streams) != 1:
            return at if at != operator else None
        at = streams[0].source
        if at in shuffled:
            return at
