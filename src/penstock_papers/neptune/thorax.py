"""Thorax: how patients breathe. Ten seconds of chest readings, and mean, minimum and maximum so far.

One of the two applications of Neptune's trials (`neptune.txt`, section 5.2.1): a computation is a ward of six patients,
and what it keeps of them is state that moves with its partition.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Floats
from penstock.dataflow import Dataflow, Load, constant, flow
from penstock.dataflow.connectors import discard, replay

RATE_HZ = 18.0
KEPT_S = 10.0
WARD = 6
"""Patients of a ward."""
WARDS = 24
COLUMNS = "ward long, patient long, sample long, extension double"
RESULTS = "ward long, patient long, sample long, mean double, lowest double, highest double, breath double"
SCHEMA = pa.schema(
    [("ward", pa.int64()), ("patient", pa.int64()), ("sample", pa.int64()), ("extension", pa.float64())]
)
RESULT_SCHEMA = pa.schema(
    [
        ("ward", pa.int64()),
        ("patient", pa.int64()),
        ("sample", pa.int64()),
        *((name, pa.float64()) for name in ("mean", "lowest", "highest", "breath")),
    ]
)


@dataclass(frozen=True, slots=True)
class Breathing:
    """What is kept of one patient."""

    count: int = 0
    total: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf
    recent: tuple[float, ...] = ()
    """Readings of the last `KEPT_S` seconds."""


def follow(breathing: Breathing, values: Floats) -> tuple[Floats, Breathing]:
    """([reading, (mean, lowest, highest, breath)], what to keep): each row as of its reading, whatever the pieces.

    `breath` is how far the chest moved in the last ten seconds.
    """
    window = round(KEPT_S * RATE_HZ)
    # Added up one by one from what was there: a sum of sums would round differently.
    sums = np.cumsum(np.concatenate([[breathing.total], values]))[1:]
    counts = breathing.count + np.arange(1, len(values) + 1)
    lowest = np.minimum.accumulate(np.concatenate([[breathing.lowest], values]))[1:]
    highest = np.maximum.accumulate(np.concatenate([[breathing.highest], values]))[1:]
    line = np.concatenate([np.full(window - 1, np.nan), breathing.recent, values])
    windows = np.lib.stride_tricks.sliding_window_view(line, window)[-len(values) :]
    breath = np.nanmax(windows, axis=1) - np.nanmin(windows, axis=1)
    after = Breathing(
        int(counts[-1]),
        float(sums[-1]),
        float(lowest[-1]),
        float(highest[-1]),
        tuple(line[-min(window, len(breathing.recent) + len(values)) :].tolist()),
    )
    return np.stack([sums / counts, lowest, highest, breath], axis=1), after


def follow_ward(key: tuple[int], rows: pa.RecordBatch, state: tuple[Any] | None) -> tuple[Any, tuple[Any]]:
    """(a result for every reading, what is kept of the patients)."""
    kept: dict[int, Breathing] = {} if state is None else pickle.loads(state[0])
    patients = rows.column("patient").to_numpy(zero_copy_only=False)
    samples = rows.column("sample").to_numpy(zero_copy_only=False)
    values = rows.column("extension").to_numpy(zero_copy_only=False)
    parts = []
    for patient in np.unique(patients).tolist():
        mine = np.flatnonzero(patients == patient)
        mine = mine[np.argsort(samples[mine], kind="stable")]
        found, kept[patient] = follow(kept.get(patient, Breathing()), values[mine])
        parts.append((np.full(len(mine), patient), samples[mine], found))
    who, when, what = (np.concatenate(column) for column in zip(*parts, strict=True))
    result = pa.RecordBatch.from_arrays(
        [pa.array(np.full(len(who), key[0])), pa.array(who), pa.array(when), *map(pa.array, what.T)],
        schema=RESULT_SCHEMA,
    )
    return result, (pickle.dumps(kept),)


def made_readings(start: int, stop: int) -> pa.RecordBatch:
    """Records `start` to `stop`: the patients in turn; each breathes at a rhythm of its own."""
    numbers = np.arange(start, stop, dtype=np.int64)
    everybody, samples = numbers % (WARDS * WARD), numbers // (WARDS * WARD)
    rhythm_s = 3.0 + 2.0 * ((everybody * 2654435761) % 997) / 997
    times = samples / RATE_HZ
    sigh = 0.3 * np.sin(2 * math.pi * times / 61.0)
    values = (1 + sigh) * np.sin(2 * math.pi * times / rhythm_s + everybody)
    return pa.RecordBatch.from_arrays(
        [pa.array(everybody // WARD), pa.array(everybody % WARD), pa.array(samples), pa.array(values)],
        schema=SCHEMA,
    )


def thorax(
    *, load: Load | None = None, path: str | None = None, partitions: int = 12, cost_s: float = 2e-5
) -> Dataflow:
    """The dataflow; `path` is a file of readings with the columns `COLUMNS`, instead of made ones."""
    app = flow("thorax")
    readings = app.source(
        "readings",
        replay(
            path,
            None if path else made_readings,
            load=load if load is not None else constant(WARDS * WARD * RATE_HZ),
            schema=COLUMNS,
        ),
        record_bytes=32,
        keep_by=("ward", "patient"),
    )
    results = readings.keyed(
        "thorax",
        follow_ward,
        key="ward",
        state="patients binary",
        schema=RESULTS,
        parallelism=partitions,
        cost_s=cost_s,
        cost_cv=0.5,
        record_bytes=56,
    )
    results.sink("breathing", discard())
    return app.build()
