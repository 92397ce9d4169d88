"""Steadiness, shared by all policies: rests after an action, delayed shrinking, bands.

Pure: memory in, memory out. Each step may hold an action back or soften it, and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.control.plan import Withheld
from penstock.policies.actions import Action, Scale
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Damping:
    """How calm the loop is. Rests are counted in cycles and hold for one kind of action on one subject."""

    rest_after_growth: int = 2
    """Cycles without scaling after a scale-up or an acquisition: its effect must show first (0..)."""
    rest_after_shrink: int = 0
    """Cycles without scaling after a scale-down or a release (0..)."""
    rest_after_move: int = 2
    """Cycles for which a moved task stays where it is (0..)."""
    rest_after_switch: int = 1
    """Cycles for which an alternate stays, so that it can be measured (0..)."""
    shrink_window_s: float = 0.0
    """Seconds throughout which a smaller size must have been wanted; then the largest of those is taken (0..)."""
    scale_band: float = 0.0
    """Relative change of a size that is not worth an action, 0..1."""
    keep_band: float = 0.005
    """Change of a keep share that is not worth an action, 0..1; back to 1 always is."""

    def __post_init__(self) -> None:
        rests = (self.rest_after_growth, self.rest_after_shrink, self.rest_after_move, self.rest_after_switch)
        if min(rests) < 0 or not self.shrink_window_s >= 0:
            raise ValueError("rests and windows cannot be negative")
        if not (0 <= self.scale_band < 1 and 0 <= self.keep_band < 1):
            raise ValueError("bands lie in 0..1")


@dataclass(frozen=True, slots=True, kw_only=True)
class DampingMemory:
    """Who rests until when, and which smaller sizes have been wanted since when."""

    rests: Mapping[str, float] = field(default_factory=dict)
    """`kind subject` to the time its rest ends."""
    shrinks: Mapping[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    """Operator to (time, size wanted), oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damped:
    """What is left of the proposals, what was held back, and the new memory."""

    proposals: tuple[Proposal, ...]
    withheld: tuple[Withheld, ...]
    memory: DampingMemory


def damp(
    proposals: Sequence[Proposal], snapshot: Snapshot, memory: DampingMemory, options: Damping
) -> Damped:
    """The proposals without actions that come too soon, too early or for too little."""
    shrinks = _remember_shrinks(proposals, snapshot, memory, options)
    withheld: list[Withheld] = []
    kept: list[Proposal] = []
    for proposal in proposals:
        actions: list[Action] = []
        for action in proposal.actions:
            reason = _too_little(action, snapshot, options) or _too_soon(action, snapshot, memory)
            softer: Action | None = action
            if reason is None and isinstance(action, Scale):
                softer, reason = _too_early(action, snapshot, shrinks, options)
            if reason is not None:
                withheld.append(Withheld(action=action, policy=proposal.policy, reason=reason))
            if softer is not None and (reason is None or softer is not action):
                actions.append(softer)
        kept.append(replace(proposal, actions=tuple(actions)))
    rests = {key: until_s for key, until_s in memory.rests.items() if until_s > snapshot.time_s}
    return Damped(
        proposals=tuple(kept), withheld=tuple(withheld), memory=DampingMemory(rests=rests, shrinks=shrinks)
    )


def rest(
    memory: DampingMemory, done: Iterable[Action], snapshot: Snapshot, options: Damping
) -> DampingMemory:
    """The memory after the given actions were carried out: their subjects rest now."""
    rests = dict(memory.rests)
    for action in done:
        cycles = _rest_cycles(action, snapshot, options)
        if cycles:
            # Half an interval more, so that a cycle that comes a little late still counts as the last one of rest.
            rests[_key(action)] = snapshot.time_s + (cycles + 0.5) * snapshot.interval_s
    return replace(memory, rests=rests)


def _rest_cycles(action: Action, snapshot: Snapshot, options: Damping) -> int:
    match action.cool_down:
        case "move":
            return options.rest_after_move
        case "switch":
            return options.rest_after_switch
        case "size":
            grows = action.direction(snapshot) == "relieves"
            return options.rest_after_growth if grows else options.rest_after_shrink
        case None:
            return 0


def _key(action: Action) -> str:
    return f"{action.kind} {action.subject}"


def _too_soon(action: Action, snapshot: Snapshot, memory: DampingMemory) -> Reason | None:
    until_s = memory.rests.get(_key(action), 0.0)
    if until_s <= snapshot.time_s:
        return None
    return Reason(code="cooling-down", facts={"left_s": until_s - snapshot.time_s})


def _too_little(action: Action, snapshot: Snapshot, options: Damping) -> Reason | None:
    band = options.keep_band if action.continuous else options.scale_band
    change = action.change(snapshot)
    if change is None or change >= band:
        return None
    return Reason(code="within-band", facts={"change": change, "band": band})


def _remember_shrinks(
    proposals: Sequence[Proposal], snapshot: Snapshot, memory: DampingMemory, options: Damping
) -> dict[str, tuple[tuple[float, int], ...]]:
    """Smaller sizes wanted without interruption. An operator nobody wants to shrink now starts afresh."""
    if not options.shrink_window_s:
        return {}
    wanted: dict[str, int] = {}
    grown: set[str] = set()
    for action in (a for p in proposals for a in p.actions if isinstance(a, Scale)):
        if action.target > action.current:
            grown.add(action.subject)
        else:
            wanted[action.subject] = max(wanted.get(action.subject, 0), action.target)
    return {
        subject: (*memory.shrinks.get(subject, ()), (snapshot.time_s, target))
        for subject, target in wanted.items()
        if subject not in grown
    }


def _too_early(
    action: Scale,
    snapshot: Snapshot,
    shrinks: Mapping[str, tuple[tuple[float, int], ...]],
    options: Damping,
) -> tuple[Scale | None, Reason | None]:
    """(the action, softened, or None; why it is not as proposed)."""
    history = shrinks.get(action.subject)
    if action.target > action.current or history is None:
        return action, None
    waited_s = snapshot.time_s - history[0][0]
    if waited_s < options.shrink_window_s:
        facts = {"waited_s": waited_s, "window_s": options.shrink_window_s, "target": action.target}
        return None, Reason(code="shrink-delayed", facts=facts)
    largest = max(size for at_s, size in history if at_s >= snapshot.time_s - options.shrink_window_s)
    if largest <= action.target:
        return action, None
    reason = Reason(
        code="shrink-softened",
        facts={"target": action.target, "largest": largest, "window_s": options.shrink_window_s},
    )
    return (replace(action, target=largest) if largest < action.current else None), reason
