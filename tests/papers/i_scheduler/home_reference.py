"""DEBS 2014 query 1 in plain Python, over all readings at once."""

from __future__ import annotations

from collections import defaultdict
from math import fsum
from statistics import median
from typing import Any

Record = dict[str, Any]


def predictions(readings: list[Record], *, slice_s: int = 900) -> list[Record]:
    """All predictions for plugs and houses: for every slice but the last that a plug, or house, has readings of."""
    per_day = 86_400 // slice_s
    values: dict[tuple[int, int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in readings:
        if row["property"] == 1:
            plug = row["house"], row["household"], row["plug"]
            values[plug][row["time_s"] // slice_s].append(round(row["value"] * 1000))
    averages: dict[tuple[int, int, int], dict[int, float]] = {
        plug: {s: sum(v) / len(v) / 1000.0 for s, v in slices.items()} for plug, slices in values.items()
    }
    for house in {plug[0] for plug in values}:
        mine = [slices for plug, slices in averages.items() if plug[0] == house and plug[1] >= 0]
        averages[house, -1, -1] = {
            s: fsum(slices[s] for slices in mine if s in slices) for s in set().union(*mine)
        }
    found = []
    for (house, household, plug), slices in averages.items():
        for s in sorted(slices)[:-1]:
            days = range(s + 2 - per_day, min(slices) - 1, -per_day)
            earlier = [slices[day] for day in days if day in slices][:28]
            load = (slices[s] + median(earlier)) / 2 if earlier else slices[s]
            found.append(
                {"house": house, "household": household, "plug": plug, "slice": s + 2, "load_w": load}
            )
    return found
