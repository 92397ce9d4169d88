"""A run's cycles gathered into episodes: stretches in which something went on, and quiet ones between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from penstock.control.brief import Brief
from penstock.control.plan import Planned
from penstock.control.record import Cycle
from penstock.control.wording import promise, verdict
from penstock.policies.actions import is_setting
from penstock.policies.reasons import Reason
from penstock.policies.wording import duration, quantity, sentence

QUIET_CYCLES = 2
"""So many quiet cycles in a row end an episode."""
TOGETHER = 3
"""More like actions than this in one cycle are told as one."""

Topic = Literal["seen", "decided", "expected", "held back", "outcome", "came of it", "unreached", "fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing to tell, at a time."""

    time_s: float
    topic: Topic
    text: str
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A stretch of a run with a title; a quiet one has nothing more to tell than that."""

    from_s: float
    to_s: float
    cycles: int
    title: str
    quiet: bool
    lines: tuple[Line, ...] = ()


def episodes(cycles: Sequence[Cycle]) -> Iterator[Episode]:
    """The episodes of a run, in order."""
    eventful = [_eventful(cycle) for cycle in cycles]
    for i in range(1, len(cycles)):
        eventful[i] |= _late(cycles[i - 1])  # in which the goal is regained
    last = None
    for i in [i for i, is_eventful in enumerate(eventful) if is_eventful]:
        if last is not None and i - last <= QUIET_CYCLES:
            eventful[last:i] = [True] * (i - last)
        last = i
    before: Brief | None = None
    for is_eventful, group in groupby(zip(eventful, cycles, strict=True), key=lambda pair: pair[0]):
        stretch = [cycle for _, cycle in group]
        yield _episode(stretch, before) if is_eventful else _calm(stretch)
        before = stretch[-1].brief or before


def _eventful(cycle: Cycle) -> bool:
    told = any(e.verdict != "worked" or not is_setting(e.metric) for e in cycle.effects)
    acted = any(p.action.eventful for p in cycle.plan.actions)
    return bool(acted or cycle.faults or cycle.plan.notices or told) or _late(cycle)


def _late(cycle: Cycle) -> bool:
    return cycle.brief is not None and any(c.held is False for c in cycle.brief.constraints)


def _calm(cycles: Sequence[Cycle]) -> Episode:
    briefs = [c.brief for c in cycles if c.brief is not None]
    parts = []
    if not briefs:
        why = next((c.unready for c in reversed(cycles) if c.unready), "")
        parts.append(f"nothing to observe{f': {why}' if why else ''}")
    else:
        parts.append("all well")
        loads = [b.produced_rps for b in briefs if b.produced_rps is not None]
        parts += [f"load {_span('_rps', loads)}"] if loads else []
        for i, constraint in enumerate(briefs[-1].constraints):
            seen = [b.constraints[i].latency_s for b in briefs if len(b.constraints) > i]
            known = [s for s in seen if s is not None]
            if known:
                bound = quantity("_s", constraint.bound_s)
                parts.append(f"{constraint.name} {_span('_s', known)} of {bound}")
    tuned = sum(len(c.plan.actions) for c in cycles)
    parts += [f"batching tuned {_times(tuned)}"] if tuned else []
    return Episode(
        from_s=cycles[0].time_s,
        to_s=cycles[-1].time_s,
        cycles=len(cycles),
        title="; ".join(parts),
        quiet=True,
    )


def _span(unit: str, values: Sequence[float]) -> str:
    low, high = quantity(unit, min(values)), quantity(unit, max(values))
    return low if low == high else f"{low} to {high}"


def _episode(cycles: Sequence[Cycle], before: Brief | None) -> Episode:
    lines: list[Line] = []
    late_since: dict[str, tuple[float, float]] = {}
    held_back: Counter[tuple[str, str, str]] = Counter()
    adjusted: dict[tuple[str, str, str, str], list[Line]] = {}
    said: set[tuple[str, str]] = set()
    for cycle in cycles:
        lines += _seen(cycle, before, late_since)
        lines += _faults(cycle, said)
        lines += _decided(cycle, adjusted)
        for withheld in cycle.plan.withheld:
            key = (withheld.action.text, withheld.policy, withheld.reason.code)
            held_back[key] += 1
            if held_back[key] == 1:
                text = f"{key[0]}: {sentence(withheld.reason)}"
                lines.append(Line(time_s=cycle.time_s, topic="held back", text=text, policy=withheld.policy))
        for notice in cycle.plan.notices:
            if (notice.goal, notice.reason.code) not in said:
                said.add((notice.goal, notice.reason.code))
                helps = f"; what would help: {notice.helps}" if notice.helps else ""
                text = f"{notice.goal}: {sentence(notice.reason)}{helps}"
                lines.append(Line(time_s=cycle.time_s, topic="unreached", text=text))
        before = cycle.brief or before
    for more in adjusted.values():
        if len(more) > 1:
            told = f"adjusted {_times(len(more) - 1)} more, at last: {more[-1].text}"
            lines.append(replace(more[-1], text=told))
    return Episode(
        from_s=cycles[0].time_s,
        to_s=cycles[-1].time_s,
        cycles=len(cycles),
        title=_title(cycles),
        quiet=False,
        lines=tuple(sorted(lines, key=lambda line: line.time_s)),
    )


def _seen(cycle: Cycle, before: Brief | None, late_since: dict[str, tuple[float, float]]) -> Iterator[Line]:
    """Goals that were lost or regained, and effects that can be told now."""
    if cycle.brief is not None:
        for constraint in cycle.brief.constraints:
            latency_s = constraint.latency_s or 0.0
            if constraint.held is False and constraint.name not in late_since:
                late_since[constraint.name] = (cycle.time_s, latency_s)
                text = f"{constraint.name} at {duration(latency_s)}, over its bound of {duration(constraint.bound_s)}"
                yield Line(time_s=cycle.time_s, topic="seen", text=text + _load(cycle.brief, before))
            elif constraint.held is False:
                since_s, worst_s = late_since[constraint.name]
                late_since[constraint.name] = (since_s, max(worst_s, latency_s))
            elif constraint.held and constraint.name in late_since:
                since_s, worst_s = late_since.pop(constraint.name)
                text = (
                    f"{constraint.name} back under its bound, at {duration(latency_s)}, after"
                    f" {duration(cycle.time_s - since_s)}; at worst {duration(worst_s)}"
                )
                yield Line(time_s=cycle.time_s, topic="seen", text=text)
    for effect in cycle.effects:
        if effect.verdict != "worked" or not is_setting(effect.metric):
            yield Line(time_s=cycle.time_s, topic="came of it", text=verdict(effect), policy=effect.policy)


def _load(brief: Brief, before: Brief | None) -> str:
    now, then = brief.produced_rps, None if before is None else before.produced_rps
    if now is None:
        return ""
    was = f", was {quantity('_rps', then)}" if then and abs(now / then - 1) >= 0.05 else ""
    return f" (load {quantity('_rps', now)}{was})"


def _faults(cycle: Cycle, said: set[tuple[str, str]]) -> Iterator[Line]:
    for fault in cycle.faults:
        if (fault.code, fault.cause) not in said:
            said.add((fault.code, fault.cause))
            text = sentence(Reason(code=fault.code, facts={"cause": fault.cause}))
            yield Line(time_s=cycle.time_s, topic="fault", text=text, policy=fault.policy)


def _decided(cycle: Cycle, adjusted: dict[tuple[str, str, str, str], list[Line]]) -> Iterator[Line]:
    """What the plan does. Further adjustments of a keep share or a deadline for the same reason go to `adjusted`."""
    alike: dict[tuple[str, str, str], list[Planned]] = {}
    for planned in cycle.plan.actions:
        alike.setdefault((planned.policy, planned.action.kind, planned.action.reason.code), []).append(
            planned
        )
    would = "would " if cycle.dry_run else ""
    for (policy, kind, code), group in alike.items():
        told = group if len(group) <= TOGETHER else group[:1]
        for planned in told:
            text = f"{would}{planned.action.text}: {sentence(planned.action.reason)}"
            if len(group) > TOGETHER:
                text = f"{len(group)} times {kind}, such as {text}"
            line = Line(time_s=cycle.time_s, topic="decided", text=text, policy=policy)
            if planned.action.continuous:
                same = adjusted.setdefault((policy, kind, code, planned.action.subject), [])
                same.append(line)
                if len(same) > 1:
                    continue
            yield line
            expects = planned.action.expects
            if expects is not None and not is_setting(expects.metric):
                yield Line(time_s=cycle.time_s, topic="expected", text=promise(expects), policy=policy)
    if not cycle.dry_run:
        for outcome in cycle.outcomes:
            if outcome.status in ("blocked", "failed"):
                why = f": {sentence(outcome.reason)}" if outcome.reason is not None else ""
                text = f"{outcome.action.text} {outcome.status}{why}"
                yield Line(time_s=cycle.time_s, topic="outcome", text=text)


def _title(cycles: Sequence[Cycle]) -> str:
    """What the episode was about: who was late, what changed on balance, what went wrong."""
    late = sorted({c.name for cy in cycles if cy.brief for c in cy.brief.constraints if c.held is False})
    parts = [f"{', '.join(late)} late"] if late else []
    changes: dict[str, list[str]] = {}
    adjusted: dict[str, None] = {}
    kinds: Counter[str] = Counter()
    for action in (p.action for cycle in cycles for p in cycle.plan.actions):
        if action.steps is not None:
            changes.setdefault(action.subject, [action.steps[0]]).append(action.steps[1])
        elif action.continuous:
            adjusted[f"{action.doing.split()[0]} adjusted"] = None
        else:
            kinds[action.kind] += 1
    parts += [f"{subject} {way[0]} → {way[-1]}" for subject, way in changes.items()]
    parts += adjusted
    parts += [f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in kinds.items()]
    faults = sum(len(c.faults) for c in cycles)
    parts += [f"{faults} fault{'s' if faults > 1 else ''} survived"] if faults else []
    if not parts and any(c.plan.notices for c in cycles):
        parts.append("a goal out of reach")
    return "; ".join(dict.fromkeys(parts)) or "earlier decisions took effect"


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"
