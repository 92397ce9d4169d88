"""When a bound needs real-time mode, and what is said then."""

from datetime import UTC, datetime

from penstock.spark.latency_floor import FEWEST_BATCHES, LatencyFloor
from penstock.spark.observe.progress import BatchProgress
from penstock.spark.realtime import Obstacle, Preflight


def batches(count: int = FEWEST_BATCHES, *, took_ms: int = 300, records: int = 5) -> list[BatchProgress]:
    document = {
        "runId": "r",
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "durationMs": {"triggerExecution": took_ms, "addBatch": took_ms - 120, "commitOffsets": 100},
        "numInputRows": records,
    }
    return [BatchProgress.model_validate({**document, "batchId": i}) for i in range(count)]


def check(*obstacles: Obstacle) -> Preflight:
    return Preflight(obstacles=obstacles, shuffle_partitions=3, source_partitions=1, slots=4)


def an_operator(what: str) -> Obstacle:
    return Obstacle(kind="operator", what=what, why="not supported", instead="write it natively")


def test_the_operators_in_the_way_are_named_once():
    floor = LatencyFloor(20, lambda: check(an_operator("mapInArrow"), an_operator("a Python UDF")))
    note = floor.note(batches())
    assert note == (
        "the quickest of 10 micro-batches took 200 ms: 20 ms needs real-time mode, and these 2 operators stand in "
        "the way: mapInArrow (write it natively); a Python UDF (write it natively)"
    )
    assert floor.note(batches()) is None


def test_where_nothing_stands_in_the_way_it_says_how():
    note = LatencyFloor(20, check).note(batches())
    assert note is not None
    assert note.endswith('start it with trigger(realTime="60 seconds") and 4 slots')


def test_a_bound_that_batches_can_hold_is_no_matter():
    def never() -> Preflight:
        raise AssertionError("Spark was asked")

    assert LatencyFloor(250, never).note(batches()) is None
    assert LatencyFloor(None, never).note(batches()) is None


def test_few_batches_and_empty_ones_prove_nothing():
    floor = LatencyFloor(20, check)
    assert floor.note(batches(FEWEST_BATCHES - 1)) is None
    assert floor.note(batches(50, records=0)) is None
    assert floor.note(batches(1)) is not None
