"""Optimal placement, proved; or a lower bound, when the problem is too large or the time runs out.

Tasks that send and receive alike are one group, nodes that offer alike one class. A node of a class holds a *pattern*:
so many tasks of each group. Which patterns to use is an integer program:

    max Σ v_p x_p   with   Σ c_pg x_p = n_g                 for each group g,
                           Σ_{p of class k} x_p ≤ N_k        for each class k,
                           Σ_{p of small classes} x_p ≥ m    for nodes that must be used at least (`_usage_cuts`),

where v_p is the traffic that stays on the node, and the price of moves that are saved. Column generation solves its
linear relaxation; for any prices of the rows, Lagrange's bound holds, so it holds whenever the time runs out. A pattern
whose reduced cost rules it out of anything better than the placement in hand leaves the integer program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csc_array

from penstock.extras import optional
from penstock.policies.placement.bounds import quick_bound
from penstock.policies.placement.budget import Budget
from penstock.policies.placement.problem import (
    UNPLACED,
    Assignment,
    DoesNotFitError,
    Floats,
    Ints,
    Missing,
    PlacementProblem,
    no_packing,
)

highspy = optional("highspy")

Counts = npt.NDArray[np.int16]

GROUP_LIMIT = 200
PATTERN_CELLS = 6_000_000
"""Most patterns times groups. A larger problem is not proved; `quick_bound` remains."""
PROGRAM_LIMIT = 30_000
"""Most columns of an integer program that is worth starting."""
SOLVER_OPTIONS: Mapping[str, object] = {
    "output_flag": False,
    "threads": 1,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
    "mip_heuristic_effort": 0.0,  # a good placement is known, only the proof is missing
    "mip_max_nodes": 2_000,  # a limit of work, so that an answer does not depend on the machine
}
COLUMNS_PER_ROUND = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounded:
    """A placement and a lower bound on the objective of every placement."""

    assignment: Assignment
    lower_bound: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Patterns:
    """Every way to fill one node of each class, one below the other."""

    groups: tuple[Ints, ...]
    """Tasks of each group."""
    classes: tuple[Ints, ...]
    """Nodes of each class."""
    counts: Counts
    """[patterns, groups]"""
    class_of: Ints
    """[patterns]"""
    values: Floats
    """[patterns]: traffic kept on the node and price of moves saved."""
    rows: Floats
    """[patterns, classes + cuts]: 1 where a pattern counts for the row."""
    least: Floats
    most: Floats
    """[classes + cuts] bounds of the sums"""


def proved(problem: PlacementProblem, start: Assignment | None, budget: Budget) -> Bounded:
    """The optimum if work and budget suffice to prove it, else the better of `start` and what was found, with a bound.

    Raises DoesNotFitError, proved, if no placement exists; or with the packing that failed if none was found.
    """
    problem.require_room()
    bound = quick_bound(problem)
    if start is not None and problem.objective(start) <= bound + 1e-9:
        return Bounded(assignment=start, lower_bound=bound)
    patterns = _patterns(problem)
    if patterns is not None and start is None:
        start = _any_placement(problem, patterns, budget)
    if start is None:
        share = problem.loads / np.maximum(problem.capacities.max(axis=0), 1e-300)
        raise no_packing(problem.task_ids[int(np.argmax(share.max(axis=1)))])
    best = start
    if patterns is not None:
        total = problem.traffic + float(problem.move_prices[problem.running != UNPLACED].sum())
        kept = total - problem.objective(start)
        most, reduced = _relaxed(patterns, _patterns_of(problem, patterns, start), budget)
        chosen, most = _chosen(patterns, most, reduced, kept, grain_of(problem), budget)
        if chosen is not None:
            best = _spread(problem, patterns, chosen)
        bound = max(bound, total - most)
    objective = problem.objective(best)
    # Rounding in the solvers must neither put the bound above what was found nor leave a hair between them.
    return Bounded(
        assignment=best, lower_bound=objective if objective - bound <= 1e-9 * max(1.0, objective) else bound
    )


def grain_of(problem: PlacementProblem) -> float | None:
    """The largest number that divides every rate and every move price, or None if they are not integers."""
    values = np.concatenate([problem.adjacency.data, problem.move_prices[problem.running != UNPLACED]])
    values = values[values > 0]
    if not len(values) or values.max() > 2**40 or np.any(values != np.rint(values)):
        return None
    return float(np.gcd.reduce(values.astype(np.int64)))


def task_groups(problem: PlacementProblem) -> tuple[Ints, ...]:
    """Tasks with the same load and the same traffic to every other task."""
    rows = problem.adjacency
    groups: dict[bytes, list[int]] = {}
    for t in range(problem.tasks):
        ends = slice(rows.indptr[t], rows.indptr[t + 1])
        key = b"|".join(part.tobytes() for part in (problem.loads[t], rows.indices[ends], rows.data[ends]))
        groups.setdefault(key, []).append(t)
    return tuple(np.array(tasks, dtype=np.int64) for tasks in groups.values())


def _home_prices(problem: PlacementProblem, tasks: Ints, node: int) -> Floats:
    """What the tasks of a group that run on `node` pay for leaving it, the dearest first.

    Of c tasks of the group on the node, the c dearest of these stay: a task has one home only, so nodes do not compete.
    """
    prices: Floats = np.sort(problem.move_prices[tasks[problem.running[tasks] == node]])[::-1]
    return prices[prices > 0]


def node_classes(problem: PlacementProblem, groups: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """Nodes of one capacity that are home to tasks of the same groups at the same prices."""
    classes: dict[bytes, list[int]] = {}
    for n in range(problem.nodes):
        homes = [_home_prices(problem, tasks, n).tobytes() for tasks in groups]
        classes.setdefault(b"|".join([problem.capacities[n].tobytes(), *homes]), []).append(n)
    return tuple(np.array(nodes, dtype=np.int64) for nodes in classes.values())


def _patterns(problem: PlacementProblem) -> Patterns | None:
    """All patterns, or None if there are too many."""
    groups = task_groups(problem)
    if len(groups) > GROUP_LIMIT:
        return None
    classes, first = node_classes(problem, groups), [int(tasks[0]) for tasks in groups]
    rates = problem.adjacency[first][:, first].toarray()
    room, found = PATTERN_CELLS // max(1, len(groups)), []
    for nodes in classes:
        filled = _fillings(problem, groups, problem.limits[nodes[0]], room)
        if filled is None:
            return None
        room -= len(filled)
        found.append(filled)
    values = []
    for nodes, counts in zip(classes, found, strict=True):
        wide = counts.astype(np.float64)
        value = 0.5 * np.einsum("pg,pg->p", wide @ rates, wide)
        for g, tasks in enumerate(groups):
            saved = np.concatenate([[0.0], np.cumsum(_home_prices(problem, tasks, int(nodes[0])))])
            value += saved[np.minimum(counts[:, g], len(saved) - 1)]
        values.append(value)
    counts, class_of = np.concatenate(found), np.repeat(np.arange(len(classes)), [len(f) for f in found])
    members, needed = _usage_cuts(problem, classes)
    used = counts.sum(axis=1) > 0
    return Patterns(
        groups=groups,
        classes=classes,
        counts=counts,
        class_of=class_of,
        values=np.concatenate(values),
        rows=np.concatenate(
            [class_of[:, None] == np.arange(len(classes)), members[:, class_of].T & used[:, None]], axis=1
        ).astype(np.float64),
        least=np.concatenate([np.full(len(classes), -np.inf), needed]),
        most=np.concatenate([[len(nodes) for nodes in classes], np.full(len(needed), np.inf)]),
    )


def _fillings(
    problem: PlacementProblem, groups: tuple[Ints, ...], limits: Floats, most: int
) -> Counts | None:
    patterns = np.zeros((1, len(groups)), dtype=np.int16)
    loads = np.zeros((1, problem.loads.shape[1]))
    for g, tasks in enumerate(groups):
        grown, grown_loads = [patterns], [loads]
        for _ in range(len(tasks)):
            more = grown_loads[-1] + problem.loads[tasks[0]]
            fit = np.all(more <= limits, axis=1)
            if not fit.any():
                break
            grown.append(grown[-1][fit])
            grown[-1][:, g] += 1
            grown_loads.append(more[fit])
            if sum(map(len, grown)) > most:
                return None
        patterns, loads = np.concatenate(grown), np.concatenate(grown_loads)
    return patterns


def _usage_cuts(problem: PlacementProblem, classes: tuple[Ints, ...]) -> tuple[npt.NDArray[np.bool_], Floats]:
    """[cuts, classes] classes, and how many of their nodes every placement uses at least.

    Even if all larger nodes are full, the smaller classes carry the rest of the load, and nodes are used whole:
    the fewest that carry it, largest first. The linear program alone would use fractions of nodes.
    """
    members, needed = [], []
    sizes = np.array([len(nodes) for nodes in classes])
    limits = problem.limits[[nodes[0] for nodes in classes]]
    for r in range(problem.loads.shape[1]):
        order = np.argsort(-limits[:, r], kind="stable")
        each = np.repeat(limits[order, r], sizes[order])
        for position, start in enumerate(np.cumsum(sizes[order]) - sizes[order]):
            rest = float(problem.loads[:, r].sum()) - each[:start].sum()
            if rest > 0:
                members.append(np.isin(np.arange(len(classes)), order[position:]))
                needed.append(1.0 + np.searchsorted(np.cumsum(each[start:]), rest * (1 - 1e-9)))
    return np.array(members, dtype=bool).reshape(-1, len(classes)), np.array(needed, dtype=np.float64)


def _relaxed(patterns: Patterns, start: Ints, budget: Budget) -> tuple[float, Floats]:
    """No placement keeps more than this, and [patterns] what using one costs against it (at most 0).

    `start` are patterns that make a placement, so that the first linear program has an answer.
    """
    classes = len(patterns.classes)
    sizes = np.array([len(tasks) for tasks in patterns.groups], dtype=np.float64)
    cuts, needed, available = patterns.rows[:, classes:], patterns.least[classes:], patterns.most[:classes]
    inside = np.zeros(len(patterns.values), dtype=bool)
    bound, reduced, fresh = math.inf, np.zeros(len(patterns.values)), start
    while True:
        inside[fresh] = True
        now = np.flatnonzero(inside)
        answer = linprog(
            -patterns.values[now],
            A_eq=patterns.counts[now].T,
            b_eq=sizes,
            A_ub=np.concatenate([patterns.rows[now, :classes], -cuts[now]], axis=1).T,
            b_ub=np.concatenate([available, -needed]),
        )
        if answer.x is None:
            return bound, reduced
        prices, limits = -answer.eqlin.marginals, -answer.ineqlin.marginals
        for_cuts = np.maximum(limits[classes:], 0.0)
        margins = patterns.values - patterns.counts @ prices + cuts @ for_cuts
        best = np.zeros(classes)
        np.maximum.at(best, patterns.class_of, margins)
        lagrange = float(sizes @ prices - needed @ for_cuts + available @ best)
        if lagrange < bound:
            bound, reduced = lagrange, margins - best[patterns.class_of]
        gains = np.where(inside, 0.0, margins - limits[patterns.class_of])
        of_class = (np.flatnonzero((patterns.class_of == k) & (gains > 1e-7)) for k in range(classes))
        fresh = np.concatenate(
            [c[np.argsort(-gains[c], kind="stable")[:COLUMNS_PER_ROUND]] for c in of_class]
        )
        if not len(fresh) or budget.spent():
            return bound, reduced


def _chosen(
    patterns: Patterns, bound: float, reduced: Floats, kept: float, grain: float | None, budget: Budget
) -> tuple[Ints | None, float]:
    """Patterns that keep most, if that is more than `kept`, and no placement keeps more than the second value."""
    if grain is not None:
        bound = grain * math.floor(bound / grain + 1e-6)
    slack, chosen = 1e-7 * max(1.0, abs(bound)), None
    # Patterns near the relaxed optimum come first: the better the placement in hand, the more patterns it rules out.
    for share in (0.05, 1.0):
        floor = kept + (grain or 1e-9 * max(1.0, abs(kept)))
        if bound < floor:
            return chosen, kept
        rows = np.flatnonzero(reduced >= share * (floor - bound) - slack)
        if len(rows) > PROGRAM_LIMIT or budget.spent():
            break
        answer = _program(
            patterns, rows, patterns.values[rows], floor - slack, budget.share(0.3 + 0.7 * share)
        )
        if answer is not None and len(answer):
            chosen, kept = answer, float(patterns.values[answer].sum())
        if answer is not None and share == 1.0:
            return chosen, kept
    return chosen, bound


def _any_placement(problem: PlacementProblem, patterns: Patterns, budget: Budget) -> Assignment | None:
    """Some placement, None if the work or the time ran out; DoesNotFitError if there is none."""
    rows = np.arange(len(patterns.values))
    if len(rows) > PROGRAM_LIMIT:
        return None
    answer = _program(patterns, rows, np.zeros(len(rows)), 0.0, budget)
    if answer is not None and not len(answer) and problem.tasks:
        text = "every resource suffices in total, but no division of the tasks over the nodes fits (proved)"
        raise DoesNotFitError([Missing("proved", text)])
    return None if answer is None else _spread(problem, patterns, answer)


def _program(patterns: Patterns, rows: Ints, values: Floats, least: float, budget: Budget) -> Ints | None:
    """The patterns (with repetition) of most value, at least `least`; empty if there are none, None if not solved."""
    if not len(rows):
        return rows
    if find_spec("highspy") is None:
        return None
    sizes = [len(tasks) for tasks in patterns.groups]
    matrix = csc_array(
        np.concatenate([patterns.counts[rows], patterns.rows[rows], values[:, None]], axis=1).T
    )
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_, program.col_lower_ = values, np.zeros(len(rows))
    program.col_upper_ = np.full(len(rows), highspy.kHighsInf)
    program.row_lower_ = np.concatenate([sizes, patterns.least, [least]])
    program.row_upper_ = np.concatenate([sizes, patterns.most, [highspy.kHighsInf]])
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_, program.a_matrix_.index_ = matrix.indptr, matrix.indices
    program.a_matrix_.value_ = matrix.data
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(rows)
    solver = highspy.Highs()
    for option, value in SOLVER_OPTIONS.items():
        solver.setOptionValue(option, value)
    solver.passModel(program)
    limit_s = max(budget.remaining_s(), 0.01)
    while True:
        solver.setOptionValue("time_limit", solver.getRunTime() + limit_s)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kOptimal:
            return np.repeat(rows, np.rint(solver.getSolution().col_value).astype(np.int64))
        if status == highspy.HighsModelStatus.kInfeasible:
            return rows[:0]
        # The solver counts wall time; a budget of CPU time is then not spent where others have the machine.
        if status != highspy.HighsModelStatus.kTimeLimit or budget.spent():
            return None
        limit_s *= 2.0


def _patterns_of(problem: PlacementProblem, patterns: Patterns, assignment: Assignment) -> Ints:
    """The patterns of all nodes under `assignment`."""
    group = np.empty(problem.tasks, dtype=np.int64)
    for g, tasks in enumerate(patterns.groups):
        group[tasks] = g
    held = np.zeros((problem.nodes, len(patterns.groups)), dtype=np.int16)
    np.add.at(held, (assignment, group), 1)
    used = {(k, held[n].tobytes()): held[n] for k, nodes in enumerate(patterns.classes) for n in nodes}
    same = (
        (patterns.class_of == k) & np.all(patterns.counts == count, axis=1) for (k, _), count in used.items()
    )
    return np.array([np.argmax(rows) for rows in same], dtype=np.int64)


def _spread(problem: PlacementProblem, patterns: Patterns, chosen: Ints) -> Assignment:
    """Single tasks for chosen patterns: those that run on a node stay there, the dearest first."""
    assignment = np.full(problem.tasks, UNPLACED, dtype=np.int64)
    free = [list(nodes) for nodes in patterns.classes]
    held = {int(free[patterns.class_of[p]].pop(0)): patterns.counts[p] for p in chosen}
    for g, tasks in enumerate(patterns.groups):
        dearest = tasks[np.argsort(-problem.move_prices[tasks], kind="stable")]
        left = {node: int(count[g]) for node, count in held.items()}
        for node in left:
            stays = dearest[problem.running[dearest] == node][: left[node]]
            assignment[stays] = node
            left[node] -= len(stays)
        homeless = tasks[assignment[tasks] == UNPLACED]
        assignment[homeless] = np.repeat(list(left), list(left.values()))
    return assignment
