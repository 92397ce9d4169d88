"""What lag asks for where no CPU could be measured: sinks count less until their application keeps pace.

An application that reads r of the p records per second that it must take on, at the share k, gets through k·r/p of
its input whatever holds it up. Others may be what holds it up, so the least important go first: it loses something
itself only when no sink of lower priority has anything left to give.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Bools, Floats
from penstock.policies.shedding.backlog import AIM
from penstock.policies.shedding.situation import Situation

RISE = 1.25
"""Most by which the accuracy of an unmeasured sink grows in one cycle: what more it costs is not known."""


def lag_ceiling(
    now: Situation, unmeasured: Bools, before: Floats, floor: Floats, ceiling: Floats
) -> tuple[Floats, Bools]:
    """(the ceilings, lower where lag says so; for which sinks that is). `unmeasured`: without CPU figures for long.

    A sink rises again when the lag is well under its bound, after those of higher priority.
    """
    priority, lag_s, bound_s = now.snapshot.sinks.priority, *lag_of(now)
    late = unmeasured & (lag_s > bound_s)
    waits = unmeasured & (before < ceiling)
    calm = (lag_s <= bound_s - AIM * now.options.lag_s) & (
        priority >= priority[waits].max(initial=priority.min())
    )
    least = np.where(unmeasured, np.minimum(ceiling, np.where(calm, RISE * before, before)), ceiling)
    if not late.any():
        return np.maximum(least, floor), np.zeros(len(before), np.bool_)
    gives = before > floor + now.options.least_step
    spared = np.array([bool(np.any(gives & (priority < p))) for p in priority.tolist()])
    through, falls_behind = throughput(now)
    own, gives_way = late & ~spared & falls_behind, priority < priority[late].max()
    least = np.where(own, np.minimum(least, through), least)
    least = np.where(gives_way, floor, least)
    return np.clip(least, floor, np.maximum(ceiling, floor)), own | gives_way


def lag_of(now: Situation) -> tuple[Floats, Floats]:
    """Per sink, the lag of its application's sources, the longest of them, and what is normal."""
    sources, application = now.snapshot.sources.operator, now.graph.application
    mine = application[now.snapshot.sinks.operator]
    longest = np.zeros((2, len(now.graph)))
    for row, values in zip(longest, (now.backlog.lag_s, now.backlog.bound_s), strict=True):
        np.maximum.at(row, application[sources], values[sources])
    return longest[0][mine], longest[1][mine]


def throughput(now: Situation) -> tuple[Floats, Bools]:
    """Per sink, the share of what its sources must take on that gets through now, and whether they fall behind.

    The least share of all sources of its application counts.
    """
    sources, application = now.snapshot.sources, now.graph.application
    wanted = sources.produced_rps * now.backlog.surge[sources.operator]
    known = sources.known & (wanted > 0)
    share = np.where(known, sources.keep * sources.read_rps / np.where(known, wanted, 1.0), 1.0)
    least, behind = np.ones(len(now.graph)), np.zeros(len(now.graph), np.bool_)
    np.minimum.at(least, application[sources.operator], share)
    np.logical_or.at(behind, application[sources.operator], known & (sources.read_rps < sources.produced_rps))
    mine = application[now.snapshot.sinks.operator]
    return least[mine], behind[mine]
