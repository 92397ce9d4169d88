"""Lag of queries whose CPU nobody can tell: the least important give first, minima hold, nobody is silent."""

from __future__ import annotations

import pytest

from penstock.dataflow import Dataflow
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.telemetry import (
    Alternates,
    Constraints,
    Nodes,
    Operators,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)
from tests.policies.shedding.cluster import Sink, application


class TestLagWithoutCpu:
    """Nothing tells how much CPU a query uses; its sources tell what they produce, read and hold."""

    RATE = 1000.0

    def story(self, capacity_rps: float, cycles: int = 40) -> list[dict[str, float]]:
        """Two queries that share a capacity, equally where both have work."""
        flow = application(
            [("low-in", "low"), ("high-in", "high")], {"low": Sink(1, 0.2), "high": Sink(5, 0.5)}
        )
        policy, options = Shedding(), SheddingOptions(reserve_sigmas=0.0)
        memory, keep, backlog, told = (
            policy.start(options),
            {"low": 1.0, "high": 1.0},
            {"low": 0.0, "high": 0.0},
            [],
        )
        for cycle in range(cycles):
            read = {}
            wants = {q: (self.RATE + backlog[q] / 5.0) * keep[q] for q in keep}
            for q, other in (("low", "high"), ("high", "low")):
                share = max(capacity_rps / 2, capacity_rps - wants[other])
                read[q] = min(wants[q], share) / keep[q]
                backlog[q] = max(0.0, backlog[q] + 5.0 * (self.RATE - read[q]))
            snapshot = unmeasured(flow, 5.0 * (cycle + 1), self.RATE, read, backlog, keep)
            proposal, memory = policy.decide(snapshot, memory, options)
            for action in proposal.actions:
                keep[action.subject.removesuffix("-in")] = action.keep  # type: ignore[attr-defined]
                assert action.reason.code in {"lag-without-cpu", "cpu-free", "held"}
            told.append({**keep, "lag_s": max(backlog.values()) / self.RATE})
        return told

    def test_the_least_important_gives_first_and_lag_is_bounded(self) -> None:
        story = self.story(capacity_rps=1300.0)
        assert min(c["low"] for c in story) == pytest.approx(0.2)
        assert all(c["low"] == pytest.approx(0.2) for c in story if c["high"] < 1.0)
        assert all(c["high"] == 1.0 for c in story[-10:]), (
            "once backlogs are gone, what the other gives is enough"
        )
        assert max(c["lag_s"] for c in story[-10:]) < 10.0

    def test_then_the_important_one_down_to_its_minimum_only(self) -> None:
        story = self.story(capacity_rps=800.0)
        assert min(c["high"] for c in story) >= 0.5
        assert any(c["high"] < 1.0 for c in story)
        assert all(c["low"] == pytest.approx(0.2) for c in story if c["high"] < 1.0)
        assert max(c["lag_s"] for c in story[-10:]) < 15.0

    def test_who_keeps_pace_keeps_all(self) -> None:
        assert all(c["low"] == c["high"] == 1.0 for c in self.story(capacity_rps=2500.0))


def unmeasured(
    flow: Dataflow,
    time_s: float,
    rate: float,
    read: dict[str, float],
    backlog: dict[str, float],
    keep: dict[str, float],
) -> Snapshot:
    """Sources tell all, tasks nothing."""
    names = [s.id.removesuffix("-in") for s in flow.sources]
    sinks = flow.sinks
    return Snapshot(
        time_s=time_s,
        interval_s=5.0,
        dataflow=flow,
        nodes=Nodes.blank(
            1, ids=("n0",), hosts=("h0",), machines=("m",), cores=2.0, speed=1.0, known=False, ready=True
        ),
        operators=Operators.blank(len(flow.operators), parallelism=1),
        alternates=Alternates.blank(0),
        tasks=Tasks.blank(0),
        streams=Streams.blank(len(flow.streams), keep=1.0),
        sources=Sources.blank(
            len(names),
            operator=[flow.row[s.id] for s in flow.sources],
            produced_rps=rate,
            read_rps=[read[n] for n in names],
            backlog_records=[backlog[n] for n in names],
            keep=[keep[n] for n in names],
            backlog_known=True,
            known=True,
        ),
        sinks=Sinks.blank(
            len(sinks),
            operator=[flow.row[s.id] for s in sinks],
            priority=[s.priority for s in sinks],
            min_accuracy=[s.min_accuracy for s in sinks],
        ),
        constraints=Constraints.blank(0),
    )
