"""Loads: records are the integral of the rate, makers keep what they promise, nonsense is refused."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow import Load, LoadError, bursts, constant, random_walk, read_trace, sine, staircase
from tests.dataflow.strategies import loads


@given(load=loads(), lengths=st.floats(0, 20))
def test_records_are_the_integral_of_the_rate(load: Load, lengths: float):
    # Independent of records_until: walk from change to change and ask for the rate in the middle.
    period = load.period_s
    time_s = lengths * (load.duration_s or 1.0)
    starts = [0.0] if period is None else [k * period for k in range(int(lengths) + 1)]
    edges = sorted(
        {edge for start in starts for t in load.times_s if (edge := start + t) < time_s} | {time_s}
    )
    total = sum((b - a) * float(load.rate_at((a + b) / 2)) for a, b in itertools.pairwise(edges))
    assert load.records_until(time_s) == pytest.approx(total, rel=1e-6, abs=1e-3)


@given(load=loads(), stretch=st.floats(0.1, 10), factor=st.floats(0, 10), time_s=st.floats(0, 1e4))
def test_scaling_multiplies_records(load: Load, stretch: float, factor: float, time_s: float):
    scaled = load.scaled(time=stretch, rate=factor)
    assert scaled.peak_rps == pytest.approx(load.peak_rps * factor)
    # Just before or after a change is the same thing but for rounding.
    whole = load.records_until(time_s) * stretch * factor
    assert scaled.records_until(time_s * stretch) == pytest.approx(
        whole, rel=1e-6, abs=1e-3 * (1 + load.peak_rps)
    )


def test_a_sine_has_its_mean_and_amplitude():
    load = sine(100, 40, 3600)
    assert load.records_until(3600) / 3600 == pytest.approx(100, rel=1e-9)
    assert load.peak_rps == pytest.approx(140, rel=1e-3)
    assert float(load.rate_at(3600 * 0.75)) == pytest.approx(60, rel=1e-3)


def test_bursts_spend_the_right_share_of_time_in_bursts():
    load = bursts(10, 90, mean_quiet_s=30, mean_burst_s=10, duration_s=400_000, seed=3)
    # About 10,000 cycles of 40 s: the share of bursts is 1/4, give or take a hundredth of it.
    assert load.records_until(400_000) / 400_000 == pytest.approx(10 * 0.75 + 90 * 0.25, rel=0.03)
    assert set(load.rates_rps) == {10, 90}


@given(st.integers(0, 1000), st.floats(0, 1))
def test_a_random_walk_stays_within_its_limits(seed: int, spread: float):
    rates = np.array(random_walk(100, spread=spread, step_s=60, duration_s=6000, seed=seed).rates_rps)
    assert rates.min() >= 100 * (1 - spread) - 1e-9
    assert rates.max() <= 100 * (1 + spread) + 1e-9
    assert len(rates) == 100


@pytest.mark.parametrize("make", [
    lambda seed: bursts(1, 9, mean_quiet_s=5, mean_burst_s=5, duration_s=500, seed=seed),
    lambda seed: random_walk(10, duration_s=5000, seed=seed),
])  # fmt: skip
def test_the_same_seed_gives_the_same_load(make):
    assert make(4) == make(4)
    assert make(4) != make(5)


def test_a_real_trace(shared_data: Path):
    load = read_trace(shared_data / "tweet_volume_AAPL.csv")
    assert load.times_s[:2] == (0, 300)  # five minutes apart, as the data's description says
    assert load.duration_s == len(load.times_s) * 300


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: constant(-1), "cannot be negative: -1"),
        (lambda: constant(math.nan), "finite"),
        (lambda: constant(math.inf), "finite"),
        (lambda: staircase([]), "at least one step"),
        (lambda: staircase([(0, 1)]), "lasts more than 0 s"),
        (lambda: staircase([(1e300, 1), (1, 2), (1, 3)]), "must increase"),
        (lambda: Load((), ()), "at least one"),
        (lambda: Load((1.0,), (1.0,)), "starts at time 0"),
        (lambda: Load((0.0, 5.0), (1.0, 2.0), 5.0), "longer than the last time"),
        (lambda: Load((0.0,), (1.0,), math.nan), "longer than the last time"),
        (lambda: sine(1, 1, 0), "period must be positive"),
        (lambda: sine(1, 1, 10, step_s=0), "step must be positive"),
        (lambda: sine(1, 1, 10, step_s=1e-300), "would change"),
        (lambda: bursts(1, 2, mean_quiet_s=0, mean_burst_s=1, duration_s=9), "must be positive"),
        (lambda: bursts(1, 2, mean_quiet_s=1, mean_burst_s=1, duration_s=math.inf), "would change"),
        (lambda: random_walk(1, duration_s=1e300), "would change"),
        (lambda: random_walk(1, spread=2, duration_s=1), "spread"),
        (lambda: constant(1).scaled(time=0), "positive and finite"),
        (lambda: constant(1).scaled(rate=-1), "positive and finite"),
    ],
)
def test_nonsense_is_refused(make, message: str):
    with pytest.raises(LoadError, match=message):
        make()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 must be the header"),
        ("time,rate\n0,1\n", "line 1 must be the header"),
        ("timestamp,value\n", "no rows"),
        ("timestamp,value\n0,1\n60,fast\n", "line 3"),
        ("timestamp,value\n0,1\n60,-2\n", "line 3: a rate must be finite and not negative"),
        ("timestamp,value\n0,1\n60,nan\n", "line 3"),
        ("timestamp,value\n0,1\n60\n", "line 3"),
        ("timestamp,value\n0,1\nsoon,2\n", "line 3"),
        ("timestamp,value\n60,1\n0,2\n", "must increase"),
        ("timestamp,value\nnan,1\n1,2\n", "starts at time 0|finite"),
        ("timestamp,value\n2026-01-01 00:00:00,1\n2026-01-01 00:00:00,2\n", "must increase"),
    ],
)
def test_a_bad_trace_names_its_line(tmp_path: Path, text: str, message: str):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(LoadError, match=message):
        read_trace(path)


def test_a_trace_of_dates(tmp_path: Path):
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,value\n2026-01-01 00:00:00,5\n\n2026-01-01T00:05:00Z,7\n")
    assert read_trace(path) == Load((0.0, 300.0), (5.0, 7.0), 600.0)


def test_a_trace_that_is_no_text(tmp_path: Path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"timestamp,value\n\xff\xfe,1\n")
    with pytest.raises(LoadError, match="cannot read"):
        read_trace(path)
