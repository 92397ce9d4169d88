"""Runs of several ways in alternated order, each in a process of its own, saved with order, seed and machine.

Ways are compared within one round: a round runs every way once, in an order drawn by its seed, so that a slow hour of a
shared machine meets all of them. Ratios are of the same round; their interval is a bootstrap over rounds.
"""

from __future__ import annotations

import json
import os
import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[str, int], dict[str, Any]]
"""Runs one way with a seed; its figures."""


def rounds(
    ways: Sequence[str],
    run: Run,
    *,
    count: int,
    seed: int,
    save: Path,
    tell: Callable[[str], None],
    most: int | None = None,
) -> list[dict[str, Any]]:
    """Every way `count` times; each result is a line of the file as soon as it is there.

    With `most`, at most so many runs now: what the file has of this seed is taken from there, so that a long trial can
    be run in parts, between which the machine is free for others.
    """
    save.parent.mkdir(parents=True, exist_ok=True)
    results = []
    known = [json.loads(line) for line in save.read_text().splitlines()] if most and save.exists() else []
    have = {(r["seed"], r["way"]): r for r in known}
    for number in range(count):
        order = list(ways)
        random.Random(seed + number).shuffle(order)
        for way in order:
            if (seed + number, way) in have:
                results.append({**have[seed + number, way], "round": number})
                continue
            if most is not None and most <= 0:
                continue
            most = most - 1 if most is not None else None
            tell(f"round {number + 1} of {count}: {way}")
            began_s = time.time()
            result = {
                "round": number,
                "way": way,
                "seed": seed + number,
                "order": order,
                "began_unix": began_s,
                "load_average": os.getloadavg()[0],
                "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
                **run(way, seed + number),
            }
            results.append(result)
            with save.open("a") as file:
                file.write(json.dumps(result) + "\n")
    return results


def compared(results: Sequence[Mapping[str, Any]], figure: str, way: str, beside: str) -> dict[str, float]:
    """`way` over `beside` in the same rounds: the median ratio and its 95 % bootstrap interval."""
    of = {(r["round"], r["way"]): float(r[figure]) for r in results}
    ratios = np.array([of[n, way] / of[n, beside] for n in sorted({r["round"] for r in results})])
    drawn = np.random.default_rng(0).choice(ratios, size=(4000, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return {"ratio": float(np.median(ratios)), "low": float(low), "high": float(high), "rounds": len(ratios)}
