"""What the model promises of nodes, queues, batches, links and sources, in cases that can be reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.dataflow import Dataflow, Load, OperatorId, Output, alternate, constant, flow, staircase
from penstock.dataflow.connectors import discard, replay
from penstock.policies.actions import Pace, Shed, Switch
from penstock.simulator import Cluster, Disturbance, Link, SimulatedRuntime, SimulationOptions
from penstock.simulator.discrete_kernel import ENDED, STARTED
from penstock.telemetry import Sketch, Snapshot
from tests.simulator.ledger import ledger_of
from tests.simulator.scenes import WHY, act, cluster, machine, rows_of, single_queue, trace_of

EVEN = SimulationOptions(arrival_cv=0.0)
"""Arrivals at equal distances: with costs that do not vary, everything is known beforehand."""


def observed(dataflow: Dataflow, where: Cluster, until_s: float, **given: object) -> Snapshot:
    runtime = SimulatedRuntime(dataflow, where, **given)  # type: ignore[arg-type]
    runtime.advance(until_s)
    return runtime.observe()


def ends(runtime: SimulatedRuntime, operator: int, until_s: float) -> list[float]:
    trace = trace_of(runtime)
    runtime.advance(until_s)
    return [round(t, 9) for t in rows_of(trace, ENDED, operator)["time_s"].tolist()]


def two_tasks(cost_s: float) -> Dataflow:
    """One record a second, in turn to two tasks that take `cost_s`."""
    builder = flow("two")
    source = builder.source("source", replay(load=constant(1.0)))
    source.sink("work", discard(), wiring="spread", parallelism=2, cost_s=cost_s, cost_cv=0.0)
    return builder.build()


class TestNodes:
    def test_tasks_share_a_core_exactly(self) -> None:
        """Starts at 1, 2 (1.5 s of work): alone until 2, then half a core each: 0.5 left takes 1 s, and so on."""
        runtime = SimulatedRuntime(two_tasks(1.5), cluster(cores=1), options=EVEN)
        # From 2 on both run at half speed; the first ends at 3, when the third record comes to its task.
        assert ends(runtime, 1, 4.9)[0] == 3.0
        snapshot = runtime.observe()
        assert snapshot.nodes.own_cpu[0] * 4.9 == pytest.approx(3.9)

    def test_foreign_load_takes_cores_away_in_the_middle_of_a_service(self) -> None:
        """1 s of work from 1.0; from 1.5 on only half a core is left: ends at 2.5."""
        where = Cluster(
            classes=(machine(cores=1),),
            nodes={"a": "node"},
            disturbances={"a": Disturbance(foreign=staircase([(1.5, 0.0), (100.0, 0.5)]))},
        )
        load = Load((0.0, 1.2), (1.0, 0.0))
        assert ends(SimulatedRuntime(single_queue(1.0, 1.0, 0.0, load), where, options=EVEN), 1, 5.0) == [2.5]

    def test_a_slower_machine_takes_longer_from_then_on(self) -> None:
        where = Cluster(
            classes=(machine(cores=1, speed=2.0),),
            nodes={"a": "node"},
            disturbances={"node": Disturbance(speed=staircase([(1.25, 1.0), (1.0, 0.5)], repeat=True))},
        )
        load = Load((0.0, 1.2), (1.0, 0.0))
        # 1 s of work at speed 2 from 1.0 to 1.25, then at speed 1: 0.5 left.
        assert ends(SimulatedRuntime(single_queue(1.0, 1.0, 0.0, load), where, options=EVEN), 1, 5.0) == [
            1.75
        ]

    def test_foreign_processes_never_starve_us_entirely(self) -> None:
        where = Cluster(
            classes=(machine(cores=1),),
            nodes={"a": "node"},
            disturbances={"a": Disturbance(foreign=constant(7.0))},
        )
        snapshot = observed(single_queue(1.0, 0.001, 0.0), where, 10.0, options=EVEN)
        assert snapshot.by_operator.service_s.mean[1] == pytest.approx(0.1)
        assert snapshot.nodes.foreign_cpu[0] == 7.0

    def test_tasks_are_dealt_in_turn_or_as_told(self) -> None:
        assert observed(two_tasks(0.1), cluster(3), 1.0).tasks.node.tolist() == [0, 1, 2]
        told = {"source[0]": "node-2", "work[0]": "node-1", "work[1]": "node-1"}
        assert observed(two_tasks(0.1), cluster(3), 1.0, placement=told).tasks.node.tolist() == [2, 1, 1]
        with pytest.raises(ValueError, match=r"work\[1\]"):
            SimulatedRuntime(
                two_tasks(0.1), cluster(), placement={"source[0]": "node-0", "work[0]": "node-0"}
            )
        with pytest.raises(ValueError, match="do not exist"):
            SimulatedRuntime(two_tasks(0.1), cluster(3), placement={**told, "work[7]": "node-0"})


class TestQueues:
    @pytest.mark.parametrize("fidelity", ["discrete", "fluid"])
    def test_a_full_queue_stops_the_sender(self, fidelity: str) -> None:
        builder = flow("chain")
        source = builder.source("source", replay(load=constant(1000.0)))
        source.map("fast", cost_s=0.0005, cost_cv=0.0).sink("slow", discard(), cost_s=0.01, cost_cv=0.0)
        options = SimulationOptions(queue_records=20, arrival_cv=0.0, step_s=0.01)
        runtime = SimulatedRuntime(builder.build(), cluster(), fidelity=fidelity, options=options)
        runtime.advance(1.0)
        runtime.observe()
        runtime.advance(11.0)
        snapshot = runtime.observe()
        view = snapshot.by_operator
        assert (view.queued[1:] <= 20).all()
        assert view.queued[1:].min() >= 19
        np.testing.assert_allclose(view.processed[:3] / 10.0, 100.0, rtol=0.02)
        assert snapshot.sources.backlog_records[0] == pytest.approx(900.0 * 11, rel=0.02)
        assert view.utilisation[2] == pytest.approx(1.0)
        assert view.utilisation[1] == pytest.approx(0.05, rel=0.05)
        assert snapshot.sinks.accuracy[0] == 1  # nothing is lost, all is late

    def test_a_blocked_task_is_not_ready_and_its_latency_says_so(self) -> None:
        builder = flow("chain")
        source = builder.source("source", replay(load=constant(1000.0)))
        source.map("fast", cost_s=0.0005, cost_cv=0.0).sink("slow", discard(), cost_s=0.01, cost_cv=0.0)
        options = SimulationOptions(queue_records=20, arrival_cv=0.0)
        snapshot = observed(builder.build(), cluster(), 20.0, options=options)
        assert snapshot.by_operator.latency_s.mean[1] == pytest.approx(0.01, rel=0.05)
        assert snapshot.by_operator.service_s.mean[1] == pytest.approx(0.0005)

    def test_read_write_latency_runs_until_the_next_write(self) -> None:
        """Every fifth record writes; reads are 10 ms apart and take 1 ms: 1 + (40 + 30 + 20 + 10 + 0) / 5."""
        builder = flow("window")
        source = builder.source("source", replay(load=constant(100.0)))
        window = source.map("window", cost_s=0.001, cost_cv=0.0, selectivity=0.2, latency="read-write")
        window.sink("out", discard())
        snapshot = observed(builder.build(), cluster(), 10.0, options=EVEN)
        assert snapshot.by_operator.latency_s.mean[1] == pytest.approx(0.021, rel=1e-6)
        assert snapshot.by_operator.processed[2] == pytest.approx(200, abs=1)


class TestStreams:
    def test_link_latency_and_bandwidth(self) -> None:
        """1,000 records/s of 100 bytes over 1 MB/s and 2 ms: 2.1 ms; in memory: nothing."""
        builder = flow("link")
        builder.source("source", replay(load=constant(1000.0))).sink("out", discard())
        dataflow = builder.build()
        where = cluster(2, bandwidth_bytes_per_s=1e6, link=Link(latency_s=0.002))
        snapshot = observed(dataflow, where, 5.0, options=EVEN)
        assert snapshot.streams.latency_s.mean[0] == pytest.approx(0.0021)
        assert snapshot.streams.remote_bytes[0] == snapshot.streams.bytes[0] == pytest.approx(5e5, rel=0.01)
        assert snapshot.nodes.net_out_bytes_per_s.tolist() == pytest.approx([1e5, 0.0], rel=0.01)
        assert snapshot.nodes.net_in_bytes_per_s.tolist() == pytest.approx([0.0, 1e5], rel=0.01)
        together = {"source[0]": "node-0", "out[0]": "node-0"}
        snapshot = observed(dataflow, where, 5.0, options=EVEN, placement=together)
        assert snapshot.streams.latency_s.mean[0] == 0.0
        assert snapshot.streams.remote_bytes[0] == 0.0

    @pytest.mark.parametrize("fidelity", ["discrete", "fluid"])
    def test_a_link_carries_no_more_than_its_bandwidth(self, fidelity: str) -> None:
        builder = flow("link")
        builder.source("source", replay(load=constant(1000.0))).sink("out", discard())
        where = cluster(2, bandwidth_bytes_per_s=5e4)
        options = SimulationOptions(queue_records=50, step_s=0.1)
        snapshot = observed(builder.build(), where, 20.0, fidelity=fidelity, options=options)
        assert snapshot.sinks.records[0] / 20.0 == pytest.approx(500.0, rel=0.01)
        assert snapshot.sources.backlog_records[0] == pytest.approx(10_000, rel=0.03)

    def test_a_batch_leaves_at_its_deadline_or_when_it_is_full(self) -> None:
        """At 1,000/s a deadline of 9.5 ms makes batches of 10 (waits 9.5, 8.5 ... 0.5); full ones have 4 (3 .. 0)."""
        builder = flow("batch")
        builder.source("source", replay(load=constant(1000.0))).sink("out", discard())
        dataflow = builder.build()
        waits = []
        for size in (16_384.0, 400.0):
            options = SimulationOptions(arrival_cv=0.0, deadline_s=0.0095, batch_bytes=size)
            snapshot = observed(dataflow, cluster(), 10.0, options=options)
            assert snapshot.streams.deadline_s[0] == 0.0095
            waits.append(float(snapshot.streams.batch_wait_s.mean[0]))
        assert waits == pytest.approx([0.005, 0.0015], rel=0.01)

    def test_a_new_pace_counts_for_open_batches_too(self) -> None:
        load = Load((0.0, 1.5), (1.0, 0.0))
        builder = flow("batch")
        builder.source("source", replay(load=load)).sink("out", discard())
        options = SimulationOptions(arrival_cv=0.0, deadline_s=float("inf"))
        runtime = SimulatedRuntime(builder.build(), cluster(), options=options)
        trace = trace_of(runtime)
        runtime.advance(2.0)
        act(runtime, Pace(stream="source->out", deadline_s=1.25, reason=WHY))
        runtime.advance(5.0)
        assert rows_of(trace, ENDED, 1)["time_s"].tolist() == [2.25]

    @pytest.mark.parametrize("fidelity", ["discrete", "fluid"])
    def test_batching_raises_throughput(self, fidelity: str) -> None:
        """Messages cost both sides; the more records share one, the more get through (Nephele: 40 / 52 / 63)."""
        builder = flow("batch")
        source = builder.source("source", replay(load=constant(6000.0)), cost_s=1e-5)
        source.sink("out", discard(), cost_s=2e-4, cost_cv=0.0)
        dataflow, got = builder.build(), []
        for deadline_s in (0.0, 0.0005, float("inf")):
            options = SimulationOptions(
                deadline_s=deadline_s, send_s=1e-4, receive_s=3e-4, queue_records=500, step_s=0.01
            )
            got.append(
                observed(dataflow, cluster(2), 10.0, fidelity=fidelity, options=options).sinks.records[0] / 10
            )
        assert got[0] == pytest.approx(2000.0, rel=0.02)
        assert got[0] * 1.3 < got[1] < got[2]
        # A full batch has 164 records, so that each costs 0.2 + 0.3 / 164 ms.
        assert got[2] == pytest.approx(1e3 / (0.2 + 0.3 / 164), rel=0.02)

    @pytest.mark.parametrize("fidelity", ["discrete", "fluid"])
    def test_wirings(self, fidelity: str) -> None:
        def arrivals(wiring: str) -> list[float]:
            builder = flow("wiring")
            key = "k" if wiring == "key" else ()
            source: Output = builder.source("source", replay(load=constant(600.0)), parallelism=3)
            source.map("next", wiring=wiring, parallelism=3, key=key).sink("out", discard())  # type: ignore[arg-type]
            options = SimulationOptions(keys=2000, key_skew=1.0, step_s=0.1)
            snapshot = observed(builder.build(), cluster(), 50.0, fidelity=fidelity, options=options, seed=1)
            return (snapshot.tasks.arrived[snapshot.tasks.operator == 1] / 50.0).tolist()

        assert arrivals("forward") == pytest.approx([200.0] * 3, rel=0.03)
        assert arrivals("spread") == pytest.approx([200.0] * 3, rel=0.03)
        assert arrivals("broadcast") == pytest.approx([600.0] * 3, rel=0.03)
        keyed = arrivals("key")
        assert sum(keyed) == pytest.approx(600.0, rel=0.03)
        assert max(keyed) > 1.2 * min(keyed)

    def test_both_fidelities_give_the_same_keys_to_the_same_tasks(self) -> None:
        builder = flow("keys")
        source = builder.source("source", replay(load=constant(2000.0)))
        source.keyed("count", key="k", state="n long", parallelism=4).sink("out", discard())
        shares = []
        for fidelity in ("discrete", "fluid"):
            options = SimulationOptions(keys=50, key_skew=1.2)
            snapshot = observed(builder.build(), cluster(), 100.0, fidelity=fidelity, options=options, seed=3)
            arrived = snapshot.tasks.arrived[snapshot.tasks.operator == 1]
            shares.append(arrived / arrived.sum())
        np.testing.assert_allclose(shares[0], shares[1], atol=0.01)

    @pytest.mark.parametrize("fidelity", ["discrete", "fluid"])
    def test_shedding_on_streams_multiplies(self, fidelity: str) -> None:
        builder = flow("shed")
        source = builder.source("source", replay(load=constant(2000.0)))
        source.map("a").sink("b", discard())
        runtime = SimulatedRuntime(builder.build(), cluster(), fidelity=fidelity)
        a, b = OperatorId("a"), OperatorId("b")
        act(
            runtime,
            Shed(operator=OperatorId("source"), keep=0.8, reason=WHY),
            Shed(operator=a, target=b, keep=0.5, reason=WHY),
        )
        runtime.advance(50.0)
        snapshot = runtime.observe()
        assert snapshot.sinks.accuracy[0] == pytest.approx(0.4, abs=0.01)
        assert snapshot.sinks.records[0] == pytest.approx(40_000, rel=0.02)
        assert snapshot.tasks.shed.sum() == pytest.approx(60_000, rel=0.02)
        assert snapshot.sources.keep[0] == 0.8
        assert snapshot.streams.keep.tolist() == [1.0, 0.5]


class TestOperators:
    @pytest.mark.parametrize("fidelity", ["discrete", "fluid"])
    def test_an_alternate_is_measured_while_it_is_active(self, fidelity: str) -> None:
        builder = flow("alternates")
        source = builder.source("source", replay(load=constant(1000.0)))
        best, cheap = (
            alternate("best", cost_s=8e-4, selectivity=1.0),
            alternate("cheap", value=0.5, cost_s=2e-4, selectivity=0.5),
        )
        source.map("classify", alternates=[best, cheap]).sink("out", discard())
        runtime = SimulatedRuntime(builder.build(), cluster(), fidelity=fidelity)
        runtime.advance(20.0)
        first = runtime.observe()
        act(runtime, Switch(operator=OperatorId("classify"), current="best", target="cheap", reason=WHY))
        runtime.advance(40.0)
        second = runtime.observe()
        rows = second.alternates.operator == 1
        assert first.alternates.records_in[rows].tolist() == pytest.approx([20_000, 0], rel=0.03)
        assert second.alternates.records_in[rows][1] == pytest.approx(20_000, rel=0.03)
        assert second.alternates.records_in[rows][0] < 100
        assert second.alternates.records_out[rows][1] == pytest.approx(10_000, rel=0.03)
        assert second.alternates.service_s.mean[rows][1] == pytest.approx(2e-4, rel=0.03)
        assert second.operators.alternate.tolist() == [0, 1, 0]
        assert second.by_operator.utilisation[1] == pytest.approx(0.2, rel=0.04)

    def test_selectivity_above_one(self) -> None:
        builder = flow("more")
        source = builder.source("source", replay(load=constant(1000.0)))
        source.map("split", selectivity=2.5).sink("out", discard())
        snapshot = observed(builder.build(), cluster(), 20.0)
        assert snapshot.by_operator.selectivity[1] == pytest.approx(2.5, rel=0.01)

    def test_a_load_for_each_task_of_a_source(self) -> None:
        builder = flow("tasks")
        builder.source("source", replay(load=constant(1.0)), parallelism=3).sink(
            "out", discard(), parallelism=3
        )
        loads = {OperatorId("source"): [constant(100.0), constant(0.0), constant(50.0)]}
        for fidelity in ("discrete", "fluid"):
            snapshot = observed(builder.build(), cluster(), 50.0, loads=loads, fidelity=fidelity)
            assert (snapshot.tasks.arrived[:3] / 50.0).tolist() == pytest.approx([100.0, 0.0, 50.0], rel=0.05)
            assert (snapshot.tasks.arrived[3:] / 50.0).tolist() == pytest.approx([100.0, 0.0, 50.0], rel=0.05)


class TestLoads:
    @pytest.mark.parametrize("fidelity", ["discrete", "fluid"])
    def test_arrivals_follow_the_load(self, fidelity: str) -> None:
        load = staircase([(10.0, 100.0), (5.0, 0.0), (10.0, 400.0)], repeat=True)
        runtime = SimulatedRuntime(
            single_queue(0.0, 0.0, load=load),
            cluster(),
            fidelity=fidelity,
            options=SimulationOptions(arrival_cv=0.0),
        )
        for until_s in (10.0, 15.0, 25.0, 35.0, 60.0):
            runtime.advance(until_s)
            arrived = ledger_of(runtime).arrived[0]
            assert arrived == pytest.approx(load.records_until(until_s), abs=2.0)

    def test_a_source_without_a_load_says_so(self) -> None:
        from penstock.dataflow.connectors import kafka

        builder = flow("kafka")
        builder.source("source", kafka("topic", servers="localhost:1")).sink("out", discard())
        with pytest.raises(ValueError, match="source 'source' has no load"):
            SimulatedRuntime(builder.build(), cluster())

    def test_poisson_arrivals(self) -> None:
        snapshot = observed(single_queue(500.0, 0.0), cluster(), 200.0)
        assert snapshot.by_operator.interarrival_s.mean[0] == pytest.approx(1 / 500, rel=0.02)
        assert snapshot.by_operator.interarrival_s.cv2[0] == pytest.approx(1.0, rel=0.03)


class TestLatency:
    def test_the_mean_of_a_sequence_agrees_with_the_records_own_clocks(self) -> None:
        """Nephele's sum along the sequence and the mean over single records are the same where all is stationary."""
        builder = flow("sequence")
        source = builder.source("source", replay(load=constant(400.0)))
        a = source.map("a", cost_s=0.002, parallelism=2, wiring="spread")
        a.map("b", cost_s=0.001).sink("out", discard())
        for i, sequence in enumerate(("a -> b", "-> a -> b", "-> a -> b ->", "b", "a ->")):
            builder.constrain(sequence, mean_ms=1000, window_s=500, name=f"mean{i}")
            builder.constrain(sequence, p50_ms=1000, window_s=500, name=f"half{i}")
        where = cluster(2, link=Link(latency_s=0.003))
        runtime = SimulatedRuntime(builder.build(), where, seed=2)
        runtime.advance(100.0)
        bins = runtime._engine._t["constraint_bins"].copy()  # type: ignore[attr-defined]
        snapshot = runtime.observe()
        for i in range(5):
            records = Sketch(bins[2 * i])
            assert records.mean == pytest.approx(float(snapshot.constraints.latency_s[2 * i]), rel=0.015)
            assert records.quantile(0.5) == snapshot.constraints.latency_s[2 * i + 1]

    def test_a_window_longer_than_the_interval(self) -> None:
        """A burst of latency stays in the mean for the whole window and then leaves it."""
        builder = flow("window")
        load = staircase([(5.0, 100.0), (1.0, 2000.0), (100.0, 100.0)])
        builder.source("source", replay(load=load)).sink("work", discard(), cost_s=0.001)
        builder.constrain("-> work", mean_ms=50, window_s=4.0)
        runtime = SimulatedRuntime(builder.build(), cluster())
        held = []
        for second in range(1, 15):
            runtime.advance(float(second))
            held.append(bool(runtime.observe().constraints.held[0]))
        assert held[:5] == [True] * 5
        assert not any(held[5:9])
        assert held[-2:] == [True, True]

    def test_trace_rows_tell_the_life_of_a_record(self) -> None:
        runtime = SimulatedRuntime(single_queue(1.0, 0.25, 0.0), cluster(), options=EVEN)
        trace = trace_of(runtime)
        runtime.advance(1.5)
        rows = np.concatenate(trace)
        assert rows[["time_s", "kind", "operator", "number"]].tolist() == [
            (1.0, 0, 0, 0),
            (1.0, STARTED, 0, 0),
            (1.0, ENDED, 0, 0),
            (1.0, STARTED, 1, 0),
            (1.25, ENDED, 1, 0),
        ]
