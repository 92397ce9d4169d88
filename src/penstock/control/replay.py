"""Decisions made again from the journal: by the same policies to check them, by changed ones to compare them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.control.codec import CodecError, from_json, unpack
from penstock.control.decision import Decision, PolicyRun, Settings, Standing, decide
from penstock.control.journal import JournalError, SqliteJournal
from penstock.control.plan import Plan
from penstock.control.record import Cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A cycle as it was, beside what the given policies decide on the same facts."""

    recorded: Cycle
    decision: Decision

    @property
    def plan(self) -> Plan:
        """The plan made now."""
        return self.decision.plan

    @property
    def same(self) -> bool:
        """Whether policies propose, and the plan contains, exactly what was recorded."""
        return self.recorded.proposals == self.decision.proposals and self.recorded.plan == self.decision.plan


def replay(
    journal: SqliteJournal,
    run: str,
    policies: Sequence[PolicyRun],
    *,
    settings: Settings | None = None,
    afresh: bool = False,
) -> Iterator[Replayed]:
    """Every cycle of a run whose full snapshot is kept, decided again.

    Each cycle starts from the memories recorded before it. With `afresh`, and for policies whose recorded memory is
    missing or of another shape, memories start at the first cycle and are carried along instead. What is replayed
    is the deciding: the world of the snapshots is the one that the recorded plans made.
    """
    info = next((r for r in journal.runs() if r.id == run), None)
    if info is None:
        raise JournalError(f"the journal has no run '{run}'")
    settings = settings or from_json(Settings, info.settings)
    cycles = {cycle.number: cycle for cycle in journal.cycles(run)}
    carried = {p.policy.name: p.policy.start(p.options) for p in policies}
    kinds = {name: type(memory) for name, memory in carried.items()}
    standing = Standing()
    for evidence in journal.evidence(run):
        cycle = cycles.get(evidence.number)
        if cycle is None:
            continue  # older than the cycles that are kept
        memories = dict(carried)
        if not afresh:
            standing = unpack(Standing, evidence.standing)
            for name, kind in kinds.items():
                try:
                    memories[name] = unpack(kind, evidence.memories[name])
                except (KeyError, CodecError):
                    continue
        decision = decide(
            evidence.snapshot, policies, memories, standing, settings, recovering=cycle.recovering
        )
        carried, standing = dict(decision.memories), decision.standing
        yield Replayed(recorded=cycle, decision=decision)
