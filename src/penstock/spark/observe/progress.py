"""What Spark reports of a micro-batch, read and checked: the door for its progress documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

STEP_S = 0.5
"""A difference between two clocks that changes by more than this is a step of one of them."""


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
    """One micro-batch that has ended. Its times are those of the loop's clock, which never steps."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    batch_id: int = Field(alias="batchId")
    run_id: str = Field(alias="runId")
    timestamp: datetime
    phases_ms: Mapping[str, int] = Field(alias="durationMs")
    records: int = Field(alias="numInputRows")
    sources: tuple[SourceProgress, ...] = ()
    states: tuple[StateProgress, ...] = Field(default=(), alias="stateOperators")

    shift_s: float = 0.0
    """What the loop's clock is ahead of the driver's."""
    lasted_s: float | None = None
    """Its duration where Spark's own figure cannot be right, because the driver's clock stepped meanwhile."""

    @property
    def began_s(self) -> float:
        """When it was triggered."""
        return self.timestamp.timestamp() + self.shift_s

    @property
    def asked_s(self) -> float:
        """When sources were asked for their latest offsets: in the first phase of a batch."""
        return self.began_s + self.asking_s / 2

    @property
    def asking_s(self) -> float:
        """How long that took: the moment is not known better than this."""
        return self.phases_ms.get("latestOffset", 0) / 1e3

    @property
    def duration_s(self) -> float:
        """From the trigger to the commit."""
        return self.phases_ms.get("triggerExecution", 0) / 1e3 if self.lasted_s is None else self.lasted_s

    @property
    def ended_s(self) -> float:
        """When its results were there for good."""
        return self.began_s + self.duration_s

    @property
    def ended_wall_s(self) -> float:
        """When that was by the clock on the wall, which is the clock of the records' own times."""
        return self.ended_s - self.shift_s

    @property
    def fixed_s(self) -> float:
        """The part outside the execution of the data: planning, offsets, logs."""
        return max(0.0, self.duration_s - self.phases_ms.get("addBatch", 0) / 1e3)


def kafka_total(offsets: Mapping[str, Mapping[str, int]]) -> int:
    """Sum of the offsets over topics and partitions."""
    return sum(int(offset) for topic in offsets.values() for offset in topic.values())


def batches_of(reports: Iterable[str]) -> tuple[BatchProgress, ...]:
    """The batches that reports tell of, oldest first.

    Reports of idle triggers (no new batch) repeat the last batch's id and are left out.
    """
    found: dict[int, BatchProgress] = {}
    for report in reports:
        batch = BatchProgress.model_validate_json(report)
        if "addBatch" in batch.phases_ms:
            found[batch.batch_id] = batch
    return tuple(found[i] for i in sorted(found))


def in_loop_time(
    batch: BatchProgress, *, now_s: float, after_s: float, shifts_s: Sequence[float]
) -> BatchProgress:
    """A batch that was triggered after `after_s` and has ended by now, both in the loop's time.

    If the driver's clock stepped lately there are several shifts, the newest first: that under which the batch lies in
    between is the right one. A step while it ran makes Spark's figure of its duration wrong: all that can be told then
    is that it has ended by now.
    """
    tries = [batch.model_copy(update={"shift_s": shift}) for shift in shifts_s]
    if len(tries) == 1:
        return tries[0]
    begun = [b for b in tries if after_s - STEP_S <= b.began_s <= now_s + STEP_S]
    for found in begun:
        if found.began_s <= found.ended_s <= now_s + STEP_S:
            return found
    found = begun[0] if begun else tries[0]
    return found.model_copy(update={"lasted_s": max(0.0, now_s - found.began_s)})
