"""The machines of a simulation: which there are, what disturbs them, and what lies between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.dataflow import Load
from penstock.telemetry import MachineClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What lies between two nodes, one way. Tasks on one node hand records over in memory."""

    latency_s: float = 0.0
    bandwidth_bytes_per_s: float = math.inf
    """Bytes per second; the nodes' own bandwidth bounds it too."""

    def __post_init__(self) -> None:
        if not (0 <= self.latency_s < math.inf and self.bandwidth_bytes_per_s > 0):
            raise ValueError(
                f"a link needs a latency of 0 s or more and a positive bandwidth, not {self.latency_s:g} s "
                f"and {self.bandwidth_bytes_per_s:g} bytes/s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What happens to one node over time; each profile is a `Load` whose "rate" is the quantity named here."""

    foreign: Load | None = None
    """Cores that other processes keep busy."""
    speed: Load | None = None
    """Factor on the class's speed."""
    bandwidth: Load | None = None
    """Factor on the class's bandwidth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Machine classes, the nodes there are at the start, and the network between them.

    >>> Cluster.of(MachineClass(name="large", cores=4), 2).nodes
    {'large-0': 'large', 'large-1': 'large'}
    """

    classes: tuple[MachineClass, ...]
    nodes: Mapping[str, str]
    """Id of each initial node to the name of its class."""
    disturbances: Mapping[str, Disturbance] = field(default_factory=dict)
    """By node id; nodes that are acquired are called `class-number`, counted on from the initial ones."""
    link: Link = Link()
    """Between any two nodes."""
    max_nodes: int | None = None
    """Most nodes at any time; None: as many as the classes allow."""

    def __post_init__(self) -> None:
        known = {c.name for c in self.classes}
        if len(known) < len(self.classes):
            raise ValueError("machine classes must have different names")
        if not self.nodes:
            raise ValueError("a cluster needs at least one node to start with")
        for node, machine in self.nodes.items():
            if machine not in known:
                raise ValueError(f"node '{node}' is of the unknown machine class '{machine}'")
        for c in self.classes:
            if not (
                c.cores > 0 and 0 < c.speed < math.inf and c.bandwidth_bytes_per_s > 0 and c.billing_s > 0
            ):
                raise ValueError(
                    f"cores, speed, bandwidth and billing unit of class '{c.name}' must be positive"
                )
        if self.max_nodes is not None and self.max_nodes < len(self.nodes):
            raise ValueError(f"{len(self.nodes)} initial nodes are more than the maximum, {self.max_nodes}")

    @classmethod
    def of(cls, machine: MachineClass, count: int, *, link: Link | None = None) -> Cluster:
        """`count` equal nodes, and more of them to be had."""
        names = {f"{machine.name}-{i}": machine.name for i in range(count)}
        return cls(classes=(machine,), nodes=names, link=link or Link())

    def machine(self, name: str) -> MachineClass | None:
        """The class called `name`, if there is one."""
        return next((c for c in self.classes if c.name == name), None)
