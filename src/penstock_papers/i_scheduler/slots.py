"""Two more schedulers to compare with: Flink's slots, and the machine with the lowest CPU use."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.policies.placement.problem import UNPLACED, Assignment, Floats, Ints, PlacementProblem
from penstock_papers.i_scheduler.jobs import jobs, members, producers_first
from penstock_papers.i_scheduler.packing import placed_rest, room_for


def flink(problem: PlacementProblem) -> Assignment:
    """Flink's slot filling: one task of every operator per slot, slots onto nodes one node after the other.

    Apache Flink, LocalInputPreferredSlotSharingStrategy: a task joins the slot of one of its producers if that
    holds no task of its operator yet, else the first such slot of its job, else a new one. Slots go to the first
    TaskManager with room (cluster.evenly-spread-out-slots is off by default). A slot larger than the room on every
    node is divided, its tasks placed in order by the same rule; Flink itself would wait for a larger TaskManager.
    """
    problem.require_room()
    free = problem.limits.copy()
    result = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    for slot in _slots(problem):
        whole = problem.loads[slot].sum(axis=0)
        for tasks, load in [(slot, whole)] if room_for(whole, free).any() else _one_by_one(problem, slot):
            fitting = np.flatnonzero(room_for(load, free))
            if len(fitting):
                result[tasks] = fitting[0]
                free[fitting[0]] -= load
    return placed_rest(problem, result)


def least_cpu(
    problem: PlacementProblem,
    *,
    foreign_use: Floats | None = None,
    measured: npt.NDArray[np.bool_] | None = None,
    preferred: Ints | None = None,
    seed: int = 0,
) -> Assignment:
    """The quality-of-data paper's scheduler: each task to the machine with the lowest CPU use.

    Section 4 there: the use of foreign processes counts (`foreign_use`, per node, in the unit of CPU loads); ties
    are broken at random (seeded); a location preference (`preferred`, a node per task or UNPLACED) is followed
    unless that machine lacks the CPU the task needs; a task without metrics (`measured` False) counts as one full
    core. Use is a share of the machine's capacity, so that machines of different size compare.
    """
    problem.require_room()
    rng = np.random.default_rng(seed)
    cpu = problem.resources.index("cpu") if "cpu" in problem.resources else 0
    needed = problem.loads.copy()
    if measured is not None:
        needed[~measured, cpu] = 1.0
    free = problem.limits.copy()
    if foreign_use is not None:
        free[:, cpu] -= foreign_use
    capacity = np.where(problem.capacities[:, cpu] > 0, problem.capacities[:, cpu], np.inf)
    result = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    for task in range(problem.tasks):
        fitting = np.flatnonzero(room_for(needed[task], free))
        if preferred is not None and preferred[task] in fitting:
            node = int(preferred[task])
        elif len(fitting):
            use = 1.0 - free[fitting, cpu] / capacity[fitting]
            node = int(rng.choice(fitting[use <= use.min() + 1e-12]))
        else:
            continue
        result[task] = node
        free[node] -= needed[task]
    return placed_rest(problem, result)


def _slots(problem: PlacementProblem) -> list[list[int]]:
    """Tasks that share a slot: at most one of each operator, near a producer where possible."""
    slot_of = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    slots: list[list[int]] = []
    taken: list[set[int]] = []
    of_job: dict[int, list[int]] = {}
    job_of, tasks_of = jobs(problem), members(problem)
    producers: list[list[int]] = [[] for _ in range(problem.tasks)]
    for source, target in zip(problem.sources.tolist(), problem.targets.tolist(), strict=True):
        producers[target].append(source)
    for operator in producers_first(problem):
        late = []
        for task in tasks_of[operator]:
            near = (slot_of[p] for p in producers[task] if slot_of[p] != UNPLACED)
            found = next((int(s) for s in near if operator not in taken[s]), None)
            if found is None:
                late.append(task)
            else:
                slot_of[task] = found
                slots[found].append(task)
                taken[found].add(operator)
        for task in late:
            shared = of_job.setdefault(int(job_of[task]), [])
            found = next((s for s in shared if operator not in taken[s]), None)
            if found is None:
                found = len(slots)
                slots.append([])
                taken.append(set())
                shared.append(found)
            slot_of[task] = found
            slots[found].append(task)
            taken[found].add(operator)
    return slots


def _one_by_one(problem: PlacementProblem, slot: list[int]) -> list[tuple[list[int], Floats]]:
    return [([task], problem.loads[task]) for task in slot]
