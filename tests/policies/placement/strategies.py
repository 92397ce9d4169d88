"""Random problems and a brute-force reference for them."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st

from penstock.policies.placement.problem import UNPLACED, PlacementProblem, placement_problem


@st.composite
def problems(draw, *, max_tasks: int = 6, max_nodes: int = 3, running: bool = False) -> PlacementProblem:
    """Small problems of one or two resources; rates are whole or fractional, and some do not fit."""
    tasks = draw(st.integers(1, max_tasks))
    nodes = draw(st.integers(1, max_nodes))
    resources = draw(st.integers(1, 2))
    whole = draw(st.booleans())
    amount = st.integers(0, 3).map(float) if whole else st.floats(0.1, 3.0)
    loads = draw(
        st.lists(st.lists(amount, min_size=resources, max_size=resources), min_size=tasks, max_size=tasks)
    )
    room = st.integers(1, 8).map(float)
    capacities = draw(
        st.lists(st.lists(room, min_size=resources, max_size=resources), min_size=nodes, max_size=nodes)
    )
    task = st.integers(0, tasks - 1)
    streams = draw(st.lists(st.tuples(task, task, st.integers(0, 9)), max_size=12))
    rates = [rate if whole else rate * 0.37 for _, _, rate in streams]
    where = st.integers(UNPLACED, nodes - 1) if running else st.just(UNPLACED)
    return placement_problem(
        loads=loads,
        capacities=capacities,
        sources=[a for a, _, _ in streams],
        targets=[b for _, b, _ in streams],
        rates=rates,
        operators=draw(st.lists(st.integers(0, 2), min_size=tasks, max_size=tasks)),
        running=draw(st.lists(where, min_size=tasks, max_size=tasks)),
        move_prices=draw(st.lists(st.integers(0, 4).map(float), min_size=tasks, max_size=tasks))
        if running
        else 0.0,
    )


def brute_force(problem: PlacementProblem) -> float | None:
    """The smallest objective over every assignment that fits, None if none fits."""
    objectives = [
        problem.objective(assignment)
        for assignment in (np.array(a) for a in product(range(problem.nodes), repeat=problem.tasks))
        if problem.fits(assignment)
    ]
    return min(objectives, default=None)


def cost_by_hand(problem: PlacementProblem, assignment: np.ndarray) -> float:
    """Traffic between nodes, pair by pair, as the definition reads."""
    return sum(
        rate
        for a, b, rate in zip(problem.sources, problem.targets, problem.rates, strict=True)
        if assignment[a] != assignment[b]
    )
