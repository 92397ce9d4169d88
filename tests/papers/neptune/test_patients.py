"""Thorax and ECG: right on real data, and the same however the stream is cut."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.choices import find_flow
from penstock_papers.neptune.ecg import RATE_HZ, find_beats, heart, made_samples
from penstock_papers.neptune.qrs import Detector, detect
from penstock_papers.neptune.thorax import Breathing, follow, follow_ward, made_readings

TOLERANCE = round(0.075 * 360)
"""Half of what the standard for testing detectors allows (ANSI/AAMI EC57: 150 ms)."""


def real_ecg(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(folder / "ecg_mitbih100.csv.gz", "rt") as file:
        samples = np.array([float(row[1]) for row in list(csv.reader(file))[1:]])
    with open(folder / "ecg_mitbih100_beats.csv") as file:
        beats = np.array([int(row[0]) for row in list(csv.reader(file))[1:]])
    return samples, beats


def test_beats_are_those_that_cardiologists_marked(shared_data: Path) -> None:
    samples, marked = real_ecg(shared_data)
    found = np.array(detect(Detector(), samples, 360.0)[0])
    near = np.abs(found[:, None] - marked[None, :])
    # One to one: each found beat counts for its nearest marked one only.
    hits = {int(marked[j]) for i, j in enumerate(near.argmin(axis=1)) if near[i, j] <= TOLERANCE}
    assert len(hits) / len(marked) >= 0.99, "sensitivity"
    assert len(hits) / len(found) >= 0.99, "precision"


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 7200), max_size=25), patient=st.integers(0, 40))
def test_pieces_change_no_beat_and_no_state(cuts: list[int], patient: int) -> None:
    samples = heart(patient, np.arange(7200))
    whole, at_once = detect(Detector(), samples, RATE_HZ)
    found, detector = [], Detector()
    for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(samples)], strict=True):
        more, detector = detect(detector, samples[a:b], RATE_HZ)
        found += more
    assert found == whole
    assert detector == at_once
    assert len(whole) >= 7200 / RATE_HZ / 1.1 - 2


def test_made_hearts_beat_where_they_should() -> None:
    values = heart(3, np.arange(20_000))
    peaks = (
        np.flatnonzero((values[1:-1] > 0.8) & (values[1:-1] >= values[:-2]) & (values[1:-1] > values[2:])) + 1
    )
    peaks = peaks[np.concatenate([[True], np.diff(peaks) > 100])]
    found = np.array(detect(Detector(), values, RATE_HZ)[0])
    learned = 2 * RATE_HZ
    found, peaks = found[found > learned], peaks[peaks > learned]
    assert len(found) == len(peaks)
    assert np.all(np.abs(found - peaks) <= 0.04 * RATE_HZ)


@pytest.mark.parametrize("bad", [np.array([0.0, np.nan]), np.array([np.inf])])
def test_a_sample_is_a_number(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="finite"):
        detect(Detector(), bad, 360.0)


def test_too_few_samples_a_second_are_refused() -> None:
    with pytest.raises(ValueError, match="samples per second"):
        detect(Detector(), np.zeros(3), 20.0)


@settings(max_examples=30)
@given(
    values=st.lists(st.floats(-5, 5), min_size=1, max_size=400),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_breathing_is_followed_exactly_whatever_the_pieces(values: list[float], cuts: list[int]) -> None:
    line = np.array(values)
    whole, at_once = follow(Breathing(), line)
    parts, kept = [], Breathing()
    ends = sorted(min(c, len(line)) for c in cuts)
    for a, b in zip([0, *ends], [*ends, len(line)], strict=True):
        if b > a:
            rows, kept = follow(kept, line[a:b])
            parts.append(rows)
    assert np.array_equal(np.concatenate(parts), whole)
    assert kept == at_once
    assert whole[-1, 1:3].tolist() == [line.min(), line.max()]
    assert whole[-1, 0] == pytest.approx(line.mean(), abs=1e-9)
    assert whole[-1, 3] == line[-180:].max() - line[-180:].min()


@pytest.mark.parametrize(
    ("function", "make", "key"),
    [(find_beats, made_samples, "patient"), (follow_ward, made_readings, "ward")],
)
def test_keyed_functions_give_the_same_in_one_batch_or_two(function, make, key) -> None:
    batch = make(0, 48 * 720)
    mine = batch.filter(pa.compute.equal(batch.column(key), 2))
    whole, state = function((2,), mine, None)
    # Rows of a batch come in any order: what counts is the number of the sample.
    shuffled = mine.take(pa.array(np.random.default_rng(0).permutation(100)))
    first, between = function((2,), shuffled, None)
    second, after = function((2,), mine.slice(100), between)
    rows = [row for part in (first, second) if part is not None for row in part.to_pylist()]
    order = ["patient", "beat" if key == "patient" else "sample"]
    wanted = sorted(whole.to_pylist(), key=lambda r: [r[c] for c in order])
    assert sorted(rows, key=lambda r: [r[c] for c in order]) == wanted
    assert after == state


@pytest.mark.parametrize("name", ["thorax", "ecg"])
def test_is_a_workload_with_many_movable_computations(name: str) -> None:
    flow = find_flow(name)
    assert flow.operator(name).is_stateful
    assert flow.operator(name).parallelism.start == 12
    assert flow.upstream(name)[0].wiring == "key"
