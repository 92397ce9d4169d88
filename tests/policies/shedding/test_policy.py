"""Properties of single decisions, on random applications and machines.

The cluster knows the true cost of records; the policy sees only a snapshot of an interval in which some of them could
not keep up. What it hands out is checked against the truth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from penstock.policies.actions import Move, Shed
from penstock.policies.policy import Notice
from penstock.policies.shedding import Keeps, Shedding, SheddingOptions
from penstock.telemetry import Sinks, Snapshot
from tests.policies.shedding.cluster import Cluster, Sink, application, run, thresholds

OPTIONS = SheddingOptions(reserve_sigmas=0.0)
CLOSE = 1e-6


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    edges, sinks, tasks, cost, rate = [], {}, {}, {}, {}
    for a in range(draw(st.integers(1, 3))):
        count = draw(st.integers(2, 6))
        for t in range(1, count):
            above = draw(st.sets(st.integers(0, t - 1), min_size=1, max_size=2))
            edges += [(f"{a}.{s}", f"{a}.{t}") for s in above]
        for t in range(count):
            id_ = f"{a}.{t}"
            tasks[id_] = draw(st.integers(1, 3))
            cost[id_] = draw(st.integers(0, 12)) * 1e-4
            if not any(s == id_ for s, _ in edges):
                sinks[id_] = Sink(draw(st.integers(0, 2)), draw(st.sampled_from([0.0, 0.2, 0.5, 0.9])))
            if not any(t_ == id_ for _, t_ in edges):
                rate[id_] = float(draw(st.integers(1, 12))) * 50
    nodes = draw(st.integers(1, 3))
    flow = application(edges, sinks, tasks)
    place = {
        f"{o.id}[{i}]": draw(st.integers(0, nodes - 1)) for o in flow.operators for i in range(tasks[o.id])
    }
    cluster = Cluster(
        flow,
        cost,
        lambda _: rate,
        [float(draw(st.integers(1, 3))) for _ in range(nodes)],
        place,
        foreign=[draw(st.sampled_from([0.0, 0.3, 0.8])) for _ in range(nodes)],
        speed=[draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(nodes)],
        interval_s=1.0,  # short: no lag beyond the bound yet
        seed=draw(st.integers(0, 99)),
    )
    for source in cluster.sources:
        cluster.source_keep[source] = draw(st.sampled_from([0.3, 0.7, 1.0]))
    return cluster


def decided(cluster: Cluster) -> tuple[Snapshot, np.ndarray, tuple[Notice, ...], list[Move]]:
    """(snapshot, accuracy of each sink, notices, moves), the decision being applied."""
    policy = Shedding()
    snapshot = cluster.step()
    proposal, memory = policy.decide(snapshot, policy.start(OPTIONS), OPTIONS)
    cluster.apply(proposal)
    accuracy = np.array([memory.accuracy.get(o.id, 1.0) for o in cluster.dataflow.sinks])
    return snapshot, accuracy, proposal.notices, [a for a in proposal.actions if isinstance(a, Move)]


def room(cluster: Cluster) -> np.ndarray:
    return np.maximum(cluster.capacity(), 0.0) * OPTIONS.utilisation


def used(cluster: Cluster, accuracy: np.ndarray) -> np.ndarray:
    return np.bincount(cluster.node, cluster.cores_at(accuracy), len(cluster.cores))


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_no_sink_below_its_minimum_and_shares_are_shares(cluster: Cluster) -> None:
    snapshot, accuracy, _, _ = decided(cluster)
    assert np.all(accuracy >= snapshot.sinks.min_accuracy - CLOSE)
    assert np.all(accuracy <= 1)
    assert np.all((cluster.source_keep >= 0) & (cluster.source_keep <= 1))
    assert np.all((cluster.stream_keep >= 0) & (cluster.stream_keep <= 1))


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_cpu_handed_out_is_there_or_the_plan_says_it_is_not(cluster: Cluster) -> None:
    _, accuracy, notices, _ = decided(cluster)
    said = {n.reason.facts["node"] for n in notices if n.reason.code == "minima-do-not-fit"}
    over = np.flatnonzero(used(cluster, accuracy) > room(cluster) + CLOSE)
    silent = [n for n in over if f"n{n}" not in said]
    # A task larger than its core is counted as one core, and that is said too.
    if any(n.reason.code == "minimum-exceeds-core" for n in notices):
        capped = np.minimum(cluster.cores_at(accuracy), cluster.core())
        silent = [n for n in silent if np.bincount(cluster.node, capped)[n] > room(cluster)[n] + CLOSE]
    assert not silent


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_whoever_sheds_could_not_keep_more_with_all_lower_priorities_at_their_minima(
    cluster: Cluster,
) -> None:
    snapshot, accuracy, _, moves = decided(cluster)
    assume(not moves)  # around a move all are at their minima
    floor = np.maximum(snapshot.sinks.min_accuracy, OPTIONS.least_keep)
    for q in np.flatnonzero(accuracy < 1 - CLOSE):
        lower = snapshot.sinks.priority < snapshot.sinks.priority[q]
        trial = np.where(lower, floor, accuracy)
        trial[q] += 1e-5
        need = cluster.cores_at(trial)
        more = need > cluster.cores_at(np.where(lower, floor, accuracy)) + 1e-12
        at_core = np.any(more & (need > cluster.core() * OPTIONS.utilisation))
        assert at_core or np.any(used(cluster, trial) > room(cluster))


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_all_inputs_of_an_operator_have_the_same_accuracy(cluster: Cluster) -> None:
    snapshot, accuracy, _, _ = decided(cluster)
    of_operator, of_stream = thresholds(cluster.graph, cluster.source_keep, cluster.stream_keep)
    assert of_stream == pytest.approx(of_operator[cluster.graph.target])
    assert of_operator[snapshot.sinks.operator] == pytest.approx(accuracy)
    # As early as possible: nothing is kept for an operator that none of its consumers wants.
    desired = Keeps.of(cluster.graph, snapshot.sinks, accuracy).desired
    for o in range(len(cluster.graph)):
        below = cluster.graph.target[cluster.graph.source == o]
        assert not len(below) or desired[o] == pytest.approx(desired[below].max())


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_moves_make_the_minima_fit_or_the_plan_says_they_do_not(cluster: Cluster) -> None:
    _, _, notices, moves = decided(cluster)
    minimum = np.array([max(o.min_accuracy, OPTIONS.least_keep) for o in cluster.dataflow.sinks])
    at_minima = np.minimum(cluster.cores_at(minimum), cluster.core())
    said = {n.reason.facts["node"] for n in notices if n.reason.code == "minima-do-not-fit"}
    load = np.bincount(cluster.node, at_minima, len(cluster.cores))
    for n in np.flatnonzero(load > room(cluster) + CLOSE):
        assert f"n{n}" in said
    for move in moves:
        assert move.target != move.source
        assert load[int(move.target[1:])] <= room(cluster)[int(move.target[1:])] + CLOSE
    for n in said:  # not said without need
        assert load[int(str(n)[1:])] > room(cluster)[int(str(n)[1:])]


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(clusters())
def test_constant_load_settles_and_stays(cluster: Cluster) -> None:
    cluster.backlog[:] = 0.0
    story = run(cluster, 70, SheddingOptions(relieve_after_s=10.0, warmup_s=5.0, drain_s=10.0))
    assert not any(c.proposal.actions for c in story[-10:])


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_same_snapshot_same_decision(cluster: Cluster) -> None:
    policy, snapshot = Shedding(), cluster.step()
    one, two = (policy.decide(snapshot, policy.start(OPTIONS), OPTIONS) for _ in range(2))
    assert one == two


@settings(max_examples=40, deadline=None)
@given(clusters())
def test_yielding_minima_never_hand_out_more_than_there_is(cluster: Cluster) -> None:
    options = SheddingOptions(hold_minima=False, moves="none", least_keep=1e-6)
    policy, snapshot = Shedding(), cluster.step()
    assume(np.all(snapshot.tasks.processed > 0))
    proposal, memory = policy.decide(snapshot, policy.start(options), options)
    accuracy = np.array([memory.accuracy.get(o.id, 1.0) for o in cluster.dataflow.sinks])
    assert np.all(used(cluster, accuracy) <= room(cluster) + 1e-4)
    sinks = snapshot.sinks
    below = accuracy < sinks.min_accuracy - CLOSE
    if below.any():
        assert "minima-do-not-fit" in [n.reason.code for n in proposal.notices] or np.any(
            cluster.cores_at(sinks.min_accuracy) > cluster.core()
        )


def test_every_action_says_why() -> None:
    flow = application([("in", "out")], {"out": Sink(3, 0.2)}, {"out": 4})
    cluster = Cluster(flow, {"in": 0.0, "out": 1e-3}, lambda _: {"in": 2000.0}, [1.0])
    policy = Shedding()
    proposal, _ = policy.decide(cluster.step(), policy.start(OPTIONS), OPTIONS)
    (shed,) = proposal.actions
    assert isinstance(shed, Shed)
    assert (shed.operator, shed.target) == ("in", None)
    assert shed.keep == pytest.approx(0.45)
    assert shed.reason.code == "cpu-short"
    assert shed.reason.facts == {
        "sink": "out",
        "accuracy": pytest.approx(0.45),
        "min_accuracy": 0.2,
        "priority": 3,
        "current_accuracy": pytest.approx(0.5),
        "backlog_factor": 1.0,
        "node": "n0",
        "needed_cores": pytest.approx(2.0),
        "available_cores": pytest.approx(0.9),
    }


def test_a_dataflow_without_sinks_is_left_alone() -> None:
    flow = application([("in", "out")], {})
    cluster = Cluster(flow, {"in": 1.0, "out": 1.0}, lambda _: {"in": 10.0}, [1.0])
    snapshot = cluster.step()
    policy = Shedding()
    proposal, _ = policy.decide(replace(snapshot, sinks=Sinks.blank(0)), policy.start(OPTIONS), OPTIONS)
    assert not proposal.actions
    assert not proposal.notices


@pytest.mark.parametrize(
    "wrong",
    [{"utilisation": 0.0}, {"raise_margin": 1.0}, {"least_keep": 0.0}, {"lag_s": -1.0}, {"drain_s": 0.0}],
)
def test_nonsense_options_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SheddingOptions(**wrong)  # type: ignore[arg-type]
