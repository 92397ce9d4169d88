"""What no shedding and no move can hold, said aloud: which goal, by how much, and what would help."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.dataflow.graph import OperatorId
from penstock.policies.policy import Notice
from penstock.policies.reasons import Fact, Reason
from penstock.policies.shedding.moves import FITS
from penstock.policies.shedding.situation import Situation
from penstock.telemetry.moments import totals


def notices_of(now: Situation, node: Ints, short: Floats, gives: Bools) -> tuple[Notice, ...]:
    """Notices about minima on nodes, minima within one core, and backlogs, given where tasks are or go.

    `gives` says of which sinks more could still be shed.
    """
    return (*_crowded(now, node, short), *_too_large(now), *_outlasting(now, gives))


def _crowded(now: Situation, node: Ints, short: Floats) -> Iterator[Notice]:
    """Nodes whose minima do not fit even after the moves."""
    rows = np.flatnonzero((short > 0) & ~now.sheltered)
    if not len(rows):
        return
    ids = ("all executors",) if now.options.by_slots else now.snapshot.nodes.ids
    placed = node >= 0
    needed = totals(node[placed], now.minimum[placed], len(short))
    operators = now.snapshot.tasks.operator
    for n in rows:
        here = np.unique(operators[(node == n) & (now.minimum > 0)])
        names = ", ".join(now.id_of(int(o)) for o in here)
        yield Notice(
            goal=f"minimum accuracy on {ids[n]}",
            reason=Reason(
                code="minima-do-not-fit",
                facts={
                    "node": ids[n],
                    "needed_cores": float(needed[n]),
                    "available_cores": float(now.available[n]),
                    "short_cores": float(short[n]),
                    "operators": names,
                },
            ),
            helps=f"{short[n]:.2f} more cores, or lower minima for what depends on {names}",
        )


def _too_large(now: Situation) -> Iterator[Notice]:
    """Operators with a task that needs more than a core for the minimum alone."""
    tasks, demand = now.snapshot.tasks, now.demand
    minimum = now.restrictions.min_accuracy[tasks.operator]
    needed = demand.base + minimum * demand.slope
    over = np.flatnonzero(needed > demand.core + FITS)
    for operator in np.unique(tasks.operator[over]):
        mine = tasks.operator == operator
        share = float(np.max(needed[mine] / demand.core[mine]))
        count = int(mine.sum())
        id_ = now.id_of(int(operator))
        yield Notice(
            goal=f"minimum accuracy of {id_}",
            reason=Reason(
                code="minimum-exceeds-core",
                facts={
                    "operator": id_,
                    "min_accuracy": float(now.restrictions.min_accuracy[operator]),
                    "needed_cores": float(np.max(needed[mine])),
                    "core": float(np.max(demand.core[mine])),
                    "tasks": count,
                },
            ),
            helps=f"at least {int(np.ceil(count * share - FITS))} tasks for {id_}, or a lower minimum",
        )


def _outlasting(now: Situation, gives: Bools) -> Iterator[Notice]:
    """Backlogs that the minima do not let drain in time, and those for which nothing is left to give."""
    application, sinks = now.graph.application, now.snapshot.sinks
    for id_, deadline in now.backlog.deadlines_s.items():
        row = now.snapshot.dataflow.row[OperatorId(id_)]
        longer = float(now.stretch[row])
        mine = application[sinks.operator] == application[row]
        if longer <= 1 and (not mine.any() or (gives & (sinks.priority <= sinks.priority[mine].max())).any()):
            continue
        if longer <= 1:
            if not (sinks.min_accuracy[mine] < 1).any():
                continue  # none of its records may be dropped
            facts: dict[str, Fact] = {
                "operator": id_,
                "lag_s": float(now.backlog.lag_s[row]),
                "bound_s": float(now.backlog.bound_s[row]),
            }
            yield Notice(
                goal=f"lag of {id_}",
                reason=Reason(code="nothing-left-to-shed", facts=facts),
                helps="more executors, lower minima, or a cheaper query",
            )
            continue
        left = max(deadline - now.snapshot.time_s, now.snapshot.interval_s)
        yield Notice(
            goal=f"lag of {id_}",
            reason=Reason(
                code="minima-keep-backlog",
                facts={
                    "operator": id_,
                    "lag_s": float(now.backlog.lag_s[row]),
                    "bound_s": float(now.backlog.bound_s[row]),
                    "within_s": left,
                    "possible_s": left * longer if np.isfinite(longer) else None,
                },
            ),
            helps="more cores, lower minima below it, or a longer drain_s",
        )
