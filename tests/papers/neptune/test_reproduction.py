"""Neptune's trials on a few nodes: the rows are there, and the policy does what is claimed of it."""

from pathlib import Path

import pytest

from penstock_papers.neptune import reproduction as neptune
from penstock_papers.neptune.patients import Size


@pytest.mark.slow
def test_a_small_reproduction(tmp_path: Path) -> None:
    told: list[str] = []
    found = neptune.reproduce(
        plot=tmp_path,
        tell=told.append,
        size=Size(nodes=6, per_node=30, hot=2),
        seconds=420.0,
        amplifiers=(2, 3),
    )
    rows = {(r.trial, r.metric): r for r in found.rows}
    # Of 180 computations two are more than the 1 % that is asked at the paper's size.
    for trial, moved in (("fixed rates", 0), ("variable rates", 2 / 180)):
        assert rows[trial, "throughput over the even placement"].ours > -0.01
        assert rows[trial, "moves in the last third, share of computations"].ours <= moved
    assert rows["fixed rates", "throughput over doing nothing"].ours > 0.8
    # Thirty computations a node cannot be spread as evenly as the paper's 150.
    assert rows["fixed rates", "s.d. of CPU load over nodes at the end"].ours < 0.02
    assert rows["foreign load on a third of the nodes", "lost throughput recovered"].ours > 0.9
    assert [r.trial for r in found.references].count("amplifier n = 2") == 4
    assert len(found.plots) == 7
    assert all(path.stat().st_size > 0 for path in found.plots)
    assert any("amplifier" in line for line in told)
