"""The loop, arbitration between policies, the journal, and explanations."""

from penstock.control.brief import Brief
from penstock.control.clocks import WallClock
from penstock.control.damping import Damping
from penstock.control.decision import PolicyRun, Settings, desired_of
from penstock.control.desired import Desired
from penstock.control.explain import Explanation, as_text, explain
from penstock.control.journal import JournalError, Retention, SqliteJournal
from penstock.control.loop import Loop, Subscriber
from penstock.control.plan import NotReadyError, Outcome, Plan, Status
from penstock.control.record import Cycle, Evidence, Latest, Run
from penstock.control.replay import replay

__all__ = [
    "Brief",
    "Cycle",
    "Damping",
    "Desired",
    "Evidence",
    "Explanation",
    "JournalError",
    "Latest",
    "Loop",
    "NotReadyError",
    "Outcome",
    "Plan",
    "PolicyRun",
    "Retention",
    "Run",
    "Settings",
    "SqliteJournal",
    "Status",
    "Subscriber",
    "WallClock",
    "as_text",
    "desired_of",
    "explain",
    "replay",
]
