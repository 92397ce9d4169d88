"""The paper's method, for comparison: one computation of each hot node at a time asks to move, and the best other
node is looked for (`neptune.txt`, section 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numba import njit

from penstock.arrays import Floats
from penstock.policies.actions import Move
from penstock.policies.interference.demand import CPU, NETWORK
from penstock.policies.interference.moves import Remembered, move_of, needs_more, threshold_at
from penstock.policies.interference.options import MigrationOptions
from penstock.policies.interference.rings import summed
from penstock.policies.interference.scores import score
from penstock.policies.interference.situation import Situation, covering
from penstock.policies.policy import Proposal
from penstock.telemetry import Snapshot

STANDS_OUT = 0.1
"""The paper's «predefined threshold» has a unit only its authors know; as a share of the mean score it has none."""
ALIKE = 0.05
"""Scores that differ by less (share) are as good as equal."""
_NO_MEMORY = 1.0
"""The paper leaves memory out: all of it may be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeptuneOptions(MigrationOptions):
    """What the paper's method lets one set."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NeptuneMemory(Remembered):
    """Besides, who asks to move."""

    asking: Mapping[str, int] = field(default_factory=dict)
    """Node to the evaluations in a row in which a computation there stood out."""


class Neptune:
    """At each node the computation with the highest interference moves to where it has the least, one at a time."""

    name = "neptune"
    options_type = NeptuneOptions

    def start(self, options: NeptuneOptions) -> NeptuneMemory:
        """Nothing learned."""
        return NeptuneMemory()

    def decide(
        self, snapshot: Snapshot, memory: NeptuneMemory, options: NeptuneOptions
    ) -> tuple[Proposal, NeptuneMemory]:
        """At most one move out of each node that is not cooling down."""
        if not snapshot.tasks.known.any():  # no batch ended since the last look: there is nothing to judge by
            return Proposal(policy=self.name), memory
        snapshot = covering(snapshot, memory.seen_s)
        now_s, nodes = snapshot.time_s, snapshot.nodes
        now = Situation.of(snapshot, memory.learned, options, fair_share=0.01)
        # One ring for both resources: rate · processing time · message size (section 4.1.2).
        rings = now.rates * (now.needs[:, CPU] * now.needs[:, NETWORK])[:, None]
        weights = options.rings.weights / (options.cpu_share * options.network_share) ** options.amplifier
        total = summed(rings, now.node, len(nodes))
        factors = normalisation(now, options)
        cooling, refused, settled = memory.rests(now, options)
        home = _scores_at_home(now, rings, total, factors, weights, options.amplifier)
        asking, stuck = {}, dict(memory.stuck)
        actions: list[Move] = []
        thresholds = []
        for n, id_ in enumerate(nodes.ids):
            row = _highest(now, n, home, refused)
            if id_ in cooling or row is None or home[row] < _usual(home):
                stuck.pop(id_, None)
                continue
            task = now.task_id(row)
            asking[id_] = memory.asking.get(id_, 0) + 1
            if asking[id_] < options.consecutive:
                continue
            open_to = now.open_to & np.array([i not in cooling and i != id_ for i in nodes.ids], bool)
            elsewhere = _scores_elsewhere(rings[row], total, factors, weights, options.amplifier)
            threshold = threshold_at(elsewhere[now.open_to], options.threshold)
            thresholds.append(threshold)
            best = int(np.argmin(np.where(open_to, elsewhere, np.inf))) if open_to.any() else -1
            if best < 0 or (home[row] - elsewhere[best]) / home[row] <= threshold:
                refused[task] = now_s + options.refusal_s
                stuck[id_] = stuck.get(id_, 0) + 1
                continue
            stuck.pop(id_, None)
            asking.pop(id_)
            cooling |= {id_: now_s + options.cooldown_s, nodes.ids[best]: now_s + options.cooldown_s}
            actions.append(
                move_of(
                    now,
                    row,
                    best,
                    code="interference",
                    pause_s=0.0,
                    within_s=max(options.cooldown_s, snapshot.interval_s),
                    score=float(home[row]),
                    target_score=float(elsewhere[best]),
                    gain=float(1 - elsewhere[best] / home[row]),
                    threshold=threshold,
                )
            )
        shares = (options.cpu_share, options.network_share, _NO_MEMORY)
        use = now.loads().max(axis=2) * now.rooms(shares) * np.array(shares)
        return Proposal(
            policy=self.name,
            actions=tuple(actions),
            notices=tuple(needs_more(now, use, stuck, options.refusals, shares)),
        ), NeptuneMemory(
            learned=now.learned,
            seen_s=now_s,
            cooling_s=cooling,
            refused_s=refused,
            asked=settled | {a.subject: a.target for a in actions},
            asking=asking,
            stuck=stuck,
            threshold=float(np.mean(thresholds)) if thresholds else memory.threshold,
        )


def normalisation(now: Situation, options: NeptuneOptions) -> Floats:
    """[node, window]: what node rings are multiplied with, in the innermost ring; 1 elsewhere.

    Load average per core, bandwidth beyond the preferred limit, and the shares of CPU and bandwidth that others use. As
    `1 - own share` (the paper's words) an undisturbed node would have 0 and vanish; `1 + outside share` is meant.
    """
    nodes = now.snapshot.nodes
    cores = np.where(nodes.cores > 0, nodes.cores, 1.0)
    bandwidth = np.where(nodes.bandwidth_bytes_per_s > 0, nodes.bandwidth_bytes_per_s, np.inf)
    used = np.maximum(nodes.net_in_bytes_per_s, nodes.net_out_bytes_per_s) / bandwidth
    excess = 1.0 + np.clip(used - options.network_share, 0.0, None)
    outside = (1.0 + now.capacity.foreign_cpu) * (1.0 + now.capacity.foreign_network)
    factor = np.nan_to_num(nodes.load_average / cores) * np.nan_to_num(excess, nan=1.0) * outside
    factors = np.ones((len(nodes), now.rates.shape[1]))
    factors[:, : options.rings.inner] = np.maximum(factor, 1e-3)[:, None]
    return factors


def _scores_at_home(
    now: Situation, rings: Floats, total: Floats, factors: Floats, weights: Floats, n: int
) -> Floats:
    """[computation]: its score against the rest of its node."""
    rest = smoothed(np.clip(total[now.node] - rings, 0.0, None) * factors[now.node])
    return np.asarray((((rest + smoothed(rings)) ** n - rest**n) * weights).sum(axis=1))


def _scores_elsewhere(ring: Floats, total: Floats, factors: Floats, weights: Floats, n: int) -> Floats:
    loads, one = smoothed(total * factors)[:, None, :], np.ones(1)
    no_limit = np.full(1, np.inf)
    found: Floats = scores_on_nodes(
        smoothed(ring), one, loads, np.ones((len(total), 1)), no_limit, weights, n
    )
    return found


def smoothed(values: Floats) -> Floats:
    """0.5·v[p-1] + v[p] + 0.5·v[p+1] along the windows; the first and the last stand for what lies beyond them."""
    beyond = np.concatenate([values[..., :1], values, values[..., -1:]], axis=-1)
    return np.asarray(0.5 * beyond[..., :-2] + values + 0.5 * beyond[..., 2:])


@njit(cache=True, nogil=True)
def scores_on_nodes(
    rates: Floats, needs: Floats, loads: Floats, rooms: Floats, full: Floats, weights: Floats, n: int
) -> Floats:
    """[node]: the scores of one computation on all nodes, given their loads without it."""
    found = np.empty(len(loads))
    for node in range(len(loads)):
        found[node] = score(rates, needs, loads[node], rooms[node], full, weights, n)
    return found


def _highest(now: Situation, node: int, scores: Floats, refused: Mapping[str, float]) -> int | None:
    """The computation with the highest score on a node, of those that may be proposed.

    No two measured scores are the same on a real machine. Here equal computations have equal ones, and always taking
    the first would mean always taking the same kind: among (almost) equals chance decides.
    """
    moving = now.snapshot.tasks.moving
    here = np.flatnonzero((now.node == node) & ~moving[now.tasks] & (scores > 0))
    if not len(here):
        return None
    chance = np.random.default_rng((now.snapshot.seed, node)).uniform(1.0 - ALIKE, 1.0, len(here))
    for row in here[np.argsort(-scores[here] * chance, kind="stable")].tolist():
        if now.task_id(row) not in refused:
            return int(row)
    return None


def _usual(scores: Floats) -> float:
    """The score from which on a computation stands out: a tenth of the mean of all that disturb at all."""
    some = scores[scores > 0]
    return STANDS_OUT * float(some.mean()) if len(some) else 0.0
