"""The controller: every cycle, the accuracy each sink can have, and what to keep, move or say for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.arrays import Floats
from penstock.policies.policy import Proposal
from penstock.policies.shedding.actions import move_actions, shed_actions
from penstock.policies.shedding.hysteresis import settle
from penstock.policies.shedding.keeps import Keeps
from penstock.policies.shedding.moves import Relocation, relocate
from penstock.policies.shedding.notices import notices_of
from penstock.policies.shedding.options import SheddingOptions
from penstock.policies.shedding.situation import Situation, Warmup
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingMemory:
    """What was decided before: accuracies below 1 (by sink), warm-ups, and when which backlog must be gone."""

    accuracy: Mapping[str, float] = field(default_factory=dict)
    warmups: tuple[Warmup, ...] = ()
    deadlines_s: Mapping[str, float] = field(default_factory=dict)
    refused_s: Mapping[str, float] = field(default_factory=dict)
    """Tasks that did not move when told, and until when they are left alone."""
    shedding_s: float | None = None
    """Since when some sink sheds without a break or a move to relieve it."""
    unseen_s: Mapping[str, float] = field(default_factory=dict)
    """Sinks whose application was not measured lately (no micro-batch ended), and since when."""
    measured_s: Mapping[str, float] = field(default_factory=dict)
    """When the application of each sink was last measured."""


class Shedding:
    """Every sink as accurate as the CPU allows: by priority, never below its minimum, moving tasks if need be."""

    name = "shedding"
    options_type = SheddingOptions

    def start(self, options: SheddingOptions) -> SheddingMemory:
        """Every sink at 100 %."""
        return SheddingMemory()

    def decide(
        self, snapshot: Snapshot, memory: SheddingMemory, options: SheddingOptions
    ) -> tuple[Proposal, SheddingMemory]:
        """Shares to keep and tasks to move, and a notice for each minimum or lag that nothing here can hold."""
        sinks = snapshot.sinks
        if not len(sinks):
            return Proposal(policy=self.name), memory
        now = Situation.of(snapshot, options, memory.deadlines_s, memory.warmups)
        refused = {t: until for t, until in memory.refused_s.items() if until > snapshot.time_s}
        refused |= {snapshot.task_id(row): snapshot.time_s + options.warmup_s for row in now.refused}
        moves = _moves(now, refused, now.minimum)
        patient = memory.shedding_s is not None and not len(moves.tasks) and not now.warmups
        if patient and snapshot.time_s - (memory.shedding_s or 0.0) >= options.relieve_after_s:
            moves = replace(
                _moves(now, refused, now.demand.minimum(np.ones(len(now.node)))), short=moves.short
            )
        node, busy = now.node.copy(), now.sheltered.copy()
        busy[node[moves.tasks]] = busy[moves.targets] = True
        node[moves.tasks] = moves.targets

        ids = [now.graph.ids[o] for o in sinks.operator.tolist()]
        before = np.array([memory.accuracy.get(id_, 1.0) for id_ in ids])
        unseen: dict[str, float] = {
            id_: memory.unseen_s.get(id_, snapshot.time_s)
            for id_, seen in zip(ids, now.seen[sinks.operator].tolist(), strict=True)
            if not seen
        }
        blind = np.array([snapshot.time_s - unseen.get(id_, -np.inf) < options.warmup_s for id_ in ids])
        measured = {id_: memory.measured_s[id_] for id_ in ids if id_ in memory.measured_s}
        measured |= {id_: snapshot.time_s for id_ in ids if id_ not in unseen}
        unmeasured = np.array(
            [snapshot.time_s - measured.get(id_, -np.inf) >= options.warmup_s for id_ in ids]
        )
        settled = settle(now, node, busy, before, blind, unmeasured)
        keeps = Keeps.of(now.graph, sinks, settled.accuracy)
        proposal = Proposal(
            policy=self.name,
            actions=(*move_actions(now, moves), *shed_actions(now, keeps, settled)),
            notices=notices_of(now, node, moves.short, settled.accuracy > settled.floor + options.least_step),
        )
        below: dict[str, float] = {
            id_: a for id_, a in zip(ids, settled.accuracy.tolist(), strict=True) if a < 1
        }
        since = snapshot.time_s if memory.shedding_s is None or len(moves.tasks) else memory.shedding_s
        return proposal, SheddingMemory(
            accuracy=below,
            refused_s=refused,
            shedding_s=since if below else None,
            warmups=now.warmups + _warmups(now, moves),
            deadlines_s=now.backlog.deadlines_s,
            unseen_s=unseen,
            measured_s=measured,
        )


def _moves(now: Situation, refused: Mapping[str, float], needs: Floats) -> Relocation:
    """Moves after which the needs of tasks fit on their nodes, as far as there is room elsewhere."""
    snapshot, tasks, nodes = now.snapshot, now.snapshot.tasks, now.snapshot.nodes
    # An engine of micro-batches places what has no state anew in every batch: nothing there to move.
    if now.options.moves == "stateful" or (now.options.moves == "any" and snapshot.batches is not None):
        may_move = np.array([o.is_stateful for o in snapshot.dataflow.operators])
    else:
        may_move = np.full(len(now.graph), now.options.moves == "any")
    movable = may_move[tasks.operator] & ~tasks.moving
    if refused:
        movable &= np.array([snapshot.task_id(row) not in refused for row in range(len(tasks))])
    unknown = (now.node >= 0) & ~now.demand.measured
    return relocate(
        node=now.node,
        minimum=needs,
        priority=now.restrictions.priority[tasks.operator],
        movable=movable,
        available=now.available,
        # A task without metrics may turn out to use a whole core (section 4 of the paper).
        reserved=totals(now.node[unknown], now.demand.core[unknown], len(nodes)),
        sheltered=now.sheltered,
        open_to_tasks=nodes.staying & nodes.known,
        seed=snapshot.seed,
    )


def _warmups(now: Situation, moves: Relocation) -> tuple[Warmup, ...]:
    tasks = now.snapshot.tasks
    return tuple(
        Warmup(
            operator=now.id_of(int(tasks.operator[row])),
            index=int(tasks.index[row]),
            node=now.snapshot.nodes.ids[target],
            until_s=now.snapshot.time_s + now.options.warmup_s,
        )
        for row, target in zip(moves.tasks.tolist(), moves.targets.tolist(), strict=True)
    )
