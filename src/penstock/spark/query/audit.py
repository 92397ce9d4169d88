"""What alternates cost and are worth, measured on a small share of the records while another one runs.

A sample goes through the best alternate and, in turn, through one of the others. The time that took is the other's
cost, known before it ever runs for good, and `score(best_output, output)` is its value. The score is the user's;
without one it is the share of rows that both have in common. Results are thrown away: what goes wrong here fails
nothing, and an alternate that fails is worth nothing. Alternates with state run beside the others in the same way, for
some keys, each on the state that the key had before the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.dataflow.graph import Takes
from penstock.spark.observe.task_measures import TaskMeasures
from penstock.spark.query.record_hash import record_hashes
from penstock.spark.query.sampling import SAMPLE, number
from penstock.spark.query.user_functions import CARRIED, as_records, call

AUDIT = "audit"
"""The control with the share of records that are audited."""
MOST_ROWS = 512
"""Rows of an Arrow batch that are audited at most."""
FIRST_ROWS = 16
"""Rows that go first: where they take longer than `SLOW_S`, no others follow."""
SLOW_S = 0.02
BUDGET = 0.1
"""Share of the time of the running alternate that audits of it may take, beside `SLOW_S` for each task."""
_SALT = 0xA0D17  # so that what is audited has nothing to do with what is shed

Score = Callable[[Any, Any], float]
Run = Callable[[int, pa.RecordBatch], pa.RecordBatch]
"""What an alternate makes of a batch."""


def audited_share(controls: Mapping[str, Any]) -> float:
    """The share that the controls give, 0 where they give no number."""
    return number(controls.get(AUDIT), 0.0)


class Auditor:
    """The audits of one operator in one task."""

    def __init__(
        self,
        operator: str,
        alternates: Sequence[str],
        *,
        best: int,
        active: int,
        share: float,
        takes: Takes = "arrow",
        score: Score | None = None,
        turn: int = 0,
    ) -> None:
        self._operator, self._alternates = operator, alternates
        self._best, self.active, self._share = best, active, share
        self._takes, self._score = takes, score
        self._others = [j for j in range(len(alternates)) if j != best]
        self._turn, self._spent_s = turn, 0.0

    def sample(self, batch: pa.RecordBatch, by: Sequence[str] = ()) -> pa.RecordBatch:
        """The records to audit, chosen by their hash so that a retry audits the same; often none."""
        if not self._others or self._share <= 0:
            return batch.slice(0, 0)
        if self._share >= 1:
            return batch
        columns = by or [name for name in batch.schema.names if name not in SAMPLE]
        hashes = record_hashes(batch, columns, salt=_SALT)
        chosen = np.flatnonzero(hashes < np.uint64(int(self._share * 2.0**64)))
        return batch.take(pa.array(chosen if by else chosen[:MOST_ROWS]))

    def audit(self, sample: pa.RecordBatch, run: Run, measures: TaskMeasures, busy_s: float) -> None:
        """Compare the best alternate with the next of the others; `busy_s` is what the running one took so far."""
        if not sample.num_rows or (self._share < 1 and self._spent_s > BUDGET * busy_s + SLOW_S):
            return
        began = time.perf_counter()
        other = self._others[self._turn % len(self._others)]
        self._turn += 1
        sample, expected = self._timed(self._best, sample, run, measures)
        if expected is not None:
            tally = measures.tally(self._operator, self._alternates[other])
            same, found = self._timed(other, sample, run, measures)
            if same.num_rows < sample.num_rows:
                sample, expected = self._timed(self._best, same, run, measures)
            agreed, compared = (0.0, sample.num_rows) if found is None else self._scored(expected, found)
            tally.agreed += agreed
            tally.compared += compared
        self._spent_s += time.perf_counter() - began

    def _timed(
        self, which: int, sample: pa.RecordBatch, run: Run, measures: TaskMeasures
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """(the rows that were run, what came out or None if it failed), the time noted as that of a probe."""
        for rows in (sample.slice(0, FIRST_ROWS), sample):
            began = time.perf_counter()
            try:
                out = run(which, rows)
            except Exception:  # the user's function, on records that somebody else's results come from
                return rows, None
            took_s = time.perf_counter() - began
            if rows.num_rows == sample.num_rows or (self._share < 1 and took_s > SLOW_S):
                break
        if which != self.active:
            measures.tally(self._operator, self._alternates[which]).probe(rows.num_rows, took_s)
        return rows, out

    def _scored(self, best: pa.RecordBatch | None, found: pa.RecordBatch) -> tuple[float, int]:
        assert best is not None
        if self._score is None:
            agreed, compared = in_common(found, best)
            return float(agreed), compared
        try:
            value = float(self._score(*(as_taken(rows, self._takes) for rows in (best, found))))
        except Exception:  # a score that cannot be computed tells nothing
            return 0.0, 0
        rows = max(found.num_rows, best.num_rows, 1)
        return (min(1.0, max(0.0, value)) * rows, rows) if value == value else (0.0, 0)


def as_taken(rows: pa.RecordBatch, takes: Takes) -> Any:
    """Rows in the form in which the operator's functions take them, without what only travels along."""
    rows = rows.select([name for name in rows.schema.names if name not in CARRIED])
    if takes == "record":
        return as_records(rows)
    return rows.to_pandas() if takes == "pandas" else rows


def in_common(one: pa.RecordBatch, other: pa.RecordBatch) -> tuple[int, int]:
    """(rows that both have, rows of the longer one); neither their order nor what travels along counts."""
    columns = [name for name in one.schema.names if name not in CARRIED]
    (mine, n), (theirs, m) = (np.unique(record_hashes(b, columns), return_counts=True) for b in (one, other))
    _, at, there = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    return int(np.minimum(n[at], m[there]).sum()), max(one.num_rows, other.num_rows)


def runner(functions: Sequence[Callable[..., Any]], takes: Takes, schema: pa.Schema) -> Run:
    """Runs the functions of a stateless operator."""
    return lambda which, rows: call(functions[which], takes, rows, schema)[0]
