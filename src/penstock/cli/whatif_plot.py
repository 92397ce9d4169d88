"""The picture of a what-if: latency and executors over time, as they were and as they would have been."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.extras import optional, require


def draw(found: Mapping[str, Any], folder: Path) -> Path:
    """Write `whatif.svg` into a folder and return where it is. Raise an InputError if that cannot be."""
    require("matplotlib")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--plot {folder}: is a file, not a folder")
    folder.mkdir(parents=True, exist_ok=True)
    figure = optional("matplotlib.figure").Figure(figsize=(9, 5), layout="constrained")
    latency, nodes = figure.subplots(2, 1, sharex=True)
    for label, one in (("what happened", found["actual"]), (found["asked"], found["predicted"])):
        series = one["series"]
        for axes, name, scale in ((latency, "latency_s", 1e3), (nodes, "nodes", 1.0)):
            values = series.get(name)
            if values and any(v is not None for v in values):
                shown = [float("nan") if v is None else scale * v for v in values]
                axes.step(series["time_s"][: len(shown)], shown, where="post", label=label)
    latency.set_ylabel("latency of the first goal, ms")
    nodes.set_ylabel("executors")
    nodes.set_xlabel("seconds")
    latency.legend(frameon=False)
    path = folder / "whatif.svg"
    figure.savefig(path)
    return path
