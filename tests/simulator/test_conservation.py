"""In = out + shed + queued, at every instant, with moves, scaling, shedding and switching going on."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.dataflow import Dataflow, OperatorId, State, alternate, bursts, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock.policies.actions import Acquire, Action, Move, Pace, Release, Scale, Shed, Switch
from penstock.simulator import Cluster, Link, SimulatedRuntime, SimulationOptions
from penstock.simulator.discrete_kernel import CREATED, ENDED, SHED
from penstock.telemetry import MachineClass
from tests.simulator.ledger import ledger_of
from tests.simulator.scenes import WHY, act, assert_even, rows_of, trace_of

MOST = 4
KEYS = 3
FIDELITIES = ("discrete", "fluid")


def diamond() -> Dataflow:
    """Every wiring, a keyed state, alternates that multiply or drop records, two sinks, and bursts."""
    load = bursts(100.0, 600.0, mean_quiet_s=1.0, mean_burst_s=0.5, duration_s=30.0, seed=4)
    d = flow("diamond")
    source = d.source("source", replay(load=load), parallelism=(1, MOST, 2))
    parse = source.map(
        "parse",
        wiring="spread",
        parallelism=(1, MOST, 2),
        alternates=[
            alternate("thorough", cost_s=0.004, cost_cv=2.0, selectivity=1.5),
            alternate("quick", value=0.5, cost_s=0.001, cost_cv=0.0, selectivity=0.7),
        ],
    )
    left = parse.keyed(
        "left",
        key="k",
        state=State(schema="n long", bytes_per_task=1e6),
        cost_s=0.003,
        cost_cv=0.5,
        parallelism=(1, MOST, 2),
        latency="read-write",
        selectivity=0.3,
    )
    right = parse.map("right", wiring="broadcast", cost_s=0.001, parallelism=(1, MOST, 1))
    d.sink(
        "both",
        discard(),
        inputs=[left.wired("spread"), right.wired("spread")],
        parallelism=(1, MOST, 2),
        cost_s=0.001,
    )
    left.sink("one", discard())
    d.constrain("-> parse -> left", mean_ms=100)
    return d.build()


FLOW = diamond()
OPERATORS = [o.id for o in FLOW.operators if o.parallelism.maximum > 1]
STREAMS = [(s.source, s.target) for s in FLOW.streams]

operators = st.sampled_from(OPERATORS)
nodes = st.sampled_from([f"node-{i}" for i in range(5)])
actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        lambda o, t: Scale(operator=o, current=0, target=t, reason=WHY), operators, st.integers(1, MOST)
    ),
    st.builds(
        lambda o, i, n: Move(operator=o, index=i, source="", target=n, reason=WHY),
        operators,
        st.integers(0, MOST - 1),
        nodes,
    ),
    st.builds(lambda k: Shed(operator=OperatorId("source"), keep=k, reason=WHY), st.floats(0, 1)),
    st.builds(
        lambda s, k: Shed(operator=s[0], target=s[1], keep=k, reason=WHY),
        st.sampled_from(STREAMS),
        st.floats(0, 1),
    ),
    st.builds(
        lambda s, d: Pace(stream=f"{s[0]}->{s[1]}", deadline_s=d, reason=WHY),
        st.sampled_from(STREAMS),
        st.sampled_from([0.0, 0.001, 0.05, float("inf")]),
    ),
    st.builds(
        lambda t: Switch(operator=OperatorId("parse"), current="", target=t, reason=WHY),
        st.sampled_from(["thorough", "quick"]),
    ),
    st.just(Acquire(machine="node", reason=WHY)),
    st.builds(lambda n: Release(node=n, reason=WHY), nodes),
)
plans = st.lists(st.tuples(st.floats(0.02, 1.0), st.lists(actions, max_size=4)), min_size=1, max_size=12)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(
    plans=plans,
    seed=st.integers(0, 2**32),
    queue=st.sampled_from([1, 3, 50, 10_000]),
    deadline=st.sampled_from([0.0, 0.01, float("inf")]),
    startup=st.sampled_from([0.0, 0.3]),
    spread=st.sampled_from(["round-robin", "random"]),
)
def test_nothing_is_lost_or_doubled(fidelity, plans, seed, queue, deadline, startup, spread) -> None:
    cluster = Cluster(
        classes=(MachineClass(name="node", cores=2, startup_s=0.2, bandwidth_bytes_per_s=1e6),),
        nodes={"node-0": "node", "node-1": "node"},
        link=Link(latency_s=0.002),
        max_nodes=5,
    )
    options = SimulationOptions(
        queue_records=queue,
        deadline_s=deadline,
        batch_bytes=1000,
        task_startup_s=startup,
        spread=spread,
        send_s=1e-4,
        receive_s=1e-4,
        keys=20,
        key_skew=1.0,
        step_s=0.01,
    )
    runtime = SimulatedRuntime(FLOW, cluster, seed=seed, fidelity=fidelity, options=options)
    now = 0.0
    for pause, wanted in plans:
        now += pause
        runtime.advance(now)
        rel = 0.0 if fidelity == "discrete" else 1e-9
        assert_even(ledger_of(runtime), FLOW, rel=rel)
        snapshot = runtime.observe()
        assert (snapshot.tasks.queued >= 0).all()
        assert (snapshot.nodes.own_cpu <= snapshot.nodes.cores + 1e-9).all()
        assert (snapshot.operators.parallelism >= 1).all()
        assert len(act(runtime, *wanted)) >= len(wanted)
        assert_even(ledger_of(runtime), FLOW, rel=rel)
    runtime.advance(now + 1.0)
    assert_even(ledger_of(runtime), FLOW, rel=0.0 if fidelity == "discrete" else 1e-9)


def drained(runtime: SimulatedRuntime) -> None:
    """Let no more records in, and wait until all have left."""
    act(runtime, Shed(operator=OperatorId("source"), keep=0.0, reason=WHY))
    runtime.advance(runtime.now_s + 20.0)


def quick() -> Dataflow:
    """source -> work (3 tasks) -> count (keyed) -> out, with little to do for each of many records."""
    p = flow("quick")
    work = p.source("source", replay(load=constant(1500.0))).map(
        "work", cost_s=5e-4, parallelism=3, wiring="spread"
    )
    state = State(schema="n long", bytes_per_task=1e5)
    work.keyed("count", key="k", state=state, cost_s=2e-4, parallelism=(1, 6, 2)).sink("out", discard())
    return p.build()


@pytest.mark.parametrize("latency_s", [0.0, 0.05])
@pytest.mark.parametrize("queue", [20, 100_000])
def test_moves_and_rescaling_keep_every_record_once_and_in_the_order_of_its_key(
    latency_s: float, queue: int
) -> None:
    """Also records on their way over a slow link are not overtaken by those sent when the task has come nearer."""
    runtime = SimulatedRuntime(
        quick(),
        Cluster.of(MachineClass(name="node", cores=4), 3, link=Link(latency_s=latency_s)),
        seed=5,
        options=SimulationOptions(keys=KEYS, queue_records=queue),
    )
    trace = trace_of(runtime)
    count = OperatorId("count")
    steps: list[Action] = [
        Move(operator=count, index=0, source="", target="node-1", reason=WHY),
        Scale(operator=count, current=2, target=5, reason=WHY),
        *(Move(operator=count, index=i, source="", target="node-1", reason=WHY) for i in range(5)),
        Scale(operator=count, current=5, target=1, reason=WHY),
        Move(operator=count, index=0, source="", target="node-2", reason=WHY),
        Scale(operator=count, current=1, target=6, reason=WHY),
        *(Move(operator=count, index=i, source="", target="node-0", reason=WHY) for i in range(6)),
        Scale(operator=count, current=6, target=3, reason=WHY),
    ]
    for i, step in enumerate(steps):
        runtime.advance(0.3 * (1 + i))
        (outcome, *_) = act(runtime, step)
        assert outcome.status in ("applied", "deferred", "held")
    runtime.advance(8.0)
    drained(runtime)
    created = rows_of(trace, CREATED, 0)["number"]
    dropped = rows_of(trace, SHED, 0)["number"]
    kept = np.setdiff1d(created, dropped)
    for operator in range(4):
        np.testing.assert_array_equal(np.sort(rows_of(trace, ENDED, operator)["number"]), kept)
    # Between a task of `work` and the owner of a key there is one path: the records of the key keep their order.
    key = _keys(runtime, created)
    worker = dict(rows_of(trace, ENDED, 1)[["number", "index"]].tolist())
    paths: list[dict[tuple[int, int], list[int]]] = []
    for operator in (1, 2):
        paths.append(defaultdict(list))
        for number in rows_of(trace, ENDED, operator)["number"].tolist():
            paths[-1][worker[number], key[number]].append(number)
    assert len(paths[0]) == 3 * KEYS
    assert paths[0] == paths[1]


def _keys(runtime: SimulatedRuntime, numbers: np.ndarray) -> dict[int, int]:
    """The key of each record, drawn as the kernel draws it."""
    from penstock.simulator.draws import GOLDEN, bucket, mix, uniform

    tables = runtime._engine._t  # type: ignore[attr-defined]
    keys, salt = {}, np.uint64(tables["feeds"][0]["salt"])
    for number in numbers.tolist():
        with np.errstate(over="ignore"):
            h = np.uint64(mix(salt ^ np.uint64(mix(np.uint64(number) + GOLDEN))))
            bits = np.uint64(mix(h + GOLDEN))
        k = int(bucket(bits, KEYS))
        if uniform(np.uint64(mix(bits))) >= tables["key_share"][k]:
            k = int(tables["key_alias"][k])
        keys[number] = k
    return keys
