"""Production rates from Kafka's offsets: steady ones exactly, changed ones at once."""

from datetime import UTC, datetime

import numpy as np
import pytest

from penstock.dataflow import constant, staircase
from penstock.spark.observe.progress import BatchProgress
from penstock.spark.observe.source_rates import KafkaSource


def batch(number: int, began_s: float, total: int) -> BatchProgress:
    offsets = {"topic": {"0": total // 2, "1": total - total // 2}}
    return BatchProgress.model_validate(
        {
            "batchId": number,
            "runId": "run",
            "timestamp": datetime.fromtimestamp(began_s, tz=UTC),
            "durationMs": {"triggerExecution": 500, "latestOffset": 10, "addBatch": 400},
            "numInputRows": 1,
            "sources": [{"description": "KafkaV2", "endOffset": offsets, "latestOffset": offsets}],
        }
    )


def rates(totals: list[int], every_s: float = 1.0) -> list[float]:
    """The estimate after each batch."""
    source = KafkaSource(0)
    return [
        source.read((batch(i, 1000 + i * every_s, total),), 1000 + i * every_s + 0.5, every_s).produced_rps
        for i, total in enumerate(totals)
    ]


@pytest.mark.parametrize("jump_rps", [10.0, 600.0])
def test_a_jump_is_followed_within_two_batches(jump_rps):
    load = staircase([(20.5, 100.0), (20.0, jump_rps)])
    found = rates([int(load.records_until(float(t))) for t in range(40)])
    assert np.allclose(found[5:20], 100.0, rtol=0.02)
    assert np.allclose(found[23:], jump_rps, rtol=0.02)


def test_chance_is_no_change():
    chance = np.random.default_rng(5)
    counts = np.cumsum(chance.poisson(constant(400.0).rates_rps[0], 300))
    found = rates([int(c) for c in counts])
    # A window of ten seconds of a Poisson stream is off by 1.6 %; one of a second would be by 5 %.
    assert np.std(np.array(found[20:]) / 400 - 1) < 0.025
