"""Restrictions, accuracy and CPU: the equations of the paper, on tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from penstock.policies.shedding import Accuracy, Graph, Restrictions, obtained_accuracy, required_cpu
from penstock.policies.shedding.backlog import Backlog
from penstock.policies.shedding.cpu import Demand
from penstock.policies.shedding.graph import components
from penstock.policies.shedding.options import SheddingOptions
from tests.policies.shedding.cluster import Cluster, Sink, application

TAXI = application(
    [("src1", "union"), ("src2", "union"), ("union", "snk1"), ("union", "snk2")],
    {"snk1": Sink(3, 0.4), "snk2": Sink(-1, 0.6)},
    {"snk2": 2},
)
COST = {"src1": 1e-4, "src2": 1e-4, "union": 1e-4, "snk1": 1e-3, "snk2": 2e-3}


def a_cluster(rate: float = 100.0, cores: float = 8.0, **more: object) -> Cluster:
    return Cluster(TAXI, COST, lambda _: {"src1": rate, "src2": rate}, [cores], **more)  # type: ignore[arg-type]


def models(cluster: Cluster) -> tuple[Accuracy, Demand]:
    snapshot, options = cluster.step(), SheddingOptions()
    graph = Graph.of(snapshot.dataflow)
    backlog = Backlog.of(snapshot, {}, options)
    accuracy = Accuracy.of(snapshot, graph, backlog.surge)
    minimum = Restrictions.of(graph, snapshot.sinks).min_accuracy
    return accuracy, Demand.of(snapshot, accuracy, backlog, minimum)


class TestGraph:
    def test_values_travel_up_and_down(self) -> None:
        graph = Graph.of(TAXI)  # src1, union, src2, snk1, snk2
        assert graph.level.tolist() == [0, 1, 0, 2, 2]
        assert graph.highest_below(np.array([0, 0, 7.0, 1, 2])).tolist() == [2, 2, 7, 1, 2]
        assert graph.lowest_above(np.array([3, 9, 4.0, 9, 1])).tolist() == [3, 3, 4, 3, 1]

    def test_applications_are_components(self) -> None:
        two = application([("a", "b"), ("c", "d"), ("c", "e")], {})
        assert Graph.of(two).application.tolist() == [0, 0, 1, 1, 1]

    @given(
        st.integers(1, 12).flatmap(
            lambda n: st.tuples(
                st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=14)
            )
        )
    )
    def test_components_as_scipy_finds_them(self, given: tuple[int, list[tuple[int, int]]]) -> None:
        count, edges = given
        source, target = (np.array([e[i] for e in edges], np.int64) for i in (0, 1))
        pairs = coo_array((np.ones(len(edges)), (source, target)), shape=(count, count))
        expected = connected_components(pairs, directed=False)[1]
        assert components(count, source, target).tolist() == expected.tolist()

    def test_a_cycle_is_refused(self) -> None:
        knot = application([("a", "b"), ("b", "c"), ("c", "b")], {})
        with pytest.raises(ValueError, match="cycle"):
            Graph.of(knot)


def test_restrictions_go_upstream_as_maxima() -> None:
    found = Restrictions.of(Graph.of(TAXI), a_cluster().snapshot_sinks())
    by_id = {
        o.id: (int(found.priority[i]), float(found.min_accuracy[i])) for i, o in enumerate(TAXI.operators)
    }
    assert by_id == {
        "src1": (3, 0.6),
        "src2": (3, 0.6),
        "union": (3, 0.6),
        "snk1": (3, 0.4),
        "snk2": (-1, 0.6),
    }


class TestAccuracy:
    def test_everything_gets_through(self) -> None:
        accuracy, _ = models(a_cluster())
        assert accuracy.current == pytest.approx(np.ones(5))

    def test_shedding_multiplies_along_the_way(self) -> None:
        cluster = a_cluster()
        cluster.source_keep[:] = 0.8
        cluster.stream_keep[3] = 0.5  # union -> snk2
        accuracy, _ = models(cluster)
        assert dict(zip([o.id for o in TAXI.operators], accuracy.current.round(9), strict=True)) == {
            "src1": 0.8, "src2": 0.8, "union": 0.8, "snk1": 0.8, "snk2": 0.4,
        }  # fmt: skip
        assert accuracy.offered == pytest.approx(accuracy.current)

    def test_the_worst_input_is_what_is_guaranteed_but_not_what_cpu_is_extrapolated_with(self) -> None:
        cluster = a_cluster()
        cluster.source_keep[TAXI.row["src1"]] = 0.5  # type: ignore[index]
        accuracy, demand = models(cluster)
        union = TAXI.row["union"]  # type: ignore[index]
        assert accuracy.current[union] == pytest.approx(0.5)
        assert accuracy.offered[union] == pytest.approx(0.75)
        assert demand.slope == pytest.approx(cluster.full_cores())

    def test_a_source_that_cannot_keep_up(self) -> None:
        cluster = a_cluster(rate=400.0, cores=1.0)  # 800 · (1e-4 + 1e-4 + 1e-3 + 2e-3) = 2.56 cores
        accuracy, demand = models(cluster)
        assert accuracy.current == pytest.approx(np.full(5, 1 / 2.56))
        assert demand.slope == pytest.approx(cluster.full_cores())

    def test_the_slowest_task_counts(self) -> None:
        snapshot = a_cluster().step()
        slow = snapshot.tasks.processed.copy()
        slow[-1] *= 0.25
        snapshot = replace(snapshot, tasks=snapshot.tasks.with_columns(processed=slow))
        accuracy = Accuracy.of(snapshot, Graph.of(TAXI), np.ones(5))
        assert accuracy.local[-1] == accuracy.current[-1] == pytest.approx(0.25)

    def test_nothing_comes_in(self) -> None:
        accuracy, demand = models(a_cluster(rate=0.0))
        assert accuracy.local.tolist() == accuracy.current.tolist() == [1.0] * 5
        assert demand.slope.tolist() == [0.0] * 6

    def test_while_a_backlog_is_read_the_share_is_above_one_and_the_demand_that_of_production(self) -> None:
        cluster = a_cluster(rate=100.0)
        cluster.backlog[cluster.sources] = 400.0  # read within the interval: 180 instead of 100 per second
        accuracy, demand = models(cluster)
        assert accuracy.offered == pytest.approx(np.full(5, 1.8))
        assert accuracy.current == pytest.approx(np.ones(5))
        assert demand.slope == pytest.approx(cluster.full_cores())


@pytest.mark.parametrize(
    ("accuracy", "cpu", "current", "needed"),
    [
        (0.0, 0.0, 0.0, 0.0),
        (0.1, 0.0, 0.0, 1.0),
        (0.8, 0.3, 0.6, 0.4),
        (1.0, 0.9, 0.5, 1.0),
        (0.5, 0.0, 0.7, 0.0),
    ],
)
def test_required_cpu(accuracy: float, cpu: float, current: float, needed: float) -> None:
    assert float(required_cpu(accuracy, cpu, current)) == pytest.approx(needed)


@pytest.mark.parametrize(
    ("granted", "cpu", "current", "obtained"),
    [
        (0.0, 0.4, 0.0, 0.0),
        (0.2, 0.4, 0.0, 1.0),
        (0.0, 0.0, 0.7, 0.7),
        (0.1, 0.0, 0.7, 1.0),
        (0.4, 0.3, 0.6, 0.8),
        (0.9, 0.3, 0.6, 1.0),
    ],
)
def test_obtained_accuracy(granted: float, cpu: float, current: float, obtained: float) -> None:
    assert float(obtained_accuracy(granted, cpu, current)) == pytest.approx(obtained)


class TestDemand:
    def test_an_unmeasured_task_is_like_its_siblings(self) -> None:
        cluster = a_cluster()
        snapshot = cluster.step()
        known = np.array([True] * 5 + [False])
        tasks = snapshot.tasks.with_columns(known=known, cpu=np.where(known, snapshot.tasks.cpu, 0.0))
        snapshot = replace(snapshot, tasks=tasks)
        accuracy = Accuracy.of(snapshot, Graph.of(TAXI), np.ones(5))
        demand = Demand.of(snapshot, accuracy, Backlog.of(snapshot, {}, SheddingOptions()), np.zeros(5))
        assert demand.slope == pytest.approx(cluster.full_cores())

    @pytest.mark.parametrize(("insists", "slope", "base"), [(0.0, 1.0, 0.0), (0.3, 0.0, 1.0)])
    def test_a_starved_task_is_thought_to_need_a_core(
        self, insists: float, slope: float, base: float
    ) -> None:
        snapshot = a_cluster().step()
        stuck = snapshot.tasks.processed.copy()
        stuck[-1] = 0.0
        snapshot = replace(snapshot, tasks=snapshot.tasks.with_columns(processed=stuck))
        accuracy = Accuracy.of(snapshot, Graph.of(TAXI), np.ones(5))
        demand = Demand.of(
            snapshot, accuracy, Backlog.of(snapshot, {}, SheddingOptions()), np.full(5, insists)
        )
        assert (demand.slope[-1], demand.base[-1]) == (slope, base)

    def test_cores_of_different_speed(self) -> None:
        cluster = Cluster(
            TAXI,
            COST,
            lambda _: {"src1": 100.0, "src2": 100.0},
            [4.0, 4.0],
            place={"snk2[0]": 1},
            speed=[1.0, 2.0],
        )
        _, demand = models(cluster)
        assert demand.slope == pytest.approx(cluster.full_cores())
        assert demand.core.tolist() == [1, 1, 1, 1, 2, 1]


def test_available_cpu_is_what_others_leave() -> None:
    snapshot = a_cluster(foreign=[1.5]).step()
    own = snapshot.node_cpu + 0.25  # our process uses CPU beside its tasks
    snapshot = replace(snapshot, nodes=snapshot.nodes.with_columns(own_cpu=own))
    assert snapshot.free_cpu.tolist() == pytest.approx([8 - 1.5 - 0.25])
    blind = replace(snapshot, nodes=snapshot.nodes.with_columns(known=np.array([False])))
    assert blind.free_cpu.tolist() == [np.inf]


class TestBacklog:
    def test_a_late_source_takes_on_more_until_its_deadline(self) -> None:
        options = SheddingOptions(lag_s=4.0, drain_s=20.0)
        cluster = a_cluster(rate=100.0)
        snapshot = cluster.step()
        late = replace(
            snapshot, sources=snapshot.sources.with_columns(backlog_records=np.array([1000.0, 300.0]))
        )
        first = Backlog.of(late, {}, options)
        assert first.deadlines_s == {"src1": 25.0}
        # (1000 - ½·4·100) records in 20 s beside the 100 per second that are produced
        assert first.surge == pytest.approx([1.4, 1, 1, 1, 1])
        later = Backlog.of(replace(late, time_s=15.0), first.deadlines_s, options)
        assert later.deadlines_s == {"src1": 25.0}
        assert later.surge[0] == pytest.approx(1.8)
        overdue = Backlog.of(replace(late, time_s=60.0), first.deadlines_s, options)
        assert overdue.surge[0] == pytest.approx(1 + 800 / 5.0 / 100)
        assert not Backlog.of(snapshot, first.deadlines_s, options).deadlines_s

    def test_a_queue_inside_asks_for_cpu_of_its_own(self) -> None:
        options = SheddingOptions(lag_s=4.0, drain_s=20.0)
        snapshot = a_cluster(rate=100.0).step()
        queued = np.array([0, 0, 0, 2000.0, 0, 0])  # snk1: ten seconds of 200 records per second
        snapshot = replace(snapshot, tasks=snapshot.tasks.with_columns(queued=queued))
        backlog = Backlog.of(snapshot, {}, options)
        assert backlog.drain_rps == pytest.approx([0, 0, 0, 80, 0])
        accuracy = Accuracy.of(snapshot, Graph.of(TAXI), backlog.surge)
        demand = Demand.of(snapshot, accuracy, backlog, np.zeros(5))
        assert demand.drain_base == pytest.approx([0, 0, 0, 80 * COST["snk1"], 0, 0])
