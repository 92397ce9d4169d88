"""The control values of a micro-batch, as its Python tasks read them: no JVM, no port, no file.

A query's controls are one JSON document in one setting of its session. Spark hands such settings to
every task as a task-local property, taken when an execution starts. A micro-batch with several
executions (``foreachBatch`` with two actions, a cached plan, a stage retried after a failure) can
therefore see a document that is newer than the batch. The document holds the previous values as well and
says from which batch on the current ones count, and each task picks by its own batch id: all tasks of a
batch agree, whenever the document was written.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Self

from pyspark import TaskContext

CONTROLS_KEY = "spark.penstock.controls"
BATCH_KEY = "streaming.sql.batchId"

Values = Mapping[str, Any]
"""Control names to JSON values; never changed in place."""

NO_VALUES: Values = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlDocument:
    """Two generations of control values and the batch that parts them."""

    version: int = 0
    effective_batch: int = 0
    current: Values = field(default_factory=lambda: NO_VALUES)
    previous: Values = field(default_factory=lambda: NO_VALUES)

    def __post_init__(self) -> None:
        if self.version < 0 or self.effective_batch < 0:
            raise ValueError(f"negative version {self.version} or batch {self.effective_batch}")

    def at(self, batch_id: int) -> Values:
        """Return the values that hold in micro-batch *batch_id*."""
        return self.current if batch_id >= self.effective_batch else self.previous

    def changed(self, values: Values, *, from_batch: int) -> Self:
        """Return the next version, with *values* merged in from micro-batch *from_batch* on.

        Batches before *from_batch* keep what they have, so *from_batch* must not have started; changes
        to one batch that has not started add up.
        """
        effective = max(from_batch, self.effective_batch)
        return type(self)(
            version=self.version + 1,
            effective_batch=effective,
            current=MappingProxyType({**self.current, **values}),
            previous=self.at(effective - 1) if effective else NO_VALUES,
        )

    def encode(self) -> str:
        """Return the JSON text that travels."""
        document = {
            "version": self.version,
            "effective_batch": self.effective_batch,
            "current": dict(self.current),
            "previous": dict(self.previous),
        }
        return json.dumps(document, separators=(",", ":"), allow_nan=False)

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the document written by `encode`; ValueError when *text* is anything else."""
        document = json.loads(text)
        if not isinstance(document, dict) or set(document) != set(cls.__dataclass_fields__):
            raise ValueError(f"not a control document: {text[:80]}")
        return cls(
            version=document["version"],
            effective_batch=document["effective_batch"],
            current=MappingProxyType(document["current"]),
            previous=MappingProxyType(document["previous"]),
        )


@lru_cache(maxsize=16)
def _values(text: str, batch_id: int) -> Values:
    return ControlDocument.decode(text).at(batch_id)


def current_controls() -> Values:
    """Return the control values of the running task's micro-batch; empty outside a task or without any.

    Parsed once per worker and batch; afterwards a call costs two dictionary look-ups.
    """
    task = TaskContext.get()
    text = task.getLocalProperty(CONTROLS_KEY) if task else None
    if task is None or text is None:
        return NO_VALUES
    batch_id = task.getLocalProperty(BATCH_KEY)
    if batch_id is None:  # not inside a micro-batch, so nothing to agree with
        return ControlDocument.decode(text).current
    return _values(text, int(batch_id))
