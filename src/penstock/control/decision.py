"""One cycle's thinking, without any doing: every policy decides, then damping, arbitration, guardrails.

Pure. The loop and the replay of a journal call the same function, which is why a replay reproduces what was
decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.control.arbitration import Arbitration, ArbitrationMemory, arbitrate, settle
from penstock.control.codec import unpack
from penstock.control.damping import Damping, DampingMemory, damp, rest
from penstock.control.desired import Desired
from penstock.control.effects import Pending, expect
from penstock.control.guardrails import GuardMemory, Guardrails, guard, harmful
from penstock.control.plan import Outcome, Plan, Withheld
from penstock.control.record import Fault, Latest
from penstock.policies.policy import AnyPolicy, Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot

DONE = frozenset({"applied", "held", "deferred"})
"""Outcomes after which an action counts as carried out; deferred ones are asserted again by the runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """A policy with its options. In dry-run it decides and explains, and nobody does what it says."""

    policy: AnyPolicy
    options: Any = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the loop runs, kept with the run so that a replay thinks the same."""

    interval_s: float = 5.0
    """Seconds between two cycles."""
    dry_run: bool = False
    """Decide and explain, do nothing."""
    damping: Damping = field(default_factory=Damping)
    arbitration: Arbitration = field(default_factory=Arbitration)
    guardrails: Guardrails = field(default_factory=Guardrails)

    def __post_init__(self) -> None:
        if not 0 < self.interval_s < float("inf"):
            raise ValueError(f"the interval must be longer than 0 s, not {self.interval_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the loop itself carries from cycle to cycle; a restarted controller goes on from it."""

    desired: Desired = field(default_factory=Desired)
    damping: DampingMemory = field(default_factory=DampingMemory)
    arbitration: ArbitrationMemory = field(default_factory=ArbitrationMemory)
    pending: tuple[Pending, ...] = ()
    guard: GuardMemory = field(default_factory=GuardMemory)
    bounds_ms: Mapping[str, float] = field(default_factory=dict)
    """Bounds of goals that were set by hand."""


def desired_of(latest: Latest) -> Desired:
    """What a run that stood there had asked for."""
    return unpack(Standing, latest.standing).desired


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was proposed, the plan made of it, and the memories after it."""

    plan: Plan
    proposals: tuple[Proposal, ...] = ()
    memories: Mapping[str, Any] = field(default_factory=dict)
    standing: Standing = field(default_factory=Standing)
    faults: tuple[Fault, ...] = ()


def decide(
    snapshot: Snapshot,
    policies: Sequence[PolicyRun],
    memories: Mapping[str, Any],
    standing: Standing,
    settings: Settings,
    *,
    recovering: bool = False,
) -> Decision:
    """The plan of this cycle. A policy that raises keeps its old memory and is a fault; the others go on."""
    proposals, after, faults = [], dict(memories), []
    for run in policies:
        name = run.policy.name
        try:
            proposal, memory = run.policy.decide(snapshot, memories[name], run.options)
            if not isinstance(proposal, Proposal):
                raise TypeError(
                    f"a policy returns a Proposal and its memory, not a {type(proposal).__name__}"
                )
        except Exception as problem:  # whatever a policy does, the user's query goes on
            faults.append(Fault.of("decide", problem, policy=name))
        else:
            proposals.append(replace(proposal, policy=name))
            after[name] = memory
    if recovering:
        return _recovery(snapshot, proposals, after, standing, settings, faults)
    dry = {run.policy.name for run in policies if run.dry_run}
    acting = [p for p in proposals if p.policy not in dry]
    damped = damp(acting, snapshot, standing.damping, settings.damping)
    resting = [w for w in damped.withheld if w.reason.code == "cooling-down"]
    back = harmful(snapshot, standing.guard, settings.guardrails)
    plan, waiting = arbitrate(
        [*([back] if back.actions else []), *damped.proposals],
        snapshot,
        standing.arbitration,
        settings.arbitration,
        resting=resting,
    )
    plan, guarded = guard(plan, snapshot, standing.guard, settings.guardrails)
    said = _not_done([p for p in proposals if p.policy in dry], "dry-run")
    plan = replace(
        plan,
        withheld=damped.withheld + plan.withheld + said.withheld,
        notices=plan.notices + tuple(n for n in said.notices if n not in plan.notices),
    )
    return Decision(
        plan=plan,
        proposals=tuple(proposals),
        memories=after,
        standing=replace(standing, damping=damped.memory, arbitration=waiting, guard=guarded),
        faults=tuple(faults),
    )


def _recovery(
    snapshot: Snapshot,
    proposals: Sequence[Proposal],
    memories: Mapping[str, Any],
    standing: Standing,
    settings: Settings,
    faults: Sequence[Fault],
) -> Decision:
    """The first cycles after a restart only put back what had been asked for; policies act after them."""
    recovery = standing.desired.missing(snapshot)
    plan, _ = arbitrate([recovery], snapshot, ArbitrationMemory(), settings.arbitration)
    said = _not_done(proposals, "recovering")
    plan = replace(plan, withheld=plan.withheld + said.withheld, notices=said.notices)
    return Decision(
        plan=plan,
        proposals=(recovery, *proposals),
        memories=memories,
        standing=standing,
        faults=tuple(faults),
    )


def _not_done(proposals: Sequence[Proposal], code: str) -> Plan:
    """The proposals as a plan that does nothing of them, for the given reason."""
    reason = Reason(code=code)
    return Plan(
        time_s=0.0,
        withheld=tuple(
            Withheld(action=a, policy=p.policy, reason=reason) for p in proposals for a in p.actions
        ),
        notices=tuple(n for p in proposals for n in p.notices),
    )


def carried_out(
    standing: Standing, plan: Plan, outcomes: Sequence[Outcome], snapshot: Snapshot, settings: Settings
) -> Standing:
    """The standing after the runtime has answered: rests begin, remedies settle, promises are noted."""
    done = {(o.action.kind, o.action.subject): o.action for o in reversed(outcomes) if o.status in DONE}
    failed = [o.action for o in outcomes if o.status not in DONE]
    # Only what this plan began: outcomes of earlier, deferred actions have had their rest already.
    begun = tuple(p for p in plan.actions if done.get((p.action.kind, p.action.subject)) == p.action)
    replaced = {(p.action.kind, p.action.subject) for p in begun} | {(a.kind, a.subject) for a in failed}
    still = tuple(p for p in standing.pending if (p.action.kind, p.action.subject) not in replaced)
    promised = tuple(pending for p in begun if (pending := expect(p.action, p.policy, snapshot)) is not None)
    actions = [p.action for p in begun]
    return replace(
        standing,
        desired=standing.desired.after(actions, failed, snapshot),
        damping=rest(standing.damping, actions, snapshot, settings.damping),
        arbitration=settle(standing.arbitration, begun, snapshot),
        pending=still + promised,
    )
