"""A run of the journal as a story: what was seen, what was decided and why, what came of it, what is out of reach."""

from __future__ import annotations

import datetime
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.journal import JournalError, SqliteJournal
from penstock.control.record import Cycle, Run
from penstock.control.summary import RunSummary, summary_of
from penstock.control.timeline import Episode, Line, episodes
from penstock.policies.wording import duration, number, quantity, sentence, share

WIDTH = 110
MOST_NOTICED = 12
_UNIT = re.compile(r"(\d) (?=(?:%|[a-zµ]+s|[kMGT]?B|s|min|h|d)\b|%)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreached:
    """A goal no action reached, why, and what would help."""

    goal: str
    code: str
    why: str
    helps: str
    first_s: float
    last_s: float
    cycles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All there is to tell about a run."""

    run: Run
    start_s: float
    episodes: tuple[Episode, ...]
    unreached: tuple[Unreached, ...]
    noticed: tuple[tuple[float, str], ...]
    """(when first, what) the runtime wanted known."""
    summary: RunSummary


def explain(journal: SqliteJournal, run: str) -> Explanation:
    """The story of a run. `JournalError` if the journal has none of that name."""
    known = {r.id: r for r in journal.runs()}
    if run not in known:
        names = ", ".join(list(known)[-5:]) or "none"
        raise JournalError(f"the journal has no run '{run}'; the latest are: {names}")
    cycles = tuple(journal.cycles(run))
    return Explanation(
        run=known[run],
        start_s=cycles[0].time_s if cycles else 0.0,
        episodes=tuple(episodes(cycles)),
        unreached=_unreached(cycles),
        noticed=_noticed(cycles),
        summary=summary_of(cycles),
    )


def _unreached(cycles: Sequence[Cycle]) -> tuple[Unreached, ...]:
    found: dict[tuple[str, str], Unreached] = {}
    for cycle in cycles:
        for notice in cycle.plan.notices:
            key = (notice.goal, notice.reason.code)
            earlier = found.get(key)
            found[key] = Unreached(
                goal=notice.goal,
                code=notice.reason.code,
                why=sentence(notice.reason),
                helps=notice.helps,
                first_s=cycle.time_s if earlier is None else earlier.first_s,
                last_s=cycle.time_s,
                cycles=1 if earlier is None else earlier.cycles + 1,
            )
    return tuple(found.values())


def _noticed(cycles: Sequence[Cycle]) -> tuple[tuple[float, str], ...]:
    found: dict[str, float] = {}
    seen = False
    for cycle in cycles:
        seen = seen or cycle.brief is not None
        lost = (cycle.unready,) if seen and cycle.unready else ()
        for text in cycle.brief.warnings if cycle.brief is not None else lost:
            found.setdefault(text, cycle.time_s)
    return tuple((time_s, text) for text, time_s in found.items())


def as_text(explanation: Explanation, *, width: int = WIDTH) -> str:
    """The story for a plain terminal or a file."""
    out = [*_heading(explanation), ""]
    for episode in explanation.episodes:
        out += _episode_text(episode, explanation.start_s, width)
    if explanation.noticed:
        out += ["", "Noticed"]
        for time_s, text in explanation.noticed[:MOST_NOTICED]:
            out += _wrapped(f"    {clock(time_s - explanation.start_s):>8}  ", text, width)
        if len(explanation.noticed) > MOST_NOTICED:
            out.append(f"    and {len(explanation.noticed) - MOST_NOTICED} more")
    if explanation.unreached:
        out += ["", "Out of reach"]
        for goal in explanation.unreached:
            helps = f" What would help: {goal.helps}." if goal.helps else ""
            when = f"from {clock(goal.first_s - explanation.start_s)}, in {_count(goal.cycles, 'cycle')}"
            out += _wrapped(f"  {goal.goal}: ", f"{goal.why} ({when}).{helps}", width)
    out += ["", "In short", *_summary_text(explanation.summary, width)]
    return "\n".join(out) + "\n"


def clock(seconds: float) -> str:
    """Time since the start as minutes and seconds: `+1:05`, `+2:00:00`."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"+{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"+{rest // 60}:{rest % 60:02d}"


def _heading(explanation: Explanation) -> list[str]:
    run, summary = explanation.run, explanation.summary
    began = datetime.datetime.fromtimestamp(run.started_unix, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    heading = [
        f"{run.id}: dataflow {run.dataflow}, {_count(summary.cycles, 'cycle')} over"
        f" {duration(summary.duration_s)}, begun {began}, Penstock {run.version}"
    ]
    if summary.modes == ("observe",):
        heading.append("Observed only: nothing was decided, nothing done.")
    elif summary.dry_run:
        heading.append("A dry run: decided and explained, nothing done.")
    elif len(summary.modes) > 1:
        heading.append(
            f"The mode was changed: {', then '.join(summary.modes)}. Only what was decided in act was done."
        )
    return heading


def _episode_text(episode: Episode, start_s: float, width: int) -> list[str]:
    begin, end = clock(episode.from_s - start_s), clock(episode.to_s - start_s)
    when = begin if begin == end else f"{begin} to {end}"
    out = _wrapped(f"{when:<18} ", episode.title, width)
    for line in episode.lines:
        out += _line_text(line, start_s, width)
    return out


def _line_text(line: Line, start_s: float, width: int) -> list[str]:
    head = f"    {clock(line.time_s - start_s):>8}  {line.topic:<10}  "
    policy = f" [{line.policy}]" if line.policy and line.topic in ("decided", "held back", "fault") else ""
    return _wrapped(head, line.text + policy, width)


def _summary_text(summary: RunSummary, width: int) -> list[str]:
    out: list[str] = []
    for goal in summary.constraints:
        bound = quantity("_ms", goal.bound_ms)
        if goal.held is None:
            out += _wrapped(f"  {goal.name}: ", f"never measured (bound {bound})", width)
            continue
        unknown = f", not measured in {quantity('share', goal.unknown)}" if goal.unknown else ""
        figures = f"mean of intervals {quantity('_ms', goal.mean_ms)}, worst {quantity('_ms', goal.worst_ms)}"
        text = f"held in {quantity('share', goal.held)} of intervals{unknown} (bound {bound}, {figures})"
        out += _wrapped(f"  {goal.name}: ", text, width)
    for sink in summary.sinks:
        if sink.accuracy is not None:
            least = f", must be {quantity('share', sink.min_accuracy)}" if sink.min_accuracy else ""
            text = (
                f"{quantity('share', sink.accuracy)} of the input counted, {quantity('share', sink.lowest)} at"
                f" the lowest{least}"
            )
            out += _wrapped(f"  {sink.name}: ", text, width)
    actions = summary.planned if summary.dry_run else summary.begun
    told = ", ".join(_count(n, kind) for kind, n in actions.items()) or "none"
    out += _wrapped("  actions: ", told, width)
    if summary.worked or summary.did_not_work:
        out.append(f"  effects: {summary.worked} as expected, {summary.did_not_work} not")
    if summary.withheld:
        told = ", ".join(f"{n} {code.replace('-', ' ')}" for code, n in sorted(summary.withheld.items()))
        out += _wrapped("  held back: ", told, width)
    if summary.faults:
        told = ", ".join(f"{n} {code.replace('-', ' ')}" for code, n in sorted(summary.faults.items()))
        out += _wrapped("  faults survived: ", told, width)
    if summary.skipped:
        out.append(f"  late: {_count(summary.skipped, 'cycle')} skipped")
    if summary.cost:
        lines = [
            f"{number(line.cost)} for {duration(line.node_seconds)} of {line.machine}"
            + (f", billed by {duration(line.billing_s)}" if line.billing_s else "")
            for line in summary.bill
        ]
        left = (
            ""
            if summary.backlog_records is None
            else f"; {number(summary.backlog_records)} records left waiting"
        )
        given_up = f"; value given up {share(summary.value_given_up)}" if summary.value_given_up else ""
        out += _wrapped("  cost: ", f"{number(summary.cost)} ({'; '.join(lines)}{given_up}{left})", width)
    return out


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def _wrapped(head: str, text: str, width: int) -> list[str]:
    # A number and its unit stay on one line.
    glued = _UNIT.sub("\\1\u00a0", text)
    lines = textwrap.wrap(head + glued, width, subsequent_indent=" " * len(head), replace_whitespace=False)
    return [line.replace("\u00a0", " ") for line in lines]
