"""Choosing node fillings: a linear program by column generation, then integers over the few columns that matter.

Every node takes one pattern (so many tasks of each group), every task sits in exactly one pattern, and the
traffic kept inside patterns is maximised:

    max Σ v_p x_p   with   Σ c_pg x_p = n_g              for each group g,
                           Σ_{p of class k} x_p ≤ N_k     for each class k,
                           Σ_{p of a small class} x_p ≥ m  for the nodes that must be used at least (see `usage_cuts`).

For any prices of the first and the last kind of row, the priced sums plus Σ N_k max(0, best margin of class k)
bound the traffic any placement keeps (Lagrange), so the bound holds even when the time runs out before the linear
program is solved. A pattern with reduced cost r_p can only be part of placements that keep at most bound + r_p:
all others leave the integer program.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.extras import optional
from penstock.policies.placement.budget import Budget
from penstock.policies.placement.counts import CountProblem, Counts, pattern_values
from penstock.policies.placement.problem import Floats, Ints

highspy = optional("highspy")

COLUMNS_PER_ROUND = 60
"""New columns of each class in a round of pricing."""
PENALTY_RAISES = 6
"""After that, the integer program decides whether all tasks can be placed at all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """All patterns of all classes, one below the other, and their rows in the program."""

    patterns: Counts
    """[columns, groups]"""
    values: Floats
    """[columns] kept traffic"""
    classes: Ints
    """[columns]"""
    matrix: Floats
    """[columns, rows]: groups, then classes, then usage cuts"""
    least: Floats
    most: Floats
    """[rows] bounds of the sums"""

    def take(self, chosen: Ints) -> Columns:
        """The given columns only."""
        return Columns(
            patterns=self.patterns[chosen],
            values=self.values[chosen],
            classes=self.classes[chosen],
            matrix=self.matrix[chosen],
            least=self.least,
            most=self.most,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxation:
    """What the linear program proves."""

    bound: float
    """No placement keeps more traffic than this."""
    reduced: Floats
    """[columns], at most 0: what using the column costs against the bound."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """Integer answer: the columns used (with repetition), or None, and a proved bound on kept traffic."""

    columns: Ints | None
    bound: float


def all_columns(counts: CountProblem, patterns: list[Counts]) -> Columns:
    """The patterns of every class with their values and rows."""
    stacked = np.concatenate(patterns)
    classes = np.repeat(np.arange(len(patterns)), [len(p) for p in patterns])
    available = np.array([len(nodes) for nodes in counts.classes], dtype=np.float64)
    members, needed = usage_cuts(counts)
    used = np.asarray(stacked.sum(axis=1) > 0)
    return Columns(
        patterns=stacked,
        values=np.concatenate([pattern_values(counts, p, k) for k, p in enumerate(patterns)]),
        classes=classes,
        matrix=np.concatenate(
            [stacked, classes[:, None] == np.arange(len(patterns)), members[:, classes].T & used[:, None]],
            axis=1,
        ).astype(np.float64),
        least=np.concatenate([counts.sizes, np.full(len(patterns), -np.inf), needed]),
        most=np.concatenate([counts.sizes, available, np.full(len(needed), np.inf)]),
    )


def usage_cuts(counts: CountProblem) -> tuple[npt.NDArray[np.bool_], Floats]:
    """[cuts, classes] classes, and how many of their nodes every placement uses at least.

    Even if all larger nodes are full, the smaller classes carry the rest of the load, and nodes are used whole:
    the fewest that carry it, largest first. The linear program alone would use fractions of nodes.
    """
    members, needed = [], []
    for r in range(counts.loads.shape[1]):
        order = np.argsort(-counts.limits[:, r], kind="stable")
        sizes = np.array([len(counts.classes[k]) for k in order])
        each = np.repeat(counts.limits[order, r], sizes)
        first = np.cumsum(sizes) - sizes
        total = float(counts.loads[:, r] @ counts.sizes)
        for position, start in enumerate(first):
            rest = total - each[:start].sum()
            fewest = int(np.searchsorted(np.cumsum(each[start:]), rest * (1 - 1e-9))) + 1
            if rest > 0:
                members.append(np.isin(np.arange(len(order)), order[position:]))
                needed.append(float(fewest))
    return np.array(members, dtype=bool).reshape(-1, len(counts.classes)), np.array(needed)


def relax(counts: CountProblem, columns: Columns, start: Ints, budget: Budget) -> Relaxation:
    """The bound of the linear program, grown from the `start` columns."""
    groups, classes = len(counts.sizes), len(counts.classes)
    rows = columns.matrix.shape[1]
    nodes = slice(groups, groups + classes)
    # Leaving a task out costs more than all there is to keep; if fractions still pay for it, ten times more.
    penalty = np.full(groups, 1.0 + counts.total)
    model = _Program(least=columns.least, most=columns.most)
    # A task that is left out counts as a node of its own, or the cuts could not be met without nodes.
    outside = np.concatenate(
        [np.eye(groups), np.zeros((groups, classes)), np.ones((groups, rows - nodes.stop))], axis=1
    )
    artificial = model.add(-penalty, outside)
    inside = np.zeros(len(columns.values), dtype=bool)
    bound, reduced = math.inf, np.zeros(len(columns.values))
    fresh, raises = start, PENALTY_RAISES
    while True:
        inside[fresh] = True
        model.add(columns.values[fresh], columns.matrix[fresh])
        model.solve(budget)
        prices = model.duals()
        prices[nodes.stop :] = np.minimum(prices[nodes.stop :], 0.0)
        limits_of_nodes, prices[nodes] = prices[nodes].copy(), 0.0
        margins = columns.values - columns.matrix @ prices
        best = np.zeros(classes)
        np.maximum.at(best, columns.classes, margins)
        sums = np.where(prices != 0.0, columns.least, 0.0)
        lagrange = float(sums @ prices + columns.most[nodes] @ best)
        if lagrange < bound:
            bound, reduced = lagrange, margins - best[columns.classes]
        gains = margins - limits_of_nodes[columns.classes]
        gains[inside] = 0.0
        fresh = _best_of_each_class(gains, columns.classes, classes)
        if not len(fresh) and raises and model.primal()[artificial].sum() > 1e-6:
            penalty, raises = 10.0 * penalty, raises - 1
            model.revalue(artificial, -penalty)
        elif not len(fresh) or budget.spent():
            return Relaxation(bound=bound, reduced=reduced)


def choose(
    columns: Columns,
    relaxation: Relaxation,
    *,
    kept: float | None,
    grain: float | None,
    budget: Budget,
) -> Choice:
    """The best choice of patterns, if one keeps more than `kept` (None: if there is one at all).

    `grain` divides all traffic, if known: a bound between two multiples of it drops to the lower one.
    """
    bound = _floor(relaxation.bound, grain)
    floor = -math.inf if kept is None else kept + (grain or 1e-9 * max(1.0, abs(kept)))
    width = grain or 0.02 * max(1e-9, bound)
    while bound >= floor:
        target = max(bound - width, floor)
        if target < 0.0 and kept is None:
            target = floor  # Everything that is left, at once.
        rows = np.flatnonzero(relaxation.reduced >= target - relaxation.bound - 1e-7 * max(1.0, abs(bound)))
        answer = _integer(columns.take(rows), target, budget, prove=kept is not None)
        if answer is None:
            return Choice(columns=None, bound=bound)
        if len(answer):
            chosen = rows[answer]
            value = float(columns.values[chosen].sum())
            return Choice(columns=chosen, bound=value)
        # Nothing keeps as much as the target: the bound drops below it.
        if target == floor:
            return Choice(columns=None, bound=-math.inf if kept is None else kept)
        # Then look a little lower, not far: each step down multiplies the columns.
        bound = _floor(target - (grain or 0.0), grain)
        width *= 1.0 if grain else 2.0
    return Choice(columns=None, bound=bound if kept is None else kept)


def _integer(columns: Columns, target: float, budget: Budget, *, prove: bool) -> Ints | None:
    """The best columns with a value of at least `target`; empty if proved that there are none, None if out of time."""
    if not len(columns.values):
        return np.empty(0, dtype=np.int64)
    model = _Program(least=columns.least, most=columns.most, value_at_least=target, integer=True)
    model.add(columns.values, columns.matrix)
    if prove:
        model.prove_only()
    status = model.solve(budget)
    if status == highspy.HighsModelStatus.kInfeasible:
        return np.empty(0, dtype=np.int64)
    if status != highspy.HighsModelStatus.kOptimal:
        return None
    return np.repeat(np.arange(len(columns.values)), np.rint(model.primal()).astype(np.int64))


def _floor(value: float, grain: float | None) -> float:
    return value if grain is None else grain * math.floor(value / grain + 1e-6)


def _best_of_each_class(gains: Floats, classes: Ints, count: int) -> Ints:
    chosen = []
    for k in range(count):
        rows = np.flatnonzero((classes == k) & (gains > 1e-7))
        if len(rows) > COLUMNS_PER_ROUND:
            rows = rows[np.argpartition(-gains[rows], COLUMNS_PER_ROUND)[:COLUMNS_PER_ROUND]]
        chosen.append(rows)
    return np.concatenate(chosen)


class _Program:
    """A HiGHS model whose columns are patterns; maximises, silent, one thread."""

    def __init__(
        self, *, least: Floats, most: Floats, value_at_least: float = -math.inf, integer: bool = False
    ) -> None:
        make: Callable[[], Any] = highspy.Highs  # its type stubs leave the constructor untyped
        self._highs = make()
        self._integer, self._by_value = integer, math.isfinite(value_at_least)
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.0),
        ):
            self._highs.setOptionValue(option, value)
        self._highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for low, high in zip(least, most, strict=True):
            self._add_row(low, high)
        if self._by_value:
            self._add_row(value_at_least - 1e-7 * max(1.0, abs(value_at_least)), math.inf)

    def _add_row(self, low: float, high: float) -> None:
        self._highs.addRow(float(low), float(high), 0, np.empty(0, dtype=np.int32), np.empty(0))

    def add(self, values: Floats, matrix: Floats) -> slice:
        """Append columns with the given entries in each row, and return their positions."""
        count, before = len(values), self._highs.getNumCol()
        full = np.concatenate([matrix, values[:, None]], axis=1) if self._by_value else matrix
        at, index = np.nonzero(full)
        starts = np.searchsorted(at, np.arange(count)).astype(np.int32)
        ends = np.full(count, highspy.kHighsInf)
        self._highs.addCols(
            count, values, np.zeros(count), ends, len(index), starts, index.astype(np.int32), full[at, index]
        )
        if self._integer:
            kind = np.full(count, highspy.HighsVarType.kInteger)
            self._highs.changeColsIntegrality(count, np.arange(before, before + count, dtype=np.int32), kind)
        return slice(before, before + count)

    def prove_only(self) -> None:
        """Spend no time on heuristics: a good placement is known, only the proof is missing."""
        self._highs.setOptionValue("mip_heuristic_effort", 0.0)

    def revalue(self, columns: slice, values: Floats) -> None:
        """Give `columns` other values."""
        rows = np.arange(columns.start, columns.stop, dtype=np.int32)
        self._highs.changeColsCost(len(rows), rows, values)

    def solve(self, budget: Budget) -> Any:
        """Run until it is solved or the budget is spent."""
        limit_s = max(budget.remaining_s(), 1e-3)
        while True:
            # HiGHS counts its time limit from the model's first run, not from this one.
            self._highs.setOptionValue("time_limit", self._highs.getRunTime() + limit_s)
            self._highs.run()
            status = self._highs.getModelStatus()
            # It counts wall time; a budget of CPU time is then not spent where others have the machine.
            if status != highspy.HighsModelStatus.kTimeLimit or budget.spent():
                return status
            limit_s *= 2.0

    def duals(self) -> Floats:
        """[rows]: what one more unit of each row's sum adds to the objective."""
        return np.array(self._highs.getSolution().row_dual)

    def primal(self) -> Floats:
        """[columns]: how much of each is used."""
        return np.array(self._highs.getSolution().col_value)
