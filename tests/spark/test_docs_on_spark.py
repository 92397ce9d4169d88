"""The blocks of README and the guide that need Spark, as they stand, on a real session.

Those below `needs: spark` have a running query and wait for it; those below `needs: session` are done at once.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.documents import GUIDE, blocks
from tests.spark.streams import numbers, wait_for

NEEDY = [(page, block) for page in GUIDE for block in blocks(page) if block.needs == "spark"]
BRIEF = [(page, block) for page in GUIDE for block in blocks(page) if block.needs == "session"]


def test_there_are_such_blocks() -> None:
    assert {page.name for page, _ in NEEDY} >= {"README.md", "attach.md"}
    assert {page.name for page, _ in BRIEF} >= {"shedding.md"}


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


@pytest.mark.parametrize(("page", "block"), BRIEF, ids=lambda value: getattr(value, "name", ""))
def test_a_block_without_a_query_runs(
    page: Path, block: object, local_spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    exec(compile(block.text, f"{page.name}:{block.line}", "exec"), {"spark": local_spark})  # type: ignore[attr-defined]
    assert capfd.readouterr().out.strip(), "the answer was printed"
