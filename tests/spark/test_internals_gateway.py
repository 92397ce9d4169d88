"""What crosses the gateway in one call is what many small calls would have told."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import CHUNK_CHARS, compiled, progress_since, text
from tests.spark.streams import finished_batch, numbers, started

_LETTERS = """
public Object letters(int count) {
    StringBuilder letters = new StringBuilder();
    for (int i = 0; i < count; i++) letters.append((char) ('a' + i % 26));
    return reply(letters);
}
"""


@pytest.mark.parametrize("count", [0, 1, CHUNK_CHARS, CHUNK_CHARS + 1, 2 * CHUNK_CHARS, 50_000])
def test_a_text_of_any_length_arrives_whole(local_spark: SparkSession, count: int) -> None:
    expected = "".join(chr(ord("a") + i % 26) for i in range(count))
    assert text(compiled(_LETTERS).letters(count)) == expected


def test_what_does_not_compile_is_a_missing_capability(local_spark: SparkSession) -> None:
    with pytest.raises(SparkInternalsError, match=r"gone: .*CompileException"), reaching("gone"):
        compiled("public int now(org.apache.spark.NoSuchClass it) { return 1; }")


def test_only_reports_after_a_batch_are_read(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(numbers(local_spark), tmp_path)
    finished_batch(query, 4)
    query.stop()
    reports = list(query._jsq.recentProgress())
    last = int(reports[-1].batchId())
    assert progress_since(query, -1) == [one.json() for one in reports]
    assert progress_since(query, last) == []
    assert (
        progress_since(query, last - 2) == [one.json() for one in reports if one.batchId() > last - 2] != []
    )
