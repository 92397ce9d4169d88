"""All that one cycle derives from its snapshot before it decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.dataflow.graph import OperatorId
from penstock.policies.shedding.accuracy import Accuracy
from penstock.policies.shedding.backlog import Backlog
from penstock.policies.shedding.cpu import Demand
from penstock.policies.shedding.draining import stretch_of
from penstock.policies.shedding.graph import Graph
from penstock.policies.shedding.options import SheddingOptions
from penstock.policies.shedding.requirements import Restrictions
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """A task on its way to another node, or not yet at its minimum there."""

    operator: OperatorId
    index: int
    node: str
    until_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Situation:
    """The models of a snapshot."""

    snapshot: Snapshot
    options: SheddingOptions
    graph: Graph
    restrictions: Restrictions
    accuracy: Accuracy
    backlog: Backlog
    demand: Demand
    available: Floats
    """Cores of reference speed that may be handed out, per node (line 2 of algorithm 1); infinite: nothing is known."""
    minimum: Floats
    """Cores that each task needs for its minimum accuracy, or the least that is kept, at the present rates."""
    stretch: Floats
    """How many times longer than asked the backlogs of each operator's application take (`draining`)."""
    seen: Bools
    """Operators of whose application anything was measured."""
    warmups: tuple[Warmup, ...]
    """Those not over yet."""
    refused: tuple[int, ...]
    """Rows of tasks that were told to move and did not begin to."""
    node: Ints
    """Where each task is or, if it is warming up, will be."""
    sheltered: Bools
    """Nodes on which a task is warming up."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        options: SheddingOptions,
        deadlines_s: Mapping[str, float],
        warmups: tuple[Warmup, ...],
    ) -> Situation:
        """The models, in the order in which they build on each other."""
        graph = Graph.of(snapshot.dataflow)
        restrictions = Restrictions.of(graph, snapshot.sinks)
        backlog = Backlog.of(snapshot, deadlines_s, options)
        accuracy = Accuracy.of(snapshot, graph, backlog.surge)
        demand = Demand.of(snapshot, accuracy, backlog, restrictions.min_accuracy)
        operator = snapshot.tasks.operator
        seen = np.zeros(len(graph), np.bool_)
        seen[graph.application[operator[demand.measured]]] = True  # by application
        reached = accuracy.current >= restrictions.min_accuracy
        rows, going_on, refused = _still_warming(snapshot, warmups, reached)
        node, sheltered = snapshot.tasks.node.copy(), np.zeros(len(snapshot.nodes), np.bool_)
        targets = [snapshot.nodes.row[w.node] for w in going_on]
        node[rows] = targets
        sheltered[targets] = True
        available = options.utilisation * snapshot.free_cpu
        if options.by_slots and len(available):
            nodes = snapshot.nodes
            slots = float(nodes.cores[nodes.ready & ~nodes.draining].sum())
            available = np.zeros(len(nodes))
            available[0] = options.utilisation * slots  # the first stands for all
            node = np.zeros(len(node), np.int64)
            demand = replace(demand, core=np.full(len(demand.core), max(slots, 1e-9)))
        minimum = np.maximum(restrictions.min_accuracy, options.least_keep)[operator]
        stretch = stretch_of(graph, operator, node, demand, minimum, available)
        return cls(
            snapshot=snapshot,
            options=options,
            graph=graph,
            restrictions=restrictions,
            accuracy=accuracy,
            backlog=backlog,
            demand=demand.eased(stretch[operator]),
            available=available,
            minimum=demand.minimum(minimum),
            stretch=stretch,
            seen=seen[graph.application],
            warmups=tuple(going_on),
            refused=tuple(refused),
            node=node,
            sheltered=sheltered,
        )

    def id_of(self, operator: int) -> OperatorId:
        """The id of an operator's row."""
        return self.graph.ids[operator]


def _still_warming(
    snapshot: Snapshot, warmups: Iterable[Warmup], reached: Bools
) -> tuple[list[int], list[Warmup], list[int]]:
    """(task rows, warm-ups) that go on: under way, or there and below the minimum; over when time is up.

    Third, the rows of tasks whose move did not begin: the runtime could not, or another policy had its way.
    """
    tasks, rows, going_on, refused = snapshot.tasks, [], [], []
    for warmup in warmups:
        operator, target = snapshot.dataflow.row.get(warmup.operator), snapshot.nodes.row.get(warmup.node)
        found = np.flatnonzero((tasks.operator == operator) & (tasks.index == warmup.index))
        if operator is None or target is None or not len(found) or snapshot.time_s >= warmup.until_s:
            continue
        row = int(found[0])
        settled = tasks.known[row] and reached[operator]
        if tasks.moving[row] or (tasks.node[row] == target and not settled):
            rows.append(row)
            going_on.append(warmup)
        elif tasks.node[row] != target:
            refused.append(row)
    return rows, going_on, refused
