"""All that the state of a checkpoint holds, as a count and a sum of hashes that no order and no partition changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.internals.errors import reaching

CAPABILITY = "state reader"


@dataclass(frozen=True, slots=True)
class Digest:
    """Equal for equal rows."""

    rows: int
    hashes: int


def digest_of(spark: SparkSession, folder: Path) -> Digest:
    """The state of all operators of a checkpoint; reads all of it."""
    rows, hashes = 0, 0
    with reaching(CAPABILITY):
        own = spark.newSession()  # its settings are not the caller's
        own.conf.set("spark.sql.legacy.allowHashOnMapType", "true")
        for number, frame in enumerate(_stores(own, folder)):
            # 64-bit hashes may overflow when they are added: as decimals they do not.
            total = f"sum(cast(xxhash64({number}, *) as decimal(38, 0)))"
            found = frame.drop("partition_id").selectExpr("count(*) as n", f"{total} as hashes").collect()[0]
            rows, hashes = rows + int(found["n"]), hashes + int(found["hashes"] or 0)
    return Digest(rows, hashes)


def _stores(spark: SparkSession, folder: Path) -> Iterator[DataFrame]:
    """Each store of each operator, in an order of their names; of transformWithState each variable and its timers."""
    listed = spark.read.format("state-metadata").load(str(folder)).collect()
    for row in sorted(listed, key=lambda row: (row["operatorId"], row["stateStoreName"])):
        reader = spark.read.format("statestore").option("operatorId", row["operatorId"])
        variables = json.loads(row["operatorProperties"] or "{}").get("stateVariables", [])
        names = sorted(v["stateName"] for v in variables if not v["stateName"].startswith("$"))
        for name in names:
            yield reader.option("stateVarName", name).load(str(folder))
        if names and json.loads(row["operatorProperties"]).get("timeMode") != "NoTime":
            yield reader.option("readRegisteredTimers", "true").load(str(folder))
        if not names:
            one = row["stateStoreName"]
            yield (reader if one == "default" else reader.option("storeName", one)).load(str(folder))
