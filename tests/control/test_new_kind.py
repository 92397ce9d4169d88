"""A kind of action that Penstock does not know goes through all of it: what its class says is all that is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import pytest

from penstock.control import Desired, Loop, PolicyRun, SqliteJournal, as_text, explain
from penstock.control.desired import RECOVERY
from penstock.dataflow.graph import OperatorId, Remedy
from penstock.policies.actions import (
    KINDS,
    Action,
    CoolDown,
    Direction,
    Expectation,
    Footprint,
    Scale,
    Value,
    action,
)
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.telemetry.metrics import METRICS
from penstock.testing import FakeClock, RecordingRuntime, ScriptedPolicy, a_dataflow, a_snapshot

WORK = OperatorId("work")
FLOW = a_dataflow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache(Action):
    """Give an operator a cache of so many megabytes."""

    kind: ClassVar[str] = "cache"
    doing: ClassVar[str] = "caching for"
    remedy: ClassVar[Remedy] = "switch"
    setting: ClassVar[str | None] = "cache_mb"
    cool_down: ClassVar[CoolDown | None] = "switch"
    operator: OperatorId
    current: int
    megabytes: int

    @property
    def subject(self) -> str:
        return self.operator

    @property
    def value(self) -> int:
        return self.megabytes

    @property
    def text(self) -> str:
        return f"give {self.operator} a cache of {self.megabytes} MB"

    @property
    def steps(self) -> tuple[str, str]:
        return f"{self.current} MB", f"{self.megabytes} MB"

    def direction(self, snapshot: Snapshot) -> Direction:
        return "relieves" if self.megabytes > self.current else "returns"

    def room(self, snapshot: Snapshot) -> float:
        return -self.megabytes

    def impossible(self, snapshot: Snapshot) -> Reason | None:
        known = self.operator in snapshot.dataflow.row
        return None if known else Reason(code="no-such-operator", facts={"operator": self.operator})

    def footprint(self, snapshot: Snapshot) -> Footprint:
        return Footprint(operators=frozenset({self.operator}))

    @classmethod
    def restored(cls, subject: str, value: Value, snapshot: Snapshot, reason: Reason) -> Self | None:
        if cls.is_set(subject, float(value), snapshot):
            return None
        return cls(reason=reason, operator=OperatorId(subject), current=0, megabytes=int(value))


SIZES: dict[str, float] = {}
"""What the engine of this test has cached."""


@pytest.fixture(autouse=True)
def a_new_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A class, and a reader of what it sets."""
    monkeypatch.setitem(METRICS, "cache_mb", lambda snapshot, subject: SIZES.get(subject, 0.0))
    action(Cache)
    yield
    del KINDS["cache"]
    SIZES.clear()


def cache(megabytes: int, current: int = 0, operator: str = "work") -> Cache:
    expects = Expectation(metric="cache_mb", subject=operator, value=megabytes, within_s=10)
    return Cache(
        reason=Reason(code="test"),
        operator=OperatorId(operator),
        current=current,
        megabytes=megabytes,
        expects=expects,
    )


def world(time_s: float, desired: Desired) -> Snapshot:
    SIZES.update({subject: float(value) for subject, value in desired["cache_mb"].items()})
    return a_snapshot(FLOW, time_s=time_s)


def run(path: Path, script: dict[str, list[list[Action]]], *, resume: str | None = None) -> Loop:
    clock = FakeClock()
    policies = [PolicyRun(policy=ScriptedPolicy(lines, name=name)) for name, lines in script.items()]
    with SqliteJournal(path) as journal:
        loop = Loop(RecordingRuntime(clock, world), policies, clock=clock, journal=journal, resume=resume)
        loop.run(for_s=15)
    assert not loop.faults
    return loop


def test_from_a_decision_to_its_explanation(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    loop = run(path, {"a": [[cache(64)], [cache(32, 64)]], "b": [[cache(16), cache(8, operator="nobody")]]})
    with SqliteJournal(path) as journal:
        first, second, third = journal.cycles(loop.run_id)
        story = as_text(explain(journal, loop.run_id))
    assert [p.action for p in first.plan.actions] == [cache(64)], "the one that leaves more room"
    withheld = {
        (w.action.subject, w.action.value): (w.reason.code, w.reason.facts.get("rule"))
        for w in first.plan.withheld
    }
    assert withheld == {
        ("work", 16): ("contradicts", "one-per-subject"),
        ("nobody", 8): ("no-such-operator", None),
    }
    assert [(w.action, w.reason.code) for w in second.plan.withheld] == [(cache(32, 64), "cooling-down")]
    (effect,) = second.effects
    assert (effect.kind, effect.metric, effect.observed, effect.verdict) == (
        "cache",
        "cache_mb",
        64.0,
        "worked",
    )
    assert "work 0 MB → 64 MB" in story
    assert "give work a cache of 64 MB: a test says so [a]" in story
    assert not third.plan.actions


def test_what_it_set_is_put_back_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    earlier = run(path, {"a": [[cache(64)]]})
    SIZES.clear()
    again = run(path, {"a": []}, resume=earlier.run_id)
    with SqliteJournal(path) as journal:
        recovered = [c for c in journal.cycles(again.run_id) if c.recovering]
    (planned,) = recovered[0].plan.actions
    assert (planned.policy, planned.action) == (
        RECOVERY,
        replace(cache(64), reason=Reason(code="recovered"), expects=None),
    )


def test_it_yields_and_conflicts_as_any_other(tmp_path: Path) -> None:
    """It relieves `work`, so that nothing takes capacity from `work` in the same plan."""
    shrink = Scale(reason=Reason(code="test"), operator=WORK, current=2, target=1)
    loop = run(tmp_path / "runs.sqlite", {"a": [[cache(64)]], "b": [[shrink]]})
    with SqliteJournal(tmp_path / "runs.sqlite") as journal:
        first = next(iter(journal.cycles(loop.run_id)))
    assert [(w.action, w.reason.facts["rule"]) for w in first.plan.withheld] == [(shrink, "relief-first")]
