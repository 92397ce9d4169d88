"""Lateness at a sink: what a look takes, and what a window still holds."""

from penstock.spark.observe.latency_windows import Lateness, SinkWindow
from penstock.telemetry import Moments, Sketch


def a_batch(ended_s: float, records: int) -> Lateness:
    late = [0.5] * records
    return Lateness(ended_s, Moments.of(late), Sketch.of(late))


def test_each_batch_is_taken_once_whenever_it_ended() -> None:
    """One ended before the last look and is told only now, one by a clock that is ahead of ours."""
    window = SinkWindow(60.0)
    window.add(a_batch(10.0, 3))
    assert window.take()[0].count[0] == 3
    window.add(a_batch(9.9, 4))
    window.add(a_batch(99.0, 5))
    assert window.take()[0].count[0] == 9
    assert window.take()[0].count[0] == 0


def test_a_window_goes_by_when_batches_ended() -> None:
    window = SinkWindow(60.0)
    for ended_s in (10.0, 50.0, 90.0):
        window.add(a_batch(ended_s, 1))
    window.take()
    assert window.since(40.0)[0].count[0] == 2
    assert window.since(0.0)[0].count[0] == 2  # the first is forgotten
