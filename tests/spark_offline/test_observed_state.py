"""What a snapshot tells of state that moves and of what passes between its partitions, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from penstock.dataflow import Dataflow, Operator, OperatorId, State, Stream
from penstock.spark.act.move_pauses import MOST, MovePauses
from penstock.spark.act.spreading import Place
from penstock.spark.act.state_moves import MoveJob
from penstock.spark.internals.shuffles import ShuffleMatrix
from penstock.spark.internals.tasks import TaskTable
from penstock.spark.observe.looks import Gauges, Look, Looks
from penstock.spark.observe.observer import Observer
from penstock.spark.observe.source_rates import PlainSource
from penstock.spark.runtime import EXECUTOR
from penstock.telemetry import Nodes, Snapshot
from tests.spark_offline.looks import START_S, a_batch
from tests.spark_offline.task_tables import a_stage, a_table

SOURCE, FIRST, SECOND, SINK = (OperatorId(f"q.{name}") for name in ("source", "state1", "state0", "sink"))
FLOW = Dataflow(
    "q",
    operators=(
        Operator(id=SOURCE, kind="source"),
        Operator(id=FIRST, kind="transform", state=State(schema="dedup")),
        Operator(id=SECOND, kind="transform", state=State(schema="count")),
        Operator(id=SINK, kind="sink"),
    ),
    streams=(
        Stream(source=SOURCE, target=FIRST, wiring="key"),
        Stream(source=FIRST, target=SECOND, wiring="key"),
        Stream(source=SECOND, target=SINK, wiring="forward"),
    ),
)
PLACES = {Place(operator=o, partition=p): str(p) for o in (0, 1) for p in (0, 1)}
NODES = Nodes.blank(2, ids=("0", "1"), hosts=("a", "b"), machines=("executor",) * 2, cores=1.0, ready=True)


def observed(*looks: Look) -> Snapshot:
    """The snapshot after the last of some looks, one a cycle."""
    observer = Observer(
        FLOW,
        machine=EXECUTOR,
        state_operators={0: SECOND, 1: FIRST},
        sources={SOURCE: PlainSource(0)},
        now_s=START_S,
    )
    *_, last = (observer.observe([look], (), NODES, look.time_s) for look in looks)
    return last


def test_a_partition_that_moves_is_one_of_its_own_operator() -> None:
    look = Look(
        time_s=START_S + 5,
        run_id="r",
        places=PLACES,
        moving=frozenset({Place(operator=1, partition=0)}),
    )
    tasks = observed(look).tasks
    moving = {
        (FLOW.operators[o].id, int(i))
        for o, i in zip(tasks.operator[tasks.moving], tasks.index[tasks.moving], strict=True)
    }
    assert len(tasks) == 4
    assert moving == {(FIRST, 0)}, "and not partition 0 of the other operator"


@pytest.mark.parametrize(("apart_s", "lasts_s", "rate"), [(60.0, 3.0, 2.0), (3.0, 3.0, 40.0)])
def test_traffic_is_told_by_the_time_on_the_wall(apart_s: float, lasts_s: float, rate: float) -> None:
    matrix = ShuffleMatrix(
        shuffle_id=0,
        map_executor=("0", "1"),
        map_host=("a", "b"),
        writer=1,
        reader=0,
        sizes_bytes=np.array([[0.0, 120.0], [0.0, 0.0]]),
    )
    first = a_batch(0, START_S, lasts_s=lasts_s)
    second = a_batch(1, START_S + apart_s, lasts_s=lasts_s)
    seen = observed(
        Look(time_s=first.ended_s, run_id="r", places=PLACES, batches=(first,)),
        Look(time_s=second.ended_s, run_id="r", places=PLACES, batches=(second,), matrices=(1, (matrix,))),
    )
    assert seen.traffic.bytes_per_s.tolist() == pytest.approx([rate])


def a_job(pause_s: float | None) -> MoveJob:
    job = MoveJob({}, lambda _: None)
    job.pause_s = pause_s
    return job


def test_what_moves_paused_is_learnt_once_a_job_and_in_steps() -> None:
    pauses = MovePauses()
    pauses.learn(a_job(None), 0.1)
    assert pauses.factor == 1.0, "not known yet"
    job = a_job(0.4)
    pauses.learn(job, 0.1)
    pauses.learn(job, 0.1)
    assert pauses.factor == pytest.approx(2.0)
    for _ in range(20):  # each expectation has the factor in it
        pauses.learn(a_job(0.4), 0.1 * pauses.factor)
    assert pauses.factor == pytest.approx(4.0, rel=0.01)
    pauses.learn(a_job(1e9), 0.4)
    assert pauses.factor == pytest.approx(4.0 * MOST**0.5, rel=0.01), (
        "one that is out of all bounds counts for little"
    )


class Asked:
    """Where state is by Spark's own account, and how often that was asked for."""

    def __init__(self) -> None:
        self.times, self.issued, self.places = 0, 0, dict(PLACES)

    def read(self) -> dict[Place, str | None]:
        self.times += 1
        return dict(self.places)


def a_state_table(batch: int, executors: Sequence[str]) -> TaskTable:
    """The tasks of both operators with state, partition by partition; the last one of each failed first."""
    stages = [a_stage(2 * batch + k, 2, states=(1 - k,)) for k in (0, 1)]
    return a_table(
        stages,
        stage=[2 * batch] * 2 + [2 * batch + 1] * 3,
        partition=[0, 1, 0, 1, 1],
        succeeded=[1, 1, 1, 0, 1],
        executor=(*executors, executors[0], "lost", executors[1]),
        states={"task": [0, 1, 2, 3, 4], "operator": [1, 1, 0, 0, 0]},
    )


def test_places_are_read_off_tasks_and_asked_for_only_when_these_cannot_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, tables = Asked(), dict[int, TaskTable]()
    gauges = Gauges(query=FakeRun(), places=asked.read, issued=lambda: asked.issued)  # type: ignore[arg-type]
    looks = Looks(gauges, clock=lambda: START_S)
    monkeypatch.setattr("penstock.spark.observe.looks.progress_since", lambda query, seen: [])
    monkeypatch.setattr(Looks, "_tasks", lambda self, batches, warnings: dict(tables))
    assert looks.take().places == PLACES
    assert looks.take().places == PLACES
    assert asked.times == 1, "no batch, no move: they are where they were"
    tables[3] = a_state_table(3, ("1", "0"))
    swapped = {place: str(1 - place.partition) for place in PLACES}
    assert looks.take().places == swapped
    assert asked.times == 1, "the tasks of the batch show them"
    asked.issued, asked.places = 1, dict.fromkeys(PLACES, "0")
    assert looks.take().places == asked.places
    assert asked.times == 2, "Spark was told of a move after that batch"
    tables[3] = a_table(
        [a_stage(6, 1, states=(1,))], stage=[6], partition=[0], states={"task": [0], "operator": [1]}
    )
    assert looks.take().places == asked.places
    assert asked.times == 3, "tasks of a part of the state tell nothing of the rest"


class FakeRun:
    """As much of a query as a look needs that reads nothing of it."""

    runId = "r"  # noqa: N815
