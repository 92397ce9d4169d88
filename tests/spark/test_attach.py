"""The front door on real Spark, as a user goes through it: `penstock.attach`, by call and as a context manager."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.control import PolicyRun, Settings
from penstock.control.plan import NotReadyError, Outcome, Plan, Planned
from penstock.errors import UserError
from penstock.policies.actions import Pace
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.spark.application import ApplicationRuntime
from penstock.spark.internals.active_queries import ActiveQueries
from penstock.spark.pilot import Pilot
from penstock.spark.runtime import RuntimeOptions, SparkRuntime
from tests.spark.control import WHY
from tests.spark.streams import finished_batch, numbers, wait_for


def counts(spark: SparkSession, rate: int = 40) -> DataFrame:
    """A native aggregation that nobody prepared for Penstock."""
    numbers = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    return numbers.groupBy((F.col("value") % 5).alias("key")).count()


def started(spark: SparkSession, name: str, folder: Path) -> StreamingQuery:
    writer = counts(spark).writeStream.queryName(name).outputMode("update").format("noop")
    return writer.option("checkpointLocation", str(folder / name)).start()


def under_control(pilot: Pilot, *names: str) -> None:
    wait_for(
        lambda: {c.name for c in pilot.runtime.dataflow.constraints} == {f"{n}.latency" for n in names},
        timeout_s=120,
        what=f"{', '.join(names) or 'no query'} under control",
    )


def test_a_pilot_follows_queries_that_come_end_and_start_again(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    goals = {"second": penstock.Goals(latency_ms=9000, priority=2)}
    with penstock.attach(local_spark, latency_ms=60_000, goals=goals, interval_s=1.0) as pilot:
        first = started(local_spark, "first", tmp_path)
        under_control(pilot, "first")
        second = started(local_spark.newSession(), "second", tmp_path)
        under_control(pilot, "first", "second")
        bounds = {c.name: c.bound_ms for c in pilot.runtime.dataflow.constraints}
        assert bounds == {"first.latency": 60_000, "second.latency": 9000}
        first.stop()
        under_control(pilot, "second")
        wait_for(lambda: "first was stopped" in pilot.report(), timeout_s=30, what="its end in the report")
        first = started(local_spark, "first", tmp_path)
        under_control(pilot, "first", "second")
        assert not pilot.loop.faults
    assert not pilot.running
    assert first.isActive
    assert second.isActive, "queries outlive the pilot"
    assert "application" in pilot.report()
    pilot.stop()
    second.stop()


def test_the_report_says_that_the_only_query_failed_and_why(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    with penstock.attach(local_spark, latency_ms=60_000, interval_s=1.0) as pilot:
        late = F.when(F.col("value") < 200, F.col("value")).otherwise(F.raise_error(F.lit("too many clicks")))
        frame = local_spark.readStream.format("rate").option("rowsPerSecond", 40).load().select(late)
        writer = frame.writeStream.queryName("clicks").format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "clicks")).start()
        under_control(pilot, "clicks")
        wait_for(lambda: not query.isActive, timeout_s=60, what="its end")
        wait_for(
            lambda: "no query is left: clicks failed" in " ".join(pilot.report().split()),
            timeout_s=30,
            what="the end in the report",
        )
        assert "too many clicks" in pilot.report()


def test_interference_stands_beside_the_usual_policies_and_the_report_says_so(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    finished_batch(started(local_spark, "counts", tmp_path))
    with penstock.attach(local_spark, latency_ms=60_000, interval_s=1.0, interference=True) as pilot:
        names = [run.policy.name for run in pilot.loop.policies]
        assert names == ["elasticity", "provisioning", "shedding", "interference"]
        told = "driver is the only node, so there is nowhere to move state to"
        wait_for(lambda: told in " ".join(pilot.report().split()), what="that there is one executor")
        assert not pilot.loop.faults
    assert "interference is on" in pilot.report()
    given = [PolicyRun(policy=Interference(), options=InterferenceOptions(band=0.5))]
    with penstock.attach(local_spark, policies=given, interval_s=1.0, interference=True) as pilot:
        assert [run.options for run in pilot.loop.policies] == [given[0].options], "one of it is enough"


def test_only_one_of_two_pilots_is_in_charge(local_spark: SparkSession, tmp_path: Path) -> None:
    query = started(local_spark, "alone", tmp_path)
    finished_batch(query)
    with penstock.attach(local_spark, latency_ms=60_000, interval_s=1.0) as first:
        under_control(first, "alone")
        with penstock.attach(local_spark, latency_ms=60_000, interval_s=1.0) as second:
            under_control(second, "alone")
            assert second.runtime.only_observes is not None
            assert first.runtime.only_observes is None
            wait_for(lambda: "this one only observes" in second.report(), what="a report that says so")
            assert "master local[2] has no executors to add or remove" in " ".join(first.report().split())
    third = penstock.attach(local_spark, latency_ms=60_000, interval_s=1.0)
    under_control(third, "alone")
    assert third.runtime.only_observes is None, "the lease was given back"
    third.stop()


def test_the_loop_is_not_late_because_spark_is(
    local_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that Spark takes seven seconds for, with a loop of two: cycles go on, and the outcome comes later."""
    query = started(local_spark, "slow", tmp_path)
    finished_batch(query)
    runtime = ApplicationRuntime(
        local_spark, goals=lambda name: penstock.Goals(), options=RuntimeOptions(), interval_s=2.0
    )
    wait_for(lambda: len(runtime.observe().queries) == 1, what="the query")
    prompt = SparkRuntime.apply

    def slow(self: SparkRuntime, plan: Plan) -> tuple[Outcome, ...]:
        time.sleep(7)
        return prompt(self, plan)

    monkeypatch.setattr(SparkRuntime, "apply", slow)
    pace = Planned(action=Pace(reason=WHY, query="slow", deadline_s=3.0), policy="test")
    began_s = time.monotonic()
    (outcome,) = runtime.apply(Plan(time_s=time.time(), actions=(pace,)))
    assert outcome.status == "deferred"
    with pytest.raises(NotReadyError, match="did not answer"):
        runtime.observe()
    assert time.monotonic() - began_s < 3.0

    def later() -> tuple[Outcome, ...]:
        with suppress(NotReadyError):
            runtime.observe()
        return runtime.apply(Plan(time_s=time.time()))

    began_s = time.monotonic()
    assert runtime.query_is_active(), "who is busy is there"
    assert time.monotonic() - began_s < 1.0
    told = wait_for(later, timeout_s=40, what="the outcome")
    assert runtime.query_is_active()
    monkeypatch.setattr(ActiveQueries, "is_stopped", lambda self: time.sleep(3))
    began_s = time.monotonic()
    assert runtime.query_is_active(), "who does not answer is busy"
    assert time.monotonic() - began_s < 1.0
    assert [(o.action, o.status) for o in told] == [(pace.action, "applied")]
    monkeypatch.setattr(SparkRuntime, "apply", prompt)
    runtime.close()
    query.stop()


def test_a_query_is_seen_from_the_tasks_of_its_first_batch_on(
    local_spark: SparkSession, tmp_path: Path
) -> None:
    go = str(tmp_path / "go")

    @F.udf("long")
    def held(value: int) -> int:
        while not os.path.exists(go):
            time.sleep(0.1)
        return value

    writer = numbers(local_spark).select(held("value")).writeStream.queryName("first").format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    with penstock.attach(local_spark, latency_ms=1000, interval_s=1.0) as pilot:
        under_control(pilot, "first")
        assert query.lastProgress is None
        wait_for(lambda: "over its bound" in pilot.report(), what="how late it is at least")
        assert query.lastProgress is None
        Path(go).touch()
        finished_batch(query, 1)
        assert not pilot.loop.faults
    query.stop()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"mode": "acts"}, "no mode 'acts'"),
        ({"latency_ms": -1.0}, "latency_ms must be more than 0"),
        ({"min_executors": 5, "max_executors": 2}, "min_executors must lie in 1 to 2"),
    ],
)
def test_bad_options_are_refused_in_a_line(
    local_spark: SparkSession, options: dict[str, float], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        penstock.attach(local_spark, **options)


def test_the_settings_of_a_dry_run_are_not_overruled_by_the_usual_mode(local_spark: SparkSession) -> None:
    with penstock.attach(local_spark, latency_ms=60_000, settings=Settings(dry_run=True)) as pilot:
        assert pilot.loop.modes.now == "recommend"
    with penstock.attach(local_spark, mode="observe", settings=Settings(dry_run=True)) as pilot:
        assert pilot.loop.modes.now == "observe"
