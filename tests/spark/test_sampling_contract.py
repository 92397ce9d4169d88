"""What sampling promises on every runtime: one draw per key, compared with the product of the shares on its way.

The same declared join of two streams, in the simulator and on Spark. `matches` are the keys that meet in the join.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.dataflow import Dataflow, OperatorId, constant, flow
from penstock.policies.actions import Shed
from penstock.simulator import SimulatedRuntime, SimulationOptions
from penstock.simulator.compiled import compiled
from penstock.simulator.discrete_kernel import ENDED
from penstock.simulator.draws import GOLDEN, bucket, mix
from penstock.simulator.layout import salt
from tests.simulator.scenes import WHY, act, cluster, rows_of, trace_of
from tests.spark.flows import Collected
from tests.spark.test_compile import run, write_input

KEYS, RATE_RPS, FOR_S, SEED = 4000, 2000.0, 6.0, 3
Matches = Callable[..., set[int]]
"""(shares by subject, parallelism) -> the keys whose records of both sides met."""


def joined(left: Any, right: Any) -> Any:
    return left.join(right.select("number", "text", "_penstock_hash", "_penstock_weight"), "number")


def the_flow(sources: tuple[Any, Any], sink: Any, parallelism: int) -> Dataflow:
    """Only `left` and `right` say by which column; what follows inherits it."""
    builder = flow("joined")
    left, right = (
        builder.source(name, connector, keep_by="number")
        for name, connector in zip(("left", "right"), sources, strict=True)
    )
    fewer = left.map(
        "fewer",
        lambda batch: batch.drop_columns(["text"]),
        schema="number long, key long",
        wiring="spread",
        parallelism=parallelism,
    )
    builder.transform("both", joined, inputs=[fewer, right]).sink("out", sink)
    return builder.build()


@pytest.fixture(params=["simulator", "spark"])
def matches(request: pytest.FixtureRequest, tmp_path: Path) -> Matches:
    if request.param == "simulator":
        return lambda shares, parallelism=1: simulated(tmp_path, shares, parallelism)
    spark = request.getfixturevalue("local_spark")

    def on_spark(shares: Mapping[str, float], parallelism: int = 1) -> set[int]:
        folder, out = tmp_path / f"{len(list(tmp_path.iterdir()))}", Collected()
        folder.mkdir()
        dataflow = the_flow(
            (write_input(folder / "left"), write_input(folder / "right")), out.connector(), parallelism
        )
        controls = {f"keep:{subject}": share for subject, share in shares.items()}
        run(spark, dataflow, folder / "checkpoint", controls=controls, state_partitions=2)
        return set(out.values())

    return on_spark


def simulated(folder: Path, shares: Mapping[str, float], parallelism: int) -> set[int]:
    connectors = tuple(
        write_input(folder / f"{len(list(folder.iterdir()))}") for _ in range(2)
    )  # never read: the simulator has loads
    dataflow = the_flow(connectors, Collected().connector(), parallelism)
    runtime = SimulatedRuntime(
        dataflow,
        cluster(nodes=2, cores=4),
        seed=SEED,
        options=SimulationOptions(keys=KEYS, key_skew=0.0),
        loads={s.id: constant(RATE_RPS) for s in dataflow.sources},
    )
    trace = trace_of(runtime)
    act(runtime, *(shed(subject, share) for subject, share in shares.items()))
    runtime.advance(FOR_S)
    met = rows_of(trace, ENDED, dataflow.row[OperatorId("both")])
    sides = [
        {key_of(source.id, n) for n in met["number"][met["feed"] == f].tolist()}
        for f, source in enumerate(dataflow.sources)
    ]
    return sides[0] & sides[1]


def shed(subject: str, share: float) -> Shed:
    operator, _, target = subject.partition("->")
    return Shed(
        operator=OperatorId(operator), target=OperatorId(target) if target else None, keep=share, reason=WHY
    )


def key_of(source: str, number: int) -> int:
    """The key that the simulator gives the record: keys are equally frequent, so no alias is followed."""
    return int(_key(salt(SEED, "feed", source, "-1"), np.uint64(number)))


@compiled
def _key(feed_salt: np.uint64, number: np.uint64) -> int:
    return bucket(mix(mix(feed_salt ^ mix(number + GOLDEN)) + GOLDEN), KEYS)


def test_sampling_keeps_what_it_promises(matches: Matches) -> None:
    every = matches({})
    fewer = matches({"left": 0.4, "right": 0.4})
    slack = 4 * np.sqrt(0.24 / len(every))
    assert len(fewer) / len(every) == pytest.approx(0.4, abs=slack), (
        "a join keeps 0.40 of its matches, not 0.16"
    )
    more = matches({"left": 0.6, "right": 0.6})
    assert fewer < more, "what is kept at 0.4 is kept at 0.6"
    assert len(more) / len(every) == pytest.approx(0.6, abs=slack)
    steps = {"left": 0.8, "left->fewer": 0.5, "right": 0.4}
    assert matches(steps) == fewer, "shares on the way multiply"
    downstream = {"fewer->both": 0.4, "right->both": 0.4}
    assert matches(downstream, parallelism=3) == fewer, "columns are inherited, and partitions change nothing"
    assert matches({"left": 0.8, "right": 0.4, "both->out": 1.0, "fewer->both": 0.5}) == fewer
