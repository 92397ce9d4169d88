"""A history from Spark's event log: one file, or the folder of a rolling log; plain, gzip or zstd.

The batches are in the progress events, the tasks in those of the scheduler; the properties of a job say which batch of
which query it belongs to. Adaptive execution runs a batch as several jobs: the stages count in the order they ran in.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.simulator.calibration.history import (
    ExecutorLife,
    History,
    HistoryError,
    QueryHistory,
    StageHistory,
)
from penstock.simulator.calibration.progress import Progress, history_of, parsed

PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
WANTED = {
    "SparkListenerLogStart",
    "SparkListenerApplicationStart",
    "SparkListenerApplicationEnd",
    "SparkListenerEnvironmentUpdate",
    "SparkListenerJobStart",
    "SparkListenerTaskEnd",
    "SparkListenerExecutorAdded",
    "SparkListenerExecutorRemoved",
    PROGRESS,
}
_EVENT = re.compile(r'^\s*\{\s*"Event"\s*:\s*"([^"]*)"')
_ROLLED = re.compile(r"^events_(\d+)_")
UNREADABLE = {".lz4": "lz4", ".snappy": "snappy", ".lzf": "lzf"}
"""Codecs that Spark frames in a way of its own."""


def is_event_log(path: Path) -> bool:
    """Whether a path looks like an event log, from its name or its first line."""
    if path.is_dir():
        return True
    if path.suffix in {".zstd", ".zst", ".gz", *UNREADABLE}:
        return True
    with path.open("rb") as file:
        return _EVENT.match(file.read(200).decode("utf-8", "replace")) is not None


def read_event_log(path: Path) -> History:
    """The history in an event log. Raise HistoryError if it is none, empty, or holds no streaming query."""
    progress: list[Progress] = []
    stages: dict[int, tuple[str, int]] = {}
    tasks: dict[int, list[tuple[int, float, float, float]]] = defaultdict(list)
    executors: dict[str, ExecutorLife] = {}
    settings: dict[str, str] = {}
    seen, where = False, f"event log '{path}'"
    for event in _events(path):
        seen = True
        match event["Event"]:
            case "SparkListenerJobStart":
                told = event.get("Properties") or {}
                if (query := told.get("sql.streaming.queryId")) and "streaming.sql.batchId" in told:
                    for stage in event.get("Stage IDs", ()):
                        stages.setdefault(stage, (query, int(told["streaming.sql.batchId"])))
            case "SparkListenerTaskEnd" if event["Stage ID"] in stages:
                if (task := _task(event)) is not None:
                    tasks[event["Stage ID"]].append(task)
            case "SparkListenerEnvironmentUpdate":
                settings |= {k: v for k, v in event.get("Spark Properties", {}).items() if isinstance(v, str)}
            case "SparkListenerExecutorAdded":
                id_ = str(event["Executor ID"])
                cores = int(event["Executor Info"]["Total Cores"])
                executors[id_] = ExecutorLife(id=id_, cores=cores, ready_s=event["Timestamp"] / 1e3)
            case "SparkListenerExecutorRemoved" if str(event["Executor ID"]) in executors:
                id_ = str(event["Executor ID"])
                executors[id_] = replace(executors[id_], gone_s=event["Timestamp"] / 1e3)
            case "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent":
                progress.append(parsed(event, where))
            case _:
                pass
    if not seen:
        raise HistoryError(f"{where} is empty")
    if not progress:
        raise HistoryError(
            f"{where} has no progress of a streaming query; it is of a batch application, or the application "
            "ended before its first batch did"
        )
    found = history_of(progress, source=where)
    rows = _rows(progress)
    queries = tuple(
        _with_stages(query, _stages(key, batches, stages, tasks))
        for query, (key, batches) in zip(found.queries, rows, strict=True)
    )
    unknown = list(found.unknown)
    unknown += [f"{q.name}: no task of it is in the log" for q in queries if not q.stages]
    return replace(
        found,
        queries=queries,
        executors=tuple(executors.values()),
        settings=settings or None,
        unknown=tuple(unknown),
    )


def _rows(progress: list[Progress]) -> list[tuple[str, dict[int, int]]]:
    """For each query of the history: its id, and its batch numbers to rows."""
    found: dict[tuple[str, str], set[int]] = {}
    for one in progress:
        if "addBatch" in one.phases_ms:
            found.setdefault((one.id, one.run), set()).add(one.batch)
    return [(key[0], {batch: row for row, batch in enumerate(sorted(ids))}) for key, ids in found.items()]


def _task(event: Mapping[str, Any]) -> tuple[int, float, float, float] | None:
    """Partition, launch, seconds and records of a task that succeeded."""
    info = event["Task Info"]
    if info.get("Failed") or info.get("Killed"):
        return None
    metrics = event.get("Task Metrics") or {}
    shuffle, given = metrics.get("Shuffle Read Metrics") or {}, metrics.get("Input Metrics") or {}
    records = float(shuffle.get("Total Records Read", 0)) + float(given.get("Records Read", 0))
    partition = info.get("Partition ID", -1)
    return (
        int(partition if partition is not None and partition >= 0 else info["Index"]),
        info["Launch Time"] / 1e3,
        max(1e-4, (info["Finish Time"] - info["Launch Time"]) / 1e3),
        records,
    )


def _stages(
    query: str,
    batches: Mapping[int, int],
    owners: Mapping[int, tuple[str, int]],
    tasks: Mapping[int, list[tuple[int, float, float, float]]],
) -> tuple[StageHistory, ...]:
    """The stages of a query by their order in a batch, of the batches that ran as many as most do."""
    ran: dict[int, list[int]] = defaultdict(list)
    for stage, (owner, batch) in owners.items():
        if owner == query and batch in batches and tasks.get(stage):
            ran[batches[batch]].append(stage)
    if not ran:
        return ()
    counts = np.bincount([len(found) for found in ran.values()])
    usual = int(np.argmax(counts))
    columns: list[list[tuple[int, int, float, float]]] = [[] for _ in range(usual)]
    for row, found in sorted(ran.items()):
        if len(found) != usual:
            continue
        for k, stage in enumerate(sorted(found, key=lambda s: min(t[1] for t in tasks[s]))):
            columns[k] += [
                (row, partition, seconds, records) for partition, _, seconds, records in tasks[stage]
            ]
    return tuple(
        StageHistory(
            batch=np.array([t[0] for t in rows], np.int64),
            partition=np.array([t[1] for t in rows], np.int64),
            seconds=np.array([t[2] for t in rows]),
            records=np.array([t[3] for t in rows]),
        )
        for rows in columns
    )


def _with_stages(query: QueryHistory, stages: tuple[StageHistory, ...]) -> QueryHistory:
    counts = [int(np.median(np.bincount(s.batch)[np.unique(s.batch)])) for s in stages]
    return replace(query, stages=stages, partitions=max(counts, default=0) or query.partitions)


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """The events that are wanted here; a last line that was cut off is left out, any other is told."""
    for file in _files(path):
        number, broken = 0, None
        for number, line in enumerate(_lines(file), start=1):
            if broken is not None:
                raise HistoryError(f"event log '{file}', line {broken}: not JSON; the file is damaged")
            kind = _EVENT.match(line)
            if kind is None and number == 1 and not line.lstrip().startswith('{"Event'):
                raise HistoryError(f"'{file}' is not an event log of Spark: its first line is not an event")
            if kind is None or kind.group(1) not in WANTED:
                continue
            try:
                event = json.loads(line)
            except ValueError:
                broken = number
                continue
            yield event


def _files(path: Path) -> list[Path]:
    """The file itself, or the parts of a rolling log in their order."""
    if not path.is_dir():
        return [path]
    parts = [(int(m.group(1)), p) for p in path.iterdir() if (m := _ROLLED.match(p.name))]
    if not parts:
        inside = [p for p in path.iterdir() if p.is_dir() and p.name.startswith("eventlog_v2_")]
        if len(inside) == 1:
            return _files(inside[0])
        hint = f"; name one of {', '.join(sorted(p.name for p in inside)[:5])}" if inside else ""
        raise HistoryError(f"folder '{path}' is not a rolling event log: it has no events_N_… files{hint}")
    return [p for _, p in sorted(parts)]


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file, unpacked; a compressed file that was cut off ends where it can no longer be read."""
    name = path.name.removesuffix(".inprogress")
    suffix = Path(name).suffix
    if suffix in UNREADABLE:
        raise HistoryError(
            f"event log '{path}' is packed with {UNREADABLE[suffix]}, which only Spark reads; "
            "record with spark.eventLog.compression.codec=zstd, or without spark.eventLog.compress"
        )
    try:
        if suffix in {".zstd", ".zst"}:
            yield from _zstd_lines(path)
        elif suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8") as file:
                yield from file
        else:
            with path.open(encoding="utf-8") as file:
                yield from file
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise HistoryError(f"event log '{path}' cannot be read: {problem}") from None


def _zstd_lines(path: Path) -> Iterator[str]:
    rest, read = b"", False
    with pa.input_stream(str(path), compression="zstd") as stream:
        while True:
            try:
                block = stream.read(1 << 20)
            except OSError as problem:
                if not read:
                    raise HistoryError(f"event log '{path}' is not packed with zstd: {problem}") from None
                break  # the application was killed: what came before is whole
            if not block:
                break
            read = True
            *lines, rest = (rest + bytes(block)).split(b"\n")
            yield from (line.decode("utf-8") for line in lines)
    if rest:
        yield rest.decode("utf-8", "replace")
