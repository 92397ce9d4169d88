"""Queries of one application: they come and go while it runs, wait by their owner's will, and are never silent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow import OperatorId, State
from penstock.policies.actions import Move
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.telemetry import Batches, Queries, Snapshot
from tests.policies.shedding.cluster import Cluster, Sink, application
from tests.policies.shedding.test_lag import unmeasured

PRIORITY = {"low": Sink(1, 0.2), "middle": Sink(2, 0.5), "high": Sink(3, 0.8)}
COLUMNS = ("id", "records", "duration_s", "fixed_s", "busy_s")
OPTIONS = SheddingOptions(moves="none", reserve_sigmas=0.0)


def of_queries(names: tuple[str, ...], cores: float = 2.0) -> Cluster:
    """Queries of 1,000 records a second that take a core each, on one node."""
    return Cluster(
        application(
            [(f"{n}-in", n) for n in names], {n: PRIORITY[n] for n in names}, {f"{n}-in": 2 for n in names}
        ),
        {i: 1e-3 if i.endswith("-in") else 0.0 for n in names for i in (f"{n}-in", n)},
        lambda _: {f"{n}-in": 1000.0 for n in names},
        [cores],
    )


def test_a_query_that_joins_takes_from_the_less_important_and_gives_back_when_it_leaves() -> None:
    """Two queries fit; with the most important one the least important gives; when it has gone all is as before."""
    policy, memory, story = Shedding(), Shedding().start(OPTIONS), []
    keep: dict[str, float] = {}
    for names, cycles in (
        (("low",), 4),
        (("low", "high"), 12),
        (("low", "middle", "high"), 12),
        (("low",), 12),
    ):
        cluster = of_queries(names)
        for id_, share in keep.items():
            if id_ in cluster.dataflow.row:
                cluster.source_keep[cluster.dataflow.row[OperatorId(id_)]] = share
        for _ in range(cycles):
            proposal, memory = policy.decide(cluster.step(), memory, OPTIONS)
            cluster.apply(proposal)
        keep = {
            s.id: float(cluster.source_keep[cluster.dataflow.row[s.id]]) for s in cluster.dataflow.sources
        }
        story.append({name: keep[f"{name}-in"] for name in names})
    first, second, third, last = story
    assert first == last == {"low": 1.0}
    assert second["high"] == 1.0
    assert second["low"] == pytest.approx(0.8, abs=0.06), "two cores, of which 90 % are planned for"
    assert third["high"] == 1.0
    assert third["low"] == pytest.approx(0.2)
    assert 0.5 <= third["middle"] < 0.7
    assert not memory.accuracy, "nothing is remembered of those that left"


def waiting(interval_s: float, lag_s: float) -> Snapshot:
    """A query that reads as much as is produced, `lag_s` late, with a trigger."""
    flow = application([("in", "low")], {"low": Sink(1, 0.2)})
    found = unmeasured(flow, 100.0, 1000.0, {"in": 1000.0}, {"in": 1000.0 * lag_s}, {"in": 1.0})
    queries = Queries.blank(
        1,
        names=("q",),
        first_operator=0,
        last_operator=1,
        interval_s=interval_s,
        interval_known=True,
        known=True,
    )
    return replace(found, queries=queries)


@pytest.mark.parametrize(
    ("interval_s", "lag_s", "late"), [(30.0, 30.0, False), (30.0, 36.0, True), (0.0, 6.0, True)]
)
def test_what_waits_for_the_trigger_is_no_lag(interval_s: float, lag_s: float, late: bool) -> None:
    _, memory = Shedding().decide(waiting(interval_s, lag_s), Shedding().start(OPTIONS), OPTIONS)
    assert bool(memory.deadlines_s) == late


@pytest.mark.parametrize("minimum", [0.2, 1.0])
def test_a_lag_with_nothing_left_to_give_is_said(minimum: float) -> None:
    """Nothing tells its CPU and it reads too little even at its minimum; one that may lose nothing is Spark's own."""
    flow = application([("in", "low")], {"low": Sink(1, minimum)})
    policy, memory, keep, codes = Shedding(), Shedding().start(OPTIONS), 1.0, list[set[str]]()
    for cycle in range(1, 40):
        late = {"in": 1000.0 * 5 * cycle}
        snapshot = unmeasured(flow, 5.0 * cycle, 1000.0, {"in": 500.0}, late, {"in": keep})
        proposal, memory = policy.decide(snapshot, memory, OPTIONS)
        keep = next((a.keep for a in proposal.actions), keep)  # type: ignore[attr-defined]
        codes.append({n.reason.code for n in proposal.notices})
    assert keep == pytest.approx(minimum)
    assert ("nothing-left-to-shed" in codes[-1]) == (minimum < 1)


@pytest.mark.parametrize(
    ("batches", "state", "moves"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_only_what_the_runtime_can_move_is_moved(batches: bool, state: bool, moves: bool) -> None:
    """Minima of two do not fit on one node; Spark places what has no state by itself."""
    flow = application([("a-in", "a"), ("b-in", "b")], {"a": Sink(1, 0.9), "b": Sink(1, 0.9)})
    if state:
        kept = {"state": State(schema="n long"), "key": ("n",)}
        operators = tuple(replace(o, **kept) if o.kind == "sink" else o for o in flow.operators)
        flow = replace(flow, operators=operators)
    cost = {i: 0.8e-3 if not i.endswith("-in") else 0.0 for i in ("a-in", "a", "b-in", "b")}
    cluster = Cluster(flow, cost, lambda _: {"a-in": 1000.0, "b-in": 1000.0}, [1.0, 1.0])
    snapshot = cluster.step()
    if batches:
        snapshot = replace(snapshot, batches=Batches(**dict.fromkeys(COLUMNS, np.zeros(0)), interval_s=0.0))
    proposal, _ = Shedding().decide(snapshot, Shedding().start(SheddingOptions()), SheddingOptions())
    assert any(isinstance(a, Move) for a in proposal.actions) == moves


def test_slots_are_one_pool_and_hold_what_others_use() -> None:
    """Tasks held two of two slots for half of the load, wherever they ran and whatever else the machines do."""
    names = ("low", "high")
    cluster = Cluster(
        application([(f"{n}-in", n) for n in names], {n: PRIORITY[n] for n in names}),
        {"low-in": 1e-3, "high-in": 1e-3, "low": 0.0, "high": 0.0},
        lambda _: {"low-in": 2000.0, "high-in": 2000.0},
        [1.0, 1.0],
        {"low-in": 0, "low": 0, "high-in": 1, "high": 1},
    )
    snapshot = cluster.step()
    busy = snapshot.nodes.with_columns(foreign_cpu=np.full(2, 0.9))
    options = replace(OPTIONS, by_slots=True)
    proposal, _ = Shedding().decide(replace(snapshot, nodes=busy), Shedding().start(options), options)
    keep = {a.subject: a.keep for a in proposal.actions}  # type: ignore[attr-defined]
    # 1.8 slots of 4: a fifth of the low one, 0.4, and 1.4 of the 2 that the high one needs; it insists on 0.8.
    assert keep == {"low-in": pytest.approx(0.2), "high-in": pytest.approx(0.8)}
    assert {a.reason.facts["node"] for a in proposal.actions} <= {"all executors"}
