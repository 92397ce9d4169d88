"""Adaptive output batching: as much as the bounds allow, and less when they are at risk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow import Constraint
from penstock.dataflow import Sequence as OperatorSequence
from penstock.policies.elasticity.pacing import RISE, constrained_streams, paces
from penstock.telemetry import Moments, Snapshot
from penstock.testing import a_dataflow, a_snapshot

FLOW = a_dataflow("in", "a", "b", "out", bound_ms=None)


def bounded(*sequences: str) -> Snapshot:
    constraints = tuple(
        Constraint(name=s, sequence=OperatorSequence.parse(s), bound_ms=50.0) for s in sequences
    )
    return batching(a_snapshot(replace(FLOW, constraints=constraints)), deadline_s=0.004, wait_s=0.004)


def batching(snapshot: Snapshot, *, deadline_s: float, wait_s: float) -> Snapshot:
    count = np.full(3, 100.0)
    waits = Moments.known(count, np.full(3, wait_s), np.zeros(3))
    return replace(
        snapshot,
        streams=snapshot.streams.with_columns(deadline_s=np.full(3, deadline_s), batch_wait_s=waits),
    )


def deadlines(snapshot: Snapshot, **batching_s: float) -> dict[str, float]:
    names = {c.name: batching_s[f"c{i}"] for i, c in enumerate(snapshot.dataflow.constraints)}
    return {str(a.stream): a.deadline_s for a in paces(snapshot, names)}


@pytest.mark.parametrize(
    ("sequence", "streams"),
    [
        ("a", []),
        ("-> a", ["in->a"]),
        ("a -> b", ["a->b"]),
        ("-> a -> b ->", ["in->a", "a->b", "b->out"]),
    ],
)
def test_the_streams_of_a_sequence(sequence: str, streams: list[str]) -> None:
    snapshot = bounded(sequence)
    rows = constrained_streams(snapshot.dataflow, snapshot.dataflow.constraints[0])
    assert [snapshot.dataflow.streams[r].id for r in rows] == streams


def test_room_is_shared_evenly_and_taken_by_steps() -> None:
    found = deadlines(bounded("-> a -> b"), c0=0.04)
    assert found == {"in->a": pytest.approx(0.004 * RISE), "a->b": pytest.approx(0.004 * RISE)}


def test_a_bound_at_risk_is_answered_at_once() -> None:
    assert deadlines(bounded("-> a -> b"), c0=-0.01) == {"in->a": 0.0, "a->b": 0.0}


def test_where_records_share_a_batch_the_deadline_is_longer_than_their_wait() -> None:
    alone = batching(bounded("-> a"), deadline_s=0.010, wait_s=0.010)
    shared = batching(bounded("-> a"), deadline_s=0.010, wait_s=0.005)
    assert deadlines(alone, c0=0.007) == {"in->a": pytest.approx(0.007)}
    assert deadlines(shared, c0=0.007) == {"in->a": pytest.approx(0.014)}


def test_the_strictest_constraint_counts() -> None:
    assert deadlines(bounded("-> a", "-> a -> b"), c0=0.03, c1=0.004)["in->a"] == pytest.approx(0.002)


def test_little_changes_are_left_alone() -> None:
    assert deadlines(bounded("-> a"), c0=0.0042) == {}


def test_an_operator_that_has_nothing_left_gets_larger_batches() -> None:
    snapshot = bounded("-> a")
    name = snapshot.dataflow.constraints[0].name
    (strained,) = paces(snapshot, {name: -1.0}, strained={name})
    assert strained.deadline_s == pytest.approx(0.004 / RISE)
    (saturated,) = paces(snapshot, {name: -1.0}, strained={name}, saturated={name})
    assert saturated.deadline_s == pytest.approx(0.004 * RISE)
