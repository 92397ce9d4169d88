"""Scoring: every event from Kafka is put through a model that costs a fixed CPU time.

The CPU time per record is the same on a quiet and on a busy machine, so that what two applications need is known: this
is the workload of the live shedding benchmark.
"""

from __future__ import annotations

import math
import time

import pyarrow as pa

from penstock.dataflow import Dataflow, flow
from penstock.dataflow.connectors import discard, kafka
from penstock.dataflow.graph import Connector

COST_S = 0.005


class Score:
    """A model that takes `cost_s` seconds of CPU for each record."""

    def __init__(self, cost_s: float) -> None:
        self._cost_s = cost_s

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a score for each record."""
        scores = [self._score(number) for number in batch.column("number").to_pylist()]
        return batch.append_column("score", pa.array(scores, pa.float64()))

    def _score(self, number: int) -> float:
        end_s, score = time.thread_time() + self._cost_s, float(number % 97) / 97
        while time.thread_time() < end_s:
            for _ in range(200):  # logistic map: nothing that can be skipped
                score = 3.9 * score * (1 - score)
        return score if math.isfinite(score) else 0.0


def scoring(
    name: str,
    topic: str,
    servers: str,
    *,
    priority: int = 0,
    min_accuracy: float = 0.0,
    cost_s: float = COST_S,
    max_rows_per_batch: int | None = None,
    sink: Connector | None = None,
) -> Dataflow:
    """Events of a topic (`{"number": n}`), scored."""
    builder = flow(name)
    source = kafka(
        topic,
        servers,
        starting="earliest",
        value_format="json",
        schema="number long",
        max_rows_per_batch=max_rows_per_batch,
    )
    events = builder.source("events", source, record_bytes=40, keep_by=("number",))
    scored = events.map("score", Score(cost_s), schema="number long, score double", cost_s=cost_s)
    scored.sink("scores", sink or discard(), priority=priority, min_accuracy=min_accuracy)
    return builder.build()
