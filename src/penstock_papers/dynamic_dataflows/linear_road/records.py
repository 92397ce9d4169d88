"""What flows in Linear Road: records as they come in, and the one form that all operators between share."""

from __future__ import annotations

from typing import Any

REPORT, BALANCE, EXPENDITURE, TRAVEL = 0, 2, 3, 4
"""Kinds of record of the benchmark."""
WEATHER = 5
"""Ours: rain on a segment, in per cent, in `speed`."""
STOPPED, MOVED, ACCIDENT, CLEARED = 10, 11, 12, 13
"""Kinds of event that operators tell one another."""

EXIT_LANE = 4
SEGMENTS = 100
SEGMENT_FEET = 5_280
NONE = -1
"""In a column that a kind of record does not use, as in the benchmark's files."""

INPUT = (
    "kind long, time_s long, vehicle long, speed long, xway long, lane long, direction long, segment long, "
    "position long, query long, begin long, end long, weekday long, minute long, day long"
)
"""Columns of the benchmark's files: speeds in mph, positions in feet, times in seconds of the simulation."""
INPUT_NAMES = tuple(column.split(" ")[0] for column in INPUT.split(", "))

EVENT = (
    "kind long, time_s long, vehicle long, speed long, xway long, lane long, direction long, segment long, "
    "position long, query long, begin long, end long, day long, trip long, entered boolean, lav double, "
    "cars long, expected_mph double, toll long, accident long"
)
"""`trip`: running number for the vehicle. `entered`: first report from this segment. `accident`: its segment."""

NOTIFICATION = "kind long, time_s long, vehicle long, segment long, lav double, toll long"
TOLL_NOTICE, ACCIDENT_ALERT = 0, 1
"""Kinds of notification; the segment of an alert is that of the accident."""
ANSWER = "kind long, query long, time_s long, vehicle long, amount long, since_s long"
TRAVEL_TIME = "query long, time_s long, vehicle long, seconds double"

Record = dict[str, Any]


def minute_of(time_s: int) -> int:
    """The minute a time is in, from 0."""
    return time_s // 60


def in_order_of_time(row: Record) -> tuple[int, int]:
    """Sort key: by time; within a second what ends an accident comes before what begins one."""
    kind = row["kind"]
    return (row["time_s"], -kind if kind >= STOPPED else kind)
