"""State as the files of a checkpoint in a local folder tell it, without a Spark: sizes, versions, age of snapshots."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from penstock.errors import InputError
from penstock.telemetry.state_report import OperatorState, PartitionState, StateReport

_FILE = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(zip|changelog|snapshot|delta)")
SNAPSHOTS = ("zip", "snapshot")


def state_of_checkpoint(folder: Path, *, now_unix: float) -> StateReport:
    """The state in a checkpoint; refused if the folder is none."""
    if not (folder / "offsets").is_dir():
        raise InputError(f"'{folder}' is no checkpoint of a streaming query: it has no folder 'offsets'")
    operators = [
        OperatorState(
            query=folder.name,
            operator=operator.name,
            kind=_kind(operator),
            partitions=tuple(_partition(p, now_unix) for p in _numbered(operator)),
        )
        for operator in _numbered(folder / "state")
    ]
    return StateReport(origin=str(folder), operators=tuple(o for o in operators if o.partitions))


def _numbered(folder: Path) -> list[Path]:
    found = [p for p in folder.iterdir() if p.name.isdigit() and p.is_dir()] if folder.is_dir() else []
    return sorted(found, key=lambda p: int(p.name))


def _kind(operator: Path) -> str:
    """What Spark calls it, where the checkpoint says so."""
    metadata = operator / "_metadata"
    newest = [*_files(metadata / "v2"), *_files(metadata)]
    for file in newest:
        with suppress(ValueError, KeyError, TypeError, IndexError):
            return str(json.loads(file.read_text().split("\n")[1])["operatorInfo"]["operatorName"])
    return ""


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")), reverse=True)


def _partition(folder: Path, now_unix: float) -> PartitionState:
    """All stores of a partition together; those of a join have folders of their own."""
    stores = [s for s in map(_store, (folder, *_subfolders(folder))) if s is not None]
    if not stores:
        return PartitionState(index=int(folder.name))
    rows, sizes, versions, snapshots, ages = zip(*stores, strict=True)
    return PartitionState(
        index=int(folder.name),
        rows=None if None in rows else float(sum(r for r in rows if r is not None)),
        bytes=float(sum(sizes)),
        version=max(versions),
        snapshot_version=None if None in snapshots else min(s for s in snapshots if s is not None),
        snapshot_age_s=None if None in ages else max(now_unix - a for a in ages if a is not None),
    )


def _subfolders(folder: Path) -> Iterator[Path]:
    return (p for p in folder.iterdir() if p.is_dir() and p.name != "SSTs" and not p.name.startswith("_"))


def _store(folder: Path) -> tuple[int | None, float, int, int | None, float | None] | None:
    """(rows, bytes of the newest version, it, the newest snapshot, when that was written) of one store."""
    files = [(int(m[1]), m[2], p) for p in folder.iterdir() if (m := _FILE.fullmatch(p.name))]
    if not files:
        return None
    version = max(v for v, _, _ in files)
    snapshot = max(((v, p) for v, kind, p in files if kind in SNAPSHOTS), default=None)
    since = snapshot[0] if snapshot is not None else 0
    size = sum(float(p.stat().st_size) for v, kind, p in files if kind not in SNAPSHOTS and v > since)
    if snapshot is None:
        return None, size, version, None, None
    rows, tables = _rocksdb(snapshot[1]) if snapshot[1].suffix == ".zip" else (None, 0.0)
    # Changes after the snapshot may add rows: then how many there are is not known.
    known = rows if since == version else None
    return known, size + snapshot[1].stat().st_size + tables, version, since, snapshot[1].stat().st_mtime


def _rocksdb(file: Path) -> tuple[int | None, float]:
    """(rows, bytes of its tables) of a snapshot of RocksDB; its tables are files of their own."""
    try:
        with zipfile.ZipFile(file) as archive:
            found = json.loads(archive.read("metadata").split(b"\n")[1])
        keys = int(found["numKeys"])
        return (keys if keys >= 0 else None), float(sum(t["sizeBytes"] for t in found["sstFiles"]))
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, IndexError, TypeError):
        return None, 0.0
