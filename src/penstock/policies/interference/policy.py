"""Our policy: the moves that take a whole imbalance away, chosen together, foreign load and memory included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.arrays import Bools, Floats
from penstock.policies.actions import Move
from penstock.policies.interference.demand import CPU, Crowded
from penstock.policies.interference.expectations import compile_forecasts
from penstock.policies.interference.moves import (
    Remembered,
    move_of,
    needs_more,
    nowhere,
    streaks,
    threshold_at,
)
from penstock.policies.interference.options import InterferenceOptions
from penstock.policies.interference.scores import heats
from penstock.policies.interference.selection import Moves, Parts, Picture, choose, compile_choice, gathered
from penstock.policies.interference.situation import Situation, covering
from penstock.policies.policy import Proposal
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InterferenceMemory(Remembered):
    """Besides, which nodes stand out and which are crowded by others."""

    hot: Mapping[str, int] = field(default_factory=dict)
    """Nodes that stood out, and for how many evaluations in a row."""
    crowded: Mapping[str, Crowded] = field(default_factory=dict)
    """Nodes on which computations did not get the cores they wanted, though some may have none by now."""


class Interference:
    """Computations move, state and all, to where they will be disturbed least, before queues build up."""

    name = "interference"
    options_type = InterferenceOptions

    def start(self, options: InterferenceOptions) -> InterferenceMemory:
        """Nothing learned; but what cycles will call is compiled here, none of them has to wait for it."""
        compile_forecasts()
        compile_choice()
        return InterferenceMemory()

    def decide(
        self, snapshot: Snapshot, memory: InterferenceMemory, options: InterferenceOptions
    ) -> tuple[Proposal, InterferenceMemory]:
        """A set of moves that pays, and a notice for each node that moves alone cannot help."""
        if not snapshot.tasks.known.any():  # no batch ended since the last look: there is nothing to judge by
            return Proposal(policy=self.name), memory
        snapshot = covering(snapshot, memory.seen_s)
        now_s, ids = snapshot.time_s, snapshot.nodes.ids
        parts = gathered(options.rings)
        now = Situation.of(
            snapshot,
            memory.learned,
            options,
            fair_share=options.fair_share,
            onto=parts.mean,
            crowded=memory.crowded,
        )
        shares = (options.cpu_share, options.network_share, options.memory_share)
        loads = now.loads()
        plain = now.rooms(shares)
        usual = usual_use(loads, plain, now.open_to, options.least_mean)
        rooms, full = plain / usual, 1.0 / (usual * np.array(shares))
        heat = heats(loads, rooms, full, parts.weights, options.amplifier)
        cooling, refused, settled = memory.rests(now, options)
        use = loads.max(axis=2) * plain * np.array(shares)
        over = use.max(axis=1) > 1.0
        threshold = threshold_at(heat[now.open_to], options.threshold, urgent=bool(over.any()))
        standing_out = _hot(use, over, now.open_to, options)
        hot = streaks(memory.hot, dict(zip(ids, standing_out.tolist(), strict=True)))
        ready = np.array([hot.get(id_, 0) >= options.consecutive and id_ not in cooling for id_ in ids], bool)
        calm = np.array([id_ not in cooling for id_ in ids], bool)
        moves = None
        if ready.any() and len(now.tasks):
            moves = _choose(now, options, parts, loads, rooms, full, calm, refused, threshold)
            if snapshot.batches is not None and relief(now, moves) < options.least_relief:
                moves = None
        actions = () if moves is None else _actions(now, moves, options, threshold)
        barren = np.zeros(len(ids), bool) if moves is None else moves.barren
        moved_from = {a.source for a in actions}
        stuck = {
            id_: memory.stuck.get(id_, 0) + int(barren[n])
            for n, id_ in enumerate(ids)
            if id_ in hot and id_ not in moved_from and (barren[n] or id_ in memory.stuck)
        }
        cooling |= {id_: now_s + options.cooldown_s for a in actions for id_ in (a.source, a.target)}
        return Proposal(
            policy=self.name,
            actions=actions,
            notices=(*needs_more(now, use, stuck, options.refusals, shares), *nowhere(now)),
        ), InterferenceMemory(
            learned=now.learned,
            seen_s=now_s,
            cooling_s=cooling,
            refused_s=refused,
            asked=settled | {a.subject: a.target for a in actions},
            hot=hot,
            crowded=now.capacity.crowded,
            stuck=stuck,
            threshold=threshold,
        )


def usual_use(loads: Floats, rooms: Floats, open_to: Bools, least: float) -> Floats:
    """[resource]: the mean use over nodes, and at least `least`.

    Measured by it, an imbalance of CPU counts as much as one of bandwidth though far less CPU is used; a resource that
    nobody uses much has no say.
    """
    use = (loads.mean(axis=2) * rooms)[open_to]
    mean = use.mean(axis=0) if len(use) else np.zeros(loads.shape[1])
    return np.maximum(mean, least)


def _hot(use: Floats, over: Bools, open_to: Bools, options: InterferenceOptions) -> Bools:
    """Nodes that use a resource by `band` more than all do on average, if it is used to speak of.

    And those that are to carry more than they can, even if all are: then somebody must say so.
    """
    usual = use[open_to].mean(axis=0) if open_to.any() else np.zeros(use.shape[1])
    stands_out = use > (1.0 + options.band) * np.maximum(usual, options.least_use)
    return np.asarray(stands_out.any(axis=1) | over)


def _choose(
    now: Situation,
    options: InterferenceOptions,
    parts: Parts,
    loads: Floats,
    rooms: Floats,
    full: Floats,
    calm: Bools,
    refused: Mapping[str, float],
    threshold: float,
) -> Moves:
    tasks = now.snapshot.tasks
    movable = ~tasks.moving[now.tasks] & ~soon_quiet(now.rates, parts.inner, options.quiet_share)
    if refused:
        movable &= np.array([now.task_id(row) not in refused for row in range(len(now.tasks))], bool)
    picture = Picture(
        rates=now.rates,
        needs=now.needs,
        state_bytes=now.state_bytes,
        pause_s=_pause_s(now, options),
        operator=tasks.operator[now.tasks],
        loads=loads,
        rooms=rooms,
        full=full,
        weights=parts.weights,
        amplifier=options.amplifier,
        threshold=threshold,
        first_s=parts.first_s,
    )
    # One that stands out starts it; then each node may give what fits better elsewhere, and so make room.
    return choose(
        picture, now.node, movable, sources=calm, targets=now.open_to & calm, most=options.most_moves
    )


def relief(now: Situation, moves: Moves) -> float:
    """Share of its time that the slowest node is spared: a batch lasts until the last node is done."""
    cores = now.capacity.cores
    use = now.rates.mean(axis=1) * now.needs[:, CPU]
    after = now.node.copy()
    after[moves.rows] = moves.targets
    before_s, after_s = (
        float(((now.fixed[:, CPU] + totals(node, use, len(cores))) / cores).max(initial=0.0))
        for node in (now.node, after)
    )
    return 1.0 - after_s / before_s if before_s > 0 else 0.0


def soon_quiet(rates: Floats, inner: int, share: float) -> Bools:
    """Computations whose outer rings hold less than a share of the load of the innermost, the first windows."""
    near = rates[:, :inner].mean(axis=1)
    far = rates[:, inner:].mean(axis=1) if rates.shape[1] > inner else near
    return np.asarray(far < share * near)


def _pause_s(now: Situation, options: InterferenceOptions) -> Floats:
    bandwidth = now.capacity.bandwidth_bytes_per_s[now.node]
    if now.snapshot.batches is not None:
        bandwidth = np.minimum(bandwidth, 1e6 * options.restore_mb_per_s)
    return (options.move_s + now.state_bytes / bandwidth) * now.snapshot.pause_factor


def _actions(
    now: Situation, moves: Moves, options: InterferenceOptions, threshold: float
) -> tuple[Move, ...]:
    pauses, foreign = _pause_s(now, options), now.capacity.foreign_cpu
    return tuple(
        move_of(
            now,
            row,
            target,
            code="foreign-load" if foreign[now.node[row]] > 0.1 else "interference",
            pause_s=float(pauses[row]),
            within_s=max(options.cooldown_s, now.snapshot.interval_s),
            score=float(before),
            target_score=float(after),
            gain=float(1.0 - after / before),
            threshold=threshold,
            foreign_share=float(foreign[now.node[row]]),
            slowness=float(now.capacity.slowness[now.node[row]]),
        )
        for row, target, before, after in zip(
            moves.rows.tolist(), moves.targets.tolist(), moves.before, moves.after, strict=True
        )
    )
