"""Another number of state partitions for a stopped query: looked at first, with a backup, verified, or put back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.errors import InputError
from penstock.spark.internals.errors import SparkInternalsError
from penstock.spark.internals.repartition import PARTITIONS, PROVIDER, repartition_state, stop_state_stores
from penstock.spark.internals.state_rows import Digest, digest_of
from penstock.spark.observe.checkpoint_files import state_of_checkpoint
from penstock.telemetry.state_report import StateReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What there is to repartition."""

    folder: Path
    report: StateReport
    batch: int
    """The newest one, which was committed."""
    partitions: int
    bytes: int
    """Of the whole folder: as much as its backup takes."""


def examined(folder: Path, *, now_unix: float, quiet_s: float) -> Examined:
    """A checkpoint that can be repartitioned; what stands in the way is refused before anything is written."""
    report = state_of_checkpoint(folder, now_unix=now_unix)
    if not report.operators:
        raise InputError(f"'{folder}' has no state: there is nothing to repartition")
    planned, committed = (_newest(folder / log) for log in ("offsets", "commits"))
    settings = _settings(folder / "offsets" / str(planned))
    before = _settings(folder / "offsets" / str(committed)).get(PARTITIONS)
    if planned != committed and before is not None and settings.get(PARTITIONS, before) != before:
        raise InputError(
            f"a repartitioning from {before} to {settings[PARTITIONS]} was cut short here: put its backup in the place "
            f"of '{folder}'"
        )
    if planned != committed:
        raise InputError(
            f"the last batch ({planned}) was not committed: start the query, and stop it between two batches"
        )
    written_unix = max(path.stat().st_mtime for path in (folder / "offsets").iterdir())
    if now_unix - written_unix < quiet_s:
        raise InputError(
            f"a batch was planned {now_unix - written_unix:.0f} s ago: stop the query first, or say --after 0s if it is"
        )
    provider = settings.get(PROVIDER, "")
    if provider and "RocksDB" not in provider:
        raise InputError(
            f"its state is in {provider.rpartition('.')[2]}, and Spark repartitions only that of RocksDB; "
            f"a new query may begin with {PROVIDER} set to RocksDBStateStoreProvider"
        )
    return Examined(
        folder=folder,
        report=report,
        batch=planned,
        # Folders of partitions that an earlier repartitioning left behind are still there.
        partitions=int(settings.get(PARTITIONS, max(len(o.partitions) for o in report.operators))),
        bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    )


def repartitioned(
    spark: SparkSession, found: Examined, partitions: int, *, backup: Path, tell: Callable[[str], None]
) -> Digest:
    """Rewrite the state; every key and value is there before as after, or the checkpoint is as it was.

    The session is a local one in which no query runs: its state stores are closed if the checkpoint has to be put back.
    """
    if backup.exists():
        raise InputError(f"the backup '{backup}' is there already: move it away, or name another")
    if shutil.disk_usage(backup.parent).free < 2 * found.bytes:
        raise InputError(f"not enough room beside '{backup}': it needs {2 * found.bytes / 1e6:.0f} MB")
    tell("counting what the state holds")
    before = digest_of(spark, found.folder)
    tell(f"copying the checkpoint to {backup}")
    try:
        shutil.copytree(found.folder, backup)
    except OSError as problem:
        shutil.rmtree(backup, ignore_errors=True)
        raise InputError(
            f"no backup could be made, and nothing was changed ({str(problem)[:200]}): is there room, and does the "
            "application that ran the query still live? It tidies up its state files"
        ) from problem
    try:
        tell(f"rewriting {before.rows} rows from {found.partitions} to {partitions} partitions")
        repartition_state(spark, found.folder, partitions)
        tell("counting again")
        after = digest_of(spark, found.folder)
        if after != before:
            raise SparkInternalsError(
                "state repartition", f"the state holds {after.rows} rows now, not the {before.rows} of before"
            )
    except BaseException:
        tell("putting the checkpoint back as it was")
        stop_state_stores(spark)  # else they might write what they hold into the state that is put back
        failed = found.folder.with_name(f"{found.folder.name}.failed-{partitions}")
        found.folder.rename(failed)
        shutil.copytree(backup, found.folder)
        shutil.rmtree(failed, ignore_errors=True)
        raise
    return before


def _newest(log: Path) -> int:
    numbers = [int(path.name) for path in log.iterdir() if path.name.isdigit()] if log.is_dir() else []
    return max(numbers, default=-1)


def _settings(batch: Path) -> dict[str, str]:
    """Those with which a batch was planned."""
    try:
        found: dict[str, str] = json.loads(batch.read_text().split("\n")[1]).get("conf", {})
    except (OSError, ValueError, IndexError):
        return {}
    return found
