"""When replayed records are due, checked against the load itself."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.dataflow.load import Load, constant, sine, staircase
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.replay_source import (
    Numbers,
    ReplayOptions,
    ReplayReader,
    Timetable,
    backlog,
    file_rows,
    file_schema,
)
from penstock_papers.common.recordings import finite

rates = st.floats(0.5, 5000) | st.just(0.0)
steps = st.lists(st.tuples(st.floats(0.1, 30), rates), min_size=1, max_size=6)


@st.composite
def loads(draw):
    profile = draw(steps)
    repeat = draw(st.booleans())
    if not any(rate > 0 for _, rate in profile):
        profile.append((1.0, 10.0))
    return staircase(profile, repeat=repeat)


@settings(max_examples=150, deadline=None)
@given(loads(), st.integers(0, 200_000))
@example(staircase([(0.5, 0.0), (0.1, 1.0)], repeat=True), 0)  # a period holds a tenth of a record
def test_a_record_is_due_when_the_load_has_produced_it(load: Load, number: int):
    due_s = float(Timetable(load).due_s(np.array([number]))[0])
    if math.isinf(due_s):
        assert load.records_until(1e9) < number + 1 + 1e-3
        return
    # The inverse of the running total, within the rounding of seconds as floats.
    slack_s = 1e-9 * max(1.0, due_s)
    assert load.records_until(due_s + slack_s) >= number + 1 - 1e-3
    assert load.records_until(max(0.0, due_s - slack_s)) <= number + 1 + 1e-3


@settings(max_examples=60, deadline=None)
@given(loads(), st.integers(0, 50_000))
def test_times_never_go_back(load: Load, start: int):
    due = Timetable(load).due_s(np.arange(start, start + 500))
    assert (np.diff(due[np.isfinite(due)]) >= -1e-9).all()


@pytest.mark.parametrize("load", [constant(250), sine(200, 150, 7), staircase([(2, 10), (1, 0), (3, 400)])])
def test_due_by_counts_the_records_whose_time_has_come(load):
    table = Timetable(load)
    due = table.due_s(np.arange(2000))
    for elapsed in np.linspace(0, 8, 33):
        near = np.abs(due - elapsed) < 1e-6  # at the very moment rounding decides
        assert abs(table.due_by(elapsed) - int((due <= elapsed).sum())) <= near.sum() or due[-1] <= elapsed


def test_a_rate_of_zero_for_ever_plays_nothing():
    table = Timetable(Load((0.0,), (0.0,), 10.0))
    assert table.due_by(1e6) == 0
    assert np.isinf(table.due_s(np.arange(3))).all()


def make(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": np.arange(start, stop)})


SCHEMA = pa.schema([("n", pa.int64()), ("source_time", pa.timestamp("us", tz="UTC"))])


def a_reader(**options) -> ReplayReader:
    given = {
        "source": "s",
        "load": constant(1000.0),
        "generator": PackedFunctions.of([make]),
        "partitions": 3,
    }
    whole = ReplayOptions(**given | options)
    assert ReplayOptions.from_spark(whole.to_spark()) == whole
    assert all(isinstance(json.loads(text), object) for text in whole.to_spark().values())
    return ReplayReader(whole, SCHEMA)


def read(reader, parts):
    batches = [batch for part in parts for batch in reader.read(part)]
    assert max(batch.num_rows for batch in batches) <= 50_000
    return pa.Table.from_batches(batches)


def test_partitions_cover_the_range_once_with_due_times():
    reader = a_reader()
    start, end = reader.offset(100, 5_000_000), reader.offset(120_103, 5_000_000)
    parts = reader.partitions(start, end)
    assert len(parts) == 3
    rows = read(reader, parts)
    assert rows.column("n").to_pylist() == list(range(100, 120_103))
    stamps = rows.column("source_time").combine_chunks().view(pa.int64()).to_numpy()
    assert stamps[0] == 5_000_000 + 101_000
    assert (np.diff(stamps) == 1000).all()
    assert reader.partitions(end, end) == []


def test_the_clock_is_that_of_the_logged_end():
    # After a crash before the first commit Spark asks for a new initial offset, but repeats the logged end.
    reader = a_reader(partitions=1)
    (part,) = reader.partitions(reader.offset(0, 99), reader.offset(5, 7))
    assert isinstance(part, Numbers)
    assert part.started_us == 7


def test_the_limit_is_respected():
    reader = a_reader(max_rows_per_batch=10)
    start = reader.offset(5, 0)  # due since 1970
    assert reader.latestOffset(start, reader.getDefaultReadLimit())["next"] == 15
    assert a_reader(rows=12).latestOffset(start, None)["next"] == 12
    assert reader.reportLatestOffset()["next"] > 1_000_000


def test_backlog_is_what_is_due_and_not_read():
    offset = {"next": 2500, "started_us": 10_000_000}
    found = backlog(constant(1000.0), offset, 14.0)
    assert found.records == 1500
    assert found.oldest_s == pytest.approx(4.0 - 2.501)
    assert backlog(constant(1000.0), offset, 12.0).records == 0
    assert backlog(constant(1000.0), offset, 14.0, rows=3000).records == 500


def test_files_play_in_a_loop(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("n,name\n" + "".join(f"{i},x{i}\n" for i in range(10)))
    assert file_rows(str(path)) == 10
    assert file_schema(str(path)).names == ["n", "name"]
    reader = a_reader(path=str(path), generator=None)
    rows = read(reader, reader.partitions(reader.offset(7, 0), reader.offset(27, 0)))
    assert rows.column("n").to_pylist() == [i % 10 for i in range(7, 27)]


@given(records=st.integers(1, 20_000), rate_rps=st.floats(0.1, 1e8))
def test_every_record_of_a_load_that_ends_is_due_before_its_end(records: int, rate_rps: float) -> None:
    timetable = Timetable(finite(records, rate_rps))
    assert timetable.due_by(1e9) == records
    due_s = timetable.due_s(np.arange(records))
    assert np.all(np.isfinite(due_s))
    assert np.all(np.diff(due_s) >= 0)
    assert due_s[-1] <= records / rate_rps * (1 + 1e-6) + 1e-5 / rate_rps
