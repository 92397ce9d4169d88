"""Where the time of a micro-batch goes, phase by phase, and what would lower the part that no record asks for.

A setting is advised only where nobody has set it, and only where it is safe for the place of the checkpoint. What it
would bring is what it brought in trials, applied to the phases of this query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Store = Literal["local", "hdfs", "object", "unknown"]

PHASES = {
    "latestOffset": "asking the sources",
    "setOffsetRange": "asking the sources",
    "getEndOffset": "asking the sources",
    "getBatch": "asking the sources",
    "walCommit": "commits",
    "commitOffsets": "commits",
    "commitBatch": "commits",
    "queryPlanning": "planning",
    "addBatch": "tasks",
}
"""Spark's phases, and what they are for."""
FIXED = ("asking the sources", "planning", "commits", "other")
OBJECT_STORES = ("s3", "gs", "abfs", "wasb", "oss", "cos", "adl")

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FAST_LOCAL = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
SOCKET = "spark.python.unix.domain.socket.enabled"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
SHUFFLES = "spark.sql.shuffle.partitions"

LOCAL_COMMITS_LEFT = 0.35
"""Share of the commits that is left on a local path without a process per file; in trials 47 of 148 ms."""
TCP_STALL_MS = 40.0
"""What a small Python task waits for over TCP; in trials 44 to 55 ms at 3 ms of work."""
WIDE = 4
"""So many state partitions for each slot make a batch pay for tasks rather than for records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCost:
    """The usual micro-batch of one query, in milliseconds."""

    query: str
    batches: int
    total_ms: float
    parts_ms: Mapping[str, float]
    """By what it is for; in the order of a batch."""
    stateful: bool
    partitions: int | None
    """State partitions, or tasks of the widest stage."""

    @property
    def fixed_ms(self) -> float:
        """All but the tasks."""
        return sum(self.parts_ms.get(part, 0.0) for part in FIXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A setting that would lower the fixed cost."""

    setting: str
    value: str
    saves_ms: float | None
    """Of each batch, by what it saved in trials; None: not measured."""
    why: str
    caution: str = ""

    def __str__(self) -> str:
        gain = "not measured" if self.saves_ms is None else f"about {self.saves_ms:.0f} ms less"
        return f"{self.setting}={self.value} ({gain}): {self.why}" + (
            f"; {self.caution}" if self.caution else ""
        )


def fixed_cost(
    query: str,
    phases_ms: Mapping[str, Sequence[float]],
    total_ms: Sequence[float],
    *,
    stateful: bool = False,
    partitions: int | None = None,
) -> FixedCost:
    """The medians of settled batches; phases that Spark does not name are `other`."""
    total = _median(total_ms)
    parts: dict[str, float] = {}
    for phase, values in phases_ms.items():
        if phase in PHASES:
            parts[PHASES[phase]] = parts.get(PHASES[phase], 0.0) + _median(values)
    known = sum(parts.values())
    ordered = {part: parts[part] for part in dict.fromkeys(PHASES.values()) if part in parts}
    ordered["other"] = max(0.0, total - known)
    return FixedCost(
        query=query,
        batches=len(total_ms),
        total_ms=total,
        parts_ms=ordered,
        stateful=stateful,
        partitions=partitions,
    )


def store_of(location: str | None) -> Store:
    """What kind of place a checkpoint is in, from its address; a bare path is unknown, because it may be either."""
    scheme = (location or "").split(":", 1)[0].lower() if ":" in (location or "") else ""
    if scheme == "file":
        return "local"
    if scheme in ("hdfs", "viewfs"):
        return "hdfs"
    return "object" if scheme.startswith(OBJECT_STORES) else "unknown"


def advice(
    cost: FixedCost,
    settings: Mapping[str, str],
    *,
    store: Store,
    python: bool | None = None,
    slots: int | None = None,
) -> tuple[Advice, ...]:
    """What is safe to set for this query, that nobody has set, the largest gain first.

    `python` says whether tasks run Python; None: not known.
    """
    found = [a for a in _advised(cost, settings, store, python, slots) if a.setting not in settings]
    return tuple(sorted(found, key=lambda a: -(a.saves_ms or 0.0)))


def _advised(
    cost: FixedCost, settings: Mapping[str, str], store: Store, python: bool | None, slots: int | None
) -> Iterator[Advice]:
    commits_ms = cost.parts_ms.get("commits", 0.0)
    if store == "local":
        yield Advice(
            setting=MANAGER,
            value=FAST_LOCAL,
            saves_ms=(1 - LOCAL_COMMITS_LEFT) * commits_ms,
            why="on a local path the default starts a process for each checkpoint file",
            caution="never run two copies of a query on one checkpoint: it does not notice",
        )
    elif store == "object" and commits_ms:
        yield Advice(
            setting=MANAGER,
            value=ABORTABLE,
            saves_ms=None,
            why="renames are copies on an object store; this one writes in place and takes back",
            caution="needs spark-hadoop-cloud, and a store whose streams can be aborted",
        )
    if python is not False:
        yield Advice(
            setting=SOCKET,
            value="true",
            saves_ms=TCP_STALL_MS if python else None,
            why="a small Python task waits 40 ms for its answers over TCP"
            + ("" if python else ", if there is one"),
        )
    if cost.stateful and settings.get(PROVIDER) == ROCKSDB:
        yield Advice(
            setting=CHANGELOG,
            value="true",
            saves_ms=None,
            why="a commit of state writes what changed, not all of it",
        )
    if cost.stateful and cost.partitions and slots and cost.partitions >= WIDE * slots:
        tasks_ms = cost.parts_ms.get("tasks", 0.0)
        yield Advice(
            setting=SHUFFLES,
            value=str(2 * slots),
            saves_ms=tasks_ms * (1 - 2 * slots / cost.partitions) / 2,
            why=f"{cost.partitions} state partitions on {slots} slots: each is a task in every batch, however empty",
            caution="counts for a new checkpoint; `penstock repartition` changes one with state in RocksDB; half of "
            "the time is taken to be tasks as such",
        )


def told(cost: FixedCost, found: Sequence[Advice]) -> list[str]:
    """The cost and the advice in sentences."""
    commits = cost.parts_ms.get("commits")
    lines = [
        f"{cost.query}: of {cost.total_ms:.0f} ms, {cost.fixed_ms:.0f} are fixed"
        + (f", {commits:.0f} of them commits to this checkpoint store" if commits is not None else "")
        + f" (median of {cost.batches} batches)"
    ]
    left = cost.total_ms
    for one in found:
        line = str(one)
        if one.saves_ms is not None:
            left = max(0.0, left - one.saves_ms)
            line += f"; this would bring it to {left:.0f} ms"
        lines.append(line)
    if not found:
        lines.append("nothing that is safe for this query and not set already would lower it")
    return lines


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    if not ordered:
        return 0.0
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
