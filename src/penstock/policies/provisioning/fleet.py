"""How many nodes of which class: for the alternates of the most value that the budget pays, with what is under way.

Over the hours all power is paid for, so a choice is weighed by what all its nodes cost, not by what is lacking now.
Paid time is used up: a node goes when it ends, not before. What was asked for counts as there until it is overdue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.policies.actions import Acquire, Action, Cost, Expectation, Release
from penstock.policies.policy import Notice
from penstock.policies.provisioning.capacity import node_power
from penstock.policies.provisioning.choosing import choices, needs
from penstock.policies.provisioning.options import ProvisioningOptions
from penstock.policies.provisioning.problem import Bools, Floats, Ints
from penstock.policies.provisioning.situation import (
    ProvisioningMemory,
    Purchase,
    Situation,
    foreseen,
    usual_level,
)
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import MachineClass, Snapshot

KEEP_PLAN = 0.01
"""Share of the whole range of value that another plan of alternates must gain."""
SLOW = 1.1
"""A node that costs this many times as much for its power as a new one is replaced when its paid time ends."""
MOST_CATCH_UP = 0.5
LEAST_WINDOW_S = 60.0
"""Time over which all input must be carried, where less is paid at once."""
FIRST_PAUSE_S, MOST_PAUSE_S = 60.0, 1800.0
FOLLOWS = 0.5
"""Share of the growth in power by which what is processed must have grown while work waited."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sized:
    """What becomes of the nodes."""

    actions: tuple[Action, ...]
    notices: tuple[Notice, ...]
    memory: ProvisioningMemory
    staying: Bools
    """Nodes that work now and are not given back."""
    money: dict[str, Fact]
    """What more or less of it would bring, for reasons."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """Machine classes, the best price for power first, and what a node of each brings."""

    classes: tuple[MachineClass, ...]
    power: Floats
    left: Floats
    """How many more can be had."""

    @classmethod
    def of(cls, snapshot: Snapshot, now: Situation, power: Floats) -> Offer:
        """What can be had; new nodes are as fast as those there are, relative to their rating."""
        nodes, known = snapshot.nodes, {c.name: c for c in snapshot.classes}
        rated = np.array(
            [
                known[m].speed * n if m in known else n
                for m, n in zip(nodes.machines, nodes.cores, strict=True)
            ]
        )
        factor = min(1.0, float(power.sum() / rated.sum())) if rated.sum() > 0 else 1.0
        # An executor may have fewer cores than its class says.
        cores = {m: float(n) for m, n in zip(nodes.machines, nodes.cores, strict=True)}
        each = {
            c.name: cores.get(c.name, float(c.cores)) * c.speed * factor * now.full for c in known.values()
        }
        order = sorted(
            known.values(), key=lambda c: (round(c.price_per_hour / each[c.name], 9), -each[c.name])
        )
        there = [sum(m == c.name for m in nodes.machines) for c in order]
        return cls(
            classes=tuple(order),
            power=np.array([each[c.name] for c in order]),
            left=np.array(
                [
                    math.inf if c.available is None else c.available - n
                    for c, n in zip(order, there, strict=True)
                ]
            ),
        )

    @property
    def prices(self) -> Floats:
        """An hour of a node of each class."""
        return np.array([c.price_per_hour for c in self.classes])

    def cover(self, power: float, money: float, limits: Floats) -> Ints:
        """Nodes of each class that bring the power, as many as the money and the limits allow."""
        counts = np.zeros(len(self.classes), dtype=np.int64)
        for k, (each, price) in enumerate(zip(self.power, self.prices, strict=True)):
            paid = money / price if price > 0 else math.inf
            whole = max(0, math.floor(min(power / each + 1e-9, paid + 1e-9, limits[k])))
            counts[k], power, money = whole, power - whole * each, money - whole * price
        if power > 1e-9:  # the rest: the cheapest node that is enough, else the strongest
            able = [k for k in range(len(counts)) if counts[k] < limits[k] and self.prices[k] <= money + 1e-9]
            enough = [k for k in able if self.power[k] >= power - 1e-9]
            if able:
                k = (
                    min(enough, key=lambda k: self.prices[k])
                    if enough
                    else max(able, key=lambda k: self.power[k])
                )
                counts[k] += 1
        return counts

    def cost(self, power: Floats, limits: Floats) -> Floats:
        """Money an hour for nodes of so much power, all of them new; infinite where there are not so many."""
        counts = np.array([self.cover(float(p), math.inf, limits) for p in power])
        enough = counts @ self.power >= power - 1e-6 * np.maximum(power, 1.0)
        return np.asarray(np.where(enough, counts @ self.prices, np.inf))


def size_fleet(
    snapshot: Snapshot, now: Situation, memory: ProvisioningMemory, options: ProvisioningOptions
) -> Sized:
    """Nodes to acquire and to release."""
    nodes, goals = snapshot.nodes, snapshot.dataflow.goals
    power = node_power(snapshot)
    offer = Offer.of(snapshot, now, power)
    power = power * now.full
    memory, notices = _delivered(snapshot, memory, float(power[nodes.ready & ~nodes.draining].sum()), now)
    budget = math.inf if goals.budget_per_hour is None else goals.budget_per_hour
    everything = offer.left + [sum(m == c.name for m in nodes.machines) for c in offer.classes]
    chosen = choices(now.graph, now.active)
    wanted = _ready_for(snapshot, now, memory, options, offer)
    per_operator, value = needs(now.graph, wanted, chosen)
    # Cores beyond the tasks of an operator would stay idle.
    need = np.minimum(per_operator, now.tasks).sum(axis=1)
    levels, level = np.unique(np.round(need, 6), return_inverse=True)
    cost = offer.cost(levels, everything)[level]
    plan = _plan(value, cost, need, budget, chosen, memory, options)
    money = _money(value, cost, plan)
    if cost[plan] > budget + 1e-9:
        notices = (*notices, _too_little(now, float(need.min()), cost, budget, offer, everything))
    memory = replace(memory, planned=tuple(chosen[plan].tolist()))
    staying, actions, memory = _give_back(snapshot, memory, options, float(need[plan]), power, offer, money)
    if actions:  # nodes of a class come or go, never both in one plan
        return Sized(
            actions=actions, notices=notices, memory=memory, staying=staying & nodes.ready, money=money
        )
    overdue = _overdue(snapshot, power, offer)
    counted = float(power[staying & ~overdue].sum()) + _missing(snapshot, memory, offer)
    short = float(need[plan]) - counted
    left = budget - float(nodes.price_per_hour.sum()) - _missing(snapshot, memory, offer, money=True)
    if short > 1e-6 * max(1.0, float(need[plan])) and snapshot.time_s >= memory.paused_until_s:
        counts = offer.cover(short, left, offer.left)
        actions = tuple(
            _acquire(snapshot, offer.classes[k], int(n), short, money) for k, n in enumerate(counts) if n
        )
        if actions:
            memory = replace(memory, purchase=_bought(snapshot, actions[0], power, memory))
    return Sized(actions=actions, notices=notices, memory=memory, staying=staying & nodes.ready, money=money)


def _ready_for(
    snapshot: Snapshot, now: Situation, memory: ProvisioningMemory, options: ProvisioningOptions, offer: Offer
) -> Floats:
    """The input that nodes are counted for: what must be carried at once, all of it over the hour, and backlog."""
    startup_s = max((c.startup_s for c in offer.classes), default=0.0)
    within_s = startup_s + 1.5 * snapshot.interval_s
    rare = foreseen(snapshot, now.rates_rps, memory, within_s, options.caution, most=0.6)
    peak = (now.at_once - now.tolerance) * rare
    # What waits for the end of a peak must fit into the time that is paid for.
    paid_s = max(LEAST_WINDOW_S, *(c.billing_s for c in offer.classes))
    total = float(now.rates_rps.sum())
    late = min(MOST_CATCH_UP, now.drain / max(options.catch_up_s, snapshot.interval_s))
    level = usual_level(memory, paid_s, total) / total + late
    return np.asarray(np.maximum(peak, now.rates_rps * level))


def _plan(
    value: Floats,
    cost: Floats,
    need: Floats,
    budget: float,
    chosen: Ints,
    memory: ProvisioningMemory,
    options: ProvisioningOptions,
) -> int:
    """The choice of the most value within the budget (of the most profit where a break-even is given)."""
    paid = cost <= budget + 1e-9
    if not paid.any():
        return int(np.lexsort((-value, need))[0])
    spread = float(value.max() - value.min())
    worth = options.break_even_per_hour
    sigma = (2 * spread if spread > 0 else 1.0) / worth if worth > 0 else 0.0
    score = np.where(paid, value - sigma * np.where(paid, cost, 0.0), -np.inf)
    if len(memory.planned) == chosen.shape[1]:
        score[(chosen == np.array(memory.planned)).all(axis=1)] += KEEP_PLAN * spread
    return int(np.lexsort((need, np.where(paid, cost, np.inf), -np.round(score, 9)))[0])


def _money(value: Floats, cost: Floats, plan: int) -> dict[str, Fact]:
    """What the next better and the next cheaper choice bring and cost."""
    better = np.flatnonzero((value > value[plan] + 1e-9) & np.isfinite(cost))
    cheaper = np.flatnonzero(cost < cost[plan] - 1e-9)
    more, less = "no more value", "not enough throughput"
    if len(better):
        k = better[np.lexsort((-value[better], cost[better]))[0]]
        more = f"value {value[k]:.3g}, for {cost[k]:.4g} an hour"
    if len(cheaper):
        k = cheaper[np.lexsort((cost[cheaper], -value[cheaper]))[0]]
        less = f"value {value[k]:.3g}, for {cost[k]:.4g} an hour"
    return {"cost_per_hour": float(cost[plan]), "more_money": more, "less_money": less}


def _too_little(
    now: Situation, least: float, cost: Floats, budget: float, offer: Offer, limits: Floats
) -> Notice:
    had = float(offer.cover(least, budget, limits) @ offer.power)
    rate, cheapest = float(now.rates_rps.sum()), float(cost.min())
    share = min(1.0, had / least) if least > 0 else 1.0
    facts: dict[str, Fact] = {
        "rate_rps": rate,
        "budget_per_hour": budget if math.isfinite(budget) else None,
        "costs_per_hour": cheapest if math.isfinite(cheapest) else None,
        "share": share,
    }
    money = f"{cheapest:.4g} an hour" if math.isfinite(cheapest) else "more nodes than can be had"
    return Notice(
        goal="throughput",
        reason=Reason(code="beyond-the-budget", facts=facts),
        helps=f"{money} with the cheapest alternates, a load of {share * rate:,.3g} records/s, or shedding",
    )


def _ends_s(snapshot: Snapshot) -> Floats:
    return np.asarray(snapshot.nodes.paid_until_s - snapshot.time_s)


def _overdue(snapshot: Snapshot, power: Floats, offer: Offer) -> Bools:
    """Nodes that are dear for what they bring and whose paid time ends before a new one could work."""
    nodes = snapshot.nodes
    dear = nodes.price_per_hour * offer.power[0] > SLOW * offer.prices[0] * power
    soon = _ends_s(snapshot) <= offer.classes[0].startup_s + 2.5 * snapshot.interval_s
    # Where time is not paid in advance, speed may come back any moment.
    return np.asarray(dear & soon & _in_advance(snapshot))


def _in_advance(snapshot: Snapshot) -> Bools:
    """Nodes whose time is paid in units that are long beside the interval."""
    billing = {c.name: c.billing_s for c in snapshot.classes}
    units = {name: billing.get(name, 0.0) > 2 * snapshot.interval_s for name in set(snapshot.nodes.machines)}
    return np.array([units[name] for name in snapshot.nodes.machines], dtype=np.bool_)


def _give_back(
    snapshot: Snapshot,
    memory: ProvisioningMemory,
    options: ProvisioningOptions,
    need: float,
    power: Floats,
    offer: Offer,
    money: dict[str, Fact],
) -> tuple[Bools, tuple[Action, ...], ProvisioningMemory]:
    """(nodes that stay, releases): those that are not needed, lastingly, and whose paid time is about to end."""
    nodes, left_s = snapshot.nodes, _ends_s(snapshot)
    staying = np.asarray(~nodes.draining)
    spare = float(power[staying & nodes.ready].sum()) - need
    # By the second a wrong guess costs a start; a paid hour that ends is a decision by itself.
    margin = np.where(_in_advance(snapshot), 0.0, options.band * need)
    budget = snapshot.dataflow.goals.budget_per_hour
    excess = 0.0 if budget is None else float(nodes.price_per_hour[staying].sum()) - budget
    able = staying & nodes.ready & ((power <= spare - margin) | (excess > 1e-9))
    if staying.sum() <= 1 or not able.any():
        return staying, (), replace(memory, spare_since_s=None)
    since = snapshot.time_s if memory.spare_since_s is None else memory.spare_since_s
    memory = replace(memory, spare_since_s=since)
    if snapshot.time_s - since < options.return_after_s - snapshot.interval_s / 2:
        return staying, (), memory
    actions: list[Action] = []
    left = int(staying.sum())
    for row in np.argsort(-nodes.price_per_hour / np.maximum(power, 1e-9), kind="stable"):
        if not able[row] or left_s[row] >= snapshot.interval_s - 1e-6 or left <= 1:
            continue
        if power[row] > spare - margin[row] and excess <= 1e-9:
            continue
        facts: dict[str, Fact] = {"spare_cores": spare, "paid_for_s": max(0.0, float(left_s[row])), **money}
        actions.append(
            Release(
                node=nodes.ids[row],
                reason=Reason(code="machine-not-needed", facts=facts),
                cost=Cost(per_hour=-float(nodes.price_per_hour[row])),
            )
        )
        spare -= float(power[row])
        excess -= float(nodes.price_per_hour[row])
        staying[row] = False
        left -= 1
    return staying, tuple(actions), memory


def _acquire(
    snapshot: Snapshot, machine: MachineClass, count: int, short: float, money: dict[str, Fact]
) -> Acquire:
    there = sum(m == machine.name for m in snapshot.nodes.machines)
    return Acquire(
        machine=machine.name,
        count=count,
        reason=Reason(code="load-needs-machines", facts={"short_cores": short, "machines": count, **money}),
        expects=Expectation(
            metric="nodes",
            subject=f"class:{machine.name}",
            value=float(there + count),
            within_s=machine.startup_s + 3 * snapshot.interval_s,
        ),
        cost=Cost(per_hour=count * machine.price_per_hour),
    )


def _served_rps(snapshot: Snapshot) -> float:
    return float(np.where(snapshot.sources.known, snapshot.sources.read_rps, 0.0).sum())


def _bought(snapshot: Snapshot, asked: Action, power: Floats, memory: ProvisioningMemory) -> Purchase:
    assert isinstance(asked, Acquire)
    nodes = snapshot.nodes
    there = sum(m == asked.machine and not d for m, d in zip(nodes.machines, nodes.draining, strict=True))
    if memory.purchase is not None and memory.purchase.machine == asked.machine:
        there = max(there, memory.purchase.count)
    return Purchase(
        asked_s=snapshot.time_s,
        machine=asked.machine,
        count=there + asked.count,
        power=float(power[nodes.ready & ~nodes.draining].sum()),
        served_rps=_served_rps(snapshot),
    )


def _missing(snapshot: Snapshot, memory: ProvisioningMemory, offer: Offer, *, money: bool = False) -> float:
    """Power (or price) of nodes that were asked for and cannot be seen yet."""
    asked, nodes = memory.purchase, snapshot.nodes
    if asked is None:
        return 0.0
    there = sum(m == asked.machine and not d for m, d in zip(nodes.machines, nodes.draining, strict=True))
    each = {c.name: (p, c.price_per_hour) for c, p in zip(offer.classes, offer.power, strict=True)}
    return max(0, asked.count - there) * each.get(asked.machine, (0.0, 0.0))[money]


def _delivered(
    snapshot: Snapshot, memory: ProvisioningMemory, power: float, now: Situation
) -> tuple[ProvisioningMemory, tuple[Notice, ...]]:
    """What became of the last purchase: forgotten once it helps; a pause where it did not come or did not help."""
    asked, nodes, time_s = memory.purchase, snapshot.nodes, snapshot.time_s
    if asked is None:
        return memory, ()
    mine = np.array([m == asked.machine for m in nodes.machines], bool) & ~nodes.draining
    startup_s = max((c.startup_s for c in snapshot.classes if c.name == asked.machine), default=0.0)
    missing = asked.count - int((mine & nodes.ready).sum())
    if missing > 0:
        if time_s - asked.asked_s < 2 * startup_s + 3 * snapshot.interval_s + FIRST_PAUSE_S:
            return memory, ()
        facts: dict[str, Fact] = {"machines": missing, "waited_s": time_s - asked.asked_s}
        return _paused(
            snapshot, memory, "machines-do-not-come", facts, "capacity of the cluster, or another class"
        )
    came_s = time_s if asked.came_s is None else asked.came_s
    if time_s - came_s < 2.5 * snapshot.interval_s:
        return replace(memory, purchase=replace(asked, came_s=came_s)), ()
    grown = power / asked.power - 1 if asked.power > 0 else 0.0
    served = _served_rps(snapshot) / asked.served_rps - 1 if asked.served_rps > 0 else grown
    if now.backlog > 0 and now.drain > snapshot.interval_s and served < FOLLOWS * grown:
        facts = {"power_gain": grown, "served_gain": max(0.0, served)}
        helps = "more partitions or tasks, or a faster source or sink: cores are not what is scarce"
        return _paused(snapshot, memory, "capacity-does-not-follow", facts, helps)
    return replace(memory, purchase=None, pause_s=0.0), ()


def _paused(
    snapshot: Snapshot, memory: ProvisioningMemory, code: str, facts: dict[str, Fact], helps: str
) -> tuple[ProvisioningMemory, tuple[Notice, ...]]:
    pause_s = min(MOST_PAUSE_S, max(FIRST_PAUSE_S, 2 * memory.pause_s))
    memory = replace(
        memory, purchase=None, pause_s=pause_s, paused_until_s=snapshot.time_s + pause_s, spare_since_s=None
    )
    reason = Reason(code=code, facts={**facts, "pause_s": pause_s})
    return memory, (Notice(goal="throughput", reason=reason, helps=helps),)
