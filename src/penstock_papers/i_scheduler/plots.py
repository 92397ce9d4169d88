"""The paper's figures 4 to 9, 12, 13, 16 and 17, drawn from our runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from penstock.policies.placement import Placement
from penstock_papers.i_scheduler.instances import CLUSTERS, SHAPES, Instance
from penstock_papers.i_scheduler.schedules import Schedule

SHOWN = ("default", "i-scheduler", "r-storm", "ols")


def draw(
    instances: list[Instance],
    placements: list[dict[str, Placement]],
    found: dict[tuple[str, str], dict[str, Schedule]],
    folder: Path,
) -> tuple[Path, ...]:
    """Write all plots into a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = (folder / "cost.png", folder / "seconds.png", folder / "throughput.png")
    _by_tasks(instances, placements, "cost", "traffic between nodes", paths[0])
    _by_tasks(instances, placements, "seconds", "CPU time, s", paths[1])
    figure, axes = plt.subplots(1, len(found), figsize=(4 * len(found), 4))
    for axis, ((app, nodes), schedules) in zip(axes, found.items(), strict=True):
        axis.barh(list(schedules), [s.tuples for s in schedules.values()])
        axis.invert_yaxis()
        axis.set_title(f"{app}, {nodes} nodes")
        axis.set_xlabel("tuples per task in 10 s")
    figure.tight_layout()
    _save(figure, paths[2])
    return paths


def _by_tasks(
    instances: list[Instance], placements: list[dict[str, Placement]], what: str, label: str, path: Path
) -> None:
    figure, axes = plt.subplots(len(CLUSTERS), len(SHAPES), figsize=(12, 7), sharex=True)
    for row, cluster in enumerate(CLUSTERS):
        for column, shape in enumerate(SHAPES):
            chosen = [
                (i.tasks, p)
                for i, p in zip(instances, placements, strict=True)
                if (i.shape, i.cluster) == (shape, cluster)
            ]
            for policy in SHOWN:
                values = [getattr(p[policy], what) for _, p in chosen]
                axes[row, column].plot([t for t, _ in chosen], values, marker=".", label=policy)
            axes[row, column].set_title(f"{shape}, {cluster}")
    axes[0, 0].legend()
    axes[1, 1].set_xlabel("tasks")
    figure.supylabel(label)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
