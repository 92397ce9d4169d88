"""The placement problem on arrays, and what a placement of it costs.

Tasks with loads, traffic between tasks, nodes with capacities: put every task on one node, never exceed a
capacity in any resource, and let as little traffic as possible cross nodes (Eskandari et al., I-Scheduler,
equations 1 to 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """One thing a cluster lacks: a resource in total, room for one task, or a packing of all of them."""

    kind: str
    """`total` (all nodes together are too small), `task` (no node holds this task), `task-mix` (each of its
    resources exists somewhere, but not on one node), `packing` (sums fit, but no division of the tasks was found)
    or `proved` (none exists)."""
    resource: str | None = None
    needed: float | None = None
    available: float | None = None
    task: str | None = None

    def __str__(self) -> str:
        if self.kind == "total":
            return f"{self.resource}: tasks need {self.needed:g}, all nodes together have {self.available:g}"
        if self.kind == "task":
            most = f"no node offers more than {self.available:g}"
            return f"task {self.task!r}: needs {self.needed:g} {self.resource}, {most}"
        if self.kind == "task-mix":
            return f"task {self.task!r}: no single node has all the resources it needs"
        if self.kind == "proved":
            return (
                "every resource suffices in total, but no division of the tasks over the nodes fits (proved)"
            )
        return f"every resource suffices in total, but no node has room left for task {self.task!r}"


class DoesNotFitError(UserError, ValueError):
    """The tasks cannot be placed on these nodes; `missing` names what is lacking."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        super().__init__("; ".join(map(str, missing)))
        self.missing = tuple(missing)


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
    adjacency: sparse.csr_array = field(init=False)
    """[tasks, tasks]: traffic of each pair in both directions, symmetric, without diagonal."""
    limits: Floats = field(init=False)
    """[nodes, resources]: capacities with the rounding tolerance added."""

    def __post_init__(self) -> None:
        tasks, resources = self.loads.shape
        nodes = self.capacities.shape[0]
        if self.capacities.shape[1] != resources or len(self.resources) != resources:
            raise ValueError("loads, capacities and resource names must agree on the number of resources")
        for name, length in (
            ("operators", tasks),
            ("running", tasks),
            ("move_prices", tasks),
            ("task_ids", tasks),
        ):
            if len(getattr(self, name)) != length:
                raise ValueError(f"{name} must have one entry per task ({length})")
        if len(self.node_ids) != nodes:
            raise ValueError(f"node_ids must have one entry per node ({nodes})")
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
        """Traffic that crosses nodes under `assignment`."""
        return float(self.rates[assignment[self.sources] != assignment[self.targets]].sum())

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
        for r, resource in enumerate(self.resources):
            needed, available = float(self.loads[:, r].sum()), float(self.capacities[:, r].sum())
            if needed > available * (1 + CAPACITY_TOLERANCE):
                missing.append(Missing(kind="total", resource=resource, needed=needed, available=available))
        largest = self.capacities.max(axis=0, initial=0.0)
        too_large = self.loads > largest * (1 + CAPACITY_TOLERANCE)
        for t, r in np.argwhere(too_large):
            missing.append(
                Missing(
                    kind="task",
                    resource=self.resources[r],
                    needed=float(self.loads[t, r]),
                    available=float(largest[r]),
                    task=self.task_ids[t],
                )
            )
        missing += [
            Missing(kind="task-mix", task=self.task_ids[t])
            for t in np.flatnonzero(~too_large.any(axis=1))
            if not np.any(np.all(self.loads[t] <= self.limits, axis=1))
        ]
        return tuple(missing)

    def require_room(self) -> None:
        """Raise DoesNotFitError with every shortage that simple sums reveal."""
        if missing := self.shortages():
            raise DoesNotFitError(missing)

    def contracted(self, labels: Ints) -> PlacementProblem:
        """The problem in which the tasks with one label are a single task; labels are 0 … k-1.

        Every placement of it, expanded with `assignment[labels]`, costs the same here.
        """
        vertices = int(labels.max(initial=-1)) + 1
        loads = np.zeros((vertices, self.loads.shape[1]))
        np.add.at(loads, labels, self.loads)
        first = np.full(vertices, -1, dtype=np.int64)
        first[labels[::-1]] = np.arange(self.tasks)[::-1]
        return PlacementProblem(
            loads=loads,
            capacities=self.capacities,
            sources=labels[self.sources],
            targets=labels[self.targets],
            rates=self.rates,
            operators=self.operators[first],
            running=np.full(vertices, UNPLACED, dtype=np.int64),
            move_prices=np.zeros(vertices),
            task_ids=tuple(self.task_ids[t] for t in first),
            node_ids=self.node_ids,
            resources=self.resources,
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
) -> PlacementProblem:
    """A PlacementProblem from anything array-like; one load or capacity column per resource, or a vector for one.

    >>> pair = placement_problem(loads=[1, 1], capacities=[1, 1], sources=[0], targets=[1])
    >>> pair.cost(np.array([0, 1]))
    1.0
    """
    load_columns = _columns(loads)
    capacity_columns = _columns(capacities)
    tasks, width = load_columns.shape
    ends = np.asarray(sources, dtype=np.int64)
    return PlacementProblem(
        loads=load_columns,
        capacities=capacity_columns,
        sources=ends,
        targets=np.asarray(targets, dtype=np.int64),
        rates=np.ones(len(ends)) if rates is None else np.asarray(rates, dtype=np.float64),
        operators=np.arange(tasks) if operators is None else np.asarray(operators, dtype=np.int64),
        running=np.full(tasks, UNPLACED) if running is None else np.asarray(running, dtype=np.int64),
        move_prices=np.broadcast_to(np.asarray(move_prices, dtype=np.float64), (tasks,)).copy(),
        task_ids=tuple(f"t{i}" for i in range(tasks)) if task_ids is None else tuple(task_ids),
        node_ids=tuple(f"n{i}" for i in range(len(capacity_columns)))
        if node_ids is None
        else tuple(node_ids),
        resources=("load",)
        if resources is None and width == 1
        else tuple(resources or map(str, range(width))),
    )


def _columns(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(-1, 1) if array.ndim < 2 else array
