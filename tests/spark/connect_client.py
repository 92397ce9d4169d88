"""A client of a Spark Connect server: copies the lines of FOLDER/in as `Numbers.java` does, from two isolated sessions.

python -m tests.spark.connect_client SC-ADDRESS FOLDER
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.streaming.query import StreamingQuery


def main(address: str, folder: Path) -> None:
    """Run until FOLDER/stop is there and all has been copied."""
    queries = [_started(address, folder, name) for name in ("all", "different")]
    while not (folder / "stop").exists():
        time.sleep(0.1)
    for query in queries:
        query.processAllAvailable()
        query.stop()


def _started(address: str, folder: Path, name: str) -> StreamingQuery:
    spark = SparkSession.builder.remote(address).create()
    lines = spark.readStream.option("maxFilesPerTrigger", 5).text(str(folder / "in"))
    writer = (lines.dropDuplicates() if name == "different" else lines).writeStream.queryName(name)
    writer = writer.trigger(processingTime="500 milliseconds").format("text")
    return writer.option("checkpointLocation", str(folder / f"checkpoint-{name}")).start(str(folder / name))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
