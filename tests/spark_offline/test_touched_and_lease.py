"""What was touched is put back, also by the next pilot; only one pilot changes an application."""

from __future__ import annotations

import pytest

from penstock.spark.act.lease import KEY as PILOT
from penstock.spark.act.lease import Lease
from penstock.spark.act.locality_wait import LocalityWait, seconds
from penstock.spark.act.query_pace import QueryPace
from penstock.spark.act.touched import KEY, Touched
from penstock.spark.internals.pacing import Source
from penstock.testing import FakeClock
from tests.spark_offline.doubles import FakeSettings


def settings(**values: str) -> FakeSettings:
    return FakeSettings(FakeClock(), values)


def test_the_first_value_is_the_users() -> None:
    store = settings()
    touched = Touched(store)
    touched.note("executors", 3)
    touched.note("executors", 5)
    assert Touched(store).pending() == {"executors": 3}, "the next pilot reads it"


def test_put_back_forgets_what_is_as_before() -> None:
    store = settings()
    touched = Touched(store)
    touched.note("executors", 3)
    touched.note("interval:run-1", 500)
    touched.note("read-limit:run-1:0", "rows:7")
    back: list[object] = []
    assert touched.put_back({"executors": back.append, "interval": back.append}) == {}
    assert back == [3, 500]
    assert touched.pending() == {"read-limit:run-1:0": "rows:7"}, "nobody knew how"
    touched.forget("read-limit:run-1:0")
    assert KEY not in store.values


def test_a_lever_that_fails_keeps_its_note_and_stops_nobody() -> None:
    touched = Touched(settings())
    touched.note("a", 1)
    touched.note("b", None)
    back: list[object] = []

    def broken(_: object) -> None:
        raise RuntimeError("no such query")

    assert touched.put_back({"a": broken, "b": back.append}) == {"a": "no such query"}
    assert (back, touched.pending()) == ([None], {"a": 1})


@pytest.mark.parametrize("text", ["", "nonsense", "[1]"])
def test_notes_that_are_not_ours_are_none(text: str) -> None:
    assert Touched(FakeSettings(FakeClock(), {KEY: text})).pending() == {}


def test_one_pilot_holds_and_the_other_sees_who() -> None:
    store = settings()
    first, second = Lease(store, interval_s=5, owner="a"), Lease(store, interval_s=5, owner="b")
    assert first.hold() is None
    holder = second.hold()
    assert holder is not None
    assert (holder.owner, holder.stale) == ("a", False)
    assert holder.reason.code == "another-pilot"
    store.clock.advance(10)
    assert first.hold() is None, "renewed"
    store.clock.advance(10)
    assert second.hold() is not None
    first.release()
    assert second.hold() is None
    assert first.hold() is not None


def test_the_lease_of_a_dead_pilot_is_taken_over() -> None:
    store = settings()
    Lease(store, interval_s=5, owner="dead").hold()
    store.clock.advance(19)
    second = Lease(store, interval_s=5, owner="b")
    assert second.hold() is not None
    store.clock.advance(2)
    assert second.hold() is None
    second.release()
    assert PILOT not in store.values


def test_only_one_of_two_that_are_fast_gets_it() -> None:
    store = settings()

    class Racing(FakeSettings):
        def swap(self, key: str, before: str | None, after: str | None) -> bool:
            Lease(store, interval_s=5, owner="faster").hold()
            return store.swap(key, before, after)

    racing = Racing(store.clock)
    racing.values = store.values
    holder = Lease(racing, interval_s=5, owner="slower").hold()
    assert holder is not None
    assert holder.owner == "faster"


def test_releasing_what_is_not_ours_changes_nothing() -> None:
    store = settings()
    Lease(store, interval_s=5, owner="a").hold()
    Lease(store, interval_s=5, owner="b").release()
    assert PILOT in store.values


def test_the_longest_of_several_waits_counts_and_the_last_puts_it_back() -> None:
    store = FakeSettings(FakeClock(), {"spark.locality.wait.process": "1s"})
    touched = Touched(store)
    wait = LocalityWait(store, touched)
    wait.hold("a", 4.0)
    wait.hold("b", 9.0)
    assert store.get("spark.locality.wait.process") == "9000ms"
    assert touched.pending() == {"locality-wait": "1s"}
    wait.drop("b")
    wait.drop("a")
    wait.drop("a")
    assert store.values == {"spark.locality.wait.process": "1s"}


@pytest.mark.parametrize(
    ("text", "value"), [("500ms", 0.5), ("3s", 3.0), ("2m", 120.0), ("7", 0.007), ("x", None), (None, None)]
)
def test_times_as_spark_writes_them(text: str | None, value: float | None) -> None:
    assert seconds(text) == value


class Pace:
    """A pacemaker that remembers."""

    def __init__(self) -> None:
        self.interval, self.limits = 500, {0: "all", 1: "maxRows:70", 2: "maxFiles:1"}

    def interval_ms(self) -> int:
        return self.interval

    def set_interval_ms(self, interval_ms: int) -> None:
        self.interval = interval_ms

    def sources(self) -> list[Source]:
        return [
            Source(index=i, kind="", description="", limit=limit, accepts=("rows",) if i < 2 else ("files",))
            for i, limit in self.limits.items()
        ]

    def set_read_limit(self, kind: str, count: int, *, source: int = 0) -> None:
        self.limits[source] = f"max{kind.capitalize()}:{count}"

    def restore_read_limit(self, text: str, *, source: int = 0) -> None:
        self.limits[source] = text


def test_the_pace_of_a_run_goes_back_to_the_users() -> None:
    touched, pacing = Touched(settings()), Pace()
    pace = QueryPace(pacing, "run-1", touched)
    for interval_ms, rows in ((2000, 60), (4000, 50)):
        assert pace.set_interval_ms(interval_ms) == interval_ms
        assert pace.set_read_limit(1, rows)
    assert pace.set_read_limit(0, 9)
    assert pace.set_read_limit(0, 0)
    assert not pace.set_read_limit(2, 9), "it is limited by files"
    assert (pacing.interval, pacing.limits) == (4000, {0: "all", 1: "maxRows:50", 2: "maxFiles:1"})
    reading = QueryPace(pacing, "run-1", Touched(touched._store)).reading()
    assert (reading.interval_s, reading.own_interval_s) == (4.0, 0.5)
    assert [(x.now, x.own, x.settable) for x in reading.limits] == [
        (0, 0, True),
        (50, 70, True),
        (0, 0, False),
    ]
    # A pilot that comes after a crash has only the notes.
    later = QueryPace(pacing, "run-1", Touched(touched._store))
    assert touched.put_back(later.levers()) == {}
    assert (pacing.interval, pacing.limits) == (500, {0: "all", 1: "maxRows:70", 2: "maxFiles:1"})
    assert touched.pending() == {}


def test_notes_of_a_run_that_has_ended_are_dropped() -> None:
    touched = Touched(settings())
    for name in ("executors", "interval:old", "interval:new", "read-limit:old:0"):
        touched.note(name, 1)
    touched.forget_other_runs({"new"})
    assert set(touched.pending()) == {"executors", "interval:new"}


def test_while_an_executor_leaves_tasks_wait_for_nobody_and_then_as_before() -> None:
    store = FakeSettings(FakeClock(), {"spark.locality.wait.node": "1s"})
    touched = Touched(store)
    wait = LocalityWait(store, touched)
    wait.hold("a", 9.0)
    wait.shorten(short=True)
    assert (store.get("spark.locality.wait.process"), store.get("spark.locality.wait.node")) == (
        "200ms",
        "200ms",
    )
    assert touched.pending() == {"locality-wait": None, "locality-wait-node": "1s"}
    wait.shorten(short=False)
    assert store.get("spark.locality.wait.process") == "9000ms"
    wait.drop("a")
    assert store.values == {"spark.locality.wait.node": "1s"}


def test_a_user_who_has_tasks_wait_for_nobody_keeps_that() -> None:
    store = FakeSettings(FakeClock(), {"spark.locality.wait": "0s"})
    wait = LocalityWait(store, Touched(store))
    wait.shorten(short=True)
    wait.shorten(short=False)
    assert store.values == {"spark.locality.wait": "0s"}
