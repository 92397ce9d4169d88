"""Snapshots of applications on the same nodes, as one."""

from dataclasses import replace

import numpy as np

from penstock.dataflow import Dataflow, applications, together
from penstock.telemetry import Batches, Queries, Snapshot, Traffic, joined
from penstock.testing import a_dataflow, a_snapshot


def seen(flow: Dataflow, *, seed: int) -> Snapshot:
    """A snapshot with figures of its own in every task, stream, source and sink."""
    chance = np.random.default_rng(seed)
    snapshot = a_snapshot(flow, demand_rps=100.0 * seed)
    tasks, streams = snapshot.tasks, snapshot.streams
    return replace(
        snapshot,
        tasks=tasks.with_columns(cpu=chance.random(len(tasks)), arrived=chance.random(len(tasks))),
        streams=streams.with_columns(records=chance.random(len(streams))),
        traffic=Traffic.blank(1, from_task=[0], to_task=[len(tasks) - 1], bytes_per_s=[float(seed)]),
    )


def test_every_row_says_the_same_as_before_under_the_same_name():
    flows = [a_dataflow("in", "work", "out", name="one"), a_dataflow("in", "more", "work", "out", name="two")]
    whole = together(*flows)
    parts = [seen(part, seed=i + 1) for i, part in enumerate(applications(whole))]
    nodes = parts[-1].nodes
    both = joined(whole, parts, nodes)

    def by_task(snapshot: Snapshot) -> dict[str, tuple[float, ...]]:
        t = snapshot.tasks
        return {
            snapshot.task_id(i): (t.cpu[i], t.arrived[i], t.service_s.mean[i], snapshot.nodes.ids[t.node[i]])
            for i in range(len(t))
        }

    assert by_task(both) == {**by_task(parts[0]), **by_task(parts[1])}
    for part in parts:
        for i, stream in enumerate(part.dataflow.streams):
            row = [s.id for s in whole.streams].index(stream.id)
            assert both.streams.records[row] == part.streams.records[i]
        for i, row in enumerate(part.sources.operator):
            at = list(both.sources.operator).index(whole.row[part.dataflow.operators[row].id])
            assert both.sources.produced_rps[at] == part.sources.produced_rps[i]
    assert [whole.operators[o].id for o in both.sinks.operator] == [o.id for o in whole.sinks]
    assert both.sinks.sketch == parts[0].sinks.sketch + parts[1].sinks.sketch
    traffic = zip(both.traffic.from_task, both.traffic.to_task, both.traffic.bytes_per_s, strict=True)
    assert [(both.task_id(a), both.task_id(b), size) for a, b, size in traffic] == [
        (p.task_id(0), p.task_id(len(p.tasks) - 1), p.traffic.bytes_per_s[0]) for p in parts
    ]
    assert np.isclose(both.node_cpu.sum(), sum(p.tasks.cpu.sum() for p in parts))


def test_queries_keep_their_batches_and_their_operators():
    flows = [a_dataflow("in", "work", "out", name="one"), a_dataflow("in", "more", "work", "out", name="two")]
    parts = []
    for number, flow in enumerate(applications(together(*flows))):
        some = np.arange(number + 1, dtype=np.float64)
        batches = Batches(
            id=np.arange(number + 1),
            records=some,
            duration_s=some,
            fixed_s=some,
            busy_s=some,
            interval_s=1.0 + number,
        )
        queries = Queries.blank(1, names=(flow.name,), last_operator=[len(flow.operators) - 1], known=True)
        parts.append(replace(a_snapshot(flow), batches=batches, queries=queries))
    both = joined(together(*flows), parts, parts[-1].nodes)
    assert both.queries.names == ("one", "two")
    assert list(both.queries.of_operators(np.arange(7))) == [0, 0, 0, 1, 1, 1, 1]
    assert list(both.constraint_queries) == [0, 1]
    assert both.batches is not None
    assert list(both.batches.query) == [0, 1, 1]
    assert list(both.batches.of_query(1).records) == [0.0, 1.0]
