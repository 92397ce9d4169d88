"""Reasons that only the papers' methods and rivals give."""

from __future__ import annotations

from penstock.policies.reason_kind import ReasonKind
from penstock.policies.reasons import register

REASONS = (
    ReasonKind(
        code="bottleneck",
        sentence="it is a bottleneck, busy {utilisation} of the time",
        meaning="The operator is busy most of the time; its tasks are doubled.",
        area="nephele",
    ),
    ReasonKind(
        code="bottleneck-at-limit",
        sentence="it is a bottleneck and already has the {limit} tasks it may have",
        meaning="A bottleneck cannot grow further.",
        area="nephele",
    ),
    ReasonKind(
        code="fixed-size",
        sentence="that is the fixed size",
        meaning="The size never changes.",
        area="fixed",
    ),
    ReasonKind(
        code="cpu-threshold",
        sentence="its tasks are busy {utilisation} of the time",
        meaning="Tasks in proportion to how busy they are.",
        area="threshold",
    ),
    ReasonKind(
        code="true-processing-rate",
        sentence="that is what the load needs at the true rate of a task",
        meaning="Tasks as DS2 sizes them.",
        area="ds2",
    ),
)
for _kind in REASONS:
    register(_kind)
