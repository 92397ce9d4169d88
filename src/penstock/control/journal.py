"""The durable record of runs: what was seen, decided, done, and what came of it; in one SQLite file.

A cycle is one transaction, so after a kill at any moment it is there whole or not at all. The file is in WAL mode
with `synchronous=NORMAL`: a killed process loses nothing that was written, because the pages are with the operating
system; only a power cut may take the last cycles, and even then the file stays sound. That is enough here: the loop
is level-triggered and decides anew from what it sees, and NORMAL keeps the disk's flush out of every cycle.
"""

from __future__ import annotations

import datetime
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from penstock.control.codec import CodecError, from_json, pack, to_json, unpack
from penstock.control.record import Cycle, Evidence, Latest, Run
from penstock.dataflow import Dataflow
from penstock.errors import UserError
from penstock.telemetry import Snapshot

SCHEMA_VERSION = 2
APPLICATION_ID = 0x504E5354  # "PNST": `file` and we ourselves recognise a journal by it

_SCHEMA = """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, dataflow TEXT NOT NULL, started_unix REAL NOT NULL, version TEXT NOT NULL,
        settings TEXT NOT NULL, options TEXT NOT NULL
    );
    CREATE TABLE cycles (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs(id), number INTEGER NOT NULL,
        time_s REAL NOT NULL, written_unix REAL NOT NULL, actions INTEGER NOT NULL, faults INTEGER NOT NULL,
        bytes INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (run, number)
    );
    CREATE TABLE dataflows (id INTEGER PRIMARY KEY, body BLOB NOT NULL UNIQUE);
    CREATE TABLE evidence (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs(id), number INTEGER NOT NULL,
        dataflow INTEGER NOT NULL REFERENCES dataflows(id), bytes INTEGER NOT NULL,
        snapshot BLOB NOT NULL, memories BLOB NOT NULL, standing BLOB NOT NULL, UNIQUE (run, number)
    );
    CREATE TABLE latest (
        run TEXT PRIMARY KEY REFERENCES runs(id), number INTEGER NOT NULL, time_s REAL NOT NULL,
        memories BLOB NOT NULL, standing BLOB NOT NULL
    )
"""
_MEMORIES = dict[str, bytes]
_NO_DATAFLOW = Dataflow(name="")  # snapshots are stored without theirs, which is stored once


class JournalError(UserError):
    """A journal that cannot be opened or read; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How large a journal grows. Space that is freed is used again, so the file stops growing."""

    evidence_tasks: int = 10_000
    """Full snapshots are kept of dataflows with at most this many tasks."""
    evidence_bytes: int = 256_000_000
    """Most bytes of full snapshots, oldest dropped first."""
    cycles: int = 200_000
    """Most cycles, oldest dropped first; at one in 5 s, more than eleven days."""
    cycle_bytes: int = 1_000_000_000
    """Most bytes of cycles, oldest dropped first."""


IN_MEMORY = Retention(evidence_bytes=16_000_000, cycles=100_000, cycle_bytes=48_000_000)
"""For a journal without a file: hours of evidence and days of briefs, however long the run."""
OPENING_S = 2.0
"""How long to wait for others who open the same file."""
MEMORY = ":memory:"
"""The path of a journal without a file."""


class SqliteJournal:
    """A journal in a file. Safe to read from other processes and threads while a run is being written."""

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        retention: Retention | None = None,
    ) -> None:
        self.path = str(path)
        self.retention = retention or (IN_MEMORY if self.path == MEMORY else Retention())
        self._lock = threading.RLock()
        if not create and not Path(path).is_file():
            raise JournalError(f"there is no journal at {path}")
        if not create and not Path(path).stat().st_size:
            raise JournalError(f"{path} is an empty file, not a journal")
        try:
            self._create()
            # Autocommit: transactions are begun by hand. A second of waiting for another writer is long enough.
            self._db = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
            self._prepare()
            self._bytes = {
                table: self._one(f"SELECT coalesce(sum(bytes), 0) FROM {table}")[0]
                for table in ("cycles", "evidence")
            }
        except (sqlite3.Error, OSError) as problem:
            raise JournalError(f"{path} cannot be opened as a journal: {problem}") from problem
        self._dataflows: dict[int, Dataflow] = {}
        self._body: tuple[Dataflow, bytes] | None = None

    def begin(self, *, dataflow: str, settings: str, options: Mapping[str, str]) -> Run:
        """A new run, called by its dataflow and the time, such as `sentiment-20260314-151503-9f3a`."""
        started = time.time()
        stamp = datetime.datetime.fromtimestamp(started, datetime.UTC).strftime("%Y%m%d-%H%M%S")
        run = Run(
            id=f"{dataflow}-{stamp}-{secrets.token_hex(2)}",
            dataflow=dataflow,
            started_unix=started,
            version=_version(),
            settings=settings,
            options=dict(options),
        )
        row = (run.id, dataflow, started, run.version, settings, to_json(Mapping[str, str], run.options))
        with self._transaction():
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", row)
        return run

    def append(self, run: str, cycle: Cycle, latest: Latest, evidence: Evidence | None) -> None:
        """Keep a cycle in one transaction; full snapshots only of dataflows small enough."""
        body = pack(Cycle, cycle)
        keep = evidence is not None and len(evidence.snapshot.tasks) <= self.retention.evidence_tasks
        packed: tuple[bytes, ...] | None = None
        if evidence is not None and keep:
            snapshot = pack(Snapshot, replace(evidence.snapshot, dataflow=_NO_DATAFLOW))
            packed = snapshot, pack(_MEMORIES, evidence.memories), evidence.standing
        memories = pack(_MEMORIES, latest.memories)
        cycle_row = (
            run,
            cycle.number,
            cycle.time_s,
            time.time(),
            len(cycle.plan.actions),
            len(cycle.faults),
        )
        latest_row = (run, latest.number, latest.time_s, memories, latest.standing)
        with self._transaction():
            added = self._db.execute(
                "INSERT INTO cycles (run, number, time_s, written_unix, actions, faults, bytes, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*cycle_row, len(body), body),
            )
            self._db.execute("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?, ?)", latest_row)
            size = 0
            if packed is not None and evidence is not None:
                size = sum(map(len, packed))
                self._db.execute(
                    "INSERT INTO evidence (run, number, dataflow, bytes, snapshot, memories, standing)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (run, cycle.number, self._dataflow_id(evidence.snapshot.dataflow), size, *packed),
                )
            oldest_kept = (added.lastrowid or 0) - self.retention.cycles
            dropped = self._one("SELECT coalesce(sum(bytes), 0) FROM cycles WHERE id <= ?", oldest_kept)[0]
            self._db.execute("DELETE FROM cycles WHERE id <= ?", (oldest_kept,))
            kept = {
                "cycles": self._drop(
                    "cycles", self._bytes["cycles"] + len(body) - dropped, self.retention.cycle_bytes
                ),
                "evidence": self._drop(
                    "evidence", self._bytes["evidence"] + size, self.retention.evidence_bytes
                ),
            }
        self._bytes = kept

    def runs(self) -> tuple[Run, ...]:
        """All runs, oldest first."""
        rows = self._all(
            "SELECT id, dataflow, started_unix, version, settings, options FROM runs ORDER BY started_unix, rowid"
        )
        with _readable(self.path):
            return tuple(
                Run(
                    id=id_,
                    dataflow=dataflow,
                    started_unix=started,
                    version=by,
                    settings=settings,
                    options=from_json(dict[str, str], options),
                )
                for id_, dataflow, started, by, settings, options in rows
            )

    def cycles(self, run: str, *, after: int = 0) -> Iterator[Cycle]:
        """The cycles of a run after that number, oldest first."""
        query = f"SELECT id, body FROM cycles WHERE number > {int(after)} AND run = ? AND id > ?"
        for _, body in self._pages(query, run):
            with _readable(self.path):
                cycle = unpack(Cycle, body)
            yield cycle

    def evidence(self, run: str) -> Iterator[Evidence]:
        """What went into those cycles whose full snapshot is still kept, oldest first."""
        columns = "id, number, dataflow, snapshot, memories, standing"
        for _, number, dataflow, body, memories, standing in self._pages(
            f"SELECT {columns} FROM evidence WHERE run = ? AND id > ?", run, page=16
        ):
            snapshot = self._snapshot(dataflow, body)
            with _readable(self.path):
                unpacked = unpack(_MEMORIES, memories)
            yield Evidence(number=number, snapshot=snapshot, memories=unpacked, standing=standing)

    def last_snapshot(self, run: str) -> Snapshot | None:
        """The newest full snapshot of a run that is still kept."""
        query = "SELECT dataflow, snapshot FROM evidence WHERE run = ? ORDER BY id DESC LIMIT 1"
        rows = self._all(query, run)
        return self._snapshot(*rows[0]) if rows else None

    def newest_snapshots(self, run: str, *, at_most: int) -> tuple[Snapshot, ...]:
        """The newest full snapshots of a run that are still kept, oldest first."""
        query = "SELECT dataflow, snapshot FROM evidence WHERE run = ? ORDER BY id DESC LIMIT ?"
        return tuple(self._snapshot(*row) for row in reversed(self._all(query, run, at_most)))

    def snapshots(self, run: str, *, at_most: int) -> Iterator[Snapshot]:
        """Full snapshots of a run that are still kept, evenly spread up to the newest one, oldest first."""
        ids = [row[0] for row in self._all("SELECT id FROM evidence WHERE run = ? ORDER BY id", run)]
        for id_ in reversed(ids[:: -max(1, -(-len(ids) // at_most))]):
            rows = self._all("SELECT dataflow, snapshot FROM evidence WHERE id = ?", id_)
            if rows:  # another process may have dropped it meanwhile
                yield self._snapshot(*rows[0])

    def latest(self, run: str) -> Latest | None:
        """Where the run stands; None before its first cycle."""
        rows = self._all("SELECT number, time_s, memories, standing FROM latest WHERE run = ?", run)
        if not rows:
            return None
        number, time_s, memories, standing = rows[0]
        with _readable(self.path):
            return Latest(
                number=number, time_s=time_s, memories=unpack(_MEMORIES, memories), standing=standing
            )

    def close(self) -> None:
        """Close the file; what was appended stays."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> SqliteJournal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> None:
        """Make a new file for its owner only: a journal tells what somebody's queries do. SQLite gives the files beside
        it (`-wal`, `-shm`) the same mode.
        """
        if self.path != MEMORY:
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def _prepare(self) -> None:
        """Make the tables of a new file; refuse one that is not ours or newer than we are."""
        self._db.execute("BEGIN")  # one view of all three, whoever else may be making the file right now
        empty = self._one("SELECT count(*) FROM sqlite_master")[0] == 0
        ours = self._one("PRAGMA application_id")[0] == APPLICATION_ID
        found = self._one("PRAGMA user_version")[0]
        self._db.execute("COMMIT")
        if not ours and not empty:
            raise JournalError(f"{self.path} is a SQLite file, but not a journal of Penstock")
        if found > SCHEMA_VERSION:
            raise JournalError(
                f"{self.path} was written by a newer Penstock (schema {found}, this one knows {SCHEMA_VERSION});"
                " upgrade Penstock to read it"
            )
        if ours and found < SCHEMA_VERSION:
            raise JournalError(
                f"{self.path} was written by an earlier Penstock (format {found}, this one has {SCHEMA_VERSION})"
                " and is left as it is; move it away or name another file, and a new journal is begun"
            )
        self._write_ahead()
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("PRAGMA journal_size_limit = 16000000")
        if not ours:
            with self._transaction():
                # Another process may have been faster.
                if self._one("SELECT count(*) FROM sqlite_master")[0] == 0:
                    for statement in _SCHEMA.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _write_ahead(self) -> None:
        """Readers beside a writer. SQLite does not wait by itself for others who open the file at the same moment."""
        deadline_s = time.monotonic() + OPENING_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)
            else:
                return

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                    self._db.execute("ROLLBACK")
                raise

    def _dataflow_id(self, dataflow: Dataflow) -> int:
        if self._body is None or self._body[0] is not dataflow:
            self._body = (dataflow, pack(Dataflow, dataflow))
        body = self._body[1]
        self._db.execute("INSERT OR IGNORE INTO dataflows (body) VALUES (?)", (body,))
        id_: int = self._one("SELECT id FROM dataflows WHERE body = ?", body)[0]
        return id_

    def _snapshot(self, dataflow: int, body: bytes) -> Snapshot:
        with _readable(self.path):
            return replace(unpack(Snapshot, body), dataflow=self._dataflow(dataflow))

    def _dataflow(self, id_: int) -> Dataflow:
        if id_ not in self._dataflows:
            body = self._one("SELECT body FROM dataflows WHERE id = ?", id_)[0]
            self._dataflows[id_] = unpack(Dataflow, body)
        return self._dataflows[id_]

    def _drop(self, table: str, total: int, most: int) -> int:
        """Drop the oldest rows until at most so many bytes are left; how many are."""
        while total > most:
            id_, size = self._one(f"SELECT id, bytes FROM {table} ORDER BY id LIMIT 1")
            self._db.execute(f"DELETE FROM {table} WHERE id = ?", (id_,))
            total -= size
        return total

    def _pages(self, query: str, run: str, *, page: int = 256) -> Iterator[tuple[Any, ...]]:
        # In pages by id: no read transaction stays open while the caller thinks, which would stop the WAL from
        # being checkpointed.
        last: object = 0
        while rows := self._all(f"{query} ORDER BY id LIMIT {page}", run, last):
            yield from rows
            last = rows[-1][0]

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def _one(self, query: str, *values: object) -> tuple[Any, ...]:
        return self._all(query, *values)[0]


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except CodecError as problem:
        raise JournalError(f"{path} holds what this version cannot read: {problem}") from problem


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"
