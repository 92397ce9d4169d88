"""Neptune's trials: thousands of stateful computations on fifteen nodes, thorax and ECG one to one.

The fluid fidelity at the paper's size (`neptune.txt`, section 5). Computations are tasks of their own, each with a
sender of its own on a machine that is never short, so a crowded node holds back its own computations only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.arrays import Floats, Ints
from penstock.control import Cycle, Damping, Loop, PolicyRun, Settings
from penstock.dataflow import Alternate, Dataflow, Load, Operator, OperatorId, Parallelism, Stream, constant
from penstock.dataflow.graph import State
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.policies.policy import AnyPolicy, Proposal
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime, SimulationOptions
from penstock.simulator.cluster import Disturbance, Link
from penstock.telemetry import MachineClass, Sketch, Snapshot
from penstock_papers.neptune.method import Neptune, NeptuneOptions

NODES, PER_NODE, CORES = 15, 150, 12
"""HP DL60 with a Xeon E5-2620: six cores, two threads each; 1 Gbit/s."""
BANDWIDTH_BPS = 125e6
ACTIVE_SHARE = 0.2
HOT_NODES = 5
"""Of the dormant computations, those on so many nodes wake up."""
MESSAGE_BYTES = 64.0
THORAX_PATIENTS = 6
"""Patients whose readings a thorax message brings; an ECG message has one sample of one patient."""
SAMPLES_PER_READING = 20.0
"""ECG samples for each thorax reading: 360 Hz against 18 Hz."""
EVEN_USE = 0.98
"""Use of the bandwidth when all 1,050 active computations are spread evenly: the jobs are bandwidth bound."""
EVEN_LOAD = 0.29
"""Mean CPU load then (table 3 of the paper, after 25 minutes)."""
THORAX_WORK = 1 / THORAX_PATIENTS
"""CPU time of a thorax computation over that of an ECG computation, per second; per message it is 20/6 as much, «more
CPU intensive». So both have the same product of CPU and message size, by which the paper's rings measure them."""
STATE_BYTES = {"thorax": 6 * 10 * 18 * 8.0, "ecg": 4_000.0}
"""Ten seconds of readings of six patients; filters and thresholds of one detector."""
MOVE_S = 0.05
"""Fixed part of a pause: an empty instance, control messages, the queue played."""
PAUSE_S = MOVE_S + sum(STATE_BYTES.values()) / len(STATE_BYTES) / BANDWIDTH_BPS
"""The whole pause, on average over both kinds."""
INTERVAL_S = 5.0
RATE_SD = 0.2
"""Relative standard deviation of the rates of computations of a kind."""
HOLDING_RECORDS = 2_000
"""Records that wait before a computation when its sender holds back."""
WAKE_S = 60.0
KINDS = ("thorax", "ecg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many nodes and computations; smaller ones for tests."""

    nodes: int = NODES
    per_node: int = PER_NODE
    hot: int = HOT_NODES

    @property
    def active(self) -> int:
        """Computations a node runs at the start."""
        return round(self.per_node * ACTIVE_SHARE)

    @property
    def even(self) -> float:
        """Active computations per node once spread evenly after the wake-up."""
        return self.active + (self.per_node - self.active) * self.hot / self.nodes

    @property
    def ecg_rps(self) -> float:
        """Messages per second of an ECG computation, such that the even placement uses `EVEN_USE` of a cable."""
        pair = MESSAGE_BYTES * (1 + THORAX_PATIENTS / SAMPLES_PER_READING)
        return EVEN_USE * BANDWIDTH_BPS / (self.even / 2 * pair)


def rates_rps(size: Size) -> dict[str, float]:
    """Messages per second of a computation of each kind."""
    return {"thorax": size.ecg_rps / SAMPLES_PER_READING, "ecg": size.ecg_rps}


def flow_of(size: Size) -> Dataflow:
    """Two lines, source -> computation -> sink, with a task for every computation."""
    rates, each = rates_rps(size), size.nodes * size.per_node // 2
    # Core-seconds of a whole computation per second: together EVEN_LOAD of the cores.
    unit = EVEN_LOAD * CORES / (size.even / 2 * (1 + THORAX_WORK))
    work = {"thorax": THORAX_WORK * unit / rates["thorax"], "ecg": unit / rates["ecg"]}
    sizes = {"thorax": MESSAGE_BYTES * THORAX_PATIENTS, "ecg": MESSAGE_BYTES}
    fixed = Parallelism(minimum=each, maximum=each)
    operators: list[Operator] = []
    streams: list[Stream] = []
    for kind in KINDS:
        source, sink = OperatorId(f"{kind}_readings"), OperatorId(f"{kind}_results")
        operators += [
            Operator(id=source, kind="source", parallelism=fixed, record_bytes=sizes[kind]),
            Operator(
                id=OperatorId(kind),
                kind="keyed",
                key=("patient",),
                parallelism=fixed,
                alternates=(Alternate(cost_s=work[kind], cost_cv=0.5),),
                state=State(schema="state binary", bytes_per_task=STATE_BYTES[kind]),
                record_bytes=16.0,
            ),
            Operator(id=sink, kind="sink", parallelism=fixed),
        ]
        streams += [
            Stream(source=source, target=OperatorId(kind)),
            Stream(source=OperatorId(kind), target=sink),
        ]
    return Dataflow(name="patients", operators=tuple(operators), streams=tuple(streams))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One trial: which computations are active when and at which rate, where they are, and what disturbs nodes."""

    size: Size
    awake: NDArray[np.bool_]
    """[node, computation on it]: active from the start."""
    waking: NDArray[np.bool_]
    """[node, computation on it]: active from `WAKE_S` on."""
    shape: Load | None = None
    """Factor on all rates over time since activation."""
    phases: int = 1
    """Groups of computations that follow `shape` one after the other, evenly shifted."""
    seed: int = 0
    """Draws how far each computation's rate is off that of its kind, and each one's phase."""
    holding: bool = False
    """Whether senders hold back what a crowded computation does not take, as the paper's do; else they send on."""
    foreign: float = 0.0
    """Share of CPU and bandwidth that others take on `size.hot` nodes, from `WAKE_S` on."""
    seconds: float = 1_800.0


def uneven(size: Size, **settings: Any) -> Scene:
    """The paper's imbalance: a fifth is active everywhere, then all on a third of the nodes (sections 5.3, 5.4)."""
    on = np.zeros((size.nodes, size.per_node), np.bool_)
    on[:, : size.active] = True
    rising = np.zeros_like(on)
    rising[: size.hot, size.active :] = True
    return Scene(size=size, awake=on, waking=rising, **settings)


def even(size: Size, **settings: Any) -> Scene:
    """The near-ideal placement: the same number of active computations on all nodes."""
    total = size.active * size.nodes + (size.per_node - size.active) * size.hot
    on = np.zeros((size.nodes, size.per_node), np.bool_)
    rising = np.zeros_like(on)
    per, rest = divmod(total, size.nodes)
    for n in range(size.nodes):
        count = per + (n < rest)
        on[n, : size.active] = True
        rising[n, size.active : count] = True
    return Scene(size=size, awake=on, waking=rising, **settings)


def disturbed(size: Size, *, active: int, foreign: float, **settings: Any) -> Scene:
    """The same active computations on every node, and others' load on a third of the nodes (section 5.5)."""
    on = np.zeros((size.nodes, size.per_node), np.bool_)
    on[:, :active] = True
    return Scene(size=size, awake=on, waking=np.zeros_like(on), foreign=foreign, **settings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """What happened: a row per cycle."""

    time_s: Floats
    throughput_rps: Floats
    latency_s: Floats
    """Mean at the sinks."""
    latency_sd_s: Floats
    sent_latency_s: Floats
    """Mean from leaving the source, which is all that a source that holds back knows."""
    p99_s: Floats
    cpu: Floats
    """[cycle, node]: share of the cores in use."""
    network: Floats
    """[cycle, node]: share of the bandwidth."""
    moves: Floats
    threshold: Floats
    policy_s: Floats
    """CPU seconds of the policy."""
    faults: int

    def after(self, share: float) -> NDArray[np.bool_]:
        """Cycles in the last part of the run."""
        return np.asarray(self.time_s > (1 - share) * self.time_s[-1])

    @property
    def total_moves(self) -> int:
        """Moves in all."""
        return int(self.moves.sum())

    def even_after_s(self, spread: float) -> float:
        """From the wake-up until the spread of CPU load is below `spread` for good; infinite if never."""
        wide = np.flatnonzero((self.cpu.std(axis=1) >= spread) & (self.time_s > WAKE_S))
        if not len(wide):
            return 0.0
        last = int(wide[-1])
        return float(self.time_s[last + 1] - WAKE_S) if last + 1 < len(self.time_s) else float("inf")


class _Watched:
    """A policy whose thresholds and CPU time are noted."""

    def __init__(self, policy: AnyPolicy) -> None:
        self._policy, self.name = policy, policy.name
        self.threshold: list[float] = []
        self.spent_s: list[float] = []

    def start(self, options: Any) -> Any:
        return self._policy.start(options)

    def decide(self, snapshot: Snapshot, memory: Any, options: Any) -> tuple[Proposal, Any]:
        began = time.process_time()
        proposal, after = self._policy.decide(snapshot, memory, options)
        self.spent_s.append(time.process_time() - began)
        self.threshold.append(float(after.threshold))
        return proposal, after


@dataclass(slots=True)
class _Notes:
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, cycle: Cycle, snapshot: Snapshot | None) -> None:
        if snapshot is None:
            return
        workers = np.array([m == "worker" for m in snapshot.nodes.machines])
        latency = snapshot.sinks.latency_s.grouped(np.zeros(len(snapshot.sinks), np.int64), 1)
        sketch = Sketch.empty()
        for each in snapshot.sinks.sketch:
            sketch = sketch.merge(each)
        p99, nodes = sketch.quantile(0.99), snapshot.nodes
        sent = snapshot.streams.latency_s.grouped(np.zeros(len(snapshot.streams), np.int64), 1)
        self.rows.append(
            {
                "time_s": snapshot.time_s,
                "throughput_rps": snapshot.sinks.records.sum() / snapshot.interval_s,
                "latency_s": latency.mean[0],
                "latency_sd_s": np.sqrt(latency.variance[0]),
                "sent_latency_s": sent.mean[0],
                "p99_s": np.nan if p99 is None else p99,
                "cpu": (nodes.own_cpu / nodes.cores)[workers],
                "network": (nodes.net_in_bytes_per_s / BANDWIDTH_BPS)[workers],
                "moves": sum(p.action.kind == "move" for p in cycle.plan.actions),
            }
        )


def run(
    scene: Scene, policy: AnyPolicy | None = None, options: Any = None, *, interval_s: float = INTERVAL_S
) -> Course:
    """The course of a trial; without a policy, of doing nothing."""
    runtime = simulation(scene)
    notes, watched = _Notes(), None if policy is None else _Watched(policy)
    loop = Loop(
        runtime,
        [] if watched is None else [PolicyRun(policy=watched, options=options)],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=interval_s, damping=Damping()),
        subscribers=[notes],
    )
    loop.run(for_s=scene.seconds)
    columns = {name: np.array([row[name] for row in notes.rows]) for name in notes.rows[0]}
    nothing = np.zeros(len(notes.rows))
    return Course(
        **columns,
        threshold=nothing if watched is None else np.array(watched.threshold),
        policy_s=nothing if watched is None else np.array(watched.spent_s),
        faults=sum(loop.faults.values()),
    )


def ours(**changes: Any) -> tuple[AnyPolicy, Any]:
    """Our policy; foreign load of the simulator yields to nobody, so no fair share is counted on."""
    return Interference(), InterferenceOptions(machines="worker", fair_share=0.02, move_s=MOVE_S, **changes)


def papers(**changes: Any) -> tuple[AnyPolicy, Any]:
    """The paper's method."""
    return Neptune(), NeptuneOptions(machines="worker", **changes)


def simulation(scene: Scene) -> SimulatedRuntime:
    """The runtime at time 0."""
    size = scene.size
    worker = MachineClass(
        name="worker",
        cores=CORES,
        memory_bytes=16e9,
        bandwidth_bytes_per_s=BANDWIDTH_BPS,
        available=size.nodes,
    )
    ingest = MachineClass(name="ingest", cores=64, bandwidth_bytes_per_s=1e12)
    names = {f"worker-{i}": "worker" for i in range(size.nodes)} | {"ingest-0": "ingest"}
    disturbances = {}
    if scene.foreign:
        from_then = (0.0, WAKE_S)
        for n in range(size.hot):
            disturbances[f"worker-{n}"] = Disturbance(
                foreign=Load(from_then, (0.0, scene.foreign * CORES)),
                bandwidth=Load(from_then, (1.0, 1.0 - scene.foreign)),
            )
    cluster = Cluster(
        classes=(worker, ingest), nodes=names, disturbances=disturbances, link=Link(latency_s=0.0002)
    )
    rank = _ranks(scene)
    random = np.random.default_rng([scene.seed, size.nodes])
    spread = random.lognormal(-(RATE_SD**2) / 2, RATE_SD, size.nodes * size.per_node)
    loads: dict[OperatorId, list[Load]] = {OperatorId(f"{kind}_readings"): [] for kind in KINDS}
    placement: dict[str, str] = {}
    for n in range(size.nodes):
        for i in range(size.per_node):
            kind = KINDS[i % 2]
            mine = loads[OperatorId(f"{kind}_readings")]
            number = len(mine)
            placement[f"{kind}[{number}]"] = f"worker-{n}"
            placement[f"{kind}_readings[{number}]"] = placement[f"{kind}_results[{number}]"] = "ingest-0"
            mine.append(
                _load(scene, rates_rps(size)[kind] * float(spread[rank[n, i]]), n, i, int(rank[n, i]))
            )
    return SimulatedRuntime(
        flow_of(size),
        cluster,
        fidelity="fluid",
        seed=scene.seed,
        loads=loads,
        placement=placement,
        options=SimulationOptions(
            traffic=False, move_s=MOVE_S, queue_records=HOLDING_RECORDS if scene.holding else 2_000_000
        ),
    )


def _ranks(scene: Scene) -> Ints:
    """[node, computation on it]: a number each, the same for the same active computation wherever it is placed.

    Those active from the start come first, then those that wake up, then the others; kinds alternate.
    """
    kind = np.broadcast_to(np.arange(scene.size.per_node) % 2, scene.awake.shape)
    turn = np.where(scene.awake, 0, np.where(scene.waking, 1, 2))
    order = np.lexsort((np.arange(kind.size), turn.ravel(), kind.ravel()))
    ranks = np.empty(kind.size, np.int64)
    for each in (0, 1):
        members = order[kind.ravel()[order] == each]
        ranks[members] = 2 * np.arange(len(members)) + each
    return ranks.reshape(kind.shape)


def _load(scene: Scene, rate_rps: float, node: int, number: int, rank: int) -> Load:
    """What one computation is sent."""
    if not (scene.awake[node, number] or scene.waking[node, number]):
        return constant(0.0)
    from_s = WAKE_S if scene.waking[node, number] else 0.0
    if scene.shape is None:
        return constant(rate_rps) if from_s == 0 else Load((0.0, from_s), (0.0, rate_rps))
    period = float(scene.shape.period_s or scene.shape.duration_s)
    phase = period * ((rank // 2) % scene.phases) / scene.phases
    times, rates = [0.0], [0.0] if from_s else []
    if from_s == 0:
        times = []
    step = float(scene.shape.times_s[1] - scene.shape.times_s[0])
    for t in np.arange(from_s, scene.seconds, step):
        at = int(((t - from_s + phase) % period) // step) % len(scene.shape.rates_rps)
        times.append(float(t))
        rates.append(rate_rps * scene.shape.rates_rps[at])
    return Load(tuple(times), tuple(rates))
