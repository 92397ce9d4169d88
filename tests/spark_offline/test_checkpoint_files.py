"""State as files of checkpoints tell it: the golden one of RocksDB, and made ones of the other kind and of joins."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from penstock.errors import InputError
from penstock.spark.observe.checkpoint_files import state_of_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint.tar.gz"


def written(folder: Path, **sizes: int) -> None:
    folder.mkdir(parents=True)
    for name, size in sizes.items():
        path = folder / name.lstrip("v").replace("_", ".")
        path.write_bytes(bytes(size))
        os.utime(path, (1000, 1000))


def test_rocksdb_tells_rows_bytes_and_versions(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    (operator,) = state_of_checkpoint(tmp_path / "checkpoint", now_unix=4e9).operators
    assert (operator.operator, operator.kind) == ("0", "transformWithStateInPySparkExec")
    assert [p.index for p in operator.partitions] == [0, 1, 2]
    third = operator.partitions[2]
    assert (third.rows, third.version, third.snapshot_version) == (3.0, 1, 1)
    assert third.bytes == 3793 + 1328, "the snapshot and its table"
    assert third.snapshot_age_s is not None
    assert third.snapshot_age_s > 0


def test_changes_after_a_snapshot_count_and_make_rows_unknown(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    written(tmp_path / "state" / "0" / "0", v3_snapshot=100, v2_delta=7, v3_delta=8, v4_delta=10, v5_delta=20)
    written(tmp_path / "state" / "0" / "1", v1_delta=1, v2_delta=2)
    (operator,) = state_of_checkpoint(tmp_path, now_unix=1060.0).operators
    one, two = operator.partitions
    assert (one.bytes, one.version, one.snapshot_version, one.snapshot_age_s) == (130.0, 5, 3, 60.0)
    assert one.rows is None
    assert (two.bytes, two.snapshot_version, two.snapshot_age_s) == (3.0, None, None)
    assert operator.skew == pytest.approx(130 / 66.5)


def test_the_stores_of_a_join_are_one_partition(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for name in ("left-keyToNumValues", "right-keyToNumValues"):
        written(tmp_path / "state" / "0" / "0" / name, v2_snapshot=50, v3_delta=5)
    (operator,) = state_of_checkpoint(tmp_path, now_unix=1000.0).operators
    assert operator.partitions[0].bytes == 110.0


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkpoint"):
        state_of_checkpoint(tmp_path, now_unix=0.0)


def test_a_query_without_state_has_none(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    assert state_of_checkpoint(tmp_path, now_unix=0.0).operators == ()
