"""Which records shedding keeps: decided record by record from one hash, so a retry, another partitioning, another batch
boundary or another Arrow batch size decides the same.

A record has one hash u, uniform in [0, 1), of its `keep_by` columns. It passes a shedder if u lies below the *product*
of the keep-probabilities on its way: what is kept at 0.4 is part of what is kept at 0.6, and streams that hash the
same key keep the same keys, so what is to be joined still meets. Two columns travel with the record:

- `_penstock_hash`: u. Null while no shedder of the query drops anything, because then nobody asks.
- `_penstock_weight`: 1 / product, the number of input records that this one stands for. Null counts as 1.

A kept record always has u < 1/weight. Where a place downstream names columns of its own, their hash v replaces u as
v/weight, which again is uniform below 1/weight: every later shedder works as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Floats
from penstock.spark.query.record_hash import record_hashes

Utility = Callable[[pa.RecordBatch], Any]
"""Says how much each record of a batch matters, 0..1."""

HASH, WEIGHT = "_penstock_hash", "_penstock_weight"
SAMPLE = (HASH, WEIGHT)
"""The columns that sampling adds to records."""

LEAST_USELESS = 1e-9
"""Records of utility 1 are this useless, so that the rule has an answer when even of them too many are there."""

_NEW = 1  # salt: a record made by a function is sampled independently of those it was made from


def keep_control(subject: str) -> str:
    """The name of the control with the share to keep of a source, a stream `source->target`, or a shed frame."""
    return f"keep:{subject}"


def cutoff_control(subject: str) -> str:
    """The name of the control with the cutoff of utility shedding; see `kept`."""
    return f"cutoff:{subject}"


def share_to_keep(subject: str, controls: Mapping[str, Any]) -> float:
    """The share that the controls give, 1 where they give no number."""
    return number(controls.get(keep_control(subject)), 1.0)


def sampling_is_on(controls: Mapping[str, Any]) -> bool:
    """Whether any shedder of the query drops records in this micro-batch, so that all records need their hash."""
    return any(number(value, 1.0) < 1 for name, value in controls.items() if name.startswith("keep:"))


def number(value: Any, otherwise: float) -> float:
    """A control's value if it is a number, else `otherwise`."""
    return float(value) if isinstance(value, int | float) and value == value else otherwise


def with_sample(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The records with both columns of a sample, null where they had none."""
    for name in SAMPLE:
        if rows.schema.get_field_index(name) < 0:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.float64()))
    return rows


def hashed(rows: pa.RecordBatch, by: Sequence[str] = (), *, ignore: Sequence[str] = ()) -> pa.RecordBatch:
    """The records with the hash of the columns `by`; without `by`, of the whole record where they have none yet.

    `ignore` names columns that are no part of the record: the weight that a user asked for.
    """
    old, weights = sample_of(rows)
    missing = np.isnan(old)
    if not by and not missing.any():
        return rows
    columns = by or [name for name in rows.schema.names if name not in SAMPLE and name not in ignore]
    fresh = unit_hashes(rows, columns)
    # A function may have made this very record from one that was kept by the same hash. Then all hashes are low.
    made = missing & (weights != 1)
    if made.any():
        fresh = np.where(made, unit_hashes(rows, columns, salt=_NEW), fresh)
    replaced = fresh != old if by else missing
    return _put(rows, HASH, np.where(replaced, fresh / weights, old))


def kept(rows: pa.RecordBatch, chance: float | Floats, *, weight: str | None = None) -> pa.RecordBatch:
    """The hashed records that pass a shedder, which keeps each with probability `chance`; at 1 or above all.

    The chance is the share to keep, the same for all, or that of utility shedding: the least useful records go
    first, a record of utility x is kept with probability min(1, cutoff / (1 - x)). The cutoff that keeps a share
    depends on what utilities there are; the driver learns it from earlier micro-batches (`utility_counts`), and
    until it has, every record is kept with the share. The column `weight`, which a user may have asked for, is divided
    by the chance like the sample's own.
    """
    if not rows.num_rows or (np.ndim(chance) == 0 and chance >= 1):
        return rows
    before = sample_of(rows)[1]
    mask, weights = drawn(*sample_of(rows), chance)
    passed = _put(rows.filter(pa.array(mask)), WEIGHT, weights[mask])
    if weight is not None and passed.schema.get_field_index(weight) >= 0:
        factor = weights[mask] / before[mask]
        passed = _put(passed, weight, passed.column(weight).to_numpy(zero_copy_only=False) * factor)
    return passed


def drawn(hashes: Floats, weights: Floats, chance: float | Floats) -> tuple[NDArray[np.bool_], Floats]:
    """(which records pass a shedder, the weights that those which pass have beyond it)."""
    if np.ndim(chance) == 0 and chance >= 1:
        return np.ones(len(hashes), np.bool_), weights
    mask = hashes < chance / weights
    return mask, np.divide(weights, chance, out=weights.copy(), where=mask)


def useless(utility: Utility, rows: pa.RecordBatch) -> Floats:
    """1 - utility of each record, above 0; one without a utility has none."""
    found = np.asarray(utility(rows), dtype=np.float64)
    if found.shape != (rows.num_rows,):
        raise ValueError(f"a utility gives a number for each of {rows.num_rows} records, not {found.shape}")
    return np.clip(1.0 - np.nan_to_num(found, nan=0.0), LEAST_USELESS, 1.0)


def unit_hashes(rows: pa.RecordBatch, by: Sequence[str], *, salt: int = 0) -> Floats:
    """The hash of each record's columns `by` as a multiple of 2^-53 in [0, 1)."""
    return (record_hashes(rows, by, salt=salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample_of(rows: pa.RecordBatch) -> tuple[Floats, Floats]:
    """(hashes, NaN where there is none; weights, 1 where there is none)."""
    hashes, weights = (rows.column(name).to_numpy(zero_copy_only=False) for name in SAMPLE)
    return hashes.astype(np.float64, copy=False), np.where(np.isnan(weights), 1.0, weights)


def _put(rows: pa.RecordBatch, name: str, values: Floats) -> pa.RecordBatch:
    at = rows.schema.get_field_index(name)
    field = rows.schema.field(at)
    return rows.set_column(at, field, pa.array(values, pa.float64(), from_pandas=True).cast(field.type))
