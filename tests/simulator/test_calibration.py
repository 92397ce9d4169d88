"""Calibration: known parameters are found again, a run that is played again comes out as it was, intervals hold."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.choices import choose_policies
from penstock.api.histories import find_history
from penstock.api.whatif import whatif
from penstock.control.plan import Plan, Planned
from penstock.dataflow import constant, sine, staircase
from penstock.errors import InputError, UserError
from penstock.policies.actions import Pace
from penstock.policies.reasons import Reason
from penstock.simulator.calibration import ExecutorLife, History, calibrate
from penstock.simulator.calibration.event_log import read_event_log
from penstock.simulator.calibration.history import load_of, settled
from penstock.simulator.calibration.progress import history_of, parsed
from penstock.simulator.calibration.regression import robust_fit
from tests.simulator.histories import EVENT_LOG, PROGRESS, a_runtime, journal_of, progress_of, synthetic


@settings(max_examples=40, deadline=None)
@given(
    fixed_s=st.floats(0.05, 1.0),
    record_ms=st.floats(0.05, 5.0),
    noise=st.floats(0.0, 0.15),
    seed=st.integers(0, 10_000),
    sizes=st.sampled_from([(1,), (2,), (1, 3), (2, 4, 8)]),
)
def test_known_costs_are_found_again(
    fixed_s: float, record_ms: float, noise: float, seed: int, sizes: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(seed)
    slots = rng.choice(sizes, 300).astype(np.float64)
    # Work that grows with the records is between a third and three times what is fixed: both can be seen.
    records = rng.uniform(0.3, 3.0, 300) * fixed_s * float(np.mean(sizes)) / (1e-3 * record_ms)
    query = synthetic(
        fixed_s=fixed_s, record_s=1e-3 * record_ms, slots=slots, records=records, noise=noise, seed=seed
    )
    lives = _lives(query.began_s + query.plan_s, slots)
    history = History(source="test", queries=(query,), began_s=0.0, ended_s=1e4, executors=lives)
    model = calibrate(history).engine.queries[0]
    (stage,) = model.stages
    assert stage.record_s == pytest.approx(1e-3 * record_ms, rel=0.1 + noise)
    waves = np.ceil(stage.partitions / slots)
    found = model.stage_s + stage.task_s * float(np.mean(waves))
    assert found == pytest.approx(fixed_s, rel=0.2 + 2 * noise)


def _lives(times_s: np.ndarray, slots: np.ndarray) -> tuple[ExecutorLife, ...]:
    """Executors that come and go so that each batch has its slots."""
    ends = np.append(times_s[1:], np.inf)
    return tuple(
        ExecutorLife(id=str(i), cores=int(n), ready_s=float(a), gone_s=float(b))
        for i, (n, a, b) in enumerate(zip(slots, times_s, ends, strict=True))
    )


@given(seed=st.integers(0, 1000), a=st.floats(0.0, 2.0), b=st.floats(0.01, 5.0))
def test_a_fit_is_not_spoilt_by_outliers_and_never_negative(seed: int, a: float, b: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 10, 200)
    y = a + b * x
    y[:20] *= 50
    found = robust_fit(np.column_stack([np.ones(200), x]), y)
    assert np.all(found >= 0)
    assert a + b * 5 == pytest.approx(found[0] + found[1] * 5, rel=0.05)


@pytest.mark.parametrize("kind", ["journal", "progress"])
def test_a_run_played_again_comes_out_as_it_was(kind: str, tmp_path: Path) -> None:
    runtime = a_runtime(sine(800, 500, 120), executors=2)
    if kind == "journal":
        path = tmp_path / "runs.sqlite"
        journal_of(path, runtime, for_s=400.0)
    else:
        path = tmp_path / "progress.json"
        path.write_text("\n".join(progress_of(runtime, for_s=400.0)))
    found = whatif(
        path, latency_ms=[3000.0], was=(2, 1) if kind == "progress" else None, draws=3, processes=1
    )
    error = found["error"]
    assert abs(error["latency_ms.mean"]) < 0.05
    assert abs(error["latency_ms.p95"]) < 0.08
    assert abs(error["batch_ms"]) < 0.05
    assert abs(error["held"]) < 0.05
    if kind == "journal":
        assert abs(error["executor_seconds"]) < 0.02


def test_a_run_under_elasticity_is_played_again_with_its_own_executors(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    load = staircase([(100, 300), (150, 2500), (150, 400)])
    runtime = a_runtime(load, executors=1, task_s=0.005)
    journal_of(
        path, runtime, for_s=400.0, policies=choose_policies(["elasticity"], {"elasticity.pacing": False})
    )
    found = whatif(path, policies=["as-it-was"], draws=3, processes=1)
    assert found["actual"]["actions"]
    assert not found["predicted"]["actions"]
    assert abs(found["error"]["batch_ms"]) < 0.06
    assert abs(found["error"]["executor_seconds"]) < 0.05
    nodes = found["replayed"]["executor_seconds"] / found["duration_s"]
    assert 1.5 < nodes < 8


def test_intervals_cover_what_was_held_out(tmp_path: Path) -> None:
    covered = dict.fromkeys(("latency_ms.mean", "latency_ms.p95", "batch_ms"), 0)
    for seed in range(10):
        path = tmp_path / f"{seed}.sqlite"
        journal_of(path, a_runtime(sine(400, 200, 100), seed=seed, executors=1), for_s=300.0)
        found = whatif(path, rate=3.0, executors=(3, 3), draws=8, processes=1)
        truth = tmp_path / f"truth-{seed}.sqlite"
        journal_of(truth, a_runtime(sine(1200, 600, 100), seed=1000 + seed, executors=3), for_s=300.0)
        happened = whatif(truth, draws=2, processes=1)["actual"]
        flat = {
            **{f"latency_ms.{k}": v for k, v in happened["latency_ms"].items()},
            "batch_ms": happened["batch_ms"],
        }
        for name in covered:
            low, high = found["interval"][name]
            covered[name] += low <= flat[name] <= high
            assert high < 3 * low
    assert min(covered.values()) >= 8


def test_what_tasks_cost_as_such_is_known_where_batches_tell_it(tmp_path: Path) -> None:
    small, large = tmp_path / "small.sqlite", tmp_path / "large.sqlite"
    journal_of(small, a_runtime(sine(300, 150, 100), executors=1, task_s=0.02), for_s=300.0)
    journal_of(large, a_runtime(sine(900, 450, 100), executors=4, task_s=0.02, seed=5), for_s=300.0)
    (query,) = calibrate(find_history(small)).engine.queries
    (stage,) = query.stages
    assert stage.task_s * stage.partitions == pytest.approx(24 * 0.02, rel=0.02)
    assert stage.record_s == pytest.approx(1e-3, rel=0.05)
    predicted = whatif(small, rate=3.0, executors=(4, 4), draws=4, processes=1)["predicted"]
    happened = whatif(large, draws=2, processes=1)["actual"]
    assert predicted["batch_ms"] == pytest.approx(happened["batch_ms"], rel=0.1)
    assert predicted["latency_ms"]["mean"] == pytest.approx(happened["latency_ms"]["mean"], rel=0.15)


def test_a_query_of_one_task_is_not_taken_for_one_of_many(tmp_path: Path) -> None:
    path = tmp_path / "one.sqlite"
    journal_of(path, a_runtime(sine(300, 150, 100), partitions=1), for_s=120.0)
    model = calibrate(find_history(path))
    assert {s.partitions for q in model.engine.queries for s in q.stages} == {1}
    assert not [a.what for a in model.assumed if "tasks of a stage" in a.what]


def test_an_event_log_of_a_plain_application_gives_an_answer() -> None:
    history = settled(read_event_log(EVENT_LOG))
    assert [q.name for q in history.queries] == ["hashes", "counts"]
    counts = history.queries[1]
    assert counts.stateful
    assert [int(s.partition.max()) + 1 for s in counts.stages] == [2, 3]
    found = whatif(EVENT_LOG, latency_ms=[2000.0], executors=(1, 2), draws=3, processes=1)
    assert abs(found["error"]["latency_ms.mean"]) < 0.15
    assert found["actual"]["executor_seconds"] == pytest.approx(found["duration_s"])
    assert [s["executors"] for s in found["scenarios"]] == [1, 2]
    assert any("all batches are alike" in a["what"] for a in found["assumed"])


def test_the_same_run_as_progress_tells_the_same_batches() -> None:
    log, told = find_history(EVENT_LOG), find_history(PROGRESS)
    for a, b in zip(log.queries, told.queries, strict=True):
        np.testing.assert_array_equal(a.records, b.records)
        np.testing.assert_allclose(a.duration_s, b.duration_s)


def test_zstd_and_rolling_logs_are_read_as_the_plain_one(tmp_path: Path) -> None:
    lines = gzip.decompress(EVENT_LOG.read_bytes()).splitlines(keepends=True)
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    for number, part in enumerate((lines[:300], lines[300:]), start=1):
        with pa.output_stream(str(folder / f"events_{number}_app.zstd"), compression="zstd") as out:
            out.write(b"".join(part))
    (folder / "appstatus_app").touch()
    plain = tmp_path / "app.log"
    plain.write_bytes(b"".join(lines))
    seen = [find_history(p) for p in (EVENT_LOG, folder, tmp_path / "eventlog_v2_app", plain)]
    for other in seen[1:]:
        np.testing.assert_array_equal(seen[0].queries[1].records, other.queries[1].records)


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = gzip.decompress(EVENT_LOG.read_bytes())
    cut = tmp_path / "app.inprogress"
    cut.write_bytes(text[: int(0.9 * len(text))])
    assert len(find_history(cut).queries[1]) < len(find_history(EVENT_LOG).queries[1])


JOB = '{"Event":"SparkListenerLogStart","Spark Version":"4.0.0"}\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.json", b"", "is empty"),
        ("text.json", b"hello\n", "line 1: not JSON"),
        ("foreign.json", b'{"a": 1}\n{"a": 2}\n', "not a progress document"),
        ("array.json", b'[{"a": 1', "begins as a JSON array"),
        ("batch.log", JOB.encode(), "no progress of a streaming query"),
        (
            "damaged.log",
            (JOB + '{"Event":"SparkListenerJobStart", oops\n' + JOB).encode(),
            "line 2: not JSON",
        ),
        ("app.lz4", b"LZ4", "packed with lz4"),
        ("app.zstd", b"not zstd at all", "not packed with zstd"),
        ("app.gz", gzip.compress(b"hello\n", mtime=0), "is not an event log"),
        ("cut.gz", gzip.compress(b"hello\n" * 9999, mtime=0)[:-20], "not an event log"),
        ("binary.bin", bytes(range(256)), "cannot be read as text"),
        ("other.sqlite", b"SQLite format 3\0" + b"x" * 100, "cannot be opened as a journal"),
    ],
)
def test_what_cannot_be_used_is_told(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        find_history(path)


def test_too_short_a_run_and_an_empty_folder_are_told(tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    path.write_text("\n".join(PROGRESS.read_text().splitlines()[:6]))
    with pytest.raises(InputError, match="no query with 5 batches"):
        find_history(path)
    with pytest.raises(InputError, match="not a rolling event log"):
        find_history(tmp_path)


def test_a_read_limit_is_seen_in_kafka_offsets_and_makes_records_wait() -> None:
    runtime = a_runtime(staircase([(60, 300), (30, 2500), (200, 300)]), executors=2, read_limit=900)
    lines = progress_of(runtime, for_s=250.0)
    history = history_of([parsed(json.loads(line), "test") for line in lines], source="test")
    (query,) = history.queries
    assert query.read_limit == 900
    load = load_of(query, history.began_s - 1.0)
    assert load.peak_rps == pytest.approx(2500, rel=0.1)
    free = calibrate(replace(history, queries=(replace(query, read_limit=None),)), was=(2, 1))
    assert calibrate(history, was=(2, 1)).engine.queries[0].read_limit == 900
    assert free.engine.queries[0].read_limit == np.inf


def test_alike_batches_are_said_not_to_tell_the_cost_of_a_record() -> None:
    runtime = a_runtime(constant(500), noise=0.02)
    pace = Pace(query="q", deadline_s=2.0, reason=Reason(code="test"))
    runtime.apply(Plan(time_s=0.0, actions=(Planned(action=pace, policy="test"),)))
    lines = progress_of(runtime, for_s=120.0)
    history = settled(history_of([parsed(json.loads(line), "test") for line in lines], source="test"))
    spread = [calibrate(history, seed=i, was=(1, 1)).engine.queries[0].stages[0].record_s for i in range(12)]
    told = [a.what for a in calibrate(history, was=(1, 1)).assumed]
    assert any("all batches are alike" in what for what in told)
    assert max(spread) > 1.5 * min(spread)
