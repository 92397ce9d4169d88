"""Adaptive output batching: records wait for company as long as the constraints allow, and no longer.

Of the bound, tasks and queues take their part; the rest is shared evenly by the streams of the sequence. The mean
wait in a batch is a part κ of its deadline (½ where many records share a batch, 1 where each is alone), measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import pairwise

import numpy as np

from penstock.dataflow import Constraint, Dataflow
from penstock.policies.actions import Pace
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot

RISE = 1.5
"""A deadline grows by this factor an interval at most (and falls at once): queues answer with a delay."""
FIRST_S = 0.001
"""What a deadline of 0 grows to first."""
BAND = 0.1
"""Relative change of a deadline that is not worth an action."""


def constrained_streams(flow: Dataflow, constraint: Constraint) -> tuple[int, ...]:
    """Rows of the streams that the constraint's records pass within its sequence."""
    sequence = constraint.sequence
    inner = set(pairwise(sequence.operators))
    return tuple(
        row
        for row, stream in enumerate(flow.streams)
        if (stream.source, stream.target) in inner
        or (sequence.leading_stream and stream.target == sequence.operators[0])
        or (sequence.trailing_stream and stream.source == sequence.operators[-1])
    )


def paces(
    snapshot: Snapshot,
    batching_s: Mapping[str, float],
    *,
    strained: Set[str] = frozenset(),
    saturated: Set[str] = frozenset(),
) -> tuple[Pace, ...]:
    """Deadlines with which records of each constraint wait `batching_s` in batches, all in all.

    A stream of several constraints obeys the strictest. Smaller batches cost more work. Where an operator cannot
    grow and has little left (`strained`, by constraint), they therefore shrink by steps. Where it has nothing left
    (`saturated`) they grow, up to the bound itself: what arrives must first of all be carried.
    """
    flow, streams = snapshot.dataflow, snapshot.streams
    wanted: dict[int, tuple[float, str]] = {}
    for constraint in flow.constraints:
        if constraint.name not in batching_s:
            continue
        rows = [r for r in constrained_streams(flow, constraint) if streams.known[r]]
        for row in rows:
            now_s = float(streams.deadline_s[row])
            mean_s, count = float(streams.batch_wait_s.mean[row]), float(streams.batch_wait_s.count[row])
            share = mean_s / now_s if count > 0 and 0 < now_s < np.inf and np.isfinite(mean_s) else 1.0
            deadline_s = max(0.0, batching_s[constraint.name] / len(rows) / float(np.clip(share, 0.3, 1.0)))
            if constraint.name in strained:
                deadline_s = max(deadline_s, min(now_s, constraint.bound_ms / 1e3) / RISE)
            if constraint.name in saturated:
                deadline_s = max(deadline_s, min(constraint.bound_ms / 1e3, max(FIRST_S, RISE * now_s)))
            if row not in wanted or deadline_s < wanted[row][0]:
                wanted[row] = (deadline_s, constraint.name)
    actions = []
    for row, (deadline_s, name) in wanted.items():
        now_s = float(streams.deadline_s[row])
        target_s = min(deadline_s, max(FIRST_S, RISE * now_s))
        if abs(target_s - now_s) > BAND * max(now_s, FIRST_S):
            facts = {"constraint": name, "before_ms": 1e3 * now_s if np.isfinite(now_s) else None}
            code = "room-for-batches" if target_s > now_s else "bound-at-risk"
            actions.append(
                Pace(
                    stream=flow.streams[row].id,
                    deadline_s=target_s,
                    goal=name,
                    reason=Reason(code=code, facts=facts),
                )
            )
    return tuple(actions)
