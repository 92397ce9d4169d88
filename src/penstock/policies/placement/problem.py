"""The placement problem on arrays, and what a placement of it costs.

Tasks with loads, traffic between tasks, nodes with capacities: put every task on one node, never exceed a
capacity in any resource, and let as little traffic as possible cross nodes (Eskandari et al., I-Scheduler,
equations 1 to 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sparse

from penstock.errors import UserError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Assignment = Ints

# Sums of measured loads carry rounding errors: ten tasks of 0.1 must fit a capacity of 1.
CAPACITY_TOLERANCE = 1e-9

UNPLACED = -1

SAME_HOST = 0.1
"""What traffic between two nodes of one host weighs: it crosses processes, but no network."""


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing a cluster lacks, in words."""

    kind: Literal["total", "task", "task-mix", "packing", "proved"]
    """All nodes together are too small; no node holds a task; each of its resources exists somewhere, but not on one
    node; no division of the tasks was found; none exists."""
    text: str

    def __str__(self) -> str:
        return self.text


class DoesNotFitError(UserError, ValueError):
    """The tasks cannot be placed on these nodes; `missing` names what is lacking."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        super().__init__("; ".join(map(str, missing)))
        self.missing = tuple(missing)

    @property
    def proved(self) -> bool:
        """True if no placement exists; False if none was found."""
        return all(lack.kind != "packing" for lack in self.missing)


def no_packing(task: str) -> DoesNotFitError:
    """No division of the tasks was found; `task` was left over."""
    text = f"every resource suffices in total, but no node has room left for task {task!r}"
    return DoesNotFitError([Missing("packing", text)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementProblem:
    """Tasks, traffic, nodes and, optionally, where the tasks run now."""

    loads: Floats
    """[tasks, resources]"""
    capacities: Floats
    """[nodes, resources]"""
    sources: Ints
    targets: Ints
    rates: Floats
    """[streams]: what sources[i] sends to targets[i] per second, in any one unit."""
    operators: Ints
    """[tasks]: index of the operator each task is an instance of."""
    running: Ints
    """[tasks]: the node a task runs on now, or UNPLACED."""
    move_prices: Floats
    """[tasks]: what moving a task away from its running node costs, in the unit of traffic."""
    task_ids: tuple[str, ...]
    node_ids: tuple[str, ...]
    resources: tuple[str, ...]
    hosts: Ints
    """[nodes]: host of each node, from 0 on: Spark may run several executors on one."""
    adjacency: sparse.csr_array = field(init=False)
    """[tasks, tasks]: traffic of each pair in both directions, symmetric, without diagonal."""
    limits: Floats = field(init=False)
    """[nodes, resources]: capacities with the rounding tolerance added."""

    def __post_init__(self) -> None:
        tasks, resources = self.loads.shape
        nodes = self.capacities.shape[0]
        if self.capacities.shape[1] != resources or len(self.resources) != resources:
            raise ValueError("loads, capacities and resource names must agree on the number of resources")
        of_task = dict.fromkeys(("operators", "running", "move_prices", "task_ids"), ("task", tasks))
        of_node = dict.fromkeys(("node_ids", "hosts"), ("node", nodes))
        for name, (what, length) in (of_task | of_node).items():
            if len(getattr(self, name)) != length:
                raise ValueError(f"{name} must have one entry per {what} ({length})")
        for name in ("loads", "capacities", "rates", "move_prices"):
            values = getattr(self, name)
            if not np.all(np.isfinite(values)) or np.any(values < 0):
                raise ValueError(f"{name} must be finite and not negative")
        for name in ("sources", "targets"):
            ends = getattr(self, name)
            if len(ends) != len(self.rates) or np.any((ends < 0) | (ends >= tasks)):
                raise ValueError(f"{name} must name an existing task for every rate")
        if np.any((self.running < UNPLACED) | (self.running >= nodes)):
            raise ValueError("running must name an existing node or be UNPLACED")
        between = self.sources != self.targets
        ends = np.concatenate([self.sources[between], self.targets[between]])
        others = np.concatenate([self.targets[between], self.sources[between]])
        both_ways = np.concatenate([self.rates[between], self.rates[between]])
        adjacency = sparse.coo_array((both_ways, (ends, others)), shape=(tasks, tasks)).tocsr()
        adjacency.sum_duplicates()
        adjacency.eliminate_zeros()
        object.__setattr__(self, "adjacency", adjacency)
        object.__setattr__(self, "limits", self.capacities * (1 + CAPACITY_TOLERANCE))

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.loads)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.capacities)

    @property
    def traffic(self) -> float:
        """All traffic between different tasks: the cost if no two tasks shared a node."""
        return float(self.rates[self.sources != self.targets].sum())

    def cost(self, assignment: Assignment) -> float:
        """Traffic that crosses nodes under `assignment`; between nodes of one host it counts less."""
        a, b = assignment[self.sources], assignment[self.targets]
        between_hosts = self.hosts[a] != self.hosts[b]
        on_a_host = (a != b) & ~between_hosts
        return float(self.rates[between_hosts].sum() + SAME_HOST * self.rates[on_a_host].sum())

    @property
    def flat(self) -> bool:
        """True if no two nodes share a host."""
        return len(np.unique(self.hosts)) == self.nodes

    def moved(self, assignment: Assignment) -> npt.NDArray[np.bool_]:
        """True for each task that runs now and would run on another node."""
        moved: npt.NDArray[np.bool_] = (self.running != UNPLACED) & (self.running != assignment)
        return moved

    def move_cost(self, assignment: Assignment) -> float:
        """What the moves from the running placement to `assignment` cost."""
        return float(self.move_prices[self.moved(assignment)].sum())

    def objective(self, assignment: Assignment) -> float:
        """Traffic that crosses nodes plus the cost of the moves: what the solvers minimise."""
        return self.cost(assignment) + self.move_cost(assignment)

    def node_loads(self, assignment: Assignment) -> Floats:
        """[nodes, resources] load under `assignment`; tasks that are UNPLACED count nowhere."""
        loads = np.zeros_like(self.capacities)
        placed = assignment != UNPLACED
        np.add.at(loads, assignment[placed], self.loads[placed])
        return loads

    def fits(self, assignment: Assignment) -> bool:
        """True if every task has a node and no node exceeds a capacity."""
        everywhere = bool(np.all((assignment >= 0) & (assignment < self.nodes)))
        return everywhere and bool(np.all(self.node_loads(assignment) <= self.limits))

    def shortages(self) -> tuple[Missing, ...]:
        """Everything that makes a placement impossible by simple sums; empty says nothing about packing."""
        missing = []
        for resource, needed, has in zip(
            self.resources, self.loads.sum(axis=0), self.capacities.sum(axis=0), strict=True
        ):
            if needed > has * (1 + CAPACITY_TOLERANCE):
                text = f"{resource}: tasks need {needed:g}, all nodes together have {has:g}"
                missing.append(Missing("total", text))
        largest = self.capacities.max(axis=0, initial=0.0)
        too_large = self.loads > largest * (1 + CAPACITY_TOLERANCE)
        for t, r in np.argwhere(too_large):
            need = f"needs {self.loads[t, r]:g} {self.resources[r]}, no node offers more than {largest[r]:g}"
            missing.append(Missing("task", f"task {self.task_ids[t]!r}: {need}"))
        for t in np.flatnonzero(~too_large.any(axis=1)):
            if not np.any(np.all(self.loads[t] <= self.limits, axis=1)):
                text = f"task {self.task_ids[t]!r}: no single node has all the resources it needs"
                missing.append(Missing("task-mix", text))
        return tuple(missing)

    def require_room(self) -> None:
        """Raise DoesNotFitError with every shortage that simple sums reveal."""
        if missing := self.shortages():
            raise DoesNotFitError(missing)

    def on_hosts(self) -> PlacementProblem:
        """The problem of placing tasks on hosts, each as large as its nodes together."""
        count = int(self.hosts.max(initial=-1)) + 1
        capacities = np.zeros((count, self.capacities.shape[1]))
        np.add.at(capacities, self.hosts, self.capacities)
        return replace(
            self,
            capacities=capacities,
            running=np.append(self.hosts, UNPLACED)[self.running],
            node_ids=tuple(map(str, range(count))),
            hosts=np.arange(count),
        )

    def part(self, tasks: Ints, nodes: Ints) -> PlacementProblem:
        """The problem of placing some tasks on some nodes, those of one host: only what they exchange counts."""
        task_at, node_at = np.full(self.tasks, -1), np.full(self.nodes + 1, UNPLACED)
        task_at[tasks], node_at[nodes] = np.arange(len(tasks)), np.arange(len(nodes))
        inside = (task_at[self.sources] >= 0) & (task_at[self.targets] >= 0)
        return replace(
            self,
            loads=self.loads[tasks],
            capacities=self.capacities[nodes],
            sources=task_at[self.sources[inside]],
            targets=task_at[self.targets[inside]],
            rates=SAME_HOST * self.rates[inside],
            operators=self.operators[tasks],
            running=node_at[self.running[tasks]],
            move_prices=self.move_prices[tasks],
            task_ids=tuple(self.task_ids[t] for t in tasks.tolist()),
            node_ids=tuple(self.node_ids[n] for n in nodes.tolist()),
            hosts=np.arange(len(nodes)),
        )


def placement_problem(
    *,
    loads: npt.ArrayLike,
    capacities: npt.ArrayLike,
    sources: npt.ArrayLike = (),
    targets: npt.ArrayLike = (),
    rates: npt.ArrayLike | None = None,
    operators: npt.ArrayLike | None = None,
    running: npt.ArrayLike | None = None,
    move_prices: npt.ArrayLike = 0.0,
    task_ids: Sequence[str] | None = None,
    node_ids: Sequence[str] | None = None,
    resources: Sequence[str] | None = None,
    hosts: npt.ArrayLike | None = None,
) -> PlacementProblem:
    """A PlacementProblem from anything array-like; one load or capacity column per resource, or a vector for one.

    >>> pair = placement_problem(loads=[1, 1], capacities=[1, 1], sources=[0], targets=[1])
    >>> pair.cost(np.array([0, 1]))
    1.0
    """
    load_columns, capacity_columns = _columns(loads), _columns(capacities)
    (tasks, width), nodes = load_columns.shape, len(capacity_columns)
    ends = np.asarray(sources, dtype=np.int64)

    def given(values: npt.ArrayLike | None, otherwise: Ints) -> Ints:
        return otherwise if values is None else np.asarray(values, dtype=np.int64)

    return PlacementProblem(
        loads=load_columns,
        capacities=capacity_columns,
        sources=ends,
        targets=np.asarray(targets, dtype=np.int64),
        rates=np.ones(len(ends)) if rates is None else np.asarray(rates, dtype=np.float64),
        operators=given(operators, np.arange(tasks)),
        running=given(running, np.full(tasks, UNPLACED)),
        move_prices=np.broadcast_to(np.asarray(move_prices, dtype=np.float64), (tasks,)).copy(),
        task_ids=tuple(task_ids or (f"t{i}" for i in range(tasks))),
        node_ids=tuple(node_ids or (f"n{i}" for i in range(nodes))),
        resources=tuple(resources or (("load",) if width == 1 else map(str, range(width)))),
        hosts=given(hosts, np.arange(nodes)),
    )


def _columns(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(-1, 1) if array.ndim < 2 else array
