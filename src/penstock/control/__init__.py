"""The loop, arbitration between policies, the journal, and explanations."""

from penstock.control.arbitration import Arbitration, arbitrate
from penstock.control.brief import Brief
from penstock.control.clocks import WallClock
from penstock.control.damping import Damping
from penstock.control.decision import Decision, PolicyRun, Settings, decide, desired_of
from penstock.control.desired import Desired
from penstock.control.effects import Effect
from penstock.control.explain import Explanation, as_text, explain
from penstock.control.journal import Journal, JournalError, Retention, SqliteJournal
from penstock.control.loop import Loop, Stop, Subscriber
from penstock.control.plan import Clock, NotReadyError, Outcome, Plan, Planned, Runtime, Status, Withheld
from penstock.control.record import Cycle, Evidence, Fault, Latest, Run
from penstock.control.replay import Replayed, replay

__all__ = [
    "Arbitration",
    "Brief",
    "Clock",
    "Cycle",
    "Damping",
    "Decision",
    "Desired",
    "Effect",
    "Evidence",
    "Explanation",
    "Fault",
    "Journal",
    "JournalError",
    "Latest",
    "Loop",
    "NotReadyError",
    "Outcome",
    "Plan",
    "Planned",
    "PolicyRun",
    "Replayed",
    "Retention",
    "Run",
    "Runtime",
    "Settings",
    "SqliteJournal",
    "Status",
    "Stop",
    "Subscriber",
    "WallClock",
    "Withheld",
    "arbitrate",
    "as_text",
    "decide",
    "desired_of",
    "explain",
    "replay",
]
