"""The story of a run: golden text of a small one, and the words for numbers and reasons."""

from dataclasses import replace

import pytest

from penstock.control import (
    Desired,
    JournalError,
    Loop,
    NotReadyError,
    PolicyRun,
    Settings,
    as_text,
    explain,
)
from penstock.control.codec import pack, unpack
from penstock.control.explain import Explanation, clock
from penstock.dataflow import OperatorId
from penstock.policies.actions import Acquire, Expectation, Limit, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.policy import Notice, Proposal
from penstock.policies.reasons import Reason
from penstock.policies.wording import quantity
from penstock.telemetry import Snapshot
from penstock.testing import (
    FakeClock,
    RecordingRuntime,
    ScriptedPolicy,
    a_dataflow,
    a_snapshot,
)
from tests.control.memory_journal import MemoryJournal

WORK, EVENTS = OperatorId("work"), OperatorId("events")
FLOW = a_dataflow(parallelism=(1, 4))


def world(time_s: float, desired: Desired) -> Snapshot:
    """The load doubles at 30 s and once more at 60 s, and falls at 90 s."""
    if time_s == 75:
        raise ConnectionResetError("no answer from the driver")
    tasks = desired["parallelism"].get("work", 2)
    demand = 2000.0 if 60 <= time_s < 90 else 1000.0 if 30 <= time_s < 60 else 500.0
    keep = desired["keep"].get("events", 1.0)
    return a_snapshot(
        FLOW,
        time_s=time_s,
        demand_rps=demand,
        parallelism={"work": tasks},
        latency_s=demand * keep / 500 * 0.15 / tasks,
        keep=dict(desired["keep"]),
        accuracy=keep,
        cost=time_s * 0.001,
    )


def elastic(snapshot: Snapshot) -> Proposal:
    now, late = int(snapshot.operators.parallelism[1]), float(snapshot.constraints.latency_s[0])
    if late <= 0.1:
        return Proposal(policy="elastic")
    facts = {"constraint": "on-time", "latency_s": late, "bound_s": 0.1}
    if now == 4:
        reason = Reason(
            code="bound-needs-more-nodes",
            facts={"nodes": 4, "predicted_ms": 150.0, "aim_ms": 80.0, "bound_ms": 100.0},
        )
        stuck = Notice(goal="on-time", reason=reason, helps="more tasks")
        return Proposal(policy="elastic", notices=(stuck,))
    expects = Expectation(metric="latency_s", subject="on-time", value=0.1, within_s=10)
    reason = Reason(code="test", facts=facts)
    grow = Scale(reason=reason, operator=WORK, current=now, target=now * 2, expects=expects)
    return Proposal(policy="elastic", actions=(grow,))


def shedder(snapshot: Snapshot) -> list[Shed]:
    late, keep = float(snapshot.constraints.latency_s[0]), float(snapshot.sources.keep[0])
    if late > 0.1:
        reason = Reason(code="test", facts={"constraint": "on-time", "backlog_records": 1200})
        return [Shed(reason=reason, operator=EVENTS, keep=round(keep / 2, 3))]
    if keep < 1 and late < 0.04:
        return [Shed(reason=Reason(code="test"), operator=EVENTS, keep=1.0)]
    return []


def a_story(seconds: float = 120, **settings: object) -> tuple[MemoryJournal, str]:
    clock_, journal = FakeClock(), MemoryJournal()
    policies = [
        PolicyRun(policy=ScriptedPolicy(elastic, name="elastic")),
        PolicyRun(policy=ScriptedPolicy(shedder, name="shedder")),
    ]
    runtime = RecordingRuntime(clock_, world)
    loop = Loop(runtime, policies, clock=clock_, journal=journal, settings=Settings(**settings))
    loop.run(for_s=seconds)
    assert loop.run_id is not None
    return journal, loop.run_id


GOLDEN = """\
example-1: dataflow example, 24 cycles over 1.92 min, begun 1970-01-01 00:00:00 UTC, Penstock test

+0:00 to +0:20     all well; load 500/s; on-time 75 ms of 100 ms
+0:25 to +0:35     on-time late; work 2 → 4
       +0:25  seen        on-time at 150 ms, over its bound of 100 ms (load 1,000/s, was 500/s)
       +0:25  decided     scale work from 2 to 4 tasks: a test says so [elastic]
       +0:25  expected    on-time at 100 ms within 10 s
       +0:25  held back   keep 50 % of the records at events: the cheaper scale work of elastic goes first
                          [shedder]
       +0:30  seen        on-time back under its bound, at 75 ms, after 5 s; at worst 150 ms
       +0:35  came of it  scaling work worked: on-time went from 150 ms to 75 ms in 10 s, expected 100 ms
+0:40 to +0:50     all well; load 1,000/s; on-time 75 ms of 100 ms
+0:55 to +1:10     on-time late; shedding adjusted; 1 fault survived
       +0:55  seen        on-time at 150 ms, over its bound of 100 ms (load 2,000/s, was 1,000/s)
       +0:55  decided     keep 50 % of the records at events: a test says so [shedder]
       +0:55  unreached   on-time: with all 4 nodes that can be had, predicted is 150 ms; 80 ms is aimed at,
                          to hold the bound of 100 ms with a margin; what would help: more tasks
       +1:00  seen        on-time back under its bound, at 75 ms, after 5 s; at worst 150 ms
       +1:10  fault       measuring failed: ConnectionResetError: no answer from the driver; the last safe
                          controls stay
+1:15 to +1:20     all well; load 2,000/s; on-time 75 ms of 100 ms
+1:25              shedding adjusted
       +1:25  decided     shed nothing more at events: a test says so [shedder]
+1:30 to +1:55     all well; load 500/s; on-time 37.5 ms of 100 ms

Out of reach
  on-time: with all 4 nodes that can be had, predicted is 150 ms; 80 ms is aimed at, to hold the bound of
           100 ms with a margin (from +0:55, in 1 cycle). What would help: more tasks.

In short
  on-time: held in 91.3 % of intervals (bound 100 ms, mean of intervals 69.3 ms, worst 150 ms)
  results: 80.7 % of the input counted, 50 % at the lowest
  actions: 1 scale, 2 sheds
  effects: 1 as expected, 0 not
  held back: 1 yields to cheaper
  faults survived: 1 observe failed
  cost: 0.12 (0.12 for 3.83 min of standard, billed by 60 min; 0 records left waiting)
"""


def test_the_story_of_a_small_run() -> None:
    assert as_text(explain(*a_story())) == GOLDEN


def test_a_dry_run_says_would() -> None:
    text = as_text(explain(*a_story(40, dry_run=True)))
    assert "A dry run: decided and explained, nothing done." in text
    assert "would scale work from 2 to 4 tasks" in text
    assert "blocked" not in text


def in_modes(*modes: str) -> str:
    """The report of a run that goes for 40 s in each mode."""
    clock_, journal = FakeClock(), MemoryJournal()
    policy = PolicyRun(policy=ScriptedPolicy(elastic, name="elastic"))
    loop = Loop(RecordingRuntime(clock_, world), [policy], clock=clock_, journal=journal)
    for mode in modes:
        loop.modes.ask(mode, by="test")
        loop.run(for_s=40)
    assert loop.run_id is not None
    return as_text(explain(journal, loop.run_id))


def test_a_run_that_only_observed_does_not_say_that_it_decided() -> None:
    text = in_modes("observe")
    assert "Observed only: nothing was decided, nothing done." in text
    assert "explained" not in text


def test_a_run_whose_mode_was_changed_tells_what_was_done() -> None:
    text = in_modes("act", "recommend")
    assert "The mode was changed: act, then recommend. Only what was decided in act was done." in text
    assert "nothing done" not in text
    assert "actions: 1 scale" in text


def test_the_explanation_is_data_too() -> None:
    story = explain(*a_story())
    assert unpack(Explanation, pack(Explanation, story)) == story
    assert story.summary.begun == {"scale": 1, "shed": 2}
    assert [(u.goal, u.code) for u in story.unreached] == [("on-time", "bound-needs-more-nodes")]
    assert story.summary.faults == {"observe-failed": 1}


def test_episodes_cover_every_cycle_once() -> None:
    journal, run = a_story()
    story = explain(journal, run)
    assert sum(e.cycles for e in story.episodes) == story.summary.cycles == 24
    assert all(a.to_s < b.from_s for a, b in zip(story.episodes, story.episodes[1:], strict=False))
    assert all(e.quiet == (e.lines == ()) for e in story.episodes)


def test_an_empty_run_and_an_unknown_one() -> None:
    journal = MemoryJournal()
    run = journal.begin(dataflow="flow", settings="{}", options={}).id
    assert "0 cycles" in as_text(explain(journal, run))
    with pytest.raises(JournalError, match="no run 'nobody'; the latest are: flow-1"):
        explain(journal, "nobody")


def test_a_run_that_never_saw_anything() -> None:
    clock_, journal = FakeClock(), MemoryJournal()
    runtime = RecordingRuntime(clock_, [NotReadyError("not yet")])
    loop = Loop(runtime, [], clock=clock_, journal=journal, name="waiting")
    loop.run(for_s=15)
    assert loop.run_id is not None
    assert "nothing to observe: not yet" in as_text(explain(journal, loop.run_id))


def test_what_the_runtime_wants_known_is_told_once() -> None:
    def noting(time_s: float, _: Desired) -> Snapshot:
        return replace(a_snapshot(FLOW, time_s=time_s), warnings=("this one only observes",))

    clock_, journal = FakeClock(), MemoryJournal()
    loop = Loop(RecordingRuntime(clock_, noting), [], clock=clock_, journal=journal)
    loop.run(for_s=20)
    story = as_text(explain(journal, str(loop.run_id)))
    assert story.count("this one only observes") == 1
    assert "Noticed" in story


def test_many_like_actions_are_told_as_one() -> None:
    moves = [
        Move(reason=Reason(code="worth-it"), operator=WORK, index=i, source="n0", target="n1")
        for i in range(40)
    ]
    clock_, journal = FakeClock(), MemoryJournal()
    runtime = RecordingRuntime(clock_, [a_snapshot(FLOW, time_s=5, parallelism={"work": 40})])
    loop = Loop(runtime, [PolicyRun(policy=ScriptedPolicy([moves]))], clock=clock_, journal=journal)
    loop.run(for_s=5)
    assert loop.run_id is not None
    text = as_text(explain(journal, loop.run_id), width=200)
    told = "40 times move, such as move work[0] from n0 to n1: the traffic it saves is worth the moves"
    assert told in text
    assert text.count("decided") == 1


def test_of_many_adjustments_the_first_and_the_last_are_told() -> None:
    lines = [[Shed(reason=Reason(code="test"), operator=EVENTS, keep=k)] for k in (0.9, 0.7, 0.5, 0.3)]
    clock_, journal = FakeClock(), MemoryJournal()
    runtime = RecordingRuntime(clock_, lambda t, d: a_snapshot(FLOW, time_s=t, keep=dict(d["keep"])))
    loop = Loop(runtime, [PolicyRun(policy=ScriptedPolicy(lines))], clock=clock_, journal=journal)
    loop.run(for_s=20)
    assert loop.run_id is not None
    told = [line.text for line in explain(journal, loop.run_id).episodes[0].lines]
    assert told == [
        "keep 90 % of the records at events: a test says so",
        "adjusted 3 times more, at last: keep 30 % of the records at events: a test says so",
    ]


def test_tuning_of_batches_alone_is_quiet() -> None:
    lines = [[Pace(reason=Reason(code="test"), stream="a->b", deadline_s=d)] for d in (0.1, 0.2)]
    clock_, journal = FakeClock(), MemoryJournal()
    runtime = RecordingRuntime(clock_, lambda t, d: a_snapshot(FLOW, time_s=t))
    loop = Loop(runtime, [PolicyRun(policy=ScriptedPolicy(lines))], clock=clock_, journal=journal)
    loop.run(for_s=15)
    assert loop.run_id is not None
    (episode,) = explain(journal, loop.run_id).episodes
    assert episode.title == "all well; load 500/s; on-time 50 ms of 100 ms; batching tuned 2 times"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("latency_s", 0.0214, "21.4 ms"),
        ("latency_s", 0.0000123, "12.3 µs"),
        ("within_s", 45, "45 s"),
        ("within_s", 90.0, "1.5 min"),
        ("within_s", 7200.0, "2 h"),
        ("bound_ms", 20.0, "20 ms"),
        ("bound_ms", 1500.0, "1.5 s"),
        ("rate_rps", 12345.6, "12,300/s"),
        ("state_bytes", 1.5e9, "1.5 GB"),
        ("net_bytes_per_s", 2e6, "2 MB/s"),
        ("backlog_records", 1200, "1,200 records"),
        ("cost_per_hour", 0.48, "0.48 an hour"),
        ("utilisation", 0.931, "93.1 %"),
        ("expected_gain", 0.05, "5 %"),
        ("limit", 8, "8"),
        ("nodes", 3.0, "3"),
        ("score", 0.123456, "0.123"),
        ("anything", None, "unknown"),
        ("anything", True, "yes"),
        ("anything", "text", "text"),
        ("wait_ms", float("inf"), "forever"),
        ("score", float("nan"), "unknown"),
    ],
)
def test_numbers_have_their_units(name: str, value: object, text: str) -> None:
    assert quantity(name, value) == text


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (
            Scale(reason=Reason(code="test"), operator=None, current=2, target=1500),
            "scale from 2 to 1,500 nodes",
        ),
        (
            Shed(reason=Reason(code="test"), operator=EVENTS, target=WORK, keep=0.25),
            "keep 25 % of the records on events->work",
        ),
        (Shed(reason=Reason(code="test"), operator=EVENTS, keep=1.0), "shed nothing more at events"),
        (
            Switch(reason=Reason(code="test"), operator=WORK, current="a", target="b"),
            "switch work from a to b",
        ),
        (Pace(reason=Reason(code="test"), stream="a->b", deadline_s=0.02), "let records wait 20 ms on a->b"),
        (Pace(reason=Reason(code="test"), query="q", deadline_s=2), "start batches of q 2 s apart"),
        (
            Pace(reason=Reason(code="test"), query="q", deadline_s=0),
            "start a batch of q as soon as the one before has ended",
        ),
        (
            Limit(reason=Reason(code="test"), operator=OperatorId("a"), records=1200),
            "let a batch read at most 1,200 records of a",
        ),
        (Acquire(reason=Reason(code="test"), machine="large", count=2), "acquire 2 large"),
        (Release(reason=Reason(code="test"), node="n7"), "release n7"),
    ],
)
def test_actions_in_words(action, text: str) -> None:
    assert action.text == text


def test_time_since_the_start() -> None:
    assert [clock(t) for t in (0, 65, 7265)] == ["+0:00", "+1:05", "+2:01:05"]
