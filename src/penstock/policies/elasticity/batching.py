"""When the next micro-batch of a query begins, and how much it reads: one decision with the number of nodes.

Nodes are sized for the shortest interval that a query may have. What the bound then leaves is spent on longer ones:
each batch costs planning, commits and task starts, so fewer of them cost less. The other way round, a batch may not
read more than it can work off in about half the bound: a backlog is then gone after several batches of a known length,
and a step of the load never meets one batch that holds everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats
from penstock.dataflow import Constraint
from penstock.policies.actions import Action, Limit, Pace
from penstock.policies.elasticity.microbatch import (
    SIGMAS,
    WAIT_SHARE,
    BatchCost,
    batch_length_s,
    latency_s,
)
from penstock.policies.elasticity.options import NodeOptions
from penstock.policies.elasticity.query_demand import Demand, free_cores, work_cores
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot

OVERHEAD = 0.05
"""Share of the time that fixed costs take at the longest interval: one that is longer saves nothing to speak of."""
RISE = 2.0
"""An interval grows by this factor a cycle at most, and falls at once."""
FIRST_S = 0.5
"""What an interval of 0 grows to first; shorter ones are not worth setting."""
BAND = 0.2
"""Relative change of an interval or a limit that is not worth an action."""
BATCH_SHARE = 0.5
"""Share of the bound that a batch may last."""
LEAST_USEFUL = 4.0
"""A batch lasts at least this many times its fixed part: more than a quarter of the time is never given to that."""
ROOM = 1.25
"""A limit leaves this many times what a batch reads in the steady state: it must never be what holds a query back."""
LEARNT = 3.0
"""Batches that must have been seen, by weight, before anything is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One query with one of its constraints, on the cores that it has."""

    constraint: Constraint
    cost: BatchCost
    rate_rps: float
    cores: float
    interval_s: float
    """As it is now."""
    own_interval_s: float
    keep: float = 1.0
    startup_s: float = 0.0
    """How long nodes take to start."""
    may_grow: bool = False
    """Whether more nodes are on their way, or the newest have yet to warm up."""

    @property
    def overhead_s(self) -> float:
        """What a batch takes on these cores without a record."""
        return float(self.cost.overhead_on(np.array([self.cores]))[0])

    @property
    def bound_s(self) -> float:
        """The bound in seconds."""
        return self.constraint.bound_ms / 1e3

    def load(self, keep: float = 1.0) -> float:
        """ρ: share of the cores that the records keep busy."""
        return self.rate_rps * keep * self.cost.record_s / self.cores

    def steady_s(self, interval_s: float, keep: float = 1.0) -> float:
        """From one batch to the next in the steady state; infinite where the cores do not suffice."""
        rate, cores = self.rate_rps * keep, np.array([self.cores])
        return float(batch_length_s(self.overhead_s, self.cost.record_s, rate, cores, interval_s)[0])

    def predicted_s(self, interval_s: float) -> float:
        """The constrained statistic at an interval."""
        statistic, cores = self.constraint.statistic, np.array([self.cores])
        cost = self.cost
        found = latency_s(
            self.overhead_s, cost.record_s, self.rate_rps, cores, interval_s, statistic, cost.variation
        )
        return float(found[0])

    def longest_interval_s(self, options: NodeOptions, excess_s: float = 0.0) -> float:
        """The longest interval worth having with which the bound is held; the owner's where there is no room.

        `excess_s` is how much later records were seen to be than predicted.
        """
        statistic = self.constraint.statistic
        # What a surge leaves unread until more nodes work must still fit.
        lag_s = self.startup_s * max(0.0, 1 - 1 / max(options.surge * self.load(), 1e-9))
        allowed_s = min(options.pace_share * self.bound_s, options.margin * self.bound_s - lag_s)
        allowed_s /= 1 + SIGMAS[statistic] * self.cost.variation
        room_s = allowed_s - self.overhead_s - max(0.0, excess_s)
        longest_s = min(room_s / (WAIT_SHARE[statistic] + self.load()), self.overhead_s / OVERHEAD)
        # Where batches take all the time anyway, there is nothing between them to lengthen.
        if longest_s < max(FIRST_S, ROOM * self.steady_s(0.0)):
            return self.own_interval_s
        return max(longest_s, self.own_interval_s)

    @property
    def most_records(self) -> float:
        """What a batch may read: the worth of half the bound, and always more than the query needs to keep up.

        Where more nodes come, keeping up is their part. Infinite where records cost nothing.
        """
        work_s = self.cost.record_s * self.keep / self.cores
        if work_s <= 0:
            return np.inf
        aim_s = max(BATCH_SHARE * self.bound_s, LEAST_USEFUL * self.overhead_s)
        steady_s = self.steady_s(self.interval_s, self.keep)
        alone = np.isfinite(steady_s) and not self.may_grow
        needed = ROOM * self.rate_rps * steady_s if alone else 0.0
        return max((aim_s - self.overhead_s) / work_s, needed)

    @property
    def batch_s(self) -> float:
        """How long a batch of that many records lasts."""
        work_s = self.cost.record_s * self.keep / self.cores
        return self.overhead_s + (self.most_records * work_s if work_s > 0 else 0.0)


def situations(
    snapshot: Snapshot,
    demand: Demand,
    costs: Mapping[str, BatchCost],
    *,
    rates_rps: Floats,
    nodes_cores: float,
    startup_s: float,
    may_grow: bool,
) -> dict[int, list[Situation]]:
    """By row of the query; only of those about which enough is known."""
    work = work_cores(demand, costs, rates_rps, demand.interval_s)
    found: dict[int, list[Situation]] = {}
    for query, constraint in demand.constraints:
        cost = costs.get(demand.names[query], BatchCost())
        known = cost.weight >= LEARNT and demand.fresh[query] and np.isfinite(demand.rate_rps[query])
        if not (known and len(snapshot.queries) and nodes_cores > 0 and constraint.bound_ms > 0):
            continue
        free = float(free_cores(demand, query, np.array([nodes_cores]), work)[0])
        found.setdefault(query, []).append(
            Situation(
                constraint=constraint,
                cost=cost,
                rate_rps=float(rates_rps[query]),
                cores=free,
                interval_s=float(demand.interval_s[query]),
                own_interval_s=float(demand.least_interval_s[query]),
                keep=float(demand.keep[query]),
                startup_s=startup_s,
                may_grow=may_grow,
            )
        )
    return found


def unpaced_s(snapshot: Snapshot, found: Mapping[int, list[Situation]]) -> Floats:
    """Latency of each constraint without what the lengthened intervals add, which can be taken back at once."""
    late = snapshot.constraints.latency_s.copy()
    row = {c.name: i for i, c in enumerate(snapshot.dataflow.constraints)}
    for one in (s for several in found.values() for s in several):
        own_s, added_s = one.predicted_s(one.own_interval_s), one.predicted_s(one.interval_s)
        if np.isfinite(own_s) and added_s > own_s:
            at = row[one.constraint.name]
            late[at] = min(late[at], max(late[at] - (added_s - own_s), own_s))
    return late


def intervals(
    snapshot: Snapshot,
    demand: Demand,
    found: Mapping[int, list[Situation]],
    options: NodeOptions,
    *,
    settled: bool,
) -> tuple[Action, ...]:
    """The trigger intervals to change: longer where the bounds leave room and things are calm, shorter at once."""
    queries, actions = snapshot.queries, list[Action]()
    row = {c.name: i for i, c in enumerate(snapshot.dataflow.constraints)}
    for query, several in found.items():
        if not (queries.paceable[query] and queries.interval_known[query]):
            continue
        now_s, wanted_s, tightest = several[0].interval_s, np.inf, several[0]
        for one in several:
            at = row[one.constraint.name]
            known = bool(snapshot.constraints.known[at])
            late_s = float(snapshot.constraints.latency_s[at]) if known else 0.0
            predicted_s = one.predicted_s(now_s)
            excess_s = late_s - predicted_s if np.isfinite(predicted_s) else 0.0
            longest_s = one.longest_interval_s(options, excess_s)
            ordinary = 2 * one.rate_rps * max(now_s, one.steady_s(0.0), late_s)
            if late_s > options.margin * one.bound_s or demand.backlog[query] > ordinary:
                longest_s = one.own_interval_s
            if longest_s < wanted_s:
                wanted_s, tightest = longest_s, one
        target_s = _rounded(min(wanted_s, max(FIRST_S, RISE * now_s)))
        if wanted_s <= tightest.own_interval_s:
            target_s = tightest.own_interval_s
        longer = target_s > now_s
        if abs(target_s - now_s) <= BAND * now_s or (longer and not settled):
            continue
        code = "room-for-longer-intervals" if longer else "bound-needs-shorter-intervals"
        predicted_s = tightest.predicted_s(target_s if longer else now_s)
        facts: dict[str, Fact] = {
            "constraint": tightest.constraint.name,
            "bound_ms": tightest.constraint.bound_ms,
            "predicted_ms": 1e3 * predicted_s if np.isfinite(predicted_s) else None,
            "before_ms": 1e3 * now_s,
            "batch_overhead_ms": 1e3 * tightest.overhead_s,
        }
        actions.append(
            Pace(
                query=demand.names[query],
                deadline_s=target_s,
                goal=tightest.constraint.name,
                reason=Reason(code=code, facts=facts),
            )
        )
    return tuple(actions)


def limits(snapshot: Snapshot, demand: Demand, found: Mapping[int, list[Situation]]) -> tuple[Action, ...]:
    """The read limits to change. One always stands: a backlog may come before anybody could limit the next batch."""
    sources, queries, actions = snapshot.sources, snapshot.queries, list[Action]()
    mine = queries.of_operators(sources.operator) if len(queries) else np.zeros(len(sources), np.int64)
    waiting = np.where(sources.known, sources.backlog_records, 0.0)
    for query, several in found.items():
        rows = np.flatnonzero(mine == query)
        if not len(rows) or not (sources.limitable & sources.known)[rows].all():
            continue
        tightest = min(several, key=lambda one: one.most_records)
        most = tightest.most_records
        if not np.isfinite(most):
            continue
        there = waiting + np.nan_to_num(sources.produced_rps) * tightest.bound_s
        total, now = float(there[rows].sum()), sources.read_limit[rows]
        shares = there[rows] / total if total > 0 else np.full(len(rows), 1 / len(rows))
        # A source that is silent now may begin to speak: it has at least a part of an even share.
        shares = np.maximum(shares, 0.25 / len(rows))
        for row, limit, share in zip(rows.tolist(), now.tolist(), shares.tolist(), strict=True):
            own = float(sources.own_limit[row])
            wanted = min(_count(most * share), int(own) or np.inf)
            if limit and abs(wanted / limit - 1) <= BAND:
                continue
            facts: dict[str, Fact] = {
                "constraint": tightest.constraint.name,
                "bound_ms": tightest.constraint.bound_ms,
                "waiting_records": float(total),
                "batch_s": tightest.batch_s,
                "rate_rps": tightest.rate_rps,
                "used_cores": tightest.cores,
                "record_core_us": 1e6 * tightest.cost.record_s,
            }
            actions.append(
                Limit(
                    operator=snapshot.dataflow.operators[sources.operator[row]].id,
                    records=int(wanted),
                    goal=tightest.constraint.name,
                    reason=Reason(code="batches-bounded", facts=facts),
                )
            )
    return tuple(actions)


def drained_s(one: Situation, backlog_records: float) -> float:
    """How long a backlog takes in bounded batches, while records keep coming; infinite where it never goes."""
    worked_rps = one.most_records / one.batch_s
    spare_rps = worked_rps - one.rate_rps
    return backlog_records / spare_rps if spare_rps > 0 else np.inf


def _rounded(seconds: float) -> float:
    """Two figures: what is set should be readable."""
    return float(f"{seconds:.2g}")


def _count(records: float) -> int:
    return max(1, int(float(f"{records:.2g}")))
