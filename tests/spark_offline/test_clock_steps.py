"""The driver's clock is set by a minute, forwards or back: no rate, no latency and no length of a batch changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.dataflow import Constraint, Dataflow, Operator, OperatorId, Stream, constant
from penstock.dataflow.graph import Sequence
from penstock.spark.observe import looks as looking
from penstock.spark.observe.looks import Gauges, Looks
from penstock.spark.observe.observer import Observer
from penstock.spark.observe.source_rates import KafkaSource
from penstock.spark.runtime import EXECUTOR
from penstock.telemetry import Nodes, Snapshot
from tests.spark_offline.looks import START_S, FakeQuery

EVERY_S, RATE_RPS, LASTS_S = 5.0, 100.0, 3.0
SOURCE, SINK = OperatorId("q.source"), OperatorId("q.sink")
FLOW = Dataflow(
    "q",
    operators=(Operator(id=SOURCE, kind="source"), Operator(id=SINK, kind="sink")),
    streams=(Stream(source=SOURCE, target=SINK),),
    constraints=(
        Constraint(
            name="q.latency", sequence=Sequence(operators=(SOURCE, SINK)), bound_ms=8000, window_s=10.0
        ),
    ),
)


def seen(query: FakeQuery, until_s: float, monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """A snapshot every five seconds, by the looks and the observer of a pilot; the loop's clock is the test's."""

    def progress(_: Any, batch: int) -> list[str]:
        told = {"shift_s", "lasted_s"}
        return [b.model_dump_json(by_alias=True, exclude=told) for b in query.reports() if b.batch_id > batch]

    monkeypatch.setattr(looking, "progress_since", progress)
    gauges: Any = Gauges(
        query=SimpleNamespace(runId="run"),  # type: ignore[arg-type]
        standings=SimpleNamespace(read=query.standing),  # type: ignore[arg-type]
        ends=lambda _: query.ends(),
    )
    looks = Looks(gauges, clock=lambda: START_S + query.now_s)
    observer = Observer(
        FLOW, machine=EXECUTOR, state_operators={}, sources={SOURCE: KafkaSource(0)}, now_s=START_S
    )
    found = []
    for now_s in np.arange(EVERY_S, until_s + 1e-9, EVERY_S):
        query.run_until(float(now_s))
        found.append(observer.observe([looks.take()], (), Nodes.blank(0), START_S + query.now_s))
    return found


@pytest.mark.parametrize("broker", [True, False], ids=["broker", "no broker"])
@pytest.mark.parametrize("by_s", [60.0, -60.0])
@pytest.mark.parametrize("at_s", [100.0, 101.3], ids=["at a look", "in a batch"])
def test_a_step_of_a_minute_changes_nothing(
    at_s: float, by_s: float, monkeypatch: pytest.MonkeyPatch, *, broker: bool
) -> None:
    query = FakeQuery(
        came=constant(RATE_RPS).records_until,
        takes_s=lambda records: LASTS_S,
        broker=broker,
        wall_steps_s=[(at_s, by_s), (at_s + 60, -by_s)],
    )
    found = seen(query, 240.0, monkeypatch)[4:]
    rates = np.array([s.sources.produced_rps[0] for s in found])
    assert np.allclose(rates, RATE_RPS, rtol=0.05)
    lengths = np.concatenate([s.batches.duration_s for s in found if s.batches is not None])
    assert len(lengths) >= 200 / LASTS_S
    # Of the two batches in which the clock stepped, all that is known is that they have ended by the next look.
    off = np.abs(lengths - LASTS_S) > 0.1
    assert off.sum() <= 2
    assert np.all((lengths >= 0) & (lengths <= LASTS_S + EVERY_S))
    latencies = np.array([s.constraints.latency_s[0] for s in found])
    assert np.all((latencies > LASTS_S) & (latencies < 1.5 * LASTS_S + EVERY_S)), latencies
    running = np.array([s.queries.running_s[0] for s in found])
    assert (running > LASTS_S).sum() <= 2
    assert running.max() <= EVERY_S + 1e-6, "it was not there at the look before"
