"""Estimates as Spark's aggregates: the same numbers as the model, in batches, streams and after a join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import penstock
from penstock import estimate
from penstock.policies.shedding import Estimate, count, mean, ratio, total
from penstock.spark.query.sampling import HASH, WEIGHT, unit_hashes
from tests.spark.test_compile import TOTAL
from tests.spark.test_frames import kept, reading, run

CONFIDENCE = 0.9


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Kept records of three groups, several to a key, kept with different shares, some without values."""
    rng = np.random.default_rng(5)
    key = rng.integers(0, 300, 4000)
    hashes = (rng.integers(0, 1 << 53, 300) * 2.0**-53)[key]
    share = rng.choice([0.2, 0.5, 1.0], 4000)
    frame = pd.DataFrame(
        {
            "group": rng.choice(["a", "b", "c"], 4000, p=[0.7, 0.295, 0.005]),
            "x": rng.exponential(5.0, 4000),
            "y": rng.uniform(1.0, 2.0, 4000),
            "signed": rng.normal(0.0, 1.0, 4000),
            HASH: hashes,
            WEIGHT: 1 / share,
        }
    )
    frame = frame[hashes < share]
    frame.loc[frame.sample(frac=0.1, random_state=1).index, "x"] = np.nan
    return frame.reset_index(drop=True)


def same(found: Any, expected: Estimate | None) -> None:
    assert expected is not None
    assert expected.low is not None
    # Spark counts distinct keys approximately, which moves Student's t, and so the width, a little.
    near = 2e-3 * ((expected.high or 0.0) - expected.low)
    assert found["value"] == pytest.approx(expected.value)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high), abs=near, rel=1e-9)


@pytest.mark.parametrize("unique", [False, True], ids=["shared keys", "own keys"])
def test_spark_gives_what_the_model_gives(
    local_spark: SparkSession, rows: pd.DataFrame, unique: bool
) -> None:
    frame = local_spark.createDataFrame(rows).replace(float("nan"), None)
    asked: dict[str, Any] = {"confidence": CONFIDENCE, "unique": unique}
    found = {
        row["group"]: row
        for row in frame.groupBy("group")
        .agg(
            estimate.count(**asked).alias("count"),
            estimate.sum("x", **asked).alias("sum"),
            estimate.sum(sql.col("signed"), **asked).alias("signed"),
            estimate.mean("x", **asked).alias("mean"),
            estimate.ratio("x", "y", **asked).alias("ratio"),
        )
        .collect()
    }
    assert sorted(found) == ["a", "b", "c"]
    for group, part in rows.groupby("group"):
        w, h = (part[name].to_numpy() for name in (WEIGHT, HASH))
        there = part["x"].notna().to_numpy()
        x, y = part["x"].to_numpy()[there], part["y"].to_numpy()[there]
        hashes, some = (None, None) if unique else (h, h[there])
        same(found[group]["count"], count(w, hashes, confidence=CONFIDENCE))
        same(found[group]["signed"], total(part["signed"].to_numpy(), w, hashes, confidence=CONFIDENCE))
        same(found[group]["sum"], total(x, w[there], some, confidence=CONFIDENCE))
        same(found[group]["mean"], mean(x, w[there], some, confidence=CONFIDENCE))
        same(found[group]["ratio"], ratio(x, y, w[there], some, confidence=CONFIDENCE))


def test_the_bars_hold_the_truth_as_often_as_they_say(local_spark: SparkSession, tmp_path: Path) -> None:
    """Over 1,000 samplings of one population whose records share keys: in 93 to 97 % of them."""
    seeds, keys, share = 1000, 400, 0.3
    rng = np.random.default_rng(11)
    key = np.repeat(np.arange(keys), rng.geometric(0.25, keys))
    x = rng.exponential(10.0, len(key))
    batch = pa.RecordBatch.from_arrays([pa.array(key)], names=["key"])
    parts = []
    for seed in range(seeds):
        hashes = unit_hashes(batch, ["key"], salt=100 + seed)
        chosen = hashes < share
        columns = {"seed": seed, "x": x[chosen], HASH: hashes[chosen], WEIGHT: 1 / share}
        parts.append(pd.DataFrame(columns))
    pd.concat(parts).to_parquet(tmp_path / "samples.parquet")
    rows = local_spark.read.parquet(str(tmp_path / "samples.parquet")).groupBy("seed").agg(
        estimate.count().alias("count"),
        estimate.sum("x").alias("sum"),
        estimate.mean("x").alias("mean"),
        estimate.count(unique=True).alias("as if every record had its own key"),
    ).collect()  # fmt: skip
    assert len(rows) == seeds
    truth = {"count": len(key), "sum": x.sum(), "mean": x.mean()}

    def held(name: str, truth: float) -> float:
        return float(np.mean([row[name]["low"] <= truth <= row[name]["high"] for row in rows]))

    shares = {name: held(name, value) for name, value in truth.items()}
    assert all(0.93 <= found <= 0.97 for found in shares.values()), shares
    for name in ("count", "sum"):
        values = np.array([row[name]["value"] for row in rows])
        assert values.mean() == pytest.approx(truth[name], abs=4 * values.std() / np.sqrt(seeds))
    assert held("as if every record had its own key", len(key)) < 0.85, "the bars of shared keys are wider"


def test_without_shedding_the_answer_is_exact_and_one_key_is_too_little(local_spark: SparkSession) -> None:
    columns = f"x double, {HASH} double, {WEIGHT} double"
    exact = local_spark.createDataFrame([(1.0, None, 1.0), (2.5, None, None)], columns)
    (row,) = exact.agg(estimate.sum("x").alias("e")).collect()
    assert tuple(row["e"]) == (3.5, 3.5, 3.5)
    little = local_spark.createDataFrame([(1.0, 0.25, 2.0), (1.0, 0.25, 2.0)], columns)
    (row,) = little.agg(estimate.count().alias("e")).collect()
    assert tuple(row["e"]) == (4.0, None, None)


def test_a_running_query_estimates_what_the_whole_would_give(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    frame = penstock.shed(reading(local_spark, tmp_path / "in"), keep_by="number", name="orders")
    answers = frame.groupBy().agg(
        estimate.count(confidence=0.999).alias("count"), estimate.sum("number", confidence=0.999).alias("sum")
    )
    _, out = run(answers, tmp_path / "c", {"keep:orders": 0.5}, "update")
    last = out.batches[max(out.batches)][0]
    assert last["count"]["value"] == pytest.approx(len(kept(0.5)) / 0.5)
    assert last["sum"]["value"] == pytest.approx(sum(kept(0.5)) / 0.5)
    for name, truth in (("count", TOTAL), ("sum", TOTAL * (TOTAL - 1) / 2)):
        assert last[name]["low"] < truth < last[name]["high"]


def test_a_join_weighs_by_the_draws_that_decided(local_spark: SparkSession) -> None:
    def side(rows: list[Any], name: str) -> DataFrame:
        return local_spark.createDataFrame(rows, f"key long, {name} string, {HASH} double, {WEIGHT} double")

    left = side([(1, "a", 0.1, 2.0), (2, "b", 0.2, 2.0), (3, "c", 0.3, 2.0), (4, "d", None, None)], "l")
    right = side([(1, "A", 0.1, 5.0), (2, "B", 0.05, 4.0), (4, "D", 0.25, 4.0)], "r")
    joined = estimate.merged(left.join(right, "key", "left"))
    assert joined.columns == ["key", "l", "r", HASH, WEIGHT]
    found = {row["key"]: (row[HASH], row[WEIGHT]) for row in joined.collect()}
    assert found == {
        1: (0.1, 5.0),  # one draw: kept as often as the side that was kept less often
        2: (0.2 / 4.0, 8.0),  # two draws
        3: (0.3, 2.0),  # nothing on the right
        4: (0.25, 4.0),  # the left was kept for sure
    }
