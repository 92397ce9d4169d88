"""All ways to choose alternates, and what each needs."""

from __future__ import annotations

import itertools

import numpy as np

from penstock.policies.provisioning.problem import Floats, Graph, Ints

MOST_CHOICES = 4096


def choices(graph: Graph, current: Ints) -> Ints:
    """[choice, operator]: every combination of alternates that are worth something.

    Where there are too many, the current one with any two operators changed.
    """
    usable = [np.flatnonzero(graph.value[i] > 0) for i in range(len(graph.operators))]
    if np.prod([float(len(u)) for u in usable]) <= MOST_CHOICES:
        return np.array(list(itertools.product(*usable)), dtype=np.int64)
    found = [current]
    movable = [i for i, u in enumerate(usable) if len(u) > 1]
    singles = [(i, int(j)) for i in movable for j in usable[i]]
    for one, other in itertools.islice(itertools.combinations_with_replacement(singles, 2), MOST_CHOICES):
        changed = current.copy()
        changed[one[0]], changed[other[0]] = one[1], other[1]
        found.append(changed)
    return np.unique(np.array(found, dtype=np.int64), axis=0)


def needs(graph: Graph, input_rps: Floats, chosen: Ints) -> tuple[Floats, Floats]:
    """([choice, operator] reference cores that carry everything, Γ of each choice)."""
    rows = np.arange(len(graph.operators))
    cost, selectivity = graph.cost_s[rows, chosen], graph.selectivity[rows, chosen]
    arriving = np.tile(input_rps, (len(chosen), 1))
    for i in graph.order:
        arriving += np.outer(arriving[:, i] * selectivity[:, i], graph.feeds[i])
    return cost * arriving, np.asarray(graph.value[rows, chosen].mean(axis=1))
