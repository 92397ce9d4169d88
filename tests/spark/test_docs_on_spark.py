"""The blocks of README and the guide that need Spark, as they stand, on a real session with a running query."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.documents import GUIDE, blocks
from tests.spark.streams import numbers, wait_for

NEEDY = [(page, block) for page in GUIDE for block in blocks(page) if block.needs == "spark"]


def test_there_are_such_blocks() -> None:
    assert {page.name for page, _ in NEEDY} >= {"README.md", "attach.md"}


@pytest.mark.parametrize(("page", "block"), NEEDY, ids=lambda value: getattr(value, "name", ""))
def test_a_block_runs(
    page: Path, block: object, local_spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = (
        numbers(local_spark)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="1 second")
        .start()
    )
    wait_for(lambda: query.lastProgress, what="a batch")
    ending = threading.Timer(8.0, query.stop)  # the block waits for the query to end
    ending.start()
    try:
        exec(compile(block.text, f"{page.name}:{block.line}", "exec"), {"spark": local_spark, "query": query})  # type: ignore[attr-defined]
    finally:
        ending.cancel()
    assert not query.isActive
    assert capsys.readouterr().out.strip(), "a report was printed"
