"""A cluster in a few lines: fluid streams, processors that are shared, and backlogs at the sources.

It knows what the policy has to find out: the cost of a record and the rate at which records come into being.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.dataflow import Dataflow, Operator, OperatorId, Parallelism, Stream
from penstock.policies.actions import Move, Shed
from penstock.policies.policy import Proposal
from penstock.policies.shedding import Graph, Shedding, SheddingMemory, SheddingOptions
from penstock.policies.shedding.requirements import at_sinks
from penstock.telemetry import (
    Alternates,
    Constraints,
    Nodes,
    Operators,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)


def operator(
    id_: str, *, tasks: int = 1, priority: int = 0, min_accuracy: float = 0.0, inputs: bool, outputs: bool
) -> Operator:
    return Operator(
        id=OperatorId(id_),
        kind="map" if inputs and outputs else "source" if outputs else "sink",
        parallelism=Parallelism(minimum=tasks, maximum=tasks),
        priority=priority,
        min_accuracy=min_accuracy,
    )


@dataclass
class Sink:
    priority: int = 0
    min_accuracy: float = 0.0


def application(
    edges: list[tuple[str, str]],
    sinks: Mapping[str, Sink],
    tasks: Mapping[str, int] | None = None,
) -> Dataflow:
    """A dataflow from its edges; what has no input is a source, what has no output a sink."""
    ids = list(dict.fromkeys(i for edge in edges for i in edge))
    targets, origins = {b for _, b in edges}, {a for a, _ in edges}
    return Dataflow(
        name="cluster",
        operators=tuple(
            operator(
                i,
                tasks=(tasks or {}).get(i, 1),
                priority=sinks[i].priority if i in sinks else 0,
                min_accuracy=sinks[i].min_accuracy if i in sinks else 0.0,
                inputs=i in targets,
                outputs=i in origins,
            )
            for i in ids
        ),
        streams=tuple(Stream(source=OperatorId(a), target=OperatorId(b)) for a, b in edges),
    )


@dataclass
class Cluster:
    dataflow: Dataflow
    cost_s: Mapping[str, float]
    """Seconds of a core per record, by operator."""
    rate_rps: Callable[[float], Mapping[str, float]]
    """Production of each source at a time."""
    cores: list[float]
    place: Mapping[str, int] = field(default_factory=dict)
    """Node of each task; 0 where none is given."""
    foreign: list[float] | None = None
    speed: list[float] | None = None
    interval_s: float = 5.0
    pause_s: float = 0.0
    """How long a moved task does nothing."""
    noise: float = 0.0
    """Relative error of CPU measurements."""
    seed: int = 0

    def __post_init__(self) -> None:
        flow = self.dataflow
        self.graph = Graph.of(flow)
        self.operator = np.repeat(
            np.arange(len(flow.operators)), [o.parallelism.start for o in flow.operators]
        )
        self.index = np.concatenate([np.arange(o.parallelism.start) for o in flow.operators])
        self.node = np.array(
            [
                self.place.get(f"{flow.operators[o].id}[{i}]", self.place.get(flow.operators[o].id, 0))
                for o, i in zip(self.operator, self.index, strict=True)
            ]
        )
        self.sources = np.array([flow.row[o.id] for o in flow.sources])
        self.sinks = np.array([flow.row[o.id] for o in flow.sinks])
        self.source_keep = np.ones(len(flow.operators))
        self.stream_keep = np.ones(len(flow.streams))
        self.backlog = np.zeros(len(flow.operators))
        self.moving_until = np.full(len(self.operator), -1.0)
        self.time_s = 0.0
        self.random = np.random.default_rng(self.seed)

    # What is true

    def capacity(self) -> np.ndarray:
        speed = np.array(self.speed or [1.0] * len(self.cores))
        return (np.array(self.cores) - np.array(self.foreign or [0.0] * len(self.cores))) * speed

    def core(self) -> np.ndarray:
        return np.array(self.speed or [1.0] * len(self.cores))[self.node]

    def arrivals(self, read_rps: np.ndarray, source_keep: np.ndarray, stream_keep: np.ndarray) -> np.ndarray:
        """Records per second at each operator, given what sources read."""
        flow = read_rps * source_keep
        for row in self.graph.downward:
            arriving = np.flatnonzero(self.graph.target == row)
            flow[row] += (flow[self.graph.source[arriving]] * stream_keep[arriving]).sum()
        return flow

    def produced(self) -> np.ndarray:
        rates = np.zeros(len(self.dataflow.operators))
        for id_, rate in self.rate_rps(self.time_s).items():
            rates[self.dataflow.row[OperatorId(id_)]] = rate
        return rates

    def full_cores(self) -> np.ndarray:
        """Cores that each task needs at 100 %, now."""
        ones = np.ones(len(self.graph))
        return self._cores(self.arrivals(self.produced(), ones, np.ones(len(self.stream_keep))))

    def cores_at(self, accuracy: np.ndarray) -> np.ndarray:
        """Cores that each task needs with the sinks at these accuracies."""
        desired = self.graph.highest_below(at_sinks(self.graph, self.snapshot_sinks(), accuracy))
        return self.full_cores() * desired[self.operator]

    def _cores(self, arrivals_rps: np.ndarray) -> np.ndarray:
        cost = np.array([self.cost_s[o.id] for o in self.dataflow.operators])
        tasks = np.bincount(self.operator, minlength=len(cost))
        return (arrivals_rps * cost / tasks)[self.operator]

    # What happens

    def step(self) -> Snapshot:
        """Let an interval pass and measure it."""
        produced = self.produced()
        wanted = produced + self.backlog / self.interval_s
        need = self._cores(self.arrivals(wanted, self.source_keep, self.stream_keep))
        speed = self._speed_of_applications(need)
        read = wanted * speed[self.graph.application]
        self.backlog = np.maximum(self.backlog + (produced - read) * self.interval_s, 0.0)
        self.time_s += self.interval_s
        return self._measure(produced, read)

    def _speed_of_applications(self, need: np.ndarray) -> np.ndarray:
        """Share of its wish that each application gets: all its operators keep pace with the slowest."""
        app = self.graph.application[self.operator]
        speed = np.ones(self.graph.application.max() + 1)
        core = np.where(self.moving_until > self.time_s, 1e-9, self.core())
        np.minimum.at(speed, app, np.where(need > 0, np.minimum(core / np.maximum(need, 1e-12), 1.0), 1.0))
        for _ in range(60):  # nodes slow their applications down until everything fits
            use = np.bincount(self.node, need * speed[app], len(self.cores))
            over = np.minimum(self.capacity() / np.maximum(use, 1e-12), 1.0)
            before = speed.copy()
            np.minimum.at(speed, app, np.where(need > 0, over[self.node] * before[app], 1.0))
            if np.allclose(speed, before, rtol=1e-12):
                break
        return speed

    def _measure(self, produced: np.ndarray, read: np.ndarray) -> Snapshot:
        flow, t = self.dataflow, self.interval_s
        arrived = self.arrivals(read, self.source_keep, self.stream_keep)
        tasks = np.bincount(self.operator, minlength=len(flow.operators))
        each = (arrived / tasks)[self.operator] * t
        cpu = self._cores(arrived) * (1 + self.noise * self.random.standard_normal(len(self.operator)))
        moving = self.moving_until > self.time_s
        count = len(self.cores)
        return Snapshot(
            time_s=self.time_s,
            interval_s=t,
            dataflow=flow,
            nodes=Nodes.blank(
                count,
                ids=tuple(f"n{i}" for i in range(count)),
                hosts=tuple(f"n{i}" for i in range(count)),
                machines=("m",) * count,
                cores=self.cores,
                speed=self.speed or 1.0,
                foreign_cpu=self.foreign or 0.0,
                ready=True,
                known=True,
            ),
            operators=Operators.blank(len(flow.operators), parallelism=tasks),
            alternates=Alternates.blank(0),
            tasks=Tasks.blank(
                len(self.operator),
                operator=self.operator,
                index=self.index,
                node=self.node,
                arrived=each,
                processed=each,
                emitted=each,
                cpu=cpu / self.core(),
                moving=moving,
                known=~moving,
            ),
            streams=Streams.blank(
                len(flow.streams),
                records=arrived[self.graph.source] * self.stream_keep * t,
                keep=self.stream_keep,
                known=True,
            ),
            sources=Sources.blank(
                len(self.sources),
                operator=self.sources,
                produced_rps=produced[self.sources],
                read_rps=read[self.sources],
                backlog_records=self.backlog[self.sources],
                keep=self.source_keep[self.sources],
                known=True,
            ),
            sinks=self.snapshot_sinks(),
            constraints=Constraints.blank(0),
            seed=self.seed,
        )

    def snapshot_sinks(self) -> Sinks:
        return Sinks.blank(
            len(self.sinks),
            operator=self.sinks,
            priority=[o.priority for o in self.dataflow.sinks],
            min_accuracy=[o.min_accuracy for o in self.dataflow.sinks],
            known=True,
            sketch=None,
        )

    def apply(self, proposal: Proposal) -> None:
        rows = {s.id: i for i, s in enumerate(self.dataflow.streams)}
        for action in proposal.actions:
            if isinstance(action, Shed) and action.target is None:
                self.source_keep[self.dataflow.row[action.operator]] = action.keep
            elif isinstance(action, Shed):
                self.stream_keep[rows[action.subject]] = action.keep
            elif isinstance(action, Move):
                task = (self.operator == self.dataflow.row[action.operator]) & (self.index == action.index)
                self.node[task] = int(action.target[1:])
                self.moving_until[task] = self.time_s + self.pause_s

    def lag_s(self) -> dict[str, float]:
        rates = self.rate_rps(self.time_s)
        return {i: float(self.backlog[self.dataflow.row[OperatorId(i)]] / r) for i, r in rates.items() if r}


@dataclass
class Cycle:
    time_s: float
    accuracy: dict[str, float]
    lag_s: dict[str, float]
    proposal: Proposal
    memory: SheddingMemory

    @property
    def codes(self) -> list[str]:
        return [n.reason.code for n in self.proposal.notices]

    @property
    def moves(self) -> list[str]:
        return [a.subject for a in self.proposal.actions if isinstance(a, Move)]


def run(cluster: Cluster, cycles: int, options: SheddingOptions | None = None) -> list[Cycle]:
    """The closed loop: what was decided in each cycle, and the lag when it was."""
    policy, options = Shedding(), options or SheddingOptions()
    memory, story = policy.start(options), []
    for _ in range(cycles):
        snapshot = cluster.step()
        proposal, memory = policy.decide(snapshot, memory, options)
        cluster.apply(proposal)
        accuracy = {o.id: memory.accuracy.get(o.id, 1.0) for o in cluster.dataflow.sinks}
        story.append(Cycle(snapshot.time_s, accuracy, cluster.lag_s(), proposal, memory))
    return story


def thresholds(graph: Graph, source: np.ndarray, stream: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(per operator, per stream): the hash below which a record is kept, from the keep-probabilities.

    threshold(t → t') = threshold(t) · d(t, t'). Where inputs differ, as they may between two settings, the lowest
    counts for the operator: only what all inputs have is complete.
    """
    of_operator = source.copy()
    of_stream = np.zeros(len(stream))
    for row in graph.downward:
        arriving = np.flatnonzero(graph.target == row)
        of_stream[arriving] = of_operator[graph.source[arriving]] * stream[arriving]
        if len(arriving):
            of_operator[row] = of_stream[arriving].min()
    return of_operator, of_stream
