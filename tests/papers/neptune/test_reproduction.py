"""Neptune's trials on a few nodes: the rows are there, and the policy does what is claimed of it."""

from pathlib import Path

import pytest

from penstock_papers.neptune import patients
from penstock_papers.neptune import reproduction as neptune
from penstock_papers.neptune.patients import Size


@pytest.mark.slow
def test_a_small_reproduction(tmp_path: Path) -> None:
    told: list[str] = []
    found = neptune.reproduce(
        plot=tmp_path,
        tell=told.append,
        size=Size(nodes=6, per_node=30, hot=2),
        whole=Size(nodes=6, per_node=30, hot=2),
        seeds=(1, 2),
        seconds=(300.0, 420.0),
        amplifiers=(2, 3),
    )
    rows = {(r.trial, r.metric, r.rival_name): r for r in found.rows}
    for trial in (neptune.FIXED, neptune.WAVES, neptune.SHIFTED):
        assert rows[trial, "throughput over the even placement, worst seed", ""].ours > -0.03
        assert rows[trial, "messages/s at the end", neptune.PAPERS].seeds == (1, 2)
    for trial in (neptune.WAVES, neptune.SHIFTED):
        assert (trial, "moves", neptune.LAST_VALUE) in rows
    assert rows[neptune.FOREIGN, "lost throughput recovered, worst seed", ""].ours > 0.8
    held = rows[neptune.HOLDING, "mean latency from leaving the source, s", neptune.PAPERS]
    assert 0 < held.ours < 10.0
    assert [r.trial for r in found.references].count("amplifier n = 2") == 4
    assert len(found.plots) == 7
    assert all(path.stat().st_size > 0 for path in found.plots)
    assert any("amplifier" in line for line in told)


def test_the_even_placement_has_the_same_computations() -> None:
    size = Size(nodes=6, per_node=30, hot=2)
    sent = []
    for scene in (patients.uneven(size, seconds=60.0, seed=3), patients.even(size, seconds=60.0, seed=3)):
        runtime = patients.simulation(scene)
        runtime.advance(90.0)
        sent.append(runtime.observe().sources.produced_rps.sum())
    assert sent[0] == pytest.approx(sent[1])


def test_what_was_lost_and_came_back() -> None:
    assert neptune.recovered(90.0, 60.0, 100.0) == pytest.approx(0.75)
    assert neptune.recovered(100.0, 100.0, 100.0) == 1.0
