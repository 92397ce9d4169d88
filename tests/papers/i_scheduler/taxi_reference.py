"""DEBS 2015 query 1 in plain Python: every window counted anew."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import Any

Record = dict[str, Any]


def cell(lat: float, lon: float) -> tuple[int, int] | None:
    """(column, row), counted from 1 in the north-west; None outside the grid. Decimal, so that borders are exact."""
    south = Decimal("41.474937") - Decimal(repr(lat))
    east = Decimal(repr(lon)) - Decimal("-74.913585")
    row = math.floor(south / Decimal("0.004491556") + Decimal("0.5")) + 1
    column = math.floor(east / Decimal("0.005986") + Decimal("0.5")) + 1
    return (column, row) if 1 <= row <= 300 and 1 <= column <= 300 else None


def top_routes(trips: list[Record]) -> list[Record]:
    """The list after each second with a drop-off but the last, where it differs from the one before."""
    ended = []
    for trip in trips:
        begin = cell(trip["pickup_lat"], trip["pickup_lon"])
        end = cell(trip["dropoff_lat"], trip["dropoff_lon"])
        if begin and end:
            ended.append((trip["dropoff_s"], begin, end))
    found: list[Record] = []
    before: tuple[list[str], list[int]] = ([], [])
    for now in sorted({time_s for time_s, _, _ in ended})[:-1]:
        window = [trip for trip in ended if now - 1800 < trip[0] <= now]
        counts = Counter((begin, end) for _, begin, end in window)
        last = {(begin, end): time_s for time_s, begin, end in sorted(window)}
        # Routes with equal counts and drop-offs rank by their cells, row by row.
        best = sorted(counts, key=lambda r: (-counts[r], -last[r], r[0][::-1], r[1][::-1]))[:10]
        names = [f"{b[0]}.{b[1]}-{e[0]}.{e[1]}" for b, e in best]
        after = (names, [counts[route] for route in best])
        if after != before:
            found.append({"time_s": now, "routes": after[0], "trips": after[1]})
            before = after
    return found
