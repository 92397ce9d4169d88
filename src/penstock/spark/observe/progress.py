"""What Spark reports of a micro-batch, read and checked: the door for its progress documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.gateway import progress_since


class SourceProgress(BaseModel):
    """One source in one batch."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    description: str = ""
    start: Any = Field(default=None, alias="startOffset")
    end: Any = Field(default=None, alias="endOffset")
    latest: Any = Field(default=None, alias="latestOffset")
    records: int = Field(default=0, alias="numInputRows")

    @field_validator("start", "end", "latest", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> Any:
        # Offsets arrive as JSON inside JSON, or as text of the source's own.
        if isinstance(value, str):
            try:
                return json.loads(value)
            except ValueError:
                return value
        return value

    @property
    def is_kafka(self) -> bool:
        """Whether the offsets are Kafka's, by topic and partition."""
        return self.description.startswith("KafkaV2")

    def backlog_records(self) -> int | None:
        """Records that existed when the batch was planned and were not read; None if the source cannot tell."""
        if not self.is_kafka or not isinstance(self.latest, dict) or not isinstance(self.end, dict):
            return None
        return max(0, kafka_total(self.latest) - kafka_total(self.end))


class StateProgress(BaseModel):
    """One stateful operator in one batch."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(default="", alias="operatorName")
    rows: int = Field(default=0, alias="numRowsTotal")
    memory_bytes: int = Field(default=0, alias="memoryUsedBytes")
    partitions: int = Field(default=0, alias="numShufflePartitions")


class BatchProgress(BaseModel):
    """One micro-batch that has ended."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    batch_id: int = Field(alias="batchId")
    run_id: str = Field(alias="runId")
    timestamp: datetime
    phases_ms: Mapping[str, int] = Field(alias="durationMs")
    records: int = Field(alias="numInputRows")
    sources: tuple[SourceProgress, ...] = ()
    states: tuple[StateProgress, ...] = Field(default=(), alias="stateOperators")

    @property
    def began_s(self) -> float:
        """When it was triggered, in seconds since 1970."""
        return self.timestamp.timestamp()

    @property
    def asked_s(self) -> float:
        """When sources were asked for their latest offsets: in the first phase of a batch."""
        return self.began_s + self.phases_ms.get("latestOffset", 0) / 2e3

    @property
    def duration_s(self) -> float:
        """From the trigger to the commit."""
        return self.phases_ms.get("triggerExecution", 0) / 1e3

    @property
    def ended_s(self) -> float:
        """When its results were there for good."""
        return self.began_s + self.duration_s

    @property
    def fixed_s(self) -> float:
        """The part outside the execution of the data: planning, offsets, logs."""
        return max(0.0, self.duration_s - self.phases_ms.get("addBatch", 0) / 1e3)


def kafka_total(offsets: Mapping[str, Mapping[str, int]]) -> int:
    """Sum of the offsets over topics and partitions."""
    return sum(int(offset) for topic in offsets.values() for offset in topic.values())


def batches_since(query: StreamingQuery, batch_id: int) -> tuple[BatchProgress, ...]:
    """The batches after `batch_id` of the present run that Spark still remembers, oldest first.

    Reports of idle triggers (no new batch) repeat the last batch's id and are left out.
    """
    found: dict[int, BatchProgress] = {}
    for report in progress_since(query, batch_id):
        batch = BatchProgress.model_validate_json(report)
        if "addBatch" in batch.phases_ms:
            found[batch.batch_id] = batch
    return tuple(found[i] for i in sorted(found))
