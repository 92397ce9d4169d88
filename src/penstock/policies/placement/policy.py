"""Placement as a policy: tasks that talk a lot move together while they run, if that pays for the moves."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.dataflow.graph import OperatorId
from penstock.extras import require
from penstock.policies.actions import Cost, Expectation, Move
from penstock.policies.placement.budget import Clock
from penstock.policies.placement.measured import MeasuredTraffic, Running, running
from penstock.policies.placement.options import PlacementOptions
from penstock.policies.placement.placement import place
from penstock.policies.placement.problem import Assignment, DoesNotFitError, Ints, PlacementProblem
from penstock.policies.placement.replacement import Replace, ReplacementMemory, replacement
from penstock.policies.placement.search import compile_kernels
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementMemory:
    """Traffic so far, when was last looked, and a decision that is still being carried out."""

    traffic: MeasuredTraffic = field(default_factory=MeasuredTraffic)
    looked_s: float | None = None
    deciding: ReplacementMemory = field(default_factory=ReplacementMemory)
    targets: Mapping[str, str] = field(default_factory=dict)
    """Task to the node it is to move to."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """What the decision was based on."""


class TaskPlacement:
    """Little traffic between nodes: moves tasks of a running dataflow when the saving is worth the moves.

    The solver's work is limited by rounds of search; the clock handed in is only an upper limit. Where a proof or the
    rounds end before it (the usual case up to some hundred tasks), a replay decides alike.
    """

    name = "placement"
    options_type = PlacementOptions

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def start(self, options: PlacementOptions) -> PlacementMemory:
        """No traffic known. Loads what `decide` needs: no cycle waits for it, and what is missing is told now."""
        if options.solver == "exact":
            require("highspy")
        compile_kernels()
        return PlacementMemory()

    def decide(
        self, snapshot: Snapshot, memory: PlacementMemory, options: PlacementOptions
    ) -> tuple[Proposal, PlacementMemory]:
        """Moves, if a decision is under way or one is made now."""
        traffic = memory.traffic.learn(snapshot, options.memory_s)
        memory = replace(memory, traffic=traffic)
        if np.any(snapshot.tasks.moving):
            return Proposal(policy=self.name), memory
        due = memory.looked_s is None or snapshot.time_s - memory.looked_s >= options.every_s
        if not memory.targets and not (due and len(snapshot.traffic)):
            return Proposal(policy=self.name), memory
        now = running(snapshot, traffic, options)
        if memory.targets:
            return self._carried_on(snapshot, now, memory, options)
        verdict, deciding = replacement(
            now.problem,
            memory.deciding,
            options,
            move_costs=now.move_costs,
            now_s=snapshot.time_s,
            least=options.least_bytes_per_s if snapshot.batches is not None else 0.0,
            solve=lambda problem: self._solved(problem, options, snapshot.seed),
        )
        memory = replace(memory, looked_s=snapshot.time_s, deciding=deciding)
        if not isinstance(verdict, Replace):
            return Proposal(policy=self.name), memory
        moved = np.flatnonzero(now.problem.moved(verdict.assignment) & now.movable)
        targets = {now.problem.task_ids[t]: now.problem.node_ids[verdict.assignment[t]] for t in moved}
        memory = replace(memory, targets=targets, facts=dict(verdict.facts))
        return self._carried_on(snapshot, now, memory, options)

    def _solved(self, problem: PlacementProblem, options: PlacementOptions, seed: int) -> Assignment:
        """What the chosen solver makes of the problem; where it finds no room, what runs."""
        with suppress(DoesNotFitError):
            return place(
                problem,
                policy=options.solver,
                clock=self._clock,
                seconds=options.seconds,
                rounds=options.rounds,
                seed=seed % 2**16,
            ).assignment
        return problem.running

    def _carried_on(
        self, snapshot: Snapshot, now: Running, memory: PlacementMemory, options: PlacementOptions
    ) -> tuple[Proposal, PlacementMemory]:
        """The next moves of the decision; it ends when all are made, or with the cool-down."""
        problem, since_s = now.problem, memory.deciding.changed_at_s
        wanted = problem.running.copy()
        row_of = {id_: i for i, id_ in enumerate(problem.task_ids)}
        for task, node in memory.targets.items():
            if task in row_of and node in snapshot.nodes.row:
                wanted[row_of[task]] = snapshot.nodes.row[node]
        late = since_s is not None and snapshot.time_s - since_s >= max(options.cool_down_s, options.every_s)
        if late or not np.any(wanted != problem.running):
            return Proposal(policy=self.name), replace(memory, targets={}, facts={})
        first = next_moves(problem, wanted, options.most_moves)
        facts: dict[str, Fact] = {k: float(v) for k, v in memory.facts.items()}
        actions = tuple(_move(snapshot, now, t, int(wanted[t]), facts, options) for t in first.tolist())
        return Proposal(policy=self.name, actions=actions), memory


def next_moves(problem: PlacementProblem, wanted: Assignment, most: int) -> Ints:
    """Up to `most` tasks to move from where they run towards `wanted`: those that fit and save most, first.

    Each is chosen with those before it already moved. Where only an exchange between full nodes is left, one of its
    tasks goes before the other: for the moment between, a node holds more than it should.
    """
    node, chosen = problem.running.copy(), []
    ends = np.repeat(np.arange(problem.tasks), np.diff(problem.adjacency.indptr))
    peers, rates = problem.adjacency.indices, problem.adjacency.data
    for _ in range(most):
        left = np.flatnonzero(node != wanted)
        if not len(left):
            break
        there = np.bincount(ends, rates * (node[peers] == wanted[ends]), problem.tasks)
        here = np.bincount(ends, rates * (node[peers] == node[ends]), problem.tasks)
        free = problem.limits - problem.node_loads(node)
        fits = np.all(problem.loads[left] <= free[wanted[left]], axis=1)
        best = left[np.lexsort((left, -(there - here)[left], ~fits))[0]]
        node[best] = wanted[best]
        chosen.append(best)
    return np.array(chosen, dtype=np.int64)


def _move(
    snapshot: Snapshot,
    now: Running,
    task: int,
    target: int,
    facts: Mapping[str, Fact],
    options: PlacementOptions,
) -> Move:
    row, tasks, nodes = int(now.rows[task]), snapshot.tasks, snapshot.nodes
    return Move(
        operator=OperatorId(snapshot.dataflow.operators[tasks.operator[row]].id),
        index=int(tasks.index[row]),
        source=nodes.ids[tasks.node[row]],
        target=nodes.ids[target],
        reason=Reason(code="worth-it", facts=facts),
        expects=Expectation(
            metric="node", subject=snapshot.task_id(row), value=float(target), within_s=options.cool_down_s
        ),
        cost=Cost(pause_s=options.pause_s * snapshot.pause_factor),
    )
