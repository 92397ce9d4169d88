"""How many tasks every operator needs: for its constraints, for its backlog, within what may be spent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.dataflow import Constraint, Dataflow
from penstock.policies.elasticity.demand import Demand
from penstock.policies.elasticity.options import ElasticityOptions
from penstock.policies.elasticity.rebalance import rebalance
from penstock.policies.elasticity.waits import Waits
from penstock.policies.policy import Notice
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot
from penstock.telemetry.moments import totals

DRAIN_SHARE = 0.6
"""Most of a task's time that is planned for its backlog: the rest must keep up with what arrives."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limits:
    """Per operator, the parallelism it may have; equal where it cannot be changed."""

    low: Ints
    high: Ints

    @classmethod
    def of(cls, snapshot: Snapshot) -> Limits:
        """What the declaration and the runtime allow."""
        flow, current = snapshot.dataflow, snapshot.operators.parallelism
        low = np.array([o.parallelism.minimum for o in flow.operators], dtype=np.int64)
        high = np.array([o.parallelism.maximum for o in flow.operators], dtype=np.int64)
        elastic = snapshot.operators.elastic & (low < high)
        return cls(low=np.where(elastic, low, current), high=np.where(elastic, high, current))


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one constraint allows: rows of the operators where its records wait, and for how long in all."""

    constraint: Constraint
    rows: tuple[int, ...]
    slack_s: float
    """Of the bound, what the tasks themselves leave; negative: they alone take too long."""
    wait_s: float
    """Mean wait that is planned for."""
    tail: float = 1.0
    """What a second of mean wait adds to the constrained statistic, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sizing:
    """Tasks wanted per operator (0: no constraint asks), why, and which goals are out of reach."""

    parallelism: Ints
    reasons: dict[int, Reason] = field(default_factory=dict)
    goals: dict[int, str] = field(default_factory=dict)
    """Operator to the constraint that asks for its tasks."""
    notices: tuple[Notice, ...] = ()


def waiting_rows(flow: Dataflow, constraint: Constraint) -> tuple[int, ...]:
    """The operators before which the constraint's records wait."""
    sequence = constraint.sequence
    rows = [flow.row[o] for o in sequence.operators if o in flow.row]
    if rows and not sequence.leading_stream and not flow.upstream(sequence.operators[0]):
        rows = rows[1:]  # nothing waits before a source
    return tuple(rows)


def size(
    demand: Demand, allowances: tuple[Allowance, ...], limits: Limits, options: ElasticityOptions
) -> Sizing:
    """The fewest tasks with which every constraint's records wait no longer than allowed.

    A later constraint only raises what an earlier one chose. No operator is planned busier than
    `options.task_utilisation`.
    """
    waits, count = demand.waits, len(limits.low)
    wanted = np.zeros(count, dtype=np.int64)
    reasons: dict[int, Reason] = {}
    goals: dict[int, str] = {}
    notices: list[Notice] = []
    carried = np.ceil(waits.b / options.task_utilisation - 1e-9).astype(np.int64)
    for allowance in allowances:
        rows = np.array(allowance.rows, dtype=np.int64)
        floor = np.clip(np.maximum(wanted[rows], carried[rows]), limits.low[rows], limits.high[rows])
        # Where the tasks alone take longer than the bound, no number of them helps: only the load is carried.
        allowed_s = allowance.wait_s if allowance.slack_s > 0 else np.inf
        found = rebalance(waits.take(rows), floor, limits.high[rows], allowed_s)
        if not found.feasible or allowance.slack_s <= 0:
            notices.append(_out_of_reach(allowance, waits.take(rows), limits.high[rows], found.wait_s))
        for row, p in zip(allowance.rows, found.parallelism.tolist(), strict=True):
            if p > wanted[row]:
                wanted[row] = p
                goals[row] = allowance.constraint.name
                reasons[row] = Reason(
                    code="rebalance",
                    facts={
                        "constraint": allowance.constraint.name,
                        "bound_ms": allowance.constraint.bound_ms,
                        "predicted_wait_ms": 1e3 * found.wait_s if np.isfinite(found.wait_s) else None,
                        "allowed_wait_ms": 1e3 * allowance.wait_s,
                    },
                )
    return Sizing(parallelism=wanted, reasons=reasons, goals=goals, notices=tuple(notices))


def size_within(
    most_tasks: int,
    demand: Demand,
    allowances: tuple[Allowance, ...],
    limits: Limits,
    options: ElasticityOptions,
) -> tuple[Sizing, int]:
    """As `size`, with at most `most_tasks` tasks in all, and how many tasks it would have taken.

    What cannot be afforded is taken from all constraints alike: their waits grow by one common factor. Where
    even endless waits need more, every operator gets the same share of what it needs.
    """
    wanted = size(demand, allowances, limits, options)
    needed = int(wanted.parallelism.sum())
    if needed <= most_tasks:
        return wanted, needed

    def stretched(factor: float) -> Sizing:
        longer = tuple(replace(a, wait_s=max(a.wait_s, 1e-4) * factor) for a in allowances)
        return size(demand, longer, limits, options)

    low, high, best = 0.0, 20.0, stretched(2.0**20)
    if int(best.parallelism.sum()) > most_tasks:
        share = most_tasks / max(1, int(best.parallelism.sum()))
        fewer = np.maximum(np.floor(best.parallelism * share).astype(np.int64), limits.low)
        best = Sizing(
            parallelism=np.where(best.parallelism > 0, fewer, 0),
            reasons=best.reasons,
            goals=best.goals,
            notices=wanted.notices,
        )
        return best, needed
    for _ in range(20):
        middle = (low + high) / 2
        tried = stretched(2.0**middle)
        if int(tried.parallelism.sum()) <= most_tasks:
            high, best = middle, tried
        else:
            low = middle
    return replace(wanted, parallelism=best.parallelism), needed


def drain(
    snapshot: Snapshot,
    demand: Demand,
    allowances: tuple[Allowance, ...],
    limits: Limits,
    startup_s: float,
    options: ElasticityOptions,
) -> Sizing:
    """Tasks with which queues that break a bound are gone `options.drain_s` after new tasks have started.

    A record stays in the queue it is in. With new tasks an old one gets fewer new records, λ/p, and works off its
    queue with what is left of its time: λ/p·S + q·S/T ≤ 1. Until new tasks have started, the queue still grows.
    """
    tasks, queues = np.maximum(snapshot.operators.parallelism, 1), _queues(snapshot)
    wanted = np.zeros(len(tasks), dtype=np.int64)
    reasons: dict[int, Reason] = {}
    goals: dict[int, str] = {}
    for allowance in allowances:
        bound_s = allowance.constraint.bound_ms / 1e3
        for row in allowance.rows:
            s = float(demand.service_s[row])
            queued = float(queues[row])
            if not np.isfinite(queued) or queued * s <= bound_s or s <= 0:
                continue
            load = float(demand.shared_rps[row] / tasks[row] + demand.each_rps[row])
            grown = queued + max(0.0, load - 1 / s) * startup_s
            share = min(DRAIN_SHARE, grown * s / options.drain_s)
            need = int(np.ceil(float(demand.waits.b[row]) / (1 - share)))
            target = int(np.clip(need, limits.low[row], limits.high[row]))
            if target > wanted[row]:
                wanted[row] = target
                facts: dict[str, Fact] = {
                    "constraint": allowance.constraint.name,
                    "queued_records": float(snapshot.by_operator.queued[row]),
                    "wait_ms": 1e3 * queued * s,
                    "within_s": options.drain_s,
                }
                reasons[row] = Reason(code="drain", facts=facts)
                goals[row] = allowance.constraint.name
    return Sizing(parallelism=wanted, reasons=reasons, goals=goals)


def _queues(snapshot: Snapshot) -> Floats:
    """Per operator, the mean length of the queue that a waiting record is in: Σq²/Σq over the tasks.

    New tasks have no queue; a mean over all tasks would hide those of the old ones.
    """
    tasks, count = snapshot.tasks, len(snapshot.dataflow.operators)
    queued = np.where(tasks.known & np.isfinite(tasks.queued), tasks.queued, 0.0)
    total = totals(tasks.operator, queued, count)
    return totals(tasks.operator, queued**2, count) / np.where(total > 0, total, 1.0)


def _out_of_reach(allowance: Allowance, waits: Waits, high: Ints, wait_s: float) -> Notice:
    """What cannot be held, by how much, and which of the user's numbers would have to change."""
    constraint = allowance.constraint
    if allowance.slack_s <= 0:
        over_ms = -1e3 * allowance.slack_s
        return Notice(
            goal=constraint.name,
            reason=Reason(code="tasks-slower-than-bound", facts={"over_by_ms": over_ms}),
            helps="a cheaper alternate, faster nodes, or a bound above the time the tasks themselves take",
        )
    # Without maxima: the waits shared so that Σp is least, p = b + √a·Σ√a/Ŵ (Lagrange).
    root = np.sqrt(waits.a)
    free = np.ceil(waits.b + root * root.sum() / allowance.wait_s) if allowance.wait_s > 0 else waits.b + 1
    short = [int(f) for f, h in zip(free, high, strict=True) if f > h]
    facts: dict[str, Fact] = {
        "wait_at_maximum_ms": 1e3 * wait_s if np.isfinite(wait_s) else None,
        "allowed_wait_ms": 1e3 * allowance.wait_s,
        "tasks_needed": max(short, default=None),
    }
    lighter = (
        "shedding"
        if not np.isfinite(wait_s)
        else f"a bound at least {1e3 * (wait_s - allowance.wait_s):.3g} ms above"
    )
    return Notice(
        goal=constraint.name,
        reason=Reason(code="bound-out-of-reach", facts=facts),
        helps=f"a higher maximum parallelism ({max(short, default=0)} tasks), a cheaper alternate, or {lighter}",
    )
