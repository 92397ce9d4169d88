"""What both policies share: a threshold that follows the imbalance, rests and refusals, moves with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.arrays import Floats
from penstock.policies.actions import Cost, Expectation, Move
from penstock.policies.interference.expectations import Learned
from penstock.policies.interference.options import MigrationOptions
from penstock.policies.interference.situation import Situation
from penstock.policies.policy import Notice
from penstock.policies.reasons import Fact, Reason

THRESHOLD_STEPS = ((0.5, 0.4), (0.15, 1.0), (0.0, 2.0))
"""(coefficient of variation of the scores from which it holds, factor on the threshold): the more uneven, the lower."""
RESOURCES = ("cpu", "network", "memory")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Remembered:
    """What was learned of computations, and who rests until when."""

    learned: Learned = field(default_factory=Learned.nothing)
    seen_s: float | None = None
    """When tasks last had something to tell."""
    cooling_s: Mapping[str, float] = field(default_factory=dict)
    """Node to the time its cool-down ends."""
    refused_s: Mapping[str, float] = field(default_factory=dict)
    """Computation to the time from which it may be proposed again."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Computations that were told to move, and where to."""
    stuck: Mapping[str, int] = field(default_factory=dict)
    """Hot nodes from which nothing could move, and for how many evaluations in a row."""
    threshold: float = 0.0
    """The least relative gain of a move in the last evaluation."""

    def rests(
        self, now: Situation, options: MigrationOptions
    ) -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
        """(nodes that cool down, computations left alone, moves that are still under way), as of now.

        Whoever was told to move and is neither there nor on its way is left alone for a while.
        """
        now_s = now.snapshot.time_s
        cooling, refused = lasting(self.cooling_s, now_s), lasting(self.refused_s, now_s)
        settled = {task: node for task, node in self.asked.items() if node in cooling}
        lost = failed_moves(now, {task: node for task, node in self.asked.items() if task not in settled})
        return cooling, refused | dict.fromkeys(lost, now_s + options.refusal_s), settled


def threshold_at(scores: Floats, usual: float, *, urgent: bool = False) -> float:
    """The least relative gain of a move: a step function of how much scores differ over the nodes (section 4.2.1).

    `urgent`, as low as it gets: somebody is to carry more than it can.
    """
    if urgent:
        return usual * THRESHOLD_STEPS[0][1]
    finite = scores[np.isfinite(scores)]
    mean = float(finite.mean()) if len(finite) else 0.0
    variation = float(finite.std()) / mean if mean > 0 else 0.0
    for least, factor in THRESHOLD_STEPS:
        if variation >= least:
            return min(usual * factor, 0.99)
    return usual


def lasting(until_s: Mapping[str, float], now_s: float) -> dict[str, float]:
    """Rests that are not over."""
    return {name: end for name, end in until_s.items() if end > now_s}


def streaks(before: Mapping[str, int], now: Mapping[str, bool]) -> dict[str, int]:
    """How many evaluations in a row each has been so; those that are not any more are left out."""
    return {name: before.get(name, 0) + 1 for name, holds in now.items() if holds}


def failed_moves(now: Situation, asked: Mapping[str, str]) -> set[str]:
    """Computations that were told to go to a node and are neither there nor on their way."""
    if not asked:
        return set()
    ids, moving = now.snapshot.nodes.ids, now.snapshot.tasks.moving[now.tasks]
    return {
        name
        for row in range(len(now.tasks))
        if (name := now.task_id(row)) in asked and not moving[row] and ids[int(now.node[row])] != asked[name]
    }


def move_of(
    now: Situation, row: int, target: int, *, code: str, pause_s: float, within_s: float, **facts: Fact
) -> Move:
    """The action that moves a computation."""
    snapshot, task = now.snapshot, int(now.tasks[row])
    return Move(
        operator=snapshot.dataflow.operators[int(snapshot.tasks.operator[task])].id,
        index=int(snapshot.tasks.index[task]),
        source=snapshot.nodes.ids[int(now.node[row])],
        target=snapshot.nodes.ids[target],
        reason=Reason(code=code, facts=facts),
        expects=Expectation(
            metric="node", subject=snapshot.task_id(task), value=float(target), within_s=within_s
        ),
        cost=Cost(pause_s=pause_s),
    )


def needs_more(
    now: Situation, use: Floats, stuck: Mapping[str, int], refusals: int, shares: tuple[float, float, float]
) -> Iterator[Notice]:
    """«Needs more nodes or shedding»: for each node that stays over its limit though nothing there can move.

    `use` is [node, resource], the use expected soon over what the node has.
    """
    nodes = now.snapshot.nodes
    for n, id_ in enumerate(nodes.ids):
        if stuck.get(id_, 0) < refusals:
            continue
        worst = int(np.argmax(use[n] / np.array(shares)))
        over = float(use[n, worst]) / shares[worst] - 1.0
        if over <= 0:
            continue
        yield Notice(
            goal=f"use of {id_}",
            reason=Reason(
                code="needs-more-nodes-or-shedding",
                facts={
                    "node": id_,
                    "resource": RESOURCES[worst],
                    "use": float(use[n, worst]),
                    "limit_share": shares[worst],
                    "over": over,
                    "evaluations": stuck[id_],
                },
            ),
            helps=f"{over:.0%} more {RESOURCES[worst]} (another node), or shedding as much",
        )


def nowhere(now: Situation) -> Iterator[Notice]:
    """A notice where there is state and only one node."""
    ids = now.snapshot.nodes.ids
    if len(ids) == 1 and len(now.tasks):
        reason = Reason(code="nowhere-to-move", facts={"node": ids[0]})
        yield Notice(goal="interference", reason=reason, helps="another executor")
