"""Rates from counters, also from those that start again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.telemetry import CounterRates


def rates_of(readings: list[tuple[float, list[float]]], window_s: float = 10.0) -> np.ndarray | None:
    rates = CounterRates.start(len(readings[0][1]), window_s=window_s)
    for time_s, counters in readings:
        rates = rates.add(time_s, counters)
    return rates.rates_rps


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([(0.0, [5.0])], None),
        ([(0.0, [5.0]), (1.0, [105.0])], [100.0]),
        ([(0.0, [0.0, 7.0]), (2.0, [10.0, 7.0])], [5.0, 0.0]),
        ([(0.0, [1000.0]), (1.0, [30.0])], [30.0]),  # started again: 30 since
        ([(0.0, [0.0]), (1.0, [50.0]), (2.0, [10.0]), (3.0, [60.0])], [110 / 3]),
        (
            [(0.0, [0.0]), (20.0, [1000.0]), (30.0, [1100.0])],
            [10.0],
        ),  # what is older than the window is forgotten
    ],
)
def test_readings_and_their_rates(readings, expected) -> None:
    rates = rates_of(readings)
    assert rates is None if expected is None else rates == pytest.approx(expected)


steps = st.lists(st.tuples(st.floats(0.1, 5), st.integers(0, 1000), st.booleans()), min_size=2, max_size=30)


@given(steps)
def test_a_counter_that_resets_never_gives_a_negative_rate_nor_too_much(steps) -> None:
    """With resets, what was counted between the last reading and the reset is lost, never invented."""
    time_s, counter, readings, made = 0.0, 0.0, [], []
    for gap_s, grown, resets in steps:
        time_s += gap_s
        counter = float(grown) if resets else counter + grown
        readings.append((time_s, [counter]))
        made.append(grown)
    rates = rates_of(readings, window_s=1e9)
    span_s = readings[-1][0] - readings[0][0]
    # A reset whose new count lies above the old one cannot be told from growth: it shows as less than was made.
    assert -1e-9 <= rates[0] <= sum(made[1:]) / span_s + 1e-9


@given(
    st.lists(st.tuples(st.floats(0.1, 5), st.integers(0, 1000)), min_size=2, max_size=30), st.floats(0.5, 20)
)
def test_without_resets_the_rate_is_exact_over_the_window(steps, window_s: float) -> None:
    times = np.cumsum([gap for gap, _ in steps])
    counters = np.cumsum([grown for _, grown in steps]).astype(float)
    rates = rates_of([(t, [c]) for t, c in zip(times, counters, strict=True)], window_s=window_s)
    first = max(0, int(np.searchsorted(times, times[-1] - window_s, side="right")) - 1)
    assert rates[0] == pytest.approx((counters[-1] - counters[first]) / (times[-1] - times[first]))


def test_readings_come_in_order() -> None:
    with pytest.raises(ValueError, match="in order"):
        rates_of([(1.0, [0.0]), (1.0, [1.0])])
    with pytest.raises(ValueError, match="longer than 0"):
        CounterRates.start(1, window_s=0)
