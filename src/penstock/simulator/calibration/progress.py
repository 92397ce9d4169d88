"""A history from progress documents of Spark, as a `StreamingQueryListener` gets them.

A file holds one document a line (`event.progress.json`), or one JSON array of them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from penstock.simulator.calibration.history import History, HistoryError, QueryHistory

BEFORE_WORK = ("latestOffset", "setOffsetRange", "getEndOffset", "walCommit", "getBatch", "queryPlanning")
MOST_TRIGGER_S = 3600.0


class _Source(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    description: str = ""
    records: float = Field(default=0.0, alias="numInputRows", ge=0)
    end: Any = Field(default=None, alias="endOffset")
    latest: Any = Field(default=None, alias="latestOffset")

    @field_validator("end", "latest", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> Any:
        if isinstance(value, str):  # JSON inside JSON, or a text of the source's own
            try:
                return json.loads(value)
            except ValueError:
                return value
        return value

    @property
    def produced(self) -> float | None:
        """Sum of the latest offsets of a Kafka source; None where the source does not tell."""
        found = self.latest if self.latest is not None else self.end
        return float(sum(_offsets(found))) if self.is_kafka and _offsets(found) else None

    @property
    def is_kafka(self) -> bool:
        return self.description.startswith("Kafka")


class _State(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    partitions: int = Field(default=0, alias="numShufflePartitions")
    memory_bytes: float = Field(default=0.0, alias="memoryUsedBytes")


class Progress(BaseModel):
    """One progress document, as far as it is needed here."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    run: str = Field(alias="runId")
    name: str | None = None
    timestamp: datetime
    batch: int = Field(alias="batchId", ge=0)
    phases_ms: Mapping[str, float] = Field(alias="durationMs")
    sources: tuple[_Source, ...] = ()
    states: tuple[_State, ...] = Field(default=(), alias="stateOperators")

    @property
    def records(self) -> float:
        """What its batch read, of all sources."""
        return sum(s.records for s in self.sources)


def read_progress(path: Path) -> History:
    """The history in a file of progress documents. Raise HistoryError with the line that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise HistoryError(f"'{path}' cannot be read as text: {problem}") from None
    found = list(_documents(path, text))
    if not found:
        raise HistoryError(f"'{path}' holds no progress documents")
    return history_of(found, source=f"progress file '{path}'")


def history_of(documents: Iterable[Progress], *, source: str) -> History:
    """The history that progress documents tell, of all queries in them. Executors are not in it."""
    by_query: dict[tuple[str, str], dict[int, Progress]] = {}
    for one in documents:
        if "addBatch" in one.phases_ms:  # others report that there was nothing to do
            by_query.setdefault((one.id, one.run), {})[one.batch] = one
    if not by_query:
        raise HistoryError(f"{source} tells of no batch that ran")
    names = _names(by_query)
    queries = tuple(_query(names[key], [found[i] for i in sorted(found)]) for key, found in by_query.items())
    unknown = [
        f"{q.name}: its sources do not tell what waits in them; each batch counts as all that had come"
        for q in queries
        if q.latest is None
    ]
    return History(
        source=source,
        queries=queries,
        began_s=min(float(q.began_s[0]) for q in queries),
        ended_s=max(float(q.ended_s[-1]) for q in queries),
        unknown=tuple(unknown),
    )


def _documents(path: Path, text: str) -> Iterable[Progress]:
    if text.lstrip().startswith("["):
        try:
            items = list(enumerate(json.loads(text), start=1))
        except ValueError as problem:
            raise HistoryError(f"'{path}' begins as a JSON array but is none: {problem}") from None
        what = "item"
    else:
        items, what = [], "line"
        lines = text.splitlines()
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                items.append((number, json.loads(line)))
            except ValueError as problem:
                if number == len(lines) and items:
                    break  # the program was stopped while it wrote its last line
                raise HistoryError(f"'{path}', line {number}: not JSON ({problem})") from None
    for number, item in items:
        yield parsed(item, f"'{path}', {what} {number}")


def parsed(item: Any, where: str) -> Progress:
    """A document that was decoded; also one that still is in its event."""
    inner = item.get("progress", item) if isinstance(item, dict) else item
    try:
        return Progress.model_validate(inner)
    except ValidationError as problem:
        first = problem.errors()[0]
        field = ".".join(map(str, first["loc"])) or "document"
        raise HistoryError(
            f"{where}: not a progress document of a streaming query ({field}: {first['msg'].lower()})"
        ) from None


def _query(name: str, found: list[Progress]) -> QueryHistory:
    phases = [p.phases_ms for p in found]
    began = np.array([p.timestamp.timestamp() for p in found])
    duration = np.array([p.get("triggerExecution", sum(p.values())) / 1e3 for p in phases])
    latest = [[s.produced for s in p.sources] for p in found]
    told = [sum(x for x in row if x is not None) if row and None not in row else math.nan for row in latest]
    states = [s for p in found for s in p.states]
    kafka = [len(_offsets(s.end)) for p in found for s in p.sources if s.is_kafka]
    records = np.array([p.records for p in found])
    return QueryHistory(
        name=name,
        began_s=began,
        duration_s=duration,
        records=records,
        plan_s=np.array([sum(p.get(x, 0.0) for x in BEFORE_WORK) / 1e3 for p in phases]),
        work_s=np.array([p["addBatch"] / 1e3 for p in phases]),
        latest=np.array(told) if np.all(np.isfinite(told)) else None,
        trigger_s=_trigger_s(began, duration),
        read_limit=_read_limit(records, np.array(told)),
        partitions=max([*(s.partitions for s in states), *kafka], default=0) or None,
        stateful=bool(states),
        state_bytes=_state_bytes(found),
        phases_ms={
            name: np.array([p.get(name, 0.0) for p in phases]) for name in {n for p in phases for n in p}
        },
    )


def _state_bytes(found: list[Progress]) -> float:
    """Of a partition, at the end."""
    last = found[-1].states
    return max((s.memory_bytes / max(1, s.partitions) for s in last), default=0.0)


def _trigger_s(began_s: np.ndarray, duration_s: np.ndarray) -> float:
    """Time between batches that began later than they could have: on a beat; 0 where one follows right after another.

    Spark starts batches at multiples of the interval, so the beat is seen in gaps that nothing else explains.
    """
    gaps, busy = np.diff(began_s), duration_s[:-1]
    idle = gaps > busy + np.maximum(0.05, 0.1 * busy)
    if len(gaps) < 4 or idle.mean() < 0.5:
        return 0.0
    beat = float(np.median(gaps[idle]))
    rounded = round(beat, 1) if beat >= 0.5 else round(beat, 2)
    steady = np.abs(gaps[idle] / beat - np.round(gaps[idle] / beat)) < 0.1
    return rounded if steady.mean() > 0.8 and rounded < MOST_TRIGGER_S else 0.0


def _read_limit(records: np.ndarray, latest: np.ndarray) -> float | None:
    """The number of records that batches stop at again and again while more waits; None: there is no such number."""
    if len(records) < 4 or not np.all(np.isfinite(latest)):
        return None
    top = float(records.max())
    at_top = records >= 0.99 * top
    waiting = latest - latest[0] - np.cumsum(records) + records[0] > 0.01 * top
    return top if top > 0 and at_top.sum() >= 3 and waiting[at_top].mean() > 0.5 else None


def _names(queries: Mapping[tuple[str, str], Mapping[int, Progress]]) -> dict[tuple[str, str], str]:
    """A name for each run of a query that can stand in the ids of operators."""
    names: dict[tuple[str, str], str] = {}
    for key, found in queries.items():
        given = next(iter(found.values())).name or f"query-{key[0][:8]}"
        name = re.sub(r"[.\[\]>\s]", "_", given)
        names[key] = name if name not in names.values() else f"{name}-{key[1][:8]}"
    return names


def _offsets(value: Any) -> list[float]:
    """Offsets by topic and partition, as one list."""
    if not isinstance(value, dict):
        return []
    return [
        float(offset)
        for topic in value.values()
        if isinstance(topic, dict)
        for offset in topic.values()
        if isinstance(offset, int | float)
    ]
