"""The paper's genetic decider (GA): dynamic-dataflows.txt, section 7.

A chromosome has two strands: the alternate of each operator, and for each machine that could be rented the owners of
its cores. Fitness is Θ, less a penalty that grows with the generation for missing Ω̂ and, at run time, for every change.
Parents by rank, the best 5 % kept, crossover by a random bit mask over genes, both strands mutate on their own. The
first population holds the greedy deployments besides random ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.policies.provisioning.deployment import Deployment, Provision, assess
from penstock.policies.provisioning.limits import explain_if_impossible, out_of_reach
from penstock.policies.provisioning.problem import Demand, DemandError, Floats, Ints
from penstock_papers.dynamic_dataflows.greedy import deploy_greedy
from penstock_papers.dynamic_dataflows.throughput import throughputs

FREE = -1
ABSENT = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneticOptions:
    """How much is searched."""

    population: int = 100
    """Chromosomes, 10 or more."""
    generations: int = 400
    """Rounds of crossover and mutation, 1 or more."""
    elite: float = 0.05
    """Share (0..1) of the best that is kept as it is."""
    penalty: float = 0.02
    """Weight of missing throughput, per generation."""
    change_penalty: float = 1e-6
    """Weight of each changed core, per generation; at run time only."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slots:
    """Machines that could be rented: the second strand's genes."""

    rows: Ints
    """Class of each."""
    speed: Floats
    price: Floats
    """What having it costs per hour; 0 where that is paid already."""
    owners: Ints
    """[slot, core]: who has it now (FREE: nobody, ABSENT: there is no such core)."""


def deploy_genetic(demand: Demand, options: GeneticOptions | None = None) -> Provision:
    """The fittest deployment found. Raises DemandError where none keeps the throughput."""
    explain_if_impossible(demand)
    seeds = []
    for centralised in (True, False):
        try:
            seeds.append(deploy_greedy(demand, centralised=centralised).deployment)
        except DemandError:
            continue
    if not seeds:
        raise out_of_reach(demand, None, None)
    slots = _slots(demand, seeds)
    strands = [(seed.alternates, _owners_in(demand, seed, slots)) for seed in seeds]
    alternates, owners = evolve(demand, slots, strands, options or GeneticOptions(), current=None)
    deployment = deployment_of(demand, slots, alternates, owners)
    found = assess(demand, deployment)
    if not found.meets:
        raise out_of_reach(demand, found.cost_per_hour, found.throughput)
    return Provision(
        decider="ga", deployment=deployment, assessment=found, why=("fittest of all generations",)
    )


def evolve(
    demand: Demand,
    slots: Slots,
    seeds: list[tuple[Ints, Ints]],
    options: GeneticOptions,
    *,
    current: tuple[Ints, Ints] | None,
) -> tuple[Ints, Ints]:
    """The best (alternates, owners) after all generations that keeps the throughput, else the fittest."""
    rng = np.random.default_rng(demand.seed)
    size = options.population
    first = [seeds[n % len(seeds)] for n in range(size)]
    alternates = np.stack([a for a, _ in first])
    owners = np.stack([o for _, o in first])
    keep = max(1, round(options.elite * size))
    untouched = np.arange(size) < len(seeds)
    alternates, owners = _mutated(demand, slots, alternates, owners, rng, untouched, strength=3.0)
    best, best_profit = (alternates[0], owners[0]), -np.inf
    for generation in range(options.generations):
        missing, profit = _judged(demand, slots, alternates, owners)
        fitness = profit - options.penalty * missing * (generation + 1) - np.where(missing > 1e-9, 1e-3, 0.0)
        if current is not None:
            changes = (owners != current[1]).sum(axis=(1, 2)) + (alternates != current[0]).sum(axis=1)
            fitness = fitness - options.change_penalty * changes * (generation + 1)
        kept = np.where(missing <= 1e-9, profit, -np.inf)
        if kept.max() > best_profit:
            at = int(kept.argmax())
            best, best_profit = (alternates[at].copy(), owners[at].copy()), float(kept[at])
        order = np.argsort(-fitness)
        rank = np.empty(size)
        rank[order] = np.arange(size, 0, -1)
        chance = rank / rank.sum()
        mothers, fathers = rng.choice(size, size, p=chance), rng.choice(size, size, p=chance)
        mask_a = rng.random(alternates.shape) < 0.5
        mask_o = rng.random(owners.shape[:2]) < 0.5
        elite = order[:keep]
        child_a = np.where(mask_a, alternates[mothers], alternates[fathers])
        child_o = np.where(mask_o[:, :, None], owners[mothers], owners[fathers])
        child_a[:keep], child_o[:keep] = alternates[elite], owners[elite]
        # The best that keeps the throughput is never lost to the growing penalty of others.
        if np.isfinite(best_profit):
            child_a[keep - 1], child_o[keep - 1] = best
        alternates, owners = _mutated(demand, slots, child_a, child_o, rng, np.arange(size) < keep)
    return best


def _judged(demand: Demand, slots: Slots, alternates: Ints, owners: Ints) -> tuple[Floats, Floats]:
    graph = demand.graph
    count, operators = len(owners), len(graph.operators)
    speed = np.broadcast_to(slots.speed[None, :, None], owners.shape)
    used = owners >= 0
    row = np.broadcast_to(np.arange(count)[:, None, None], owners.shape)
    power = np.bincount(
        (row * operators + np.maximum(owners, 0))[used], speed[used], minlength=count * operators
    ).reshape(count, operators)
    share, lowest = throughputs(graph, demand.input_rps, alternates, power.astype(np.float64))
    value = graph.value[np.arange(operators), alternates].mean(axis=1)
    cost = (used.any(axis=2) * slots.price).sum(axis=1)
    over = np.maximum(0.0, cost - demand.budget_per_hour)
    profit = value - (demand.sigma * (cost + 10 * over - demand.break_even.full_per_hour) + 1.0)
    missing = np.maximum(0.0, demand.throughput - share) + np.maximum(0.0, demand.least_share - lowest)
    return missing, np.asarray(profit)


def _mutated(
    demand: Demand,
    slots: Slots,
    alternates: Ints,
    owners: Ints,
    rng: np.random.Generator,
    untouched: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    strength: float = 1.0,
) -> tuple[Ints, Ints]:
    graph = demand.graph
    alternates, owners = alternates.copy(), owners.copy()
    counts = graph.counts
    flips = (rng.random(alternates.shape) < strength * 0.5 / alternates.shape[1]) & ~untouched[:, None]
    drawn = (rng.random(alternates.shape) * counts).astype(np.int64)
    worthless = graph.value[np.arange(len(counts)), drawn] <= 0
    alternates = np.where(flips & ~worthless, drawn, alternates)
    # One gene in a few changes one core: emptied, or given to a random operator.
    touched = (rng.random(owners.shape[:2]) < strength * 1.5 / owners.shape[1]) & ~untouched[:, None]
    member, slot = np.nonzero(touched)
    core = rng.integers(0, owners.shape[2], len(member))
    there = owners[member, slot, core] != ABSENT
    given = np.where(rng.random(len(member)) < 0.5, FREE, rng.integers(0, len(counts), len(member)))
    owners[member[there], slot[there], core[there]] = given[there]
    _scatter(owners, rng, untouched, strength)
    # Now and then a machine is given back whole.
    emptied = (rng.random(owners.shape[:2]) < strength * 0.3 / owners.shape[1]) & ~untouched[:, None]
    owners = np.where(emptied[:, :, None] & (owners != ABSENT), FREE, owners)
    return alternates, owners


def _scatter(
    owners: Ints,
    rng: np.random.Generator,
    untouched: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    strength: float,
) -> None:
    """In place: some members give a machine back and put its instances on free cores elsewhere."""
    for member in np.flatnonzero((rng.random(len(owners)) < min(0.9, 0.4 * strength)) & ~untouched):
        mine = owners[member]
        used = np.flatnonzero((mine >= 0).any(axis=1))
        if not len(used):
            continue
        slot = int(rng.choice(used))
        leaving = mine[slot][mine[slot] >= 0]
        elsewhere, cores = np.nonzero(mine == FREE)
        other = np.flatnonzero(elsewhere != slot)
        if len(other) < len(leaving):
            continue
        picked = rng.choice(other, len(leaving), replace=False)
        mine[slot] = np.where(mine[slot] >= 0, FREE, mine[slot])
        mine[elsewhere[picked], cores[picked]] = leaving


def _slots(demand: Demand, seeds: list[Deployment]) -> Slots:
    kinds = len(demand.classes)
    most = np.max([np.bincount(s.machines, minlength=kinds) for s in seeds], axis=0)
    most = most + 2 + (demand.cores == 1) * len(demand.graph.operators) // 2
    available = [np.inf if c.available is None else c.available for c in demand.classes]
    rows = np.repeat(np.arange(kinds), np.minimum(most, available).astype(np.int64))
    return slots_of(demand, rows)


def slots_of(demand: Demand, rows: Ints) -> Slots:
    """Empty slots of the given classes, at the full price."""
    widest = int(demand.cores.max())
    owners = np.where(np.arange(widest)[None, :] < demand.cores[rows][:, None], FREE, ABSENT)
    return Slots(rows=rows, speed=demand.core_speed[rows], price=demand.hourly[rows], owners=owners)


def _owners_in(demand: Demand, deployment: Deployment, slots: Slots) -> Ints:
    owners = slots.owners.copy()
    free = {k: list(np.flatnonzero(slots.rows == k)) for k in range(len(demand.classes))}
    for row, table in zip(deployment.machines, deployment.cores, strict=True):
        if free[int(row)]:
            mine = np.repeat(np.arange(len(table)), table)
            owners[free[int(row)].pop(0), : len(mine)] = mine
    return owners


def deployment_of(demand: Demand, slots: Slots, alternates: Ints, owners: Ints) -> Deployment:
    """The deployment that a chromosome stands for: the slots with an instance on them."""
    tables = np.zeros((len(owners), len(demand.graph.operators)), dtype=np.int64)
    slot, core = np.nonzero(owners >= 0)
    np.add.at(tables, (slot, owners[slot, core]), 1)
    used = tables.any(axis=1)
    return Deployment(alternates=alternates, machines=slots.rows[used], cores=tables[used])
