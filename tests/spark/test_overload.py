"""Two applications on one Spark at twice what it can do, through real Kafka: with shedding, and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock_papers.common.kafka_broker import KafkaBroker
from penstock_papers.quality_of_data.overload import Trial, Verdict, run_trial

pytestmark = pytest.mark.live

TRIAL = Trial(calm_s=6, overload_s=24, after_s=12)


def test_shedding_bounds_the_lag_keeps_the_important_and_gives_all_back(
    local_spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    shed = run_trial(local_spark, kafka_broker, tmp_path, TRIAL, shed=True, label="shed")
    # Without shedding there is nothing to see after the overload.
    plain_trial = Trial(calm_s=TRIAL.calm_s, overload_s=TRIAL.overload_s, after_s=0.1)
    plain = run_trial(local_spark, kafka_broker, tmp_path, plain_trial, shed=False, label="plain")
    found = Verdict.of(TRIAL, shed, plain)

    assert found.plain_growth_rps > 100  # two cores do at most 400 records/s, 640 come
    assert found.settled_lag_s < found.plain_lag_s / 2
    assert found.alerts_accuracy == 1
    assert all(m.told[0] == 1 for m in shed)
    over = [
        m for m in shed if TRIAL.calm_s + 3 * TRIAL.interval_s < m.time_s <= TRIAL.calm_s + TRIAL.overload_s
    ]
    assert all(TRIAL.min_accuracy <= m.told[1] < 1 for m in over)
    # What was told is what was kept: the measured share follows the one that was told before it.
    assert min(m.accuracy[1] for m in over) >= TRIAL.min_accuracy - 0.04
    after = [m for m in shed if m.time_s > TRIAL.calm_s + TRIAL.overload_s]
    if min(m.available_cores for m in after) > 1.3:  # else foreign processes took what it would have needed
        assert found.intervals_to_all <= 3
