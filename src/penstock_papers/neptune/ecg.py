"""ECG: the beats of many patients' hearts, found while the samples come in.

One of the two applications of Neptune's trials (`neptune.txt`, section 5.2.2): samples are keyed by patient, and each
patient's detector (`qrs.py`) is state that moves with its partition.
"""

from __future__ import annotations

import hashlib
import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.dataflow import Dataflow, Load, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock_papers.neptune.qrs import Detector, detect

RATE_HZ = 360.0
PATIENTS = 48
COLUMNS = "patient long, sample long, millivolt double"
BEATS = "patient long, beat long"
SCHEMA = pa.schema([("patient", pa.int64()), ("sample", pa.int64()), ("millivolt", pa.float64())])
BEAT_SCHEMA = pa.schema([("patient", pa.int64()), ("beat", pa.int64())])
WAVES = (
    (-0.18, 0.12, 0.025),
    (-0.03, -0.1, 0.010),
    (0.0, 1.1, 0.011),
    (0.03, -0.2, 0.010),
    (0.25, 0.3, 0.05),
)
"""P, Q, R, S and T: seconds from the R peak, millivolt, width in seconds (after McSharry et al. 2003)."""


def made_samples(start: int, stop: int) -> pa.RecordBatch:
    """Records `start` to `stop`: the patients in turn, each sample depending on its patient and number alone."""
    numbers = np.arange(start, stop, dtype=np.int64)
    patients, samples = numbers % PATIENTS, numbers // PATIENTS
    values = np.empty(len(numbers))
    for patient in np.unique(patients).tolist():
        mine = patients == patient
        values[mine] = heart(patient, samples[mine])
    return pa.RecordBatch.from_arrays(
        [pa.array(patients), pa.array(samples), pa.array(values)], schema=SCHEMA
    )


def heart(patient: int, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the heart of a patient gives at the given sample numbers: a beat every 0.6 to 1.1 s, and some noise."""
    chance = int.from_bytes(hashlib.blake2b(patient.to_bytes(8, "big"), digest_size=8).digest(), "big")
    period_s = 0.6 + 0.5 * (chance % 1000) / 1000
    times = samples / RATE_HZ
    phase = (times + period_s * (chance >> 16) % 1.0) % period_s
    values = 0.05 * np.sin(2 * math.pi * 0.25 * times)
    for at, height, width in WAVES:
        off = (phase - at + period_s / 2) % period_s - period_s / 2
        values += height * np.exp(-0.5 * (off / width) ** 2)
    # A hash of the number stands for chance: the same sample is the same whoever asks.
    mixed = (samples.astype(np.uint64) + np.uint64(chance & 0xFFFFFFFF)) * np.uint64(0x9E3779B97F4A7C15)
    return values + 0.02 * ((mixed >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5)


def find_beats(key: tuple[int], rows: pa.RecordBatch, state: tuple[Any] | None) -> tuple[Any, tuple[Any]]:
    """(the beats that have become certain, the patient's detector)."""
    detector: Detector = Detector() if state is None else pickle.loads(state[0])
    samples = rows.column("sample").to_numpy(zero_copy_only=False)
    values = rows.column("millivolt").to_numpy(zero_copy_only=False)[np.argsort(samples, kind="stable")]
    found, detector = detect(detector, values, RATE_HZ)
    beats = None
    if found:
        beats = pa.RecordBatch.from_arrays(
            [pa.array([key[0]] * len(found), pa.int64()), pa.array(found, pa.int64())], schema=BEAT_SCHEMA
        )
    return beats, (pickle.dumps(detector),)


def ecg(
    *,
    load: Load | None = None,
    path: str | None = None,
    partitions: int = 12,
    cost_s: float = 4e-6,
) -> Dataflow:
    """The dataflow; `path` is a file of samples with the columns `COLUMNS`, instead of made ones."""
    app = flow("ecg")
    samples = app.source(
        "samples",
        replay(
            path,
            None if path else made_samples,
            load=load if load is not None else constant(PATIENTS * RATE_HZ),
            schema=COLUMNS,
        ),
        record_bytes=24,
        keep_by=("patient",),
    )
    beats = samples.keyed(
        "ecg",
        find_beats,
        key="patient",
        state="detector binary",
        schema=BEATS,
        parallelism=partitions,
        cost_s=cost_s,
        cost_cv=0.5,
        selectivity=1 / (0.85 * RATE_HZ),
        record_bytes=16,
    )
    beats.sink("beats", discard())
    return app.build()
