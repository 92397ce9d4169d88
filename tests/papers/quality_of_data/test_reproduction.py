"""The trials of quality of data: what their rows are made of, on single scenarios."""

from __future__ import annotations

import numpy as np

from penstock.dataflow import constant
from penstock_papers.quality_of_data.crowds import a_crowd, cycle_times_ms
from penstock_papers.quality_of_data.plots import draw
from penstock_papers.quality_of_data.reproduction import estimate_error, overload_rows, scaling
from penstock_papers.quality_of_data.sharing import (
    GUESSES,
    STANDS,
    UP_AND_DOWN,
    ZONES,
    different_priorities,
    equal_priorities,
    overloaded,
    rate_errors,
)


def test_equal_priorities_shed_alike_recover_and_move_when_the_minima_do_not_fit() -> None:
    story = equal_priorities()
    shedding = story.between(80.0, 180.0)
    for sink, least in ((ZONES, 0.4), (STANDS, 0.6)):
        assert np.all((story.wanted[sink][shedding] < 1) & (story.wanted[sink][shedding] > least))
        assert story.wanted[sink].min() >= least - 1e-9
        assert np.all(story.wanted[sink][story.between(195.0, 240.0)] == 1)
        assert estimate_error(story, sink) < 0.03
    assert story.moves
    assert all(time_s > 240.0 for time_s, _ in story.moves)
    assert story.lag_s[-1] < 1.0


def test_the_least_important_loses_first() -> None:
    story = different_priorities()
    assert story.wanted[STANDS].min() == 1
    zones = story.wanted[ZONES] < 1
    assert zones.any()
    lowest = story.wanted[GUESSES].min()
    assert 0.2 <= lowest < 0.22, "its minimum, and a reserve for the scatter of the hash"
    assert np.all(story.wanted[GUESSES][zones] <= lowest + 1e-6)


def test_overload_grows_without_end_only_without_shedding(tmp_path) -> None:
    ours, without = overloaded(shedding=True), overloaded(shedding=False)
    assert without.lag_s[-1] > 30.0 > 5.0 > ours.lag_s.max()
    assert all(row.holds for row in overload_rows([ours] * 2, [without] * 2, (0, 1)))
    paths = draw({"overload": ours}, tmp_path)
    assert paths[0].stat().st_size > 10_000


def test_the_production_rate_is_exact_while_it_is_steady_and_right_again_soon_after_a_step() -> None:
    assert np.abs(rate_errors(constant(777.0), 120.0)).max() < 0.1  # Poisson: 1/√3885 is 1.6 %
    errors = np.abs(rate_errors(UP_AND_DOWN, UP_AND_DOWN.duration_s))
    assert np.quantile(errors, 0.9) <= 0.02
    assert np.count_nonzero(errors > 0.02) <= 3 * 4  # four steps


def test_the_crowds_are_as_large_as_asked_and_timed() -> None:
    assert abs(len(a_crowd(2_000, "busy").tasks) - 2_000) < 200
    took, kinds = cycle_times_ms(500, "crowded", 2)
    assert len(took) == 2
    assert {"shed", "move"} <= set(kinds)
    rows, references = scaling((300,), 1)
    assert not rows
    assert references[0].simulated is not None
