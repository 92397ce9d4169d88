"""Our decider at run time: fleet and alternates for the load to come, with what is paid for used up.

Each interval: the rate to be ready for comes from a forecast with its uncertainty; every choice of alternates is
weighed as Γ - σ·(price of its power), and the best one sizes the fleet; machines are given back only when their paid
time ends, slow ones first; and power that is there anyway runs better alternates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from penstock.policies.elasticity.foresight import Foresight
from penstock.policies.provisioning.choosing import choices, needs
from penstock.policies.provisioning.flow import FREE_S
from penstock.policies.provisioning.problem import Bools, Demand, Floats, Ints
from penstock.policies.provisioning.running import Adaptation, Running


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringOptions:
    """How careful the run-time decider is."""

    sigmas: float = 1.1
    """Standard deviations of the forecast for which the lower tolerance of Ω must still hold, 0 or more."""
    margin: float = 0.01
    """Share (0..) of power on top, for machines that get slower."""
    slow: float = 0.9
    """Machines below this share (0..1) of the usual observed speed are replaced when their paid time ends."""
    switch_gain: float = 0.002
    """Value (0..1) that a change of alternates must gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringMemory:
    """What sources brought so far."""

    foresight: Foresight | None = None


def steer(
    demand: Demand, running: Running, memory: SteeringMemory, options: SteeringOptions
) -> tuple[Adaptation, SteeringMemory]:
    """The changes for the coming interval."""
    graph = demand.graph
    memory = _observed(demand, running, memory)
    soon, later = (_ready_for(demand, running, memory, options, steps) for steps in (1, 2))
    chosen = choices(graph, running.alternates)
    power_later, value = needs(graph, later, chosen)
    left = running.paid_left_s(demand)
    size = demand.cores[running.rows]
    rated = demand.core_speed[running.rows]
    factor = running.speed / rated
    usual = float(np.median(factor)) if len(factor) else 1.0
    expected = demand.core_speed * min(1.0, float(factor.mean()) if len(factor) else 1.0)
    # A machine is on its way out when its paid time ends now; a slow one already an interval earlier.
    ending = left <= running.interval_s + 1.0
    slow = (factor < options.slow * usual) & (left <= 2 * running.interval_s + 1.0)
    price = float((demand.hourly / (demand.cores * expected)).min())
    # Over the hours all power is paid for. Counting only what is lacking now would renew, bit by bit, a fleet that
    # as a whole is not worth its price.
    score = value - demand.sigma * price * power_later.sum(axis=1)
    score[(chosen == running.alternates).all(axis=1)] += options.switch_gain
    plan = int(np.argmax(score))
    need = power_later[plan]
    keep, short = _kept(running, need, ending, slow, size)
    acquire = _cover(demand, short, expected)
    rows = np.concatenate([running.rows[keep], acquire])
    speed = np.concatenate([running.speed[keep], expected[acquire]])
    ready = np.concatenate(
        [running.ready_share(demand)[keep], _fresh_share(demand, acquire, running.interval_s)]
    )
    cores = np.vstack([running.cores[keep], np.zeros((len(acquire), len(need)), dtype=np.int64)])
    now = speed * np.where(ready > 0, ready, 1e-6)
    power_soon, _ = needs(graph, soon, chosen)
    order = np.lexsort((power_soon.sum(axis=1), -_with_bonus(value, chosen, running, options)))
    best: tuple[float, int, Ints] | None = None
    able = float((demand.cores[rows] * now).sum())
    for c in order:
        if power_soon[c].sum() > able and c != order[-1]:
            continue
        mapped = fill(power_soon[c], cores.copy(), now, demand.cores[rows])
        served = _served(power_soon[c], now @ mapped)
        if best is None or served > best[0] + 1e-9:
            best = (served, int(c), mapped)
        if served >= 1.0 - 1e-9:
            break
    if best is None or best[0] < 1.0 - 1e-9:
        c = int(np.argmin(power_soon.sum(axis=1)))
        mapped = fill(power_soon[c], cores.copy(), now, demand.cores[rows])
        if best is None or _served(power_soon[c], now @ mapped) > best[0]:
            best = (0.0, c, mapped)
    return Adaptation(alternates=chosen[best[1]], keep=keep, acquire=acquire, cores=best[2]), memory


def _with_bonus(value: Floats, chosen: Ints, running: Running, options: SteeringOptions) -> Floats:
    same = (chosen == running.alternates).all(axis=1)
    return np.asarray(value + np.where(same, options.switch_gain, 0.0))


def _observed(demand: Demand, running: Running, memory: SteeringMemory) -> SteeringMemory:
    known = memory.foresight
    if known is None:
        known = Foresight.start(
            1, step_s=running.interval_s, horizon_s=3 * running.interval_s, kept_steps=512
        )
    return replace(memory, foresight=known.observe(np.array([running.input_rps.sum()])))


def _ready_for(
    demand: Demand, running: Running, memory: SteeringMemory, options: SteeringOptions, steps: int
) -> Floats:
    """Input that must be carried in full so that Ω̂ holds on the mean and Ω̂ - ε in all but rare intervals."""
    total = float(running.input_rps.sum())
    seen = memory.foresight
    if seen is None or total <= 0:
        return running.input_rps * demand.throughput
    within = steps * running.interval_s
    usual = float(seen.highest_rps(within, sigmas=0.0, most=0.0)[0])
    rare = float(seen.highest_rps(within, sigmas=options.sigmas, most=0.6)[0])
    rate = max(demand.throughput * usual, (demand.throughput - demand.tolerance) * rare)
    return running.input_rps * ((1 + options.margin) * rate / total)


def _fresh_share(demand: Demand, acquire: Ints, interval_s: float) -> Floats:
    startup = np.array([c.startup_s for c in demand.classes])[acquire]
    return np.clip(1 - startup / interval_s, 0.0, 1.0)


def _served(need: Floats, power: Floats) -> float:
    """The smallest share of its need that any operator has."""
    wanted = need > FREE_S
    return float(np.min(power[wanted] / need[wanted], initial=1.0))


def _kept(running: Running, need: Floats, ending: Bools, slow: Bools, size: Ints) -> tuple[Bools, Floats]:
    """(machines that stay, power each operator lacks): of those whose paid time ends, the fewest and fastest."""
    stay = ~ending
    candidates = np.flatnonzero(ending)
    candidates = candidates[np.argsort(-running.speed[candidates], kind="stable")]
    firm = stay & ~slow
    usable = [m for m in candidates if not slow[m]]

    def lacking(extra: int) -> tuple[Bools, Floats]:
        there = firm.copy()
        there[usable[:extra]] = True
        table = fill(need, running.cores[there].copy(), running.speed[there], size[there])
        return there, np.maximum(0.0, need - running.speed[there] @ table)

    low, high = 0, len(usable)
    while low < high:  # the fewest that suffice; if none do, all
        middle = (low + high) // 2
        if lacking(middle)[1].sum() <= 1e-9:
            high = middle
        else:
            low = middle + 1
    there, short = lacking(low)
    return there | (stay & slow), short


def _cover(demand: Demand, short: Floats, speed: Floats) -> Ints:
    """Classes of new machines that give every operator the power it lacks, cheaply."""
    if not short.sum() > 1e-9:
        return np.zeros(0, dtype=np.int64)
    per_power = np.round(demand.hourly / (demand.cores * speed), 9)
    bulk = int(np.lexsort((-demand.cores, per_power))[0])
    per_core = demand.hourly / demand.cores
    cores: dict[float, int] = {}
    for lack in short[short > 1e-9]:
        whole = int(lack / speed[bulk] + 1e-9)
        cores[float(speed[bulk])] = cores.get(float(speed[bulk]), 0) + whole
        rest = lack - whole * speed[bulk]
        if rest > 1e-9:
            fits = np.flatnonzero(speed >= rest - 1e-9)
            k = fits[np.argmin(per_core[fits])] if len(fits) else bulk
            cores[float(speed[k])] = cores.get(float(speed[k]), 0) + 1
    found: list[int] = []
    for v, count in cores.items():
        classes = sorted(np.flatnonzero(speed == v), key=lambda k: -demand.cores[k])
        while count > 0:
            filled = [k for k in classes if demand.cores[k] <= count]
            k = filled[0] if filled else min(classes, key=lambda k: demand.hourly[k])
            number = max(1, count // int(demand.cores[k])) if filled else 1
            found += [int(k)] * number
            count -= number * int(demand.cores[k])
    limits = [np.inf if c.available is None else c.available for c in demand.classes]
    kept = (
        [k for n, k in enumerate(found) if found[:n].count(k) < limits[k]]
        if np.isfinite(limits).any()
        else found
    )
    return np.array(kept, dtype=np.int64)


@njit(cache=True)
def fill(need: Floats, cores: Ints, speed: Floats, size: Ints) -> Ints:
    """Cores so that every operator has the power it needs, as few changes as that takes; free ones go to the scarcest.

    In place. Cores that an operator can spare are freed first; then the operator that lacks most is served, always.
    """
    count, operators = cores.shape
    power = np.zeros(operators)
    free = np.zeros(count, np.int64)
    for m in range(count):
        free[m] = size[m]
        for i in range(operators):
            free[m] -= cores[m, i]
            power[i] += cores[m, i] * speed[m]
    for m in range(count):
        for i in range(operators):
            while cores[m, i] > 0 and power[i] - speed[m] >= need[i] - 1e-12:
                cores[m, i] -= 1
                power[i] -= speed[m]
                free[m] += 1
    # The fastest cores to those that lack most; the last one of an operator is the slowest that is enough.
    order = np.argsort(-speed)
    head = 0
    for rounds in range(2):
        while True:
            worst, most = -1, 0.0
            for i in range(operators):
                if rounds == 0 and need[i] - power[i] > 1e-12 and need[i] - power[i] > most:
                    worst, most = i, need[i] - power[i]
                if rounds == 1 and need[i] > 1e-12 and (worst < 0 or power[i] / need[i] < most):
                    worst, most = i, power[i] / need[i]
            if worst < 0:
                break
            while head < count and free[order[head]] == 0:
                head += 1
            picked = -1
            for a in range(head, count):
                m = order[a]
                if free[m] > 0:
                    if picked < 0 or (rounds == 0 and speed[m] >= need[worst] - power[worst] - 1e-12):
                        picked = m
                    elif rounds == 0 and speed[picked] >= need[worst] - power[worst]:
                        break
                    if rounds == 1 or speed[m] < need[worst] - power[worst]:
                        break
            if picked < 0:
                break
            cores[picked, worst] += 1
            power[worst] += speed[picked]
            free[picked] -= 1
    return cores
