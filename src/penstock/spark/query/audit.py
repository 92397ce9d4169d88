"""What a cheaper alternate is worth: how often it gives what the best one gives, on a sample of the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.spark.query.sampling import kept, record_hashes
from penstock.spark.query.user_functions import SOURCE_TIME

AUDIT = "audit"
"""The control with the share of records that also go through the best alternate while another one runs."""
SALT = 0xA0D17  # so that what is sampled has nothing to do with what is shed


def audited_share(controls: Mapping[str, Any]) -> float:
    """The share that the controls give, 0 where they give no number."""
    share = controls.get(AUDIT, 0.0)
    return float(share) if isinstance(share, int | float) and share == share else 0.0


def sampled(batch: pa.RecordBatch, share: float) -> pa.RecordBatch:
    """The records to compare on: chosen by their hash, so that a retry compares the same."""
    return kept(batch, share, salt=SALT)


def in_common(one: pa.RecordBatch, other: pa.RecordBatch) -> tuple[int, int]:
    """(rows that both have, rows of the longer one); neither their order nor their source times count."""
    columns = [name for name in one.schema.names if name != SOURCE_TIME]
    (mine, n), (theirs, m) = (np.unique(record_hashes(b, columns), return_counts=True) for b in (one, other))
    _, at, there = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    return int(np.minimum(n[at], m[there]).sum()), max(one.num_rows, other.num_rows)
