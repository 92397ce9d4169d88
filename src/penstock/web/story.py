"""The decisions of a run as a page tells them: each with what was seen, held back and expected, and what came of it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from penstock.control.brief import Brief
from penstock.control.changes import Change
from penstock.control.effects import Effect
from penstock.control.plan import Planned
from penstock.control.record import Cycle
from penstock.control.wording import promise, verdict
from penstock.policies.wording import duration, number, quantity, sentence

ENTRIES_KEPT = 600
TOGETHER = 3
"""More like actions than this in one cycle are told as one."""
LINES_KEPT = 40
LONGEST_CYCLES = 720
"""A quiet stretch is cut here: an hour at one cycle in 5 s."""

Kind = Literal["acted", "late", "fault", "quiet"]
Topic = Literal[
    "changed by hand",
    "seen",
    "decided",
    "expected",
    "held back",
    "outcome",
    "came of it",
    "out of reach",
    "fault",
    "why",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One thing to tell about a decision."""

    topic: Topic
    text: str
    policy: str | None = None


@dataclass(slots=True, kw_only=True)
class Entry:
    """A decision, or a stretch of cycles in which nothing was done; what came of it is added when it is known."""

    kind: Kind
    from_s: float
    to_s: float
    cycles: int = 1
    title: str = ""
    lines: list[Told] = field(default_factory=list)


class Story:
    """Takes cycles as they come; only the newest stretch and what came of decisions still change."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_KEPT)
        self._stretch: _Stretch | None = None

    def add(self, cycle: Cycle) -> None:
        """Take one cycle in."""
        for effect in cycle.effects:
            self._add_effect(effect)
        # Deadlines of batches are tuned all the time; that alone is no event.
        if cycle.faults or cycle.changes or any(p.action.kind != "pace" for p in cycle.plan.actions):
            self._stretch = None
            self._entries.append(_decision(cycle))
            return
        late = _late(cycle.brief)
        stretch = self._stretch
        if stretch is None or stretch.late != late or stretch.entry.cycles >= LONGEST_CYCLES:
            stretch = self._stretch = _Stretch(cycle, late)
            self._entries.append(stretch.entry)
        stretch.add(cycle)

    def entries(self) -> list[Entry]:
        """All that is kept, oldest first."""
        if self._stretch is not None:
            self._stretch.tell()
        return list(self._entries)

    def _add_effect(self, effect: Effect) -> None:
        told = Told(topic="came of it", text=verdict(effect), policy=effect.policy)
        for entry in reversed(self._entries):
            if entry.from_s <= effect.decided_s + 1e-6:
                if entry.kind != "quiet" and told not in entry.lines and len(entry.lines) < 2 * LINES_KEPT:
                    entry.lines.append(told)
                return


class _Stretch:
    """Cycles in a row without an action, told as one."""

    def __init__(self, cycle: Cycle, late: tuple[str, ...]) -> None:
        self.late = late
        self.entry = Entry(kind="late" if late else "quiet", from_s=cycle.time_s, to_s=cycle.time_s, cycles=0)
        self._whys: Counter[str] = Counter()
        self._loads: list[float] = []
        self._latencies: dict[str, list[float]] = {}
        self._bounds: dict[str, float] = {}
        self._tuned = 0

    def add(self, cycle: Cycle) -> None:
        self.entry.to_s, self.entry.cycles = cycle.time_s, self.entry.cycles + 1
        self._whys.update(why_nothing(cycle))
        self._tuned += len(cycle.plan.actions)
        if cycle.brief is not None:
            if cycle.brief.produced_rps is not None:
                self._loads.append(cycle.brief.produced_rps)
            for goal in cycle.brief.constraints:
                self._bounds[goal.name] = goal.bound_s
                if goal.latency_s is not None:
                    self._latencies.setdefault(goal.name, []).append(goal.latency_s)

    def tell(self) -> None:
        parts = [f"{', '.join(self.late)} late, nothing done" if self.late else "all well"]
        if not self._bounds and not self._loads:
            parts = ["nothing to observe"]
        parts += [f"load {_span('_rps', self._loads)}"] if self._loads else []
        for name, bound_s in self._bounds.items():
            if name in self._latencies:
                parts.append(f"{name} {_span('_s', self._latencies[name])} of {duration(bound_s)}")
        parts += [f"batching tuned {self._tuned:,} times"] if self._tuned else []
        self.entry.title = "; ".join(parts)
        self.entry.lines = [
            Told(topic="why", text=f"nothing was done because {why}" + (f" ({n:,} cycles)" if n > 1 else ""))
            for why, n in self._whys.most_common(6)
        ]


def why_nothing(cycle: Cycle) -> list[str]:
    """Why this cycle did nothing; empty if it did something."""
    if cycle.brief is None:
        return [cycle.unready or "nothing could be observed"]
    if cycle.plan.actions:
        return []
    if cycle.plan.withheld:
        told = (f"{sentence(w.reason)} ({w.action.text}, {w.policy})" for w in cycle.plan.withheld[:4])
        return list(dict.fromkeys(told))
    late = _late(cycle.brief)
    if late:
        return [f"no policy had a remedy for {', '.join(late)}"]
    if not cycle.brief.constraints:
        return ["there is no latency goal"]
    unknown = [c.name for c in cycle.brief.constraints if c.latency_s is None]
    if unknown:
        return [f"the latency of {', '.join(unknown)} is not known"]
    return ["every goal was held"]


def _decision(cycle: Cycle) -> Entry:
    lines = [Told(topic="changed by hand", text=f"{_changed(c)}, by {c.by}") for c in cycle.changes]
    lines += [*_seen(cycle.brief), *_decided(cycle), *_held_back(cycle), *_outcomes(cycle)]
    for notice in cycle.plan.notices:
        helps = f"; what would help: {notice.helps}" if notice.helps else ""
        lines.append(Told(topic="out of reach", text=f"{notice.goal}: {sentence(notice.reason)}{helps}"))
    lines += [Told(topic="fault", text=f"{f.code}: {f.cause}", policy=f.policy) for f in cycle.faults]
    kind: Kind = "fault" if cycle.faults else "late" if _late(cycle.brief) else "acted"
    if len(lines) > LINES_KEPT:
        more = Told(
            topic="seen", text=f"and {len(lines) - LINES_KEPT} more lines; 'penstock explain' tells them"
        )
        lines = [*lines[:LINES_KEPT], more]
    return Entry(kind=kind, from_s=cycle.time_s, to_s=cycle.time_s, title=_title(cycle), lines=lines)


def _title(cycle: Cycle) -> str:
    would = "would " if cycle.dry_run else ""
    deeds = [f"{would}{group[0].action.text}{_more(group)}" for group in _alike(cycle.plan.actions)]
    deeds = [_changed(change) for change in cycle.changes] + deeds
    if not deeds:
        return f"{len(cycle.faults)} fault{'s' if len(cycle.faults) > 1 else ''} survived"
    shown = deeds[:TOGETHER] + ([f"{len(deeds) - TOGETHER} more"] if len(deeds) > TOGETHER else [])
    return "; ".join(shown)


def _changed(change: Change) -> str:
    what = "mode" if change.what == "mode" else f"bound of {change.subject}"
    unit = "" if change.what == "mode" else " ms"
    return f"{what} changed from {change.before} to {change.after}{unit}"


def _more(group: Sequence[Planned]) -> str:
    return f" and {len(group) - 1} more like it" if len(group) > 1 else ""


def _alike(planned: Iterable[Planned]) -> list[list[Planned]]:
    """Actions of one kind, policy and reason stand together when they are many."""
    groups: dict[tuple[str, ...], list[Planned]] = {}
    for one in planned:
        groups.setdefault((one.policy, one.action.kind, one.action.reason.code), []).append(one)
    told: list[list[Planned]] = []
    for group in groups.values():
        told += [group] if len(group) > TOGETHER else [[one] for one in group]
    return sorted(told, key=lambda group: group[0].action.kind == "pace")


def _seen(brief: Brief | None) -> Iterator[Told]:
    if brief is None:
        yield Told(topic="seen", text="nothing could be observed")
        return
    for goal in brief.constraints:
        bound = f"its bound of {duration(goal.bound_s)}"
        if goal.latency_s is None:
            yield Told(topic="seen", text=f"{goal.name} was not measured, {bound} may or may not hold")
        else:
            way = "within" if goal.held else "over"
            yield Told(topic="seen", text=f"{goal.name} at {duration(goal.latency_s)}, {way} {bound}")
    waiting = sum(s.backlog_records for s in brief.sources)
    load = f"load {quantity('_rps', brief.produced_rps)}, {number(waiting)} records waiting"
    cores = f"{number(brief.own_cpu)} of {number(brief.cores)} cores busy"
    yield Told(topic="seen", text=f"{load}; {brief.nodes:,} nodes, {cores}")


def _decided(cycle: Cycle) -> Iterator[Told]:
    would = "would " if cycle.dry_run else ""
    for group in _alike(cycle.plan.actions):
        action, policy = group[0].action, group[0].policy
        text = f"{would}{action.text}{_more(group)}: {sentence(action.reason)}"
        yield Told(topic="decided", text=text, policy=policy)
        if action.expects is not None:
            yield Told(topic="expected", text=promise(action.expects), policy=policy)


def _held_back(cycle: Cycle) -> Iterator[Told]:
    for withheld in cycle.plan.withheld:
        text = f"{withheld.action.text}: {sentence(withheld.reason)}"
        yield Told(topic="held back", text=text, policy=withheld.policy)


def _outcomes(cycle: Cycle) -> Iterator[Told]:
    """What the runtime said at once; later it tells what became of what it deferred."""
    groups: Counter[str] = Counter()
    for outcome in cycle.outcomes:
        why = f": {sentence(outcome.reason)}" if outcome.reason is not None else ""
        if outcome.status in ("applied", "held"):
            groups[f"{outcome.action.kind} {outcome.status}{why}"] += 1
        else:
            groups[f"{outcome.action.text} {outcome.status}{why}"] += 1
    for text, n in groups.items():
        yield Told(topic="outcome", text=text if n == 1 else f"{text} ({n:,} times)")


def _late(brief: Brief | None) -> tuple[str, ...]:
    return () if brief is None else tuple(c.name for c in brief.constraints if c.held is False)


def _span(unit: str, values: Sequence[float]) -> str:
    low, high = quantity(unit, min(values)), quantity(unit, max(values))
    return low if low == high else f"{low} to {high}"
