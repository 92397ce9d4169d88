"""A stopped query gets another number of state partitions: backup, verified, or put back as it was."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, collect_list, count, expr
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.errors import InputError
from penstock.spark import supervised_repartition
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.internals.repartition import repartition_reason
from penstock.spark.internals.state import StatePartitions
from penstock.spark.internals.state_rows import Digest, digest_of
from penstock.spark.supervised_repartition import examined, repartitioned
from tests.spark.streams import finished_batch, numbers, started


def totals(spark: SparkSession) -> DataFrame:
    return numbers(spark).groupBy("key").agg(count("*").alias("n"), collect_list("value").alias("seen"))


def pairs(spark: SparkSession) -> DataFrame:
    left, right = (
        numbers(spark, timed=True)
        .select(col("value").alias(side), col("timestamp").alias(f"t{side}"))
        .withWatermark(f"t{side}", "1 hour")
        for side in "ab"
    )
    return left.join(right, expr("a = b and ta between tb - interval 1 hour and tb + interval 1 hour"))


def stopped(spark: SparkSession, frame: DataFrame, folder: Path, mode: str) -> int:
    query = started(frame, folder, mode=mode)
    finished_batch(query, 2)
    return stop_cleanly(spark, query)


@pytest.mark.parametrize(("frame", "mode"), [(totals, "update"), (pairs, "append")])
def test_the_same_state_in_other_partitions(
    local_spark: SparkSession, tmp_path: Path, frame, mode: str
) -> None:
    assert repartition_reason(local_spark) is None, "this Spark can"
    folder, backup = tmp_path / "checkpoint", tmp_path / "backup"
    stopped(local_spark, frame(local_spark), folder, mode)
    found = examined(folder, now_unix=time.time(), quiet_s=0.0)
    before, steps = digest_of(local_spark, folder), list[str]()
    assert before.rows > 0
    told = repartitioned(local_spark, found, 7, backup=backup, tell=steps.append)
    assert told == before == digest_of(local_spark, folder) == digest_of(local_spark, backup)
    assert examined(backup, now_unix=time.time(), quiet_s=0.0).partitions == found.partitions
    assert len(steps) == 4
    query = started(frame(local_spark), folder, mode=mode)
    finished_batch(query, found.batch + 3)
    assert {o.partitions for o in StatePartitions(local_spark, query).operators()} == {7}
    stop_cleanly(local_spark, query)
    fewer = examined(folder, now_unix=time.time(), quiet_s=0.0)
    assert fewer.partitions == 7
    repartitioned(local_spark, fewer, 2, backup=tmp_path / "second", tell=steps.append)
    assert examined(folder, now_unix=time.time(), quiet_s=0.0).partitions == 2


def test_what_does_not_verify_is_put_back(
    local_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoint"
    stopped(local_spark, totals(local_spark), folder, "update")
    found = examined(folder, now_unix=time.time(), quiet_s=0.0)
    answers = iter([Digest(10, 1), Digest(9, 1)])
    monkeypatch.setattr(supervised_repartition, "digest_of", lambda *_: next(answers))
    with pytest.raises(SparkInternalsError, match="9 rows now, not the 10"):
        repartitioned(local_spark, found, 7, backup=tmp_path / "backup", tell=lambda _: None)
    again = examined(folder, now_unix=time.time(), quiet_s=0.0)
    assert (again.partitions, again.batch) == (found.partitions, found.batch)
    query = started(totals(local_spark), folder, mode="update")
    finished_batch(query, found.batch + 2)
    stop_cleanly(local_spark, query)


def test_a_backup_that_cannot_be_made_changes_nothing_and_leaves_nothing(
    local_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, backup = tmp_path / "checkpoint", tmp_path / "backup"
    stopped(local_spark, totals(local_spark), folder, "update")
    found = examined(folder, now_unix=time.time(), quiet_s=0.0)

    def broken(_: Path, to: Path) -> None:
        to.mkdir()
        raise shutil.Error([("state", "gone", "no such file")])

    monkeypatch.setattr(supervised_repartition.shutil, "copytree", broken)
    with pytest.raises(InputError, match="does the application that ran the query still live"):
        repartitioned(local_spark, found, 7, backup=backup, tell=lambda _: None)
    monkeypatch.undo()
    assert not backup.exists()
    assert examined(folder, now_unix=time.time(), quiet_s=0.0).partitions == found.partitions


def test_what_stands_in_the_way_is_told_and_a_dry_run_writes_nothing(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    with pytest.raises(InputError, match="no checkpoint"):
        examined(tmp_path, now_unix=time.time(), quiet_s=0.0)
    stopped(local_spark, totals(local_spark), folder, "update")
    with pytest.raises(InputError, match="stop the query first"):
        examined(folder, now_unix=time.time(), quiet_s=600.0)
    # The session that ran the query lives on and may tidy up its state files; the logs are written by batches only.
    files = {p: p.read_bytes() for log in ("offsets", "commits") for p in (folder / log).iterdir()}
    run = CliRunner().invoke(
        app, ["repartition", str(folder), "--to", "7", "--after", "0s", "--dry-run", "--json"]
    )
    assert run.exit_code == 0, run.output
    document = json.loads(run.stdout)
    assert (document["to"], document["checkpoint"]) == (7, str(folder))
    assert document["from"] == examined(folder, now_unix=time.time(), quiet_s=0.0).partitions
    assert {p: p.read_bytes() for log in ("offsets", "commits") for p in (folder / log).iterdir()} == files
    assert not Path(document["backup"]).exists()
    newest = folder / "offsets" / str(document["batch"])
    planned = newest.read_text().replace(
        '"spark.sql.shuffle.partitions":"', '"spark.sql.shuffle.partitions":"9'
    )
    (folder / "offsets" / str(document["batch"] + 1)).write_text(planned)
    with pytest.raises(InputError, match="was cut short here: put its backup"):
        examined(folder, now_unix=time.time(), quiet_s=0.0)
    (folder / "offsets" / str(document["batch"] + 1)).unlink()
    (folder / "commits" / str(document["batch"])).unlink()
    with pytest.raises(InputError, match="was not committed"):
        examined(folder, now_unix=time.time(), quiet_s=0.0)
