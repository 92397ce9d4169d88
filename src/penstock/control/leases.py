"""Leases: of several controllers on one journal, only the holder acts; a standby takes over when it falls silent."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass

SCHEMA = """
    CREATE TABLE leases (
        name TEXT PRIMARY KEY, owner TEXT NOT NULL, expires_unix REAL NOT NULL, term INTEGER NOT NULL
    )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to act, until it expires. `term` grows with every change of owner: a fence against the late."""

    name: str
    owner: str
    expires_unix: float
    term: int


class Leases:
    """Leases of one journal. Every step is a single SQL statement, so two controllers cannot both win.

    Owners on several machines must agree on the time to well within `for_s`.
    """

    def __init__(self, db: sqlite3.Connection, lock: threading.RLock, unix_time: Callable[[], float]) -> None:
        self._db, self._lock, self._unix_time = db, lock, unix_time

    def acquire(self, name: str, owner: str, *, for_s: float) -> Lease | None:
        """The lease, if it is free, has expired, or is already the owner's (which renews it); else None."""
        if not for_s > 0:
            raise ValueError(f"a lease lasts longer than 0 s, not {for_s}")
        now = self._unix_time()
        return self._changed(
            """
            INSERT INTO leases VALUES (?1, ?2, ?3, 1)
            ON CONFLICT (name) DO UPDATE SET
                owner = excluded.owner,
                expires_unix = excluded.expires_unix,
                term = term + (owner <> excluded.owner OR expires_unix <= ?4)
            WHERE owner = excluded.owner OR expires_unix <= ?4
            RETURNING name, owner, expires_unix, term
            """,
            (name, owner, now + for_s, now),
        )

    def renew(self, lease: Lease, *, for_s: float) -> Lease | None:
        """The lease, longer; None if it has expired or is somebody else's by now, and so must not be acted on."""
        now = self._unix_time()
        return self._changed(
            """
            UPDATE leases SET expires_unix = ?3
            WHERE name = ?1 AND term = ?2 AND expires_unix > ?4
            RETURNING name, owner, expires_unix, term
            """,
            (lease.name, lease.term, now + for_s, now),
        )

    def release(self, lease: Lease) -> None:
        """Let others have it at once; nothing happens if it is not held any more."""
        with self._lock:
            self._db.execute(
                "UPDATE leases SET expires_unix = 0 WHERE name = ? AND term = ?", (lease.name, lease.term)
            )

    def holder(self, name: str) -> Lease | None:
        """Who may act now, if anybody."""
        query = "SELECT name, owner, expires_unix, term FROM leases WHERE name = ? AND expires_unix > ?"
        return self._changed(query, (name, self._unix_time()))

    def _changed(self, statement: str, values: tuple[object, ...]) -> Lease | None:
        with self._lock:
            rows = self._db.execute(statement, values).fetchall()
        if not rows:
            return None
        name, owner, expires_unix, term = rows[0]
        return Lease(name=name, owner=owner, expires_unix=expires_unix, term=term)
